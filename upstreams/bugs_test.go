package upstreams

import (
	"encoding/json"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/mcp-portal/mcp-portal/config"
	"github.com/mcp-portal/mcp-portal/upstreams/upstreamtest"
	"github.com/mcp-portal/mcp-portal/wire"
)

func TestB001_ListChangedIsFollowed(t *testing.T) {
	for _, era := range eras {
		t.Run(era.String(), func(t *testing.T) {
			up := upstreamtest.New(t, upstreamtest.Options{Era: era})
			var said atomic.Int32
			r := start(t, one(at(up)), func(o *Options) { o.OnListChanged = func(string) { said.Add(1) } })
			r.ready()
			until(t, "a stream for notices is open", func() bool { return up.Listeners() > 0 })

			up.AddTool(upstreamtest.Tool("idle"))
			up.EmitListChanged()
			has := func(name string) func() bool {
				return func() bool {
					all := r.published("up")
					return strings.Contains(names(all[len(all)-1].Tools), name)
				}
			}
			until(t, "the tool added while idle is listed", has("idle"))

			up.On("grow", func(c *upstreamtest.Call) {
				up.AddTool(upstreamtest.Tool("busy"))
				c.Notify("notifications/tools/list_changed", `{}`)
				c.Text("grown")
			})
			var leaked atomic.Int32
			call := tool("grow", "")
			call.Notify = func(string, json.RawMessage) { leaked.Add(1) }
			r.must(call)
			until(t, "the tool added inside a call is listed", has("busy"))
			if said.Load() < 2 {
				t.Errorf("OnListChanged was called %d times", said.Load())
			}
			if leaked.Load() != 0 {
				t.Error("list_changed was handed to the call, whom it does not concern")
			}
			if st := r.status("up"); st.State != Ready {
				t.Errorf("state %s", st.State)
			}
		})
	}
}

func TestB005_AllPages(t *testing.T) {
	for _, era := range eras {
		t.Run(era.String(), func(t *testing.T) {
			up := upstreamtest.New(t, upstreamtest.Options{Era: era, PageSize: 1,
				Tools:     []json.RawMessage{upstreamtest.Tool("a"), upstreamtest.Tool("b"), upstreamtest.Tool("c")},
				Prompts:   []json.RawMessage{json.RawMessage(`{"name":"p1"}`), json.RawMessage(`{"name":"p2"}`)},
				Resources: []json.RawMessage{json.RawMessage(`{"uri":"x:1","name":""}`), json.RawMessage(`{"uri":"x:2","name":""}`)},
				Templates: []json.RawMessage{json.RawMessage(`{"uriTemplate":"x:{a}","name":""}`), json.RawMessage(`{"uriTemplate":"y:{a}","name":""}`)},
			})
			r := start(t, one(at(up)), nil)
			r.ready()
			c := r.published("up")[0]
			got := names(c.Tools) + " " + names(c.Prompts) + " " + names(c.Resources) + " " + names(c.Templates)
			if want := "a,b,c p1,p2 x:1,x:2 x:{a},y:{a}"; got != want {
				t.Errorf("listed %s, want %s", got, want)
			}
			if len(c.Warnings) > 0 {
				t.Errorf("warnings %q", c.Warnings)
			}
		})
	}
}

func TestB007_EndlessCursor(t *testing.T) {
	var pages atomic.Int32
	handle := func(endless bool) func(c *upstreamtest.Call) bool {
		return func(c *upstreamtest.Call) bool {
			if c.Method != "tools/list" {
				return false
			}
			n := pages.Add(1)
			cursor := "x"
			if endless {
				cursor = strings.Repeat("y", int(n))
			}
			c.Result(`{"tools":[{"name":"a"},{"name":"b"},{"noname":1}],"nextCursor":"` + cursor + `"}`)
			return true
		}
	}
	t.Run("repeated", func(t *testing.T) {
		pages.Store(0)
		up := upstreamtest.New(t, upstreamtest.Options{Handle: handle(false)})
		r := start(t, one(at(up)), nil)
		r.ready()
		c := r.published("up")[0]
		if names(c.Tools) != "a,b" || pages.Load() != 2 {
			t.Errorf("listed %s in %d pages", names(c.Tools), pages.Load())
		}
		all := strings.Join(c.Warnings, "\n")
		if !strings.Contains(all, `repeats the cursor "x"`) || !strings.Contains(all, "without a name") {
			t.Errorf("warnings %q", c.Warnings)
		}
		if log := r.logs.String(); !strings.Contains(log, "repeats the cursor") || !strings.Contains(log, "server=up") {
			t.Error("the log does not name the server")
		}
	})
	t.Run("always new", func(t *testing.T) {
		pages.Store(0)
		up := upstreamtest.New(t, upstreamtest.Options{Handle: handle(true)})
		r := start(t, one(at(up)), nil)
		r.ready()
		if pages.Load() != maxPages || !strings.Contains(strings.Join(r.published("up")[0].Warnings, ""), "does not end") {
			t.Errorf("%d pages, warnings %q", pages.Load(), r.published("up")[0].Warnings)
		}
	})
}

