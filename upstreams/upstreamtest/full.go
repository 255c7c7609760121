package upstreamtest

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/mcp-portal/mcp-portal/wire"
)

// Full is a server that uses every feature of its era, the same over every
// transport: FullHTTP, FullSSE and FullStdio.
//
// Its tools:
//
//	echo             params as they arrived, in structuredContent
//	raw {result}     the text of result as the result, byte for byte
//	fail {data}      an error with the data
//	ask {asks}       puts each of asks ({method, params}) to the client, one
//	                 after the other (2025) or all at once (2026-07-28), and
//	                 returns the answers
//	withdraw         asks, takes the question back, and returns (2025)
//	complete {id}    sends notifications/elicitation/complete, during the call
//	progress {n}     n notices of progress, then returns
//	log              one message of each level, then returns
//	vendor           a notification nobody knows, then returns
//	hang             until cancelled
//	touch {uri}      tells the subscribers that a resource was updated
//	grow             one tool more, announced
//	seen             what arrived besides calls: levels, cancellations, …
//	caps             what the client declared
//	job              a task, where the client asks for one (2025) or may be
//	                 given one (2026-07-28); finished by finish {task}
//	finish {task}    ends a task
type Full struct {
	Modern bool
	Extra  []json.RawMessage // tools beside its own, which do nothing

	mu       sync.Mutex
	sessions map[*FullSession]struct{}
	grown    int
	seen     []string
	tasks    map[string]string // status by id
	nextID   int
	hanging  map[string]chan struct{} // by session and request id
}

// FullSession is one client of a Full server: a session (2025), a pipe, or one
// request (2026-07-28).
type FullSession struct {
	full *Full
	name string
	caps json.RawMessage
	info json.RawMessage
	// out takes what belongs to no call; nil while there is no stream for it.
	out func(string)

	mu      sync.Mutex
	asked   map[string]chan wire.Message
	subs    map[string]bool
	listens map[string]*fullListen
	level   string
}

type fullListen struct {
	id    json.RawMessage
	subs  []string
	tasks []string
	lists bool
	out   func(string)
}

// NewFull makes a server.
func NewFull(modern bool) *Full {
	return &Full{Modern: modern, sessions: map[*FullSession]struct{}{}, tasks: map[string]string{}, hanging: map[string]chan struct{}{}}
}

// Session makes a session of the server.
func (f *Full) Session(out func(string)) *FullSession {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.nextID++
	s := &FullSession{full: f, name: fmt.Sprint("s", f.nextID), out: out, asked: map[string]chan wire.Message{}, subs: map[string]bool{}, listens: map[string]*fullListen{}}
	f.sessions[s] = struct{}{}
	return s
}

// End ends a session.
func (f *Full) End(s *FullSession) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.sessions, s)
}

func (f *Full) note(format string, args ...any) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.seen = append(f.seen, fmt.Sprintf(format, args...))
}

// Seen is what arrived besides calls.
func (f *Full) Seen() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.seen)
}

// Sessions is how many there are.
func (f *Full) Sessions() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.sessions)
}

// eachOut calls send for the streams that wait for what belongs to no call.
func (f *Full) eachOut(want func(*FullSession) bool, listen func(*fullListen) bool, method string, params wire.Object) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for s := range f.sessions {
		s.mu.Lock()
		if s.out != nil && !f.Modern && want(s) {
			s.out(string(wire.Message{Method: method, Params: params.Bytes()}.Bytes()))
		}
		for _, l := range s.listens {
			if listen(l) {
				meta := wire.Object{{Key: wire.MetaSubscriptionID, Value: l.id}}
				l.out(string(wire.Message{Method: method, Params: append(params, wire.Field{Key: "_meta", Value: meta.Bytes()}).Bytes()}.Bytes()))
			}
		}
		s.mu.Unlock()
	}
}

// Broadcast sends a notification to every session with a stream (2025).
func (f *Full) Broadcast(method, params string) {
	o, _ := wire.ParseObject([]byte(params))
	f.eachOut(func(*FullSession) bool { return true }, func(*fullListen) bool { return false }, method, o)
}

const (
	fullLegacyCaps = `{"tools":{"listChanged":true},"prompts":{"listChanged":true},"resources":{"listChanged":true,"subscribe":true},"completions":{},"logging":{},"tasks":{"list":{},"cancel":{},"requests":{"tools":{"call":{}}}},"experimental":{"vendor/x":{"y":1}}}`
	fullModernCaps = `{"tools":{"listChanged":true},"prompts":{"listChanged":true},"resources":{"listChanged":true,"subscribe":true},"completions":{},"logging":{},"extensions":{"io.modelcontextprotocol/tasks":{},"io.modelcontextprotocol/ui":{}}}`
)

