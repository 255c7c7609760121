package upstreams

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/mcp-portal/mcp-portal/config"
	"github.com/mcp-portal/mcp-portal/upstreams/upstreamtest"
)

func startLog(t *testing.T) *slog.Logger {
	return slog.New(slog.NewTextHandler(t.Output(), nil))
}

func TestApplyLeavesTheRestAlone(t *testing.T) {
	hang := make(chan struct{})
	wait := func(c *upstreamtest.Call) {
		select {
		case <-hang:
			c.Text("done")
		case <-c.Context().Done():
		}
	}
	a, b, c := upstreamtest.New(t, upstreamtest.Options{}), upstreamtest.New(t, upstreamtest.Options{}), upstreamtest.New(t, upstreamtest.Options{Era: upstreamtest.Modern})
	for _, s := range []*upstreamtest.Server{a, b, c} {
		s.On("hang", wait)
	}
	r := start(t, map[string]config.Server{"a": at(a), "b": at(b), "c": at(c)}, nil)
	r.ready("a", "b", "c")
	results := make(chan error, 3)
	for _, id := range []string{"a", "b", "c"} {
		u, _ := r.Get(id)
		go func() { _, err := u.Do(deadline(t), tool("hang", "")); results <- err }()
	}
	until(t, "all calls are under way", func() bool {
		return a.Count("tools/call")+b.Count("tools/call")+c.Count("tools/call") == 3
	})
	inits := a.Count("initialize")

	same := at(a)
	same.Title, same.Groups = "another title", []string{"staff"}
	changed := at(b)
	changed.Headers = map[string]config.Secret{"X-New": "yes"}
	r.Apply(map[string]config.Server{"a": same, "b": changed}, nil) // c is removed
	r.ready("a", "b")
	if a.Count("initialize") != inits {
		t.Error("an untouched server was connected again")
	}
	if _, ok := r.Get("c"); ok {
		t.Error("the removed server is still there")
	}
	u, _ := r.Get("b")
	if _, err := u.Do(deadline(t), tool("echo", "")); err != nil {
		t.Error(err)
	}
	close(hang)
	for range 3 {
		if err := <-results; err != nil {
			t.Errorf("a call in flight was disturbed: %v", err)
		}
	}
	until(t, "the old sessions with b are closed", func() bool { return b.Sessions() == 2 })
	if seen := b.Requests(); seen[len(seen)-1].Header.Get("X-New") != "yes" {
		t.Error("the new generation does not use the new configuration")
	}
}

// Who keeps what servers report changes over between two generations: the old
// one has ended, and the new one, with the same id, has not said anything.
func TestApplyChangesOverBetweenGenerations(t *testing.T) {
	old, fresh := upstreamtest.New(t, upstreamtest.Options{}), upstreamtest.New(t, upstreamtest.Options{})
	r := start(t, one(at(old)), nil)
	r.ready()
	over := false
	r.Apply(one(at(fresh)), func() {
		over = true
		seen := old.Count("tools/list")
		old.EmitListChanged()
		time.Sleep(200 * time.Millisecond)
		if n := old.Count("tools/list"); n != seen {
			t.Errorf("the old one was listed %d times after its end", n-seen)
		}
		if n := len(fresh.Requests()); n != 0 {
			t.Errorf("the new one was asked %d times before its time", n)
		}
	})
	if !over {
		t.Fatal("nobody could change over")
	}
	r.ready()
}

func TestRemovedServer(t *testing.T) {
	up := upstreamtest.New(t, upstreamtest.Options{})
	r := start(t, one(at(up)), nil)
	r.ready()
	u, _ := r.Get("up")
	r.Apply(nil, nil)
	_, err := u.Do(deadline(t), tool("echo", ""))
	if ce := callError(t, err); ce.Sent || ce.Problem.Kind != KindConfig {
		t.Errorf("%+v", ce)
	}
	if len(r.Statuses()) != 0 {
		t.Errorf("%+v", r.Statuses())
	}
	until(t, "its sessions are closed", func() bool { return up.Sessions() == 0 })
}

func TestCloseCutsOffWhatDoesNotEnd(t *testing.T) {
	for _, era := range eras {
		up := upstreamtest.New(t, upstreamtest.Options{Era: era})
		up.On("hang", func(c *upstreamtest.Call) { <-c.Context().Done() })
		r := start(t, one(at(up)), nil)
		r.ready()
		u, _ := r.Get("up")
		done := make(chan error, 1)
		go func() { _, err := u.Do(context.Background(), tool("hang", "")); done <- err }()
		until(t, "the call is under way", func() bool { return up.Count("tools/call") == 1 })
		ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
		defer cancel()
		r.Close(ctx)
		if ce := callError(t, <-done); !ce.Sent {
			t.Errorf("%+v", ce)
		}
	}
}