func TestB025_SessionForgotten(t *testing.T) {
	up := upstreamtest.New(t, upstreamtest.Options{})
	var runs atomic.Int32
	up.On("write", func(c *upstreamtest.Call) { runs.Add(1); c.Text("written") })
	r := start(t, one(at(up)), nil)
	r.ready()
	r.must(tool("write", ""))
	if got := up.Count("initialize"); got != 2 { // the main session and Ann's
		t.Fatalf("%d sessions before the restart", got)
	}
	listed := len(r.published("up"))

	runs.Store(0)
	up.AddTool(upstreamtest.Tool("new"))
	up.ForgetSessions()
	var wg sync.WaitGroup
	for range 20 {
		wg.Go(func() {
			if _, err := r.do(tool("write", "")); err != nil {
				t.Errorf("the client notices the restart: %v", err)
			}
		})
	}
	wg.Wait()
	if runs.Load() != 20 {
		t.Errorf("20 calls ran %d times", runs.Load())
	}
	until(t, "the tools are listed again", func() bool {
		all := r.published("up")
		return len(all) > listed && names(all[len(all)-1].Tools) == "echo,new"
	})
	until(t, "ready again", func() bool { return r.status("up").State == Ready })
	if got := up.Count("initialize"); got != 4 { // each session once
		t.Errorf("%d initialize in all, want 4", got)
	}
	for _, q := range up.Requests() {
		if q.Method == "initialize" && q.Session != "" {
			t.Error("initialize carries a session id")
		}
	}
}

func TestB025_ServerRestarts(t *testing.T) {
	up := upstreamtest.New(t, upstreamtest.Options{})
	var runs atomic.Int32
	up.On("write", func(c *upstreamtest.Call) { runs.Add(1); c.Text("written") })
	r := start(t, one(at(up)), nil)
	r.ready()
	r.must(tool("write", ""))
	up.Down()
	up.ForgetSessions()
	up.Up()
	runs.Store(0)
	for range 20 {
		// A call that met the dying connection has an unknown outcome, and is
		// not sent again; the session is found out and replaced regardless.
		if _, err := r.do(tool("write", "")); err != nil {
			callError(t, err)
			runs.Add(1)
		}
	}
	if runs.Load() != 20 {
		t.Errorf("20 calls ran %d times", runs.Load())
	}
	r.must(tool("write", ""))
	until(t, "ready", func() bool { return r.status("up").State == Ready })
}

func TestB025_SessionForgottenWith400(t *testing.T) {
	var forgotten atomic.Bool
	up := upstreamtest.New(t, upstreamtest.Options{Handle: func(c *upstreamtest.Call) bool {
		if forgotten.Load() && c.Method == "tools/call" && c.Session == "session-2" {
			c.Raw(400, wire.TypeJSON, `{"jsonrpc":"2.0","error":{"code":-32000,"message":"Bad Request: No valid session ID provided"},"id":null}`)
			return true
		}
		return false
	}})
	r := start(t, one(at(up)), nil)
	r.ready()
	r.must(tool("echo", ""))
	forgotten.Store(true)
	r.must(tool("echo", ""))
}

