package gateway_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/mcp-portal/mcp-portal/store/storetest"
	"github.com/mcp-portal/mcp-portal/upstreams/upstreamtest"
	"github.com/mcp-portal/mcp-portal/wire"
)

const taskCaps = `{"elicitation":{},"extensions":{"io.modelcontextprotocol/tasks":{}}}`

// taskOf is the id of the task that a result makes.
func taskOf(a answer) string {
	var r struct {
		Result struct {
			TaskID string `json:"taskId"`
			Task   struct {
				TaskID string `json:"taskId"`
			} `json:"task"`
		} `json:"result"`
	}
	_ = json.Unmarshal([]byte(a.Raw), &r)
	return r.Result.TaskID + r.Result.Task.TaskID
}

// Tasks pass in their own era, under ids that mean one task of one server and
// user, with everything else as the server says it.
func TestPairsTasks(t *testing.T) {
	eachPair(t, func(t *testing.T, p pair) {
		if p.modern != (p.era == modern) {
			got := p.client(p.era, "", formCaps, nil).call(p.id+"_job", `{}`, "", nil)
			if got.text() != "done at once\n" { // nobody asked for a task in the server's words
				t.Errorf("%s", got.Raw)
			}
			return
		}
		c := p.client(p.era, "", taskCaps, nil)
		more := ""
		if p.era == legacy {
			more = `"task":{"ttl":60000}`
		}
		made := c.call(p.id+"_job", `{}`, more, nil)
		id := taskOf(made)
		if !strings.HasPrefix(id, "task_") || strings.Contains(made.Raw, `"task-`) || !strings.Contains(made.Raw, `60000.0`) {
			t.Fatalf("%s", made.Raw)
		}
		if other := taskOf(c.call(p.id+"_job", `{}`, more, nil)); other == id || other == "" {
			t.Errorf("two tasks are %q and %q", id, other)
		}
		own := "task-1"
		task := func(method string) answer {
			return c.doAs(t.Context(), string(wire.Encode(c.id.Add(1))), method, `"taskId":"`+id+`"`, map[string]string{"Mcp-Name": id}, nil)
		}
		if got := task("tasks/get"); taskOf(got) != id || !strings.Contains(got.Raw, `"status":"working"`) || !strings.Contains(got.Raw, "60000.0") {
			t.Errorf("%s", got.Raw)
		}
		if p.era == legacy {
			// It asks while its result is waited for; both say which task it is.
			got, questions := c.asks("tasks/result", `"taskId":"`+id+`"`, func(_ string, q json.RawMessage) string {
				return `{"action":"accept","_meta":{"io.modelcontextprotocol/related-task":{"taskId":"` + id + `"}}}`
			})
			if len(questions) != 1 || !strings.Contains(questions[0], `"taskId":"`+id+`"`) || strings.Contains(questions[0], `"task-`) {
				t.Errorf("%q", questions)
			}
			if !strings.Contains(got.Raw, `\"taskId\":\"`+own+`\"`) || !strings.Contains(got.Raw, `related-task":{"taskId":"`+id+`"}`) {
				t.Errorf("the server got its own id, the client its own: %s", got.Raw)
			}
			if got := c.do("tasks/list", "", nil); strings.Count(got.Raw, `"taskId":"task_`) < 2 || !strings.Contains(got.Raw, id) {
				t.Errorf("%s", got.Raw)
			}
		}
		f := c.feed(`{"taskIds":["` + id + `","task_unknown"]}`)
		if p.era == modern {
			f.wait(1, "acknowledged", `"taskIds":["`+id+`"]`)
			if got := c.do("tasks/update", `"taskId":"`+id+`","inputResponses":{"a":{"action":"accept","content":{"n":1.10}}}`, nil); got.Error != nil {
				t.Errorf("%s", got.Raw)
			}
			if seen := p.seen(c); !slices.Contains(seen, `update {"a":{"action":"accept","content":{"n":1.10}}}`) {
				t.Errorf("%q", seen)
			}
		}
		c.call(p.id+"_finish", `{"task":"`+own+`"}`, "", nil)
		if p.era == modern {
			f.wait(1, "notifications/tasks", `"taskId":"`+id+`"`, `"status":"completed"`, `subscriptionId":"listen-1"`)
		} else if p.id == "h25" || p.id == "s25" {
			f.wait(1, "notifications/tasks/status", `"taskId":"`+id+`"`, `"status":"completed"`)
		}
		result := "tasks/get"
		if p.era == legacy {
			result = "tasks/result"
		}
		if got := task(result); !strings.Contains(got.Raw, `"text":"job done"`) || !strings.Contains(got.Raw, `"isError":false`) {
			t.Errorf("%s", got.Raw)
		}
		if got := task("tasks/cancel"); got.Error != nil {
			t.Errorf("%s", got.Raw)
		}
	})
}