// Request answers one request: notices and questions of the call go to out, in
// order, before the result that is returned. ended is closed when the client
// has gone.
func (s *FullSession) Request(m wire.Message, out func(string), ended <-chan struct{}) (result string, e *wire.Error) {
	f := s.full
	params, _ := wire.ParseObject(m.Params)
	if f.Modern {
		s.mu.Lock()
		s.caps, s.info = wire.Meta(m.Params, wire.MetaClientCapabilities), wire.Meta(m.Params, wire.MetaClientInfo)
		s.mu.Unlock()
	}
	switch m.Method {
	case "server/discover":
		if f.Modern {
			return `{"resultType":"complete","supportedVersions":["2026-07-28"],"capabilities":` + fullModernCaps + `,"ttlMs":0,"cacheScope":"public","_meta":{"io.modelcontextprotocol/serverInfo":{"name":"full","version":"1"}}}`, nil
		}
	case "initialize":
		if !f.Modern {
			s.caps, s.info = params.Get("capabilities"), params.Get("clientInfo")
			return `{"protocolVersion":"2025-11-25","capabilities":` + fullLegacyCaps + `,"serverInfo":{"name":"full","version":"1"}}`, nil
		}
		return "", &wire.Error{Code: wire.CodeUnsupportedVersion, Message: "use 2026-07-28", Data: json.RawMessage(`{"supported":["2026-07-28"]}`)}
	case "ping":
		return `{}`, nil
	case "logging/setLevel":
		s.level = params.String("level")
		f.note("level %s", s.level)
		return `{}`, nil
	case "tools/list":
		return s.complete(`"tools":[` + strings.Join(f.tools(), ",") + `]`), nil
	case "prompts/list":
		return s.complete(`"prompts":[{"name":"hello","arguments":[{"name":"who"}]},{"name":"ask","arguments":[]}]`), nil
	case "resources/list":
		return s.complete(`"resources":[{"uri":"mem://a","name":"a"},{"uri":"mem://ask","name":"ask"},{"uri":"ui://app/main.html","name":"app","mimeType":"text/html;profile=mcp-app"}]`), nil
	case "resources/templates/list":
		return s.complete(`"resourceTemplates":[{"uriTemplate":"mem://t/{x}","name":"t"}]`), nil
	case "completion/complete":
		return s.complete(`"completion":{"values":["v"],"total":1,"hasMore":false},"params":` + string(m.Params)), nil
	case "prompts/get":
		if params.String("name") == "ask" {
			return s.asking(params, `[{"method":"elicitation/create","params":{"message":"prompt?","requestedSchema":{"type":"object","properties":{}}}}]`, out, ended, func(a string) string {
				return s.complete(`"messages":[{"role":"user","content":{"type":"text","text":` + string(wire.Quote(a)) + `}}]`)
			})
		}
		return s.complete(`"messages":[],"params":` + string(m.Params)), nil
	case "resources/read":
		uri := params.String("uri")
		if uri == "mem://ask" {
			return s.asking(params, `[{"method":"elicitation/create","params":{"message":"resource?","requestedSchema":{"type":"object","properties":{}}}}]`, out, ended, func(a string) string {
				return s.complete(`"contents":[{"uri":"mem://ask","text":` + string(wire.Quote(a)) + `}],"ttlMs":7,"cacheScope":"private"`)
			})
		}
		return s.complete(`"contents":[{"uri":` + string(wire.Quote(uri)) + `,"text":"of full","size":1.50}],"ttlMs":60000,"cacheScope":"private"`), nil
	case "resources/subscribe", "resources/unsubscribe":
		if f.Modern {
			break
		}
		if strings.HasSuffix(params.String("uri"), "/refused") {
			return "", wire.Errorf(wire.CodeInvalidParams, "no subscription to that")
		}
		s.mu.Lock()
		s.subs[params.String("uri")] = m.Method == "resources/subscribe"
		s.mu.Unlock()
		f.note("%s %s", strings.TrimPrefix(m.Method, "resources/"), params.String("uri"))
		return `{}`, nil
	case "subscriptions/listen":
		if f.Modern {
			return s.listen(m, params, out, ended)
		}
	case "tasks/get", "tasks/result", "tasks/cancel", "tasks/list", "tasks/update":
		return s.task(m.Method, params, out, ended)
	case "tools/call":
		return s.call(m, params, out, ended)
	}
	return "", wire.Errorf(wire.CodeMethodNotFound, "unknown method %s", m.Method)
}

// complete is a result of the era with the members.
func (s *FullSession) complete(members string) string {
	if s.full.Modern {
		return `{"resultType":"complete",` + members + `}`
	}
	return `{` + members + `}`
}