func TestB028_OneRefusingServer(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	dead := "http://" + l.Addr().String() + "/mcp"
	l.Close()
	a, b := upstreamtest.New(t, upstreamtest.Options{}), upstreamtest.New(t, upstreamtest.Options{Era: upstreamtest.Modern})
	r := start(t, map[string]config.Server{"a": at(a), "b": at(b), "dead": {URL: dead}}, nil)
	r.ready("a", "b")
	until(t, "degraded", func() bool { return r.status("dead").State == Degraded })
	st := r.status("dead")
	if st.Error == nil || st.Error.Kind != KindConnect || !strings.Contains(st.Error.Message, "server dead") ||
		!strings.Contains(st.Error.Message, "refused") || st.NextTry.IsZero() {
		t.Errorf("status %+v, error %+v", st, st.Error)
	}
	u, _ := r.Get("dead")
	_, err = u.Do(deadline(t), tool("echo", ""))
	if ce := callError(t, err); ce.Sent || !strings.Contains(ce.Error(), "server dead, echo: ") || strings.Contains(ce.Error(), "unknown") {
		t.Errorf("%+v: %v", ce, ce)
	}
	if got := len(r.Statuses()); got != 3 {
		t.Errorf("%d statuses", got)
	}
}

func TestB029_MissingCommand(t *testing.T) {
	dir := t.TempDir()
	cmd := filepath.Join(dir, "server")
	good := upstreamtest.New(t, upstreamtest.Options{})
	spec := upstreamtest.Child{}.Server(nil)
	spec.Command = append([]string{cmd}, spec.Command[1:]...)
	r := start(t, map[string]config.Server{"good": at(good), "up": spec}, nil)
	r.ready("good")
	until(t, "degraded", func() bool { return r.status("up").State == Degraded })
	st := r.status("up")
	if st.Error.Kind != KindProcess || !strings.Contains(st.Error.Message, "server up") || !strings.Contains(st.Error.Message, cmd) {
		t.Errorf("%+v", st.Error)
	}
	_, err := r.do(tool("echo", ""))
	if ce := callError(t, err); ce.Sent || !strings.Contains(ce.Error(), cmd) {
		t.Errorf("%v", ce)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(self, cmd); err != nil {
		t.Fatal(err)
	}
	r.ready("up") // heals by itself
	r.must(tool("echo", ""))
}

func TestB032_FirstListingFails(t *testing.T) {
	for _, era := range eras {
		t.Run(era.String(), func(t *testing.T) {
			var lists atomic.Int32
			var healthy atomic.Bool
			up := upstreamtest.New(t, upstreamtest.Options{Era: era, Handle: func(c *upstreamtest.Call) bool {
				if c.Method != "tools/list" || healthy.Load() {
					return false
				}
				lists.Add(1)
				<-c.Context().Done() // past the deadline
				return true
			}})
			r := start(t, one(config.Server{URL: up.URL, CallTimeout: 50 * time.Millisecond}), nil)
			until(t, "degraded", func() bool { return r.status("up").State == Degraded })
			if st := r.status("up"); st.Error.Kind != KindList || !strings.Contains(st.Error.Message, "tools/list") {
				t.Errorf("%+v", st.Error)
			}
			until(t, "tried again", func() bool { return lists.Load() > 1 })
			for _, st := range r.statusesSoFar() {
				if st.State == Ready {
					t.Fatal("ready without a catalogue")
				}
			}
			if len(r.published("up")) != 0 {
				t.Fatal("an unlisted catalogue was published")
			}
			healthy.Store(true)
			r.ready()
			if names(r.published("up")[0].Tools) != "echo" {
				t.Error("no tools")
			}
		})
	}
}

func (r *rig) statusesSoFar() []Status {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]Status(nil), r.statuses...)
}

func TestB032_NoToolsIsReady(t *testing.T) {
	for _, caps := range []string{`{"tools":{}}`, `{}`} {
		up := upstreamtest.New(t, upstreamtest.Options{Tools: []json.RawMessage{}, Caps: caps})
		r := start(t, one(at(up)), nil)
		r.ready()
		if c := r.published("up")[0]; len(c.Tools) != 0 || c.Tools == nil || up.Count("prompts/list") != 0 {
			t.Errorf("caps %s: %+v", caps, c)
		}
	}
}

func TestB034_StderrIsDrained(t *testing.T) {
	spec := upstreamtest.Child{}.Server(nil)
	r := start(t, one(spec), nil)
	r.ready()
	r.must(tool("stderr", `{"bytes":300000}`))
	until(t, "stderr is in the log", func() bool { return strings.Contains(r.logs.String(), "stderr of the server") })
	log := r.logs.String()
	if n := strings.Count(log, "stderr of the server"); n > 1000 {
		t.Errorf("%d log lines for 3000 lines of stderr", n)
	}
	if !strings.Contains(log, "server=up") {
		t.Error("the log does not name the server")
	}
}

