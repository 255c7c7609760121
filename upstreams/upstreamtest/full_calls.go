package upstreamtest

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"

	"github.com/mcp-portal/mcp-portal/wire"
)

func textResult(s *FullSession, text string) string {
	return s.complete(`"content":[{"type":"text","text":` + string(wire.Quote(text)) + `}]`)
}

// call is tools/call.
func (s *FullSession) call(m wire.Message, params wire.Object, out func(string), ended <-chan struct{}) (string, *wire.Error) {
	f := s.full
	args, _ := wire.ParseObject(params.Get("arguments"))
	notify := func(method, params string) {
		out(`{"jsonrpc":"2.0","method":"` + method + `","params":` + params + `}`)
	}
	switch name := params.String("name"); name {
	case "echo", "ruin":
		if name == "ruin" {
			f.note("ruin")
			if params.Get("task") != nil {
				return s.create(), nil
			}
		}
		return s.complete(`"content":[],"structuredContent":{"params":` + string(m.Params) + `}`), nil
	case "raw":
		return args.String("result"), nil
	case "fail":
		return "", &wire.Error{Code: -31999, Message: "on purpose <&>", Data: args.Get("data")}
	case "ask":
		return s.asking(params, string(args.Get("asks")), out, ended, func(a string) string { return textResult(s, a) })
	case "withdraw":
		id := s.question()
		out(`{"jsonrpc":"2.0","id":` + string(wire.Quote(id)) + `,"method":"elicitation/create","params":{"message":"never mind","requestedSchema":{"type":"object","properties":{}}}}`)
		s.mu.Lock()
		delete(s.asked, id) // an answer now is one too many
		s.mu.Unlock()
		notify("notifications/cancelled", `{"requestId":`+string(wire.Quote(id))+`}`)
		return textResult(s, "withdrawn"), nil
	case "complete":
		notify("notifications/elicitation/complete", `{"elicitationId":`+string(args.Get("id"))+`}`)
		return textResult(s, "done"), nil
	case "progress":
		n, _ := strconv.Atoi(string(args.Get("n")))
		if token := wire.Meta(m.Params, wire.MetaProgressToken); token != nil {
			for i := range n {
				notify("notifications/progress", fmt.Sprintf(`{"progressToken":%s,"progress":%d,"total":1.50,"vendor":{"b":1,"a":2}}`, token, i))
			}
		}
		return textResult(s, "done"), nil
	case "log":
		var level string
		_ = json.Unmarshal(wire.Meta(m.Params, wire.MetaLogLevel), &level)
		if !f.Modern {
			level = s.level
		}
		f.note("log at %q", level)
		for _, l := range wire.LogLevels() {
			if wire.LogRank(l) >= wire.LogRank(level) && (level != "" || !f.Modern) {
				notify("notifications/message", `{"level":"`+l+`","logger":"full","data":{"z":1.10,"a":12345678901234567890}}`)
			}
		}
		return textResult(s, "done"), nil
	case "vendor":
		notify("notifications/vendor/thing", `{"big":1e400,"b":1,"a":2}`)
		return textResult(s, "done"), nil
	case "hang":
		f.note("hangs")
		select {
		case <-ended:
			if f.Modern {
				f.note("cancelled")
			}
		case <-s.stopped(m.ID):
		}
		return textResult(s, "stopped"), nil
	case "touch":
		uri := args.String("uri")
		f.eachOut(func(o *FullSession) bool { return o.subs[uri] }, func(l *fullListen) bool { return slices.Contains(l.subs, uri) },
			"notifications/resources/updated", wire.Object{{Key: "uri", Value: wire.Quote(uri)}, {Key: "vendor", Value: json.RawMessage(`1.10`)}})
		return textResult(s, "touched"), nil
	case "grow":
		f.mu.Lock()
		f.grown++
		f.mu.Unlock()
		f.eachOut(func(*FullSession) bool { return true }, func(l *fullListen) bool { return l.lists }, "notifications/tools/list_changed", wire.Object{})
		return textResult(s, "grown"), nil
	case "seen":
		return textResult(s, string(wire.Encode(f.Seen()))), nil
	case "caps":
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.complete(`"content":[],"structuredContent":{"caps":` + string(s.caps) + `,"info":` + string(s.info) + `}`), nil
	case "job":
		ext, _ := wire.ParseObject(s.caps)
		extensions, _ := wire.ParseObject(ext.Get("extensions"))
		if f.Modern && extensions.Get("io.modelcontextprotocol/tasks") != nil || !f.Modern && params.Get("task") != nil {
			return s.create(), nil
		}
		return textResult(s, "done at once"), nil
	case "finish":
		id := args.String("task")
		f.mu.Lock()
		f.tasks[id] = "completed"
		f.mu.Unlock()
		if f.Modern {
			f.eachOut(func(*FullSession) bool { return false }, func(l *fullListen) bool { return slices.Contains(l.tasks, id) }, "notifications/tasks", s.detail(id))
		} else {
			f.eachOut(func(*FullSession) bool { return true }, func(*fullListen) bool { return false }, "notifications/tasks/status", s.detail(id))
		}
		return textResult(s, "finished"), nil
	}
	return textResult(s, "ran "+params.String("name")), nil
}

func (s *FullSession) question() string {
	s.full.mu.Lock()
	s.full.nextID++
	id := "q" + strconv.Itoa(s.full.nextID)
	s.full.mu.Unlock()
	s.mu.Lock()
	s.asked[id] = make(chan wire.Message, 1)
	s.mu.Unlock()
	return id
}