func TestDownAndUp(t *testing.T) {
	for _, era := range eras {
		t.Run(era.String(), func(t *testing.T) {
			up := upstreamtest.New(t, upstreamtest.Options{Era: era})
			r := start(t, one(at(up)), nil)
			r.ready()
			until(t, "a stream for notices is open", func() bool { return up.Listeners() > 0 })
			up.Down()
			until(t, "its absence is seen", func() bool { return r.status("up").State == Degraded })
			st := r.status("up")
			if st.Error == nil || st.NextTry.IsZero() || st.Since.IsZero() || st.Listed.IsZero() {
				t.Errorf("%+v", st)
			}
			if _, ok := r.Catalogue("up"); !ok {
				t.Error("the last catalogue is gone")
			}
			up.AddTool(upstreamtest.Tool("meanwhile"))
			up.Up()
			r.ready()
			all := r.published("up")
			if got := names(all[len(all)-1].Tools); got != "echo,meanwhile" {
				t.Errorf("listed %s", got)
			}
			if r.status("up").Error != nil {
				t.Error("the old problem is still shown")
			}
		})
	}
}

func TestListAndPoll(t *testing.T) {
	up := upstreamtest.New(t, upstreamtest.Options{Caps: `{"tools":{}}`, NoGET: true})
	r := start(t, one(at(up)), func(o *Options) { o.Poll = 50 * time.Millisecond })
	r.ready()
	up.AddTool(upstreamtest.Tool("polled"))
	until(t, "the poll finds it", func() bool {
		c, _ := r.Catalogue("up")
		return names(c.Tools) == "echo,polled"
	})
	up.AddTool(upstreamtest.Tool("asked"))
	c, err := r.List(deadline(t), "up")
	if err != nil || names(c.Tools) != "echo,polled,asked" {
		t.Errorf("%v %v", c, err)
	}
	up.Down()
	if _, err := r.List(deadline(t), "up"); err == nil || !strings.Contains(err.Error(), "list server up") {
		t.Errorf("%v", err)
	}
	if _, err := r.List(deadline(t), "nope"); err == nil {
		t.Error("an unknown server was listed")
	}
	up.Up()
	r.ready()
}

func TestWaitReadyNamesTheReason(t *testing.T) {
	r := start(t, one(config.Server{URL: "http://127.0.0.1:1/mcp"}), nil)
	until(t, "degraded", func() bool { return r.status("up").State == Degraded })
	ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
	defer cancel()
	err := r.WaitReady(ctx, "up", "nope")
	if err == nil || !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "refused") || !strings.Contains(err.Error(), "nope is not configured") {
		t.Errorf("%v", err)
	}
}

func TestCallsWaitForTheFirstConnection(t *testing.T) {
	gate := make(chan struct{})
	up := upstreamtest.New(t, upstreamtest.Options{Era: upstreamtest.Modern, Handle: func(c *upstreamtest.Call) bool {
		if c.Method == "server/discover" {
			<-gate
		}
		return false
	}})
	r := start(t, one(at(up)), nil)
	done := make(chan error, 1)
	go func() { _, err := r.do(tool("echo", "")); done <- err }()
	until(t, "the portal is connecting", func() bool { return up.Count("server/discover") == 1 })
	close(gate)
	if err := <-done; err != nil {
		t.Error(err)
	}
}

func TestSessionsWithoutIDAreShared(t *testing.T) {
	up := upstreamtest.New(t, upstreamtest.Options{NoSession: true})
	r := start(t, one(at(up)), nil)
	r.ready()
	for _, user := range []string{"ann", "bob"} {
		r.must(as(user, tool("echo", "")))
	}
	if got := up.Count("initialize"); got != 1 {
		t.Errorf("%d initialize", got)
	}
}

func TestSessionsAreCapped(t *testing.T) {
	up := upstreamtest.New(t, upstreamtest.Options{})
	in, out := make(chan struct{}), make(chan struct{})
	up.On("hold", func(c *upstreamtest.Call) { in <- struct{}{}; <-out; c.Text("ok") })
	r := start(t, one(at(up)), func(o *Options) { o.MaxSessions = 2 })
	r.ready()
	var wg sync.WaitGroup
	for _, user := range []string{"ann", "bob"} {
		wg.Go(func() {
			if _, err := r.do(as(user, tool("hold", ""))); err != nil {
				t.Error(err)
			}
		})
		<-in
	}
	_, err := r.do(as("eve", tool("echo", "")))
	if ce := callError(t, err); ce.Sent || !strings.Contains(ce.Error(), "all 2 sessions") {
		t.Errorf("%v", ce)
	}
	close(out)
	wg.Wait()
	r.must(as("eve", tool("echo", ""))) // makes room
	until(t, "the third is closed", func() bool { return up.Sessions() == 3 })
}