// A task of another user is unknown, by the id of its owner and by one that is
// made up for oneself; it is found again after a restart, on any replica.
func TestTasksBelongToTheirUser(t *testing.T) {
	redis := storetest.StartRedis(t)
	eachEra(t, func(t *testing.T, e era) {
		h := upstreamtest.NewFullHTTP(t, e == modern)
		yaml := "store: {redis: " + redis.URL() + "}\n" + "servers: {h: {url: '" + h.URL + "', trust_annotations: true}}\n"
		p, as := company(t, yaml)
		ann, bob := p.client(e, "", taskCaps, as("ann")), p.client(e, "", taskCaps, as("bob"))
		more := ""
		if e == legacy {
			more = `"task":{}`
		}
		id := taskOf(ann.call("h_job", `{}`, more, nil))
		for _, guess := range []string{id, "task-1", "", "task_", strings.ToUpper(id)} {
			for _, method := range []string{"tasks/get", "tasks/cancel"} {
				if got := bob.do(method, `"taskId":"`+guess+`"`, nil); got.Error == nil || got.Error.Code != wire.CodeInvalidParams {
					t.Errorf("%s %q: %s", method, guess, got.Raw)
				}
			}
		}
		if e == legacy {
			if got := bob.do("tasks/list", "", nil); !strings.Contains(got.Raw, `"tasks":[]`) {
				t.Errorf("%s", got.Raw)
			}
		} else if f := bob.feed(`{"taskIds":["` + id + `"]}`); true {
			f.wait(1, "acknowledged")
			if f.count(id) != 0 {
				t.Errorf("%q", f.all())
			}
		}
		for _, s := range h.Seen() {
			if strings.Contains(s, "tasks/") {
				t.Errorf("the server was asked: %s", s)
			}
		}
		if got := ann.do("tasks/get", `"taskId":"`+id+`"`, nil); taskOf(got) != id {
			t.Errorf("its own: %s", got.Raw)
		}
	})
	// Any replica, also one that began later.
	h := upstreamtest.NewFullHTTP(t, false)
	yaml := "store: {redis: " + redis.URL() + "}\nservers: {h: {url: '" + h.URL + "', trust_annotations: true}}\n"
	a := start(t, yaml, nil)
	id := taskOf(a.client(legacy, "", noCaps, nil).call("h_job", `{}`, `"task":{}`, nil))
	a.stop()
	if got := start(t, yaml, nil).client(legacy, "", noCaps, nil).do("tasks/get", `"taskId":"`+id+`"`, nil); taskOf(got) != id {
		t.Errorf("another process: %s", got.Raw)
	}
}

// Tasks of two servers with the same id are two tasks.
func TestTasksOfTwoServers(t *testing.T) {
	a, b := upstreamtest.NewFullHTTP(t, false), upstreamtest.NewFullHTTP(t, false)
	p := start(t, "servers: {a: {url: '"+a.URL+"', trust_annotations: true}, b: {url: '"+b.URL+"', trust_annotations: true}}\n", nil)
	c := p.client(legacy, "", noCaps, nil)
	ofA, ofB := taskOf(c.call("a_job", `{}`, `"task":{}`, nil)), taskOf(c.call("b_job", `{}`, `"task":{}`, nil))
	if ofA == ofB {
		t.Fatalf("both are %s", ofA)
	}
	c.do("tasks/cancel", `"taskId":"`+ofA+`"`, nil)
	if !slices.Contains(a.Seen(), "tasks/cancel task-1") || slices.Contains(b.Seen(), "tasks/cancel task-1") {
		t.Errorf("%q %q", a.Seen(), b.Seen())
	}
	if got := c.do("tasks/list", "", nil); !strings.Contains(got.Raw, `"taskId":"`+ofA+`","status":"cancelled"`) || !strings.Contains(got.Raw, `"taskId":"`+ofB+`","status":"working"`) {
		t.Errorf("%s", got.Raw)
	}
}

// A 2026-07-28 client must declare the extension to use tasks.
func TestTasksMustBeDeclared(t *testing.T) {
	h := upstreamtest.NewFullHTTP(t, true)
	p := start(t, "servers: {h: {url: '"+h.URL+"'}}\n", nil)
	c := p.client(modern, "", formCaps, nil)
	for _, got := range []answer{c.do("tasks/get", `"taskId":"x"`, nil), c.do("tasks/cancel", `"taskId":"x"`, nil), c.do("tasks/update", `"taskId":"x","inputResponses":{}`, nil),
		c.do("subscriptions/listen", `"notifications":{"taskIds":["x"]}`, nil)} {
		if got.Status != 400 || got.Error == nil || got.Error.Code != wire.CodeMissingCapability || !strings.Contains(string(got.Error.Data), `"io.modelcontextprotocol/tasks":{}`) {
			t.Errorf("%d %s", got.Status, got.Raw)
		}
	}
	for _, method := range []string{"tasks/list", "tasks/result"} {
		if got := p.client(modern, "", taskCaps, nil).do(method, `"taskId":"x"`, nil); got.Status != 404 {
			t.Errorf("%s in 2026: %d %s", method, got.Status, got.Raw)
		}
	}
}

// A call that becomes a task is guarded when it is made: nothing begins without
// a yes, and the yes carries how long the task is kept and nothing else.
func TestTasksAreGuarded(t *testing.T) {
	h := upstreamtest.NewFullHTTP(t, false)
	p := start(t, "servers: {h: {url: '"+h.URL+"', trust_annotations: true}}\n", nil)
	c := p.client(legacy, "", formCaps, nil)
	got := c.call("h_ruin", `{}`, `"task":{"ttl":5000,"more":1}`, func(q question) { go q.reply(`{"action":"decline"}`) })
	if !strings.Contains(got.text(), "Denied") || slices.Contains(h.Seen(), "ruin") {
		t.Fatalf("%s", got.Raw)
	}
	got = c.call("h_ruin", `{"again":1}`, `"task":{"ttl":5000,"more":1}`, always)
	if taskOf(got) == "" || !slices.Contains(h.Seen(), "ruin") {
		t.Fatalf("%s", got.Raw)
	}
	for _, r := range h.Requests() {
		if r.Method == "tools/call" && !strings.Contains(string(r.Params), `"task":{"ttl":5000}`) {
			t.Errorf("%s", r.Params)
		}
	}
}
