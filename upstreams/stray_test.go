package upstreams

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/mcp-portal/mcp-portal/upstreams/upstreamtest"
	"github.com/mcp-portal/mcp-portal/wire"
)

// twoCalls are two calls of one session under way at a stdio server: older, and
// newer, which has the server ask "q". Neither is answered by the server before
// release.
type twoCalls struct {
	*rig
	t            *testing.T
	older, newer *asked
	quit         context.CancelFunc // the newer one's caller goes
}

// asked is a call that was asked something.
type asked struct {
	came   chan string // what it was asked
	answer chan *wire.Error
	gone   chan error // why a question ended without an answer
	done   chan error
}

func (a *asked) ask(ctx context.Context, method string, params json.RawMessage) (json.RawMessage, *wire.Error) {
	a.came <- method + string(params)
	select {
	case e := <-a.answer:
		if e != nil {
			return nil, e
		}
		return json.RawMessage(`{"action":"accept"}`), nil
	case <-ctx.Done():
		a.gone <- context.Cause(ctx)
		return nil, wire.Errorf(wire.CodeInternal, "the client did not answer")
	}
}

// again is how often it was asked "q" once more.
func (a *asked) again() (n int) {
	for {
		select {
		case got := <-a.came:
			if strings.Contains(got, "whose?") {
				n++
			}
		default:
			return n
		}
	}
}

func newAsked() *asked {
	return &asked{came: make(chan string, 10), answer: make(chan *wire.Error, 10), gone: make(chan error, 10), done: make(chan error, 1)}
}

const strayQ = `{"jsonrpc":"2.0","id":"q","method":"elicitation/create","params":{"message":"whose?"}}`

func beginTwo(t *testing.T) *twoCalls {
	c := &twoCalls{rig: start(t, one(upstreamtest.Child{}.Server(nil)), nil), t: t, older: newAsked(), newer: newAsked()}
	c.ready()
	c.must(tool("echo", ""))
	u, _ := c.Get("up")
	begin := func(ctx context.Context, a *asked, call *Call) {
		call.Ask = a.ask
		go func() { _, err := u.Do(ctx, call); a.done <- err }()
	}
	started := make(chan struct{}, 1)
	older := tool("lively", "")
	older.Params = json.RawMessage(`{"name":"lively","_meta":{"progressToken":1}}`)
	older.Notify = func(string, json.RawMessage) {
		select {
		case started <- struct{}{}:
		default:
		}
	}
	begin(deadline(t), c.older, older)
	<-started
	ctx, quit := context.WithCancel(deadline(t))
	c.quit = quit
	begin(ctx, c.newer, tool("raw", string(wire.Encode(map[string][]string{"lines": {strayQ}}))))
	return c
}

// asks waits until a call is asked.
func (c *twoCalls) asks(a *asked, who string) {
	c.t.Helper()
	select {
	case got := <-a.came:
		if got != `elicitation/create{"message":"whose?"}` {
			c.t.Errorf("%s was asked %s", who, got)
		}
	case <-time.After(30 * time.Second):
		c.t.Fatalf("%s is not asked", who)
	}
}

// heard is the answer that the server got to "q", by its tool ask, which takes
// the first answer there is. What that asks itself is of no interest.
func (c *twoCalls) heard() string {
	c.t.Helper()
	return c.must(tool("ask", ""))
}

// A question over a pipe does not say whose it is. It goes to the newest call of
// the session, and on to the others when that ends before there is an answer: it
// may have been theirs.
func TestQuestionOutlivesTheCallItWasPutTo(t *testing.T) {
	for name, tc := range map[string]func(c *twoCalls){
		"the caller goes": func(c *twoCalls) { c.quit(); <-c.newer.gone },
		"the call ends": func(c *twoCalls) {
			// The server answers everything that was called: the second request after initialize and echo.
			c.must(tool("raw", string(wire.Encode(map[string][]string{"lines": {`{"jsonrpc":"2.0","id":4,"result":{}}`, `{"jsonrpc":"2.0","id":$ID,"result":{}}`}}))))
			if err := <-c.newer.done; err != nil {
				c.t.Errorf("the newer call: %v", err)
			}
		},
		"code cannot be asked": func(c *twoCalls) { c.newer.answer <- wire.Errorf(wire.CodeMethodNotFound, "not from code") },
	} {
		t.Run(name, func(t *testing.T) {
			c := beginTwo(t)
			c.asks(c.newer, "the newer call")
			tc(c)
			c.asks(c.older, "the older call")
			c.older.answer <- nil
			if got := c.heard(); !strings.Contains(got, `"id\":\"q\"`) || !strings.Contains(got, `accept`) {
				t.Errorf("the server heard %s", got)
			}
			c.must(tool("release", ""))
			if err := <-c.older.done; err != nil {
				t.Errorf("the older call: %v", err)
			}
			if c.newer.again()+c.older.again() != 0 {
				t.Error("a call was asked twice")
			}
			c.quit()
		})
	}
}

