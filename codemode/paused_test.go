package codemode

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/mcp-portal/mcp-portal/config"
)

// people is a host whose tools named s_ask… wait for a person, those named
// s_slow… for the upstream, and the others answer at once.
type people struct {
	*fakeHost
	pause  Pause
	decide chan struct{} // closed: everybody said yes
	slow   chan struct{} // closed: the upstream answers
	asked  chan string   // each call that waits
}

func newPeople() *people {
	h := &people{decide: make(chan struct{}), slow: make(chan struct{}), asked: make(chan string, 100)}
	h.fakeHost = &fakeHost{call: func(ctx context.Context, c HostCall) (json.RawMessage, error) {
		var until chan struct{}
		switch {
		case strings.HasPrefix(c.Tool, "s_ask"):
			h.pause.Begin()
			defer h.pause.End()
			until = h.decide
		case strings.HasPrefix(c.Tool, "s_slow"):
			until = h.slow
		default:
			return json.RawMessage(structured("1")), nil
		}
		h.asked <- c.Tool
		select {
		case <-until:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
		return json.RawMessage(structured("1")), nil
	}}
	return h
}

type end struct {
	out *Outcome
	err error
}

// goAs starts a run in the background.
func goAs(p *Pool, owner, code string, h *people) <-chan end {
	ends := make(chan end, 1)
	go func() {
		out, err := p.Run(context.Background(), Request{Owner: owner, Code: code, Tools: tools("s_ask", "s_slow", "s_quick"), Paused: &h.pause}, h)
		ends <- end{out, err}
	}()
	return ends
}

func wantEnd(t *testing.T, ends <-chan end, want string) {
	t.Helper()
	e := <-ends
	if e.err != nil {
		t.Fatal(e.err)
	}
	wantValue(t, e.out, want)
}

// Runs that wait for people lend their places to others, of the same user too,
// and take them back when they go on; afterwards every place is free.
func TestWaitingRunsLendTheirPlaces(t *testing.T) {
	p := testPool(t, func(c *config.Code) { c.MaxWorkers, c.RunsPerUser = 2, 2 })
	h := newPeople()
	var ends []<-chan end
	for range 6 { // with two places, six could never wait at once unless they lent them
		h := &people{fakeHost: h.fakeHost, decide: h.decide, asked: h.asked}
		h.fakeHost = newPeopleLike(h)
		ends = append(ends, goAs(p, "u", "return await s.ask()", h))
		<-h.asked
	}
	eventually(t, "six runs that lend their places", func() bool {
		s := p.Status()
		return s.Running == 0 && s.Queued == 0 && s.Waiting == 6
	})
	wantValue(t, runAs(t, p, "u", "return 1"), "1")
	close(h.decide)
	for _, e := range ends {
		wantEnd(t, e, "1")
	}
	eventuallyFree(t, p)
}

// A run lends its place only when nothing but a person can make it go on: not
// while it computes, sleeps, or has another call under way.
func TestRunsThatCanGoOnKeepTheirPlaces(t *testing.T) {
	for _, c := range []struct{ name, code string }{
		{"it computes", "s.ask(); for (let t = Date.now() + 2000; Date.now() < t;) ; await s.slow()"},
		{"it sleeps", "s.ask(); await sleep(1e6)"},
		{"another call is under way", "s.ask(); await s.slow()"},
		{"its script has ended, but for such a call", "s.ask(); s.slow(); 1"},
		{"calls one after another", "s.ask(); for (;;) await s.quick()"},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := testPool(t, func(c *config.Code) {
				c.MaxWorkers, c.RunsPerUser, c.QueuePerUser, c.MaxCalls, c.WallTime, c.CPUTime = 2, 1, 1, 1e5, time.Hour, time.Hour
			})
			h := newPeople()
			ctx, cancel := context.WithCancel(context.Background())
			done := make(chan struct{})
			go func() {
				defer close(done)
				_, _ = p.Run(ctx, Request{Owner: "u", Code: c.code, Tools: tools("s_ask", "s_slow", "s_quick"), Paused: &h.pause}, h)
			}()
			<-h.asked // it waits for a person now
			for until := time.Now().Add(500 * time.Millisecond); time.Now().Before(until); time.Sleep(time.Millisecond) {
				if s := p.Status(); s.Running != 1 || s.Waiting != 0 {
					t.Fatalf("the place was lent: %d running, %d lent", s.Running, s.Waiting)
				}
			}
			cancel()
			<-done
			eventuallyFree(t, p)
		})
	}
}