func (f *Full) tools() []string {
	var out []string
	for _, n := range []string{"echo", "raw", "fail", "ask", "withdraw", "complete", "progress", "log", "vendor", "hang", "touch", "grow", "seen", "caps", "finish"} {
		out = append(out, `{"name":"`+n+`","inputSchema":{"type":"object","properties":{}},"annotations":{"readOnlyHint":true}}`)
	}
	out = append(out, `{"name":"job","inputSchema":{"type":"object","properties":{}},"annotations":{"readOnlyHint":true},"execution":{"taskSupport":"optional"}}`,
		`{"name":"app","inputSchema":{"type":"object","properties":{}},"annotations":{"readOnlyHint":true},"_meta":{"ui":{"resourceUri":"ui://app/main.html","visibility":["model"]},"ui/resourceUri":"ui://app/main.html"}}`,
		`{"name":"ruin","inputSchema":{"type":"object","properties":{}},"annotations":{"destructiveHint":true},"execution":{"taskSupport":"optional"}}`)
	f.mu.Lock()
	defer f.mu.Unlock()
	for i := range f.grown {
		out = append(out, fmt.Sprintf(`{"name":"grown%d","inputSchema":{"type":"object","properties":{}}}`, i))
	}
	for _, t := range f.Extra {
		out = append(out, string(t))
	}
	return out
}

// Notification takes a notification of the client.
func (s *FullSession) Notification(m wire.Message) {
	params, _ := wire.ParseObject(m.Params)
	switch m.Method {
	case "notifications/cancelled":
		id := string(params.Get("requestId"))
		s.full.note("cancelled")
		s.stop(id)
	case "notifications/initialized":
	default:
		s.full.note("%s", strings.TrimPrefix(m.Method, "notifications/"))
	}
}

// stop ends what hangs, or listens, under a request id.
func (s *FullSession) stop(id string) {
	s.full.mu.Lock()
	ch := s.full.hanging[s.name+" "+id]
	delete(s.full.hanging, s.name+" "+id)
	s.full.mu.Unlock()
	if ch != nil {
		close(ch)
	}
}

// stopped is closed when the request id is cancelled.
func (s *FullSession) stopped(id json.RawMessage) <-chan struct{} {
	ch := make(chan struct{})
	s.full.mu.Lock()
	s.full.hanging[s.name+" "+string(id)] = ch
	s.full.mu.Unlock()
	return ch
}

// Answer takes the client's answer to a question.
func (s *FullSession) Answer(m wire.Message) {
	var id string
	_ = json.Unmarshal(m.ID, &id)
	s.mu.Lock()
	ch := s.asked[id]
	delete(s.asked, id)
	s.mu.Unlock()
	if ch != nil {
		ch <- m
	} else {
		s.full.note("stray answer %s", m.Bytes())
	}
}

func (s *FullSession) listen(m wire.Message, params wire.Object, out func(string), ended <-chan struct{}) (string, *wire.Error) {
	var want struct {
		Tools     bool     `json:"toolsListChanged"`
		Resources []string `json:"resourceSubscriptions"`
		Tasks     []string `json:"taskIds"`
	}
	_ = json.Unmarshal(params.Get("notifications"), &want)
	l := &fullListen{id: m.ID, subs: want.Resources, tasks: want.Tasks, lists: want.Tools, out: out}
	l.subs = slices.DeleteFunc(l.subs, func(u string) bool { return strings.HasSuffix(u, "/refused") })
	agreed := wire.Object{{Key: "toolsListChanged", Value: wire.Encode(want.Tools)}}
	if len(want.Resources) > 0 {
		agreed = append(agreed, wire.Field{Key: "resourceSubscriptions", Value: wire.Encode(append([]string{}, l.subs...))})
	}
	if len(want.Tasks) > 0 {
		agreed = append(agreed, wire.Field{Key: "taskIds", Value: wire.Encode(want.Tasks)})
	}
	stop := s.stopped(m.ID)
	s.mu.Lock()
	s.listens[string(m.ID)] = l
	s.mu.Unlock()
	out(string(wire.Message{Method: "notifications/subscriptions/acknowledged", Params: wire.Object{
		{Key: "notifications", Value: agreed.Bytes()}, {Key: "_meta", Value: wire.Object{{Key: wire.MetaSubscriptionID, Value: m.ID}}.Bytes()}}.Bytes()}.Bytes()))
	for _, u := range l.subs {
		s.full.note("subscribe %s", u)
	}
	select {
	case <-ended:
	case <-stop:
	}
	s.mu.Lock()
	delete(s.listens, string(m.ID))
	s.mu.Unlock()
	for _, u := range l.subs {
		s.full.note("unsubscribe %s", u)
	}
	return `{"resultType":"complete","_meta":{"io.modelcontextprotocol/subscriptionId":` + string(m.ID) + `}}`, nil
}