// What the server takes back is put to nobody else.
func TestQuestionTakenBackEndsEverywhere(t *testing.T) {
	c := beginTwo(t)
	c.asks(c.newer, "the newer call")
	c.must(tool("raw", string(wire.Encode(map[string][]string{"lines": {
		`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"q"}}`, `{"jsonrpc":"2.0","id":$ID,"result":{}}`}}))))
	if err := <-c.newer.gone; !errors.Is(err, errWithdrawn) {
		t.Errorf("it ended because %v", err)
	}
	c.quit()
	<-c.newer.done
	c.must(tool("release", ""))
	if err := <-c.older.done; err != nil || c.older.again() != 0 {
		t.Errorf("the older call: %v, or it was asked", err)
	}
}

// When all calls that it may have come from are over, it is refused, and a call
// that began later is not asked.
func TestQuestionIsNoneOfLaterCalls(t *testing.T) {
	c := beginTwo(t)
	c.asks(c.newer, "the newer call")
	later := newAsked()
	call := tool("lively", "")
	call.Params = json.RawMessage(`{"name":"lively","_meta":{"progressToken":2}}`)
	began := make(chan struct{}, 1000)
	call.Ask, call.Notify = later.ask, func(string, json.RawMessage) { began <- struct{}{} }
	u, _ := c.Get("up")
	ctx, quit := context.WithCancel(deadline(t))
	defer quit()
	go func() { _, err := u.Do(ctx, call); later.done <- err }()
	<-began
	c.quit()
	c.asks(c.older, "the older call")
	c.older.answer <- wire.Errorf(wire.CodeMethodNotFound, "not I")
	if got := c.heard(); !strings.Contains(got, `"id\":\"q\"`) || !strings.Contains(got, `not I`) {
		t.Errorf("the server heard %s", got)
	}
	if later.again() != 0 {
		t.Error("a call that began after the question was asked")
	}
}

// While a question is open, the idle deadlines of all calls that may wait for
// its answer rest.
func TestQuestionRestsTheDeadlinesOfAll(t *testing.T) {
	s := newSession(&peer{server: "up"}, slog.New(slog.DiscardHandler), 1<<20, nil, events{})
	defer s.end()
	var lives []*live
	answers := make(chan struct{})
	for i := range 3 {
		call := tool("x", "")
		call.Ask = func(context.Context, string, json.RawMessage) (json.RawMessage, *wire.Error) {
			<-answers
			return json.RawMessage(fmt.Sprint(i)), nil
		}
		l, _, err := s.begin(t.Context(), exchange{Call: call, idle: time.Hour}, wire.Version20251125, func(*live, wire.Message) {})
		if err != nil {
			t.Fatal(err)
		}
		lives = append(lives, l)
	}
	rest := func() (out []bool) {
		for _, l := range lives {
			l.watch.mu.Lock()
			out = append(out, l.watch.held > 0)
			l.watch.mu.Unlock()
		}
		return out
	}
	got := make(chan wire.Message, 1)
	s.stray(wire.Message{ID: json.RawMessage(`"q"`), Method: "elicitation/create"}, func(m wire.Message) { got <- m })
	if r := fmt.Sprint(rest()); r != "[true true true]" {
		t.Errorf("at rest: %v", r)
	}
	close(answers)
	if m := <-got; string(m.Result) != "2" {
		t.Errorf("answered by %s, not by the newest", m.Result)
	}
	until(t, "no deadline rests any more", func() bool { return fmt.Sprint(rest()) == "[false false false]" })
	for _, l := range lives {
		s.finish(l)
	}
}