// Only so many places are lent. What waits beyond them keeps its own, and who
// finds none is told why.
func TestLentPlacesAreBounded(t *testing.T) {
	p := testPool(t, func(c *config.Code) {
		c.MaxWorkers, c.RunsPerUser, c.QueuePerUser, c.PausedPerUser, c.PausedInAll = 4, 2, 1, 2, 3
	})
	shared := newPeople()
	start := func(owner string) <-chan end {
		h := &people{decide: shared.decide, slow: shared.slow, asked: shared.asked}
		h.fakeHost = newPeopleLike(h)
		return goAs(p, owner, "return await s.ask()", h)
	}
	state := func(running, waiting, queued int) {
		t.Helper()
		eventually(t, fmt.Sprintf("%d running, %d lent, %d queued", running, waiting, queued), func() bool {
			s := p.Status()
			return s.Running == running && s.Waiting == waiting && s.Queued == queued
		})
	}
	var ends []<-chan end
	for range 4 {
		ends = append(ends, start("ann"))
		<-shared.asked
	}
	state(2, 2, 0) // two lent, two kept
	ends = append(ends, start("ann"))
	state(2, 2, 1)
	wantError(t, runAs(t, p, "ann", "1"), kindBusy, "2 runs going (2 of them at approvals that nobody has decided) and 1 waiting")
	for range 2 {
		ends = append(ends, start("bob"))
		<-shared.asked
	}
	state(3, 3, 1) // one of bob's is lent, then there are three in all
	wantValue(t, runAs(t, p, "bob", "1"), "1")

	close(shared.decide)
	for _, e := range ends {
		wantEnd(t, e, "1")
	}
	eventuallyFree(t, p)
}

// newPeopleLike makes the host of one more run with the decisions of another.
func newPeopleLike(h *people) *fakeHost {
	return &fakeHost{call: func(ctx context.Context, c HostCall) (json.RawMessage, error) {
		h.pause.Begin()
		defer h.pause.End()
		h.asked <- c.Tool
		select {
		case <-h.decide:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
		return json.RawMessage(structured("1")), nil
	}}
}

// However many runs are let go on at one moment, no more compute at once than
// there are places, of one user or in all.
func TestRunsThatGoOnWaitForTheirPlaces(t *testing.T) {
	turns := newTurns(3, 2, 10, 100, 100)
	var places []*place
	for i := range 8 {
		p, err := turns.take(context.Background(), fmt.Sprint("user", i/4), time.Minute)
		if err != nil {
			t.Fatal(err)
		}
		p.rest()
		places = append(places, p)
	}
	if running, lent, queued := turns.counts(); running != 0 || lent != 8 || queued != 0 {
		t.Fatalf("%d running, %d lent, %d queued", running, lent, queued)
	}
	var mu sync.Mutex
	now, most := map[string]int{}, map[string]int{}
	count := func(owner string, d int) {
		mu.Lock()
		defer mu.Unlock()
		for _, k := range []string{owner, "all"} {
			now[k] += d
			most[k] = max(most[k], now[k])
		}
	}
	var wg sync.WaitGroup
	for _, p := range places {
		wg.Add(1)
		go func() {
			defer wg.Done()
			for range 50 {
				<-p.wake()
				count(p.owner, 1)
				time.Sleep(100 * time.Microsecond)
				count(p.owner, -1)
				p.rest()
			}
			p.give()
		}()
	}
	wg.Wait()
	if most["all"] > 3 || most["user0"] > 2 || most["user1"] > 2 {
		t.Errorf("at once computed %v", most)
	}
	if running, lent, queued := turns.counts(); running != 0 || lent != 0 || queued != 0 || len(turns.running) != 0 || len(turns.lent) != 0 {
		t.Errorf("%d running, %d lent, %d queued afterwards", running, lent, queued)
	}
}

// A place that is wanted back is found although every other one is kept by a
// run that rests and may not lend: the slot of the one that wakes becomes free.
func TestWakingMakesRoom(t *testing.T) {
	turns := newTurns(1, 1, 10, 1, 1)
	ctx := context.Background()
	first, err := turns.take(ctx, "u", time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	first.rest() // lent
	second, err := turns.take(ctx, "u", time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	second.rest() // kept: one is lent already
	if running, lent, _ := turns.counts(); running != 1 || lent != 1 {
		t.Fatalf("%d running, %d lent", running, lent)
	}
	select {
	case <-first.wake():
	case <-time.After(30 * time.Second):
		t.Fatal("the first never got its place back")
	}
	// Woken and at rest again before there was a place: it lends it when it has it.
	again := second.wake()
	second.rest()
	first.give()
	<-again
	if running, lent, queued := turns.counts(); running != 0 || lent != 1 || queued != 0 {
		t.Errorf("%d running, %d lent, %d queued", running, lent, queued)
	}
	second.give()
}

// A run that is cancelled while it waits gives its place back once.
func TestCancelWhileWaiting(t *testing.T) {
	p := testPool(t, nil)
	ctx, cancel := context.WithCancel(context.Background())
	pause := &Pause{}
	host := &fakeHost{call: func(ctx context.Context, _ HostCall) (json.RawMessage, error) {
		pause.Begin()
		defer pause.End()
		cancel()
		<-ctx.Done()
		return nil, ctx.Err()
	}}
	if _, err := p.Run(ctx, Request{Owner: "u", Code: "return await s.t()", Tools: tools("s_t"), Paused: pause}, host); err == nil {
		t.Error("a cancelled run returned no error")
	}
	eventuallyFree(t, p)
}

func eventuallyFree(t *testing.T, p *Pool) {
	t.Helper()
	eventually(t, "the return of every place", func() bool {
		s := p.Status()
		return s.Running == 0 && s.Waiting == 0 && s.Queued == 0
	})
}
