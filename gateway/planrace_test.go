package gateway_test

import (
	"context"
	"encoding/json"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/mcp-portal/mcp-portal/store"
	"github.com/mcp-portal/mcp-portal/store/storetest"
	"github.com/mcp-portal/mcp-portal/upstreams/upstreamtest"
)

// late is a store in which a replica has read how far a plan is, once, and is
// slow to read on.
type late struct {
	store.Store
	mu   sync.Mutex
	seen int
	read chan struct{} // closed after the first look
	goOn chan struct{} // closed to let the second one through
}

func (s *late) Get(ctx context.Context, key string) ([]byte, bool, error) {
	if strings.HasPrefix(key, "plan-progress:") {
		s.mu.Lock()
		s.seen++
		n := s.seen
		s.mu.Unlock()
		if n == 2 {
			close(s.read)
			<-s.goOn
		}
	}
	return s.Store.Get(ctx, key)
}

// Two replicas that begin to apply one plan at the same moment: one does, and
// the other says so. It does not take the step that is being sent for one of a
// process that died.
func TestPlanIsAppliedByOneOfTwoReplicas(t *testing.T) {
	redis := storetest.StartRedis(t)
	arrived, reply := make(chan struct{}), make(chan struct{})
	v := serve(t, upstreamtest.Legacy, func(c *upstreamtest.Call) bool {
		if c.Name() == "kill" && c.Arguments().String("id") == "a" {
			close(arrived)
			<-reply
		}
		return false
	})
	yaml := "store: {redis: " + redis.URL() + "}\n" + trusted(v) + planWrites
	slow := &late{read: make(chan struct{}), goOn: make(chan struct{})}
	a := start(t, yaml, nil)
	b := start(t, yaml, func(s store.Store) store.Store { slow.Store = s; return slow })
	ca, cb := a.client(legacy, twoTools, noCaps, nil), b.client(legacy, twoTools, noCaps, nil)
	id := planIDs.FindString(ca.code(`await s.kill({id: 'a'}); await s.kill({id: 'b'}); return 'all'`, "", nil).text())
	a.decidePlan(id, "approve", "0", "1")

	second, first := make(chan answer, 1), make(chan answer, 1)
	go func() { second <- cb.plan(id) }()
	<-slow.read
	go func() { first <- ca.plan(id) }()
	<-arrived
	close(slow.goOn)
	if got := <-second; !strings.Contains(got.text(), "being applied just now by another process") {
		t.Errorf("the second replica: %s", got.Raw)
	}
	close(reply)
	if got := <-first; !strings.Contains(got.text(), "2 done") {
		t.Errorf("the first replica: %s", got.Raw)
	}
	if got := ids(v, "kill"); !slices.Equal(got, []string{"a", "b"}) {
		t.Errorf("sent %q", got)
	}
}

// A rule that comes while a plan is being applied counts for the steps that are
// still to be sent, and a rule that comes while one is being taken back for the
// inverse calls.
func TestRulesThatComeWhileAPlanIsApplied(t *testing.T) {
	gate := func() {}
	v := serveWith(t, upstreamtest.Options{Tools: []json.RawMessage{toolDef("put", `{"readOnlyHint":false,"destructiveHint":false}`), toolDef("kill", destructive)}}, func(c *upstreamtest.Call) bool {
		if c.Arguments().String("id") == "gate" {
			gate()
		}
		return false
	})
	undo := "    tools: {kill: {undo: {with: put, args: {id: args.id}}}}\n"
	p := start(t, trusted(v)+undo+planWrites, nil)
	c := p.client(legacy, twoTools, noCaps, nil)
	id := planIDs.FindString(c.code(`await s.put({id: 'gate'}); await s.kill({id: 'b'}); await s.put({id: 'c'})`, "", nil).text())
	p.decidePlan(id, "approve", "0", "1", "2")
	gate = func() {
		p.reload(trusted(v) + undo + strings.Replace(planWrites, "rules: [", "rules: [{name: stop, tools: [kill], action: deny}, ", 1))
	}
	got := c.plan(id)
	if len(ids(v, "kill")) != 0 || !strings.Contains(got.text(), "stop") || !slices.Equal(ids(v, "put"), []string{"gate"}) {
		t.Errorf("kill %q, put %q: %s", ids(v, "kill"), ids(v, "put"), got.Raw)
	}

	gate = func() {}
	p.reload(trusted(v) + undo + planWrites)
	id = planIDs.FindString(c.code(`await s.kill({id: 'first'}); await s.kill({id: 'gate'})`, "", nil).text())
	p.decidePlan(id, "approve", "0", "1")
	if got := c.plan(id); !strings.Contains(got.text(), "2 done") {
		t.Fatalf("%s", got.Raw)
	}
	before := len(ids(v, "put"))
	gate = func() {
		p.reload(trusted(v) + undo + strings.Replace(planWrites, "rules: [", "rules: [{name: stop, tools: [put], action: deny}, ", 1))
	}
	p.submit("/plans/"+id, "/plans/"+id+"/undo", "decision=undo")
	if got := ids(v, "put")[before:]; !slices.Equal(got, []string{"gate"}) {
		t.Errorf("taken back %q after a rule that denies", got)
	}
}