func TestB034_TimeoutOnEveryTransport(t *testing.T) {
	hang := func(c *upstreamtest.Call) { <-c.Context().Done() }
	legacy, modern := upstreamtest.New(t, upstreamtest.Options{}), upstreamtest.New(t, upstreamtest.Options{Era: upstreamtest.Modern})
	legacy.On("sleep", hang)
	modern.On("sleep", hang)
	for name, spec := range map[string]config.Server{
		"2025": at(legacy), "2026": at(modern), "stdio": upstreamtest.Child{}.Server(nil), "sse": {URL: sdkSSE(t), Transport: "sse"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel() // it waits for most of its time
			r := start(t, one(spec), nil)
			r.ready()
			r.must(tool("echo", `{}`))         // so that the session is there
			spec.CallTimeout = 3 * time.Second // long enough for the call to be sent on a busy machine
			r.Apply(one(spec), nil)
			r.ready()
			_, err := r.do(tool("sleep", `{"ms":20000}`))
			if ce := callError(t, err); ce.Problem.Kind != KindTimeout || !ce.Sent || !strings.Contains(ce.Error(), "outcome is unknown") {
				t.Errorf("%+v", ce)
			}
		})
	}
}

func TestB037_FirstCallsShareOneChild(t *testing.T) {
	starts := filepath.Join(t.TempDir(), "starts")
	spec := upstreamtest.Child{Starts: starts, DelayStart: 50}.Server(nil)
	r := start(t, one(spec), nil)
	r.ready()
	if got := lines(t, starts); len(got) != 1 {
		t.Fatalf("%d children before the first call", len(got))
	}
	var wg sync.WaitGroup
	for range 50 {
		wg.Go(func() {
			if _, err := r.do(tool("echo", "")); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if got := lines(t, starts); len(got) != 2 { // the catalogue's and Ann's
		t.Errorf("50 first calls made %d children, want 1", len(got)-1)
	}
}

func TestB037_ReloadWhileCreating(t *testing.T) {
	dir := t.TempDir()
	first, second := filepath.Join(dir, "first"), filepath.Join(dir, "second")
	r := start(t, one(upstreamtest.Child{Starts: first, DelayStart: 300}.Server(nil)), nil)
	r.ready()
	errs := make(chan error, 50)
	for range 50 {
		go func() { _, err := r.do(tool("echo", "")); errs <- err }()
	}
	until(t, "the child of the calls is being made", func() bool { return len(lines(t, first)) == 2 })
	r.Apply(one(upstreamtest.Child{Starts: second}.Server(nil)), nil)
	for range 50 {
		if err := <-errs; err != nil {
			t.Errorf("a call that was not sent does not go to the new generation: %v", err)
		}
	}
	until(t, "no process of the old generation is left", func() bool {
		for _, pid := range lines(t, first) {
			if alive(pid) {
				return false
			}
		}
		return true
	})
	if got := lines(t, second); len(got) != 2 {
		t.Errorf("%d children of the new generation, want 2", len(got))
	}
}

func TestB037_FirstCallsShareOneSession(t *testing.T) {
	up := upstreamtest.New(t, upstreamtest.Options{Handle: func(c *upstreamtest.Call) bool {
		if c.Method == "initialize" {
			time.Sleep(30 * time.Millisecond)
		}
		return false
	}})
	r := start(t, one(at(up)), nil)
	r.ready()
	var wg sync.WaitGroup
	for i := range 60 {
		wg.Go(func() {
			c := tool("echo", "")
			c.User = []string{"ann", "bob", "eve"}[i%3]
			if _, err := r.do(c); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if got := up.Count("initialize"); got != 4 {
		t.Errorf("%d sessions for 3 users and the catalogue", got)
	}
	r.CloseSession("ann", "s1")
	until(t, "Ann's session is closed", func() bool { return up.Sessions() == 3 && up.Count("DELETE") == 1 })
}

func lines(t *testing.T, path string) []string {
	t.Helper()
	b, err := os.ReadFile(path)
	if os.IsNotExist(err) {
		return nil
	}
	if err != nil {
		t.Fatal(err)
	}
	return strings.Fields(string(b))
}