// asking puts questions in the way of the era and ends with done(answers).
func (s *FullSession) asking(params wire.Object, asks string, out func(string), ended <-chan struct{}, done func(string) string) (string, *wire.Error) {
	var list []struct {
		Method string          `json:"method"`
		Params json.RawMessage `json:"params"`
	}
	if err := json.Unmarshal([]byte(asks), &list); err != nil {
		return "", wire.Errorf(wire.CodeInvalidParams, "asks: %v", err)
	}
	if s.full.Modern {
		if params.String("requestState") == "st" {
			return done(string(params.Get("inputResponses"))), nil
		}
		var reqs wire.Object
		for i, q := range list {
			reqs = append(reqs, wire.Field{Key: fmt.Sprint("k", i), Value: wire.Encode(q)})
		}
		return `{"resultType":"input_required","inputRequests":` + string(reqs.Bytes()) + `,"requestState":"st"}`, nil
	}
	var answers wire.Object
	for i, q := range list {
		id := s.question()
		s.mu.Lock()
		ch := s.asked[id]
		s.mu.Unlock()
		out(`{"jsonrpc":"2.0","id":` + string(wire.Quote(id)) + `,"method":"` + q.Method + `","params":` + string(q.Params) + `}`)
		select {
		case a := <-ch:
			v := a.Result
			if a.Error != nil {
				v = wire.Encode(a.Error)
			}
			answers = append(answers, wire.Field{Key: fmt.Sprint("k", i), Value: v})
		case <-ended:
			return "", wire.Errorf(wire.CodeInternal, "gone")
		}
	}
	return done(string(answers.Bytes())), nil
}

// create makes a task.
func (s *FullSession) create() string {
	f := s.full
	f.mu.Lock()
	id := fmt.Sprint("task-", len(f.tasks)+1) // easy to guess, so that tests can try
	f.tasks[id] = "working"
	f.mu.Unlock()
	if f.Modern {
		return string(append(wire.Object{{Key: "resultType", Value: wire.Quote("task")}}, s.detail(id)...).Bytes())
	}
	return `{"task":` + string(s.detail(id).Bytes()) + `,"_meta":{"vendor/z":1.10}}`
}

// detail is a task as the era shows it.
func (s *FullSession) detail(id string) wire.Object {
	f := s.full
	f.mu.Lock()
	status := f.tasks[id]
	f.mu.Unlock()
	o := wire.Object{{Key: "taskId", Value: wire.Quote(id)}, {Key: "status", Value: wire.Quote(status)},
		{Key: "createdAt", Value: wire.Quote("2026-01-01T00:00:00Z")}, {Key: "lastUpdatedAt", Value: wire.Quote("2026-01-01T00:00:00Z")}}
	if !f.Modern {
		return append(o, wire.Field{Key: "ttl", Value: json.RawMessage(`60000.0`)})
	}
	o = append(o, wire.Field{Key: "ttlMs", Value: json.RawMessage(`60000.0`)})
	if status == "completed" {
		o = append(o, wire.Field{Key: "result", Value: json.RawMessage(`{"content":[{"type":"text","text":"job done"}],"isError":false}`)})
	}
	return o
}

// task is tasks/*.
func (s *FullSession) task(method string, params wire.Object, out func(string), ended <-chan struct{}) (string, *wire.Error) {
	f := s.full
	id := params.String("taskId")
	f.mu.Lock()
	status, known := f.tasks[id]
	f.mu.Unlock()
	f.note("%s %s", method, id)
	switch {
	case method == "tasks/list" && !f.Modern:
		f.mu.Lock()
		n := len(f.tasks)
		f.mu.Unlock()
		var all []json.RawMessage
		for i := range n {
			all = append(all, s.detail(fmt.Sprint("task-", i+1)).Bytes())
		}
		return `{"tasks":` + string(wire.Encode(all)) + `}`, nil
	case !known:
		return "", wire.Errorf(wire.CodeInvalidParams, "Task not found: %s", id)
	case method == "tasks/get":
		return s.complete(string(trimBraces(s.detail(id).Bytes()))), nil
	case method == "tasks/result" && !f.Modern:
		related := `"_meta":{"io.modelcontextprotocol/related-task":{"taskId":` + string(wire.Quote(id)) + `}}`
		if status != "completed" {
			// The task needs its user: it asks while its result is waited for.
			a, e := s.asking(params, `[{"method":"elicitation/create","params":{"message":"task?","requestedSchema":{"type":"object","properties":{}},`+related+`}}]`, out, ended, func(a string) string { return a })
			if e != nil {
				return "", e
			}
			return `{"content":[{"type":"text","text":` + string(wire.Quote(a)) + `}],` + related + `}`, nil
		}
		return `{"content":[{"type":"text","text":"job done"}],"isError":false,` + related + `}`, nil
	case method == "tasks/cancel":
		f.mu.Lock()
		f.tasks[id] = "cancelled"
		f.mu.Unlock()
		if f.Modern {
			return `{"resultType":"complete"}`, nil
		}
		return string(s.detail(id).Bytes()), nil
	case method == "tasks/update" && f.Modern:
		f.note("update %s", params.Get("inputResponses"))
		return `{"resultType":"complete"}`, nil
	}
	return "", wire.Errorf(wire.CodeMethodNotFound, "unknown method %s", method)
}

func trimBraces(b []byte) []byte { return b[1 : len(b)-1] }