// meeting is a store at which equal calls meet: each has looked whether there is
// a plan of the call before one of them makes it.
type meeting struct {
	store.Store
	all  sync.WaitGroup
	mu   sync.Mutex
	left int
}

func (s *meeting) Get(ctx context.Context, key string) ([]byte, bool, error) {
	raw, ok, err := s.Store.Get(ctx, key)
	if strings.HasPrefix(key, "plan-of-") {
		s.mu.Lock()
		wait := s.left > 0
		s.left--
		s.mu.Unlock()
		if wait {
			s.all.Done()
			s.all.Wait()
		}
	}
	return raw, ok, err
}

// Equal calls that meet share one plan, and a tab that decides on what was
// decided in another one is told so.
func TestEqualCallsShareOnePlan(t *testing.T) {
	v := serve(t, upstreamtest.Legacy, nil)
	s := &meeting{left: 4}
	s.all.Add(4)
	p := start(t, trusted(v)+planWrites, func(st store.Store) store.Store { s.Store = st; return s })
	c := p.client(legacy, "", noCaps, nil)
	got := make(chan answer, 4)
	for range 4 {
		go func() { got <- c.call("s_kill", `{"id":"1"}`, "", nil) }()
	}
	plans := map[string]bool{}
	for range 4 {
		plans[planIDs.FindString((<-got).text())] = true
	}
	if len(plans) != 1 || plans[""] {
		t.Fatalf("one call has the plans %v", plans)
	}
	other := planIDs.FindString(c.call("s_kill", `{"id":"2"}`, "", nil).text()) // its page has a form
	for id := range plans {
		if _, page := p.get("/approvals"); strings.Count(page, "Plan of 1 call") != 2 {
			t.Errorf("the list has %d plans", strings.Count(page, "Plan of 1 call"))
		}
		waiting := regexp.MustCompile(`class="count"[^>]*>(\d+)`)
		if _, page := p.get("/"); !strings.HasSuffix(waiting.FindString(page), ">2") {
			t.Errorf("two plans wait, the pages say %q", waiting.FindString(page))
		}
		p.decidePlan(id, "approve", "0")
		if _, page := p.get("/"); !strings.HasSuffix(waiting.FindString(page), ">1") {
			t.Errorf("one plan waits, the pages say %q", waiting.FindString(page))
		}
		for _, form := range []string{"decision=approve&step=0", "decision=deny", "decision=some&step=0"} {
			if _, body := p.submit("/plans/"+other, "/plans/"+id, form); !strings.Contains(body, "was decided meanwhile") {
				t.Errorf("the second tab, %s: %.400s", form, body[strings.Index(body, "<main"):])
			}
		}
	}
	if got := c.call("s_kill", `{"id":"1"}`, "", nil); !strings.HasPrefix(got.text(), "ran kill") || len(v.calls()) != 1 {
		t.Errorf("%d calls arrived: %s", len(v.calls()), got.Raw)
	}
}