func TestSessionClosedWhileItIsMade(t *testing.T) {
	gate := make(chan struct{})
	var inits atomic.Int32
	up := upstreamtest.New(t, upstreamtest.Options{Handle: func(c *upstreamtest.Call) bool {
		if c.Method == "initialize" && inits.Add(1) == 2 {
			<-gate
		}
		return false
	}})
	r := start(t, one(at(up)), nil)
	r.ready()
	ctx, cancel := context.WithCancel(context.Background())
	u, _ := r.Get("up")
	done := make(chan error, 1)
	go func() { _, err := u.Do(ctx, tool("echo", "")); done <- err }()
	until(t, "the session is being made", func() bool { return inits.Load() == 2 })
	cancel()
	if ce := callError(t, <-done); ce.Sent || ce.Problem.Kind != KindCancelled {
		t.Errorf("%+v", ce)
	}
	r.CloseSession("ann", "s1")
	close(gate)
	until(t, "it is closed as soon as it is there", func() bool { return up.Count("DELETE") == 1 && up.Sessions() == 1 })
}

func TestNoisyServerIsNotListedAllTheTime(t *testing.T) {
	up := upstreamtest.New(t, upstreamtest.Options{Era: upstreamtest.Modern, Stream: true, Handle: func(c *upstreamtest.Call) bool {
		if c.Method == "tools/list" {
			c.Notify("notifications/tools/list_changed", `{}`) // announces a change whenever it is listed
		}
		return false
	}})
	r := start(t, one(at(up)), nil)
	r.ready()
	until(t, "listed a few times", func() bool { return up.Count("tools/list") >= 3 })
	p := pacer{least: 20 * time.Millisecond}
	p.listed(false)
	p.noticed = true
	for range 4 {
		p.last = time.Now()
		p.listed(true)
	}
	if p.spacing != 320*time.Millisecond {
		t.Errorf("spacing %v after 4 empty notices", p.spacing)
	}
	if p.listed(false); p.spacing != p.least {
		t.Errorf("spacing %v after a real change", p.spacing)
	}
}

func TestClean(t *testing.T) {
	p := newPeer("x", config.Server{Headers: map[string]config.Secret{"Authorization": "Bearer abcdefgh"}, Env: map[string]config.Secret{"K": "topsecret", "N": "1"}})
	got := p.clean("a\x1b[31m\nb\tabcdefgh topsecret 1\u202e" + strings.Repeat("é", 400))
	if strings.ContainsAny(got, "\x1b\n\u202e") || strings.Contains(got, "abcdefgh") || strings.Contains(got, "topsecret") || len(got) > maxReason+3 ||
		!strings.Contains(got, " 1") || !json.Valid([]byte(`"`+got+`"`)) {
		t.Errorf("%q", got)
	}
	// What repeats a secret in another encoding, from the address, or half.
	p = newPeer("x", config.Server{URL: "https://a.example/mcp?v=1&api_key=key%2Fof%20mine", Bearer: "se/cret+token", Headers: map[string]config.Secret{"X": "0123456789abcdef"}})
	for _, said := range []string{"se%2Fcret%2Btoken", "c2UvY3JldCt0b2tlbg==", "/mcp?v=1&api_key=key%2Fof%20mine", "api_key=key%2Fof+mine", "key/of mine", "cut at 0123456789", strings.Repeat(" ", 8*maxReason-8) + "0123456789abcdef"} {
		if got := p.clean(said); strings.Contains(got, "cret") || strings.Contains(got, "c2Uv") || strings.Contains(got, "mine") || strings.Contains(got, "0123") {
			t.Errorf("%q becomes %q", said, got)
		}
	}
	if got := p.clean("v=1 is fine"); got != "v=1 is fine" {
		t.Errorf("%q", got)
	}
}

func TestBackoff(t *testing.T) {
	b := &backoff{min: time.Second, max: time.Minute}
	for i, want := range []time.Duration{1, 2, 4, 8, 16, 32, 60, 60, 60} {
		if got := b.next(); got < want*time.Second*3/4 || got > want*time.Second*5/4 {
			t.Errorf("attempt %d: %v", i, got)
		}
	}
	b.reset()
	if got := b.next(); got > 5*time.Second/4 {
		t.Errorf("after reset: %v", got)
	}
	b.n = 1000
	if got := b.next(); got <= 0 || got > 75*time.Second {
		t.Errorf("after very many: %v", got)
	}
}
