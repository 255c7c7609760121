package upstreams

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/mcp-portal/mcp-portal/config"
	"github.com/mcp-portal/mcp-portal/upstreams/upstreamtest"
	"github.com/mcp-portal/mcp-portal/wire"
)

func as(user string, c *Call) *Call { c.User = user; return c }

func TestChildPerUser(t *testing.T) {
	for _, modern := range []bool{false, true} {
		t.Run(fmt.Sprintf("modern=%v", modern), func(t *testing.T) {
			spec := upstreamtest.Child{Modern: modern}.Server(nil)
			r := start(t, one(spec), func(o *Options) { o.MaxChildren = 2 })
			r.ready()
			ann, bob := r.must(as("ann", tool("pid", ""))), r.must(as("bob", tool("pid", "")))
			if ann == bob || r.must(as("ann", tool("pid", ""))) != ann {
				t.Error("users share a child, or one has several")
			}
			r.must(as("eve", tool("pid", ""))) // the cap ends the child idle longest: Bob's
			if r.must(as("ann", tool("pid", ""))) != ann {
				t.Error("Ann's child was used last and should have stayed")
			}
			if st := r.status("up"); st.Transport != "stdio" || wire.Modern(st.Protocol) != modern {
				t.Errorf("%+v", st)
			}

			spec.Sessions = "shared"
			r.Apply(one(spec), nil)
			r.ready()
			if r.must(as("ann", tool("pid", ""))) != r.must(as("bob", tool("pid", ""))) {
				t.Error("sessions: shared makes one child per user")
			}
		})
	}
}

// A byte order mark before the first message costs nothing: some runtimes write
// one on every standard output.
func TestChildWithAByteOrderMark(t *testing.T) {
	for _, modern := range []bool{false, true} {
		r := start(t, one(upstreamtest.Child{Modern: modern, Mark: true}.Server(nil)), nil)
		r.ready()
		r.must(tool("echo", ""))
	}
}

// A server that remembers does so for one session of one user: over stdio each
// has a process, which ends with it.
func TestChildPerSession(t *testing.T) {
	in := func(session, name string) *Call { c := tool(name, ""); c.Session = session; return c }
	for _, tc := range []struct {
		sessions string
		modern   bool
		apart    bool
	}{{"", false, true}, {"session", false, true}, {"user", false, false}, {"", true, false}} { // 2026-07-28 knows no sessions
		t.Run(fmt.Sprintf("%q modern=%v", tc.sessions, tc.modern), func(t *testing.T) {
			spec := upstreamtest.Child{Modern: tc.modern}.Server(nil)
			spec.Sessions = tc.sessions
			r := start(t, one(spec), nil)
			r.ready()
			first, second := r.must(in("s1", "pid")), r.must(in("s2", "pid"))
			if apart := first != second; apart != tc.apart {
				t.Errorf("apart: %v, want %v", apart, tc.apart)
			}
			if r.must(in("s1", "pid")) != first {
				t.Error("a session has several processes")
			}
			if r.must(as("bob", in("s1", "pid"))) == first {
				t.Error("users share a process")
			}
			r.CloseSession("ann", "s1")
			pid := first[strings.Index(first, `"text":"`)+8:]
			pid = pid[:strings.Index(pid, `"`)]
			if !tc.apart {
				if r.must(in("s2", "pid")) != second || !alive(pid) {
					t.Error("the end of one session ended the process of another")
				}
				return
			}
			until(t, "the process of an ended session is gone", func() bool { return !alive(pid) })
			if r.must(in("s2", "pid")) != second {
				t.Error("the end of one session ended the process of another")
			}
		})
	}
}

// Where sessions share a process, a question that could be for either is for
// neither.
func TestQuestionInASharedChild(t *testing.T) {
	spec := upstreamtest.Child{}.Server(nil)
	spec.Sessions = "user"
	r := start(t, one(spec), nil)
	r.ready()
	asking := tool("ask", "")
	asking.Ask = answerElicitation
	if got := r.must(asking); !strings.Contains(got, "accept") {
		t.Errorf("one session alone: %s", got)
	}
	other := tool("lively", "") // until it is released
	other.Session = "s2"
	other.Ask = func(context.Context, string, json.RawMessage) (json.RawMessage, *wire.Error) {
		t.Error("a question reached another session")
		return nil, wire.Errorf(wire.CodeInternal, "no")
	}
	u, _ := r.Get("up")
	done := make(chan struct{})
	go func() { defer close(done); _, _ = u.Do(deadline(t), other) }()
	s := r.server("up")
	until(t, "the call of the other session is under way", func() bool {
		for _, c := range s.pool.sessionsOf("ann", "s2") {
			if c.busy() > 0 {
				return true
			}
		}
		return false
	})
	asking = tool("ask", "")
	asking.Ask = answerElicitation
	if got := r.must(asking); !strings.Contains(got, "cannot be tied to a call") {
		t.Errorf("two sessions at once: %s", got)
	}
	r.must(tool("release", ""))
	<-done
}

func TestChildEnvironment(t *testing.T) {
	t.Setenv("PORTAL_SECRET", "x")
	r := start(t, one(upstreamtest.Child{}.Server(map[string]config.Secret{"MINE": "1"})), nil)
	r.ready()
	got := r.must(tool("env", ""))
	if strings.Contains(got, "PORTAL_SECRET") || !strings.Contains(got, "MINE") || !strings.Contains(got, "PATH") {
		t.Errorf("environment %s", got)
	}
}

func TestIdleChildEnds(t *testing.T) {
	starts := filepath.Join(t.TempDir(), "starts")
	r := start(t, one(upstreamtest.Child{Starts: starts}.Server(nil)), func(o *Options) { o.SessionIdle = 100 * time.Millisecond })
	r.ready()
	r.must(tool("echo", ""))
	pids := lines(t, starts)
	if len(pids) != 2 {
		t.Fatalf("%d children", len(pids))
	}
	until(t, "the idle child of the user is gone", func() bool { return !alive(pids[1]) })
	if !alive(pids[0]) {
		t.Error("the catalogue's child went, too")
	}
	r.must(tool("echo", ""))
}

func TestNoProcessIsLeft(t *testing.T) {
	starts := filepath.Join(t.TempDir(), "starts")
	r := start(t, one(upstreamtest.Child{Starts: starts, SpawnSleeper: true}.Server(nil)), nil)
	r.ready()
	r.must(tool("echo", ""))
	pids := lines(t, starts)
	groups := func() (n int) {
		for _, pid := range pids {
			n += groupSize(t, pid)
		}
		return n
	}
	if groups() != 4 { // each child with its sleeper
		t.Fatalf("%d processes", groups())
	}
	// A child that ends by itself takes its group along.
	if _, err := r.do(tool("exit", "")); err == nil {
		t.Fatal("exit has a result")
	}
	until(t, "the group of the ended child is gone", func() bool { return groups() == 2 })
	r.Close(deadline(t))
	until(t, "all are gone", func() bool { return groups() == 0 })
}

// groupSize counts the live processes of a group.
func groupSize(t *testing.T, pgid string) (n int) {
	t.Helper()
	stats, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range stats {
		b, err := os.ReadFile(f)
		if err != nil {
			continue
		}
		_, rest, _ := strings.Cut(string(b), ") ")
		if f := strings.Fields(rest); len(f) > 2 && f[2] == pgid && f[0] != "Z" {
			n++
		}
	}
	return n
}

func TestChildRestarts(t *testing.T) {
	starts := filepath.Join(t.TempDir(), "starts")
	spec := upstreamtest.Child{Starts: starts}.Server(nil)
	spec.Sessions = "shared"
	r := start(t, one(spec), nil)
	r.ready()
	done := make(chan error, 1)
	go func() { _, err := r.do(tool("sleep", `{"ms":20000}`)); done <- err }()
	u, _ := r.Get("up")
	until(t, "the call is under way", func() bool {
		s := r.server("up")
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.main.busy() > 0
	})
	_, err := r.do(tool("exit", ""))
	for _, err := range []error{err, <-done} {
		if ce := callError(t, err); ce.Problem.Kind != KindProcess || !ce.Sent || !strings.Contains(ce.Error(), "exit status 9") {
			t.Errorf("%+v", ce)
		}
	}
	until(t, "it runs again", func() bool { return len(lines(t, starts)) == 2 && u.Status().State == Ready })
	r.must(tool("echo", ""))
}

func TestChildThatCannotStart(t *testing.T) {
	r := start(t, one(upstreamtest.Child{DieAtStart: true}.Server(nil)), nil)
	until(t, "degraded", func() bool { return r.status("up").State == Degraded })
	if p := r.status("up").Error; p.Kind != KindProcess || !strings.Contains(p.Message, "exit status 7") || !strings.Contains(p.Message, "the database is not reachable") {
		t.Errorf("%+v", p)
	}
}

func TestMuteChild(t *testing.T) {
	r := start(t, one(upstreamtest.Child{Mute: true}.Server(nil)), func(o *Options) { o.DiscoverTimeout = 200 * time.Millisecond })
	r.ready()
	r.must(tool("echo", ""))
	if r.status("up").Protocol != wire.Version20251125 {
		t.Errorf("%+v", r.status("up"))
	}
}

func TestSlowModernChild(t *testing.T) {
	// It misses server/discover in time, and knows no initialize.
	r := start(t, one(upstreamtest.Child{Modern: true, DelayStart: 400}.Server(nil)), func(o *Options) { o.DiscoverTimeout = 100 * time.Millisecond })
	r.ready()
	if st := r.status("up"); st.Protocol != wire.Version20260728 {
		t.Errorf("%+v", st)
	}
}

func TestChildTellsAndAsks(t *testing.T) {
	for _, modern := range []bool{false, true} {
		r := start(t, one(upstreamtest.Child{Modern: modern}.Server(nil)), nil)
		r.ready()
		call := tool("ask", "")
		call.Ask = answerElicitation
		if got := r.must(call); !strings.Contains(got, "accept") {
			t.Errorf("%s", got)
		}
		r.must(tool("add", "")) // only the user's child has it: still, everything is listed again
		until(t, "listed again", func() bool { return len(r.published("up")) > 1 })
	}
}

func TestReadLine(t *testing.T) {
	long := strings.Repeat("a", 50_000)
	in := "short\n\n" + `{"jsonrpc":"2.0","id":7,"result":"` + long + "\"}\n" + `{"result":{"x":"` + long + `"},"jsonrpc":"2.0","id": 12 }` + "\n" +
		`{"jsonrpc":"2.0","method":"notifications/message","params":"` + long + "\"}\n" + `{"result":{"id":5,"x":"` + long + `","id":6}}` + "\nlast"
	r := bufio.NewReaderSize(strings.NewReader(in), 4096)
	want := []struct {
		line   string
		id     string
		notice bool
	}{{line: "short\n"}, {line: "\n"}, {id: "7"}, {id: "12"}, {notice: true}, {id: ""}, {line: "last"}}
	for i, w := range want {
		line, tail, err := readLine(r, 10_000)
		if (err != nil) != (i == len(want)-1) {
			t.Fatalf("line %d: %v", i, err)
		}
		if tail == nil {
			if string(line) != w.line {
				t.Errorf("line %d: %q", i, line)
			}
			continue
		}
		id, notice := headID(line)
		if m := trailingID.FindSubmatch(tail); id == "" && m != nil {
			id = string(m[1])
		}
		if id != w.id || notice != w.notice || len(line) > keep || len(tail) > 3*keep {
			t.Errorf("line %d: id %q notice %v, kept %d and %d bytes", i, id, notice, len(line), len(tail))
		}
	}
}

func FuzzReadLine(f *testing.F) {
	f.Add([]byte("{\"id\":1}\n{\"a\":2}\n"), 5)
	f.Fuzz(func(t *testing.T, b []byte, max int) {
		if max < 1 || max > 1<<16 {
			return
		}
		r := bufio.NewReaderSize(bytes.NewReader(b), 16)
		var n int
		for {
			line, tail, err := readLine(r, int64(max))
			if tail == nil && len(bytes.TrimRight(line, "\n")) > max+1 {
				t.Fatalf("line of %d bytes", len(line))
			}
			headID(line)
			n++
			if err != nil {
				break
			}
		}
		if want := bytes.Count(b, []byte("\n")) + 1; n != want {
			t.Fatalf("%d lines, want %d", n, want)
		}
	})
}

func TestWriteToAChildThatDoesNotRead(t *testing.T) {
	// 'sleep' never reads its stdin: the pipe fills, and every call still ends.
	s := newSession(newPeer("up", config.Server{}), startLog(t), 1<<20, json.RawMessage(`{}`), events{listChanged: func() {}})
	p, err := startChild(s, config.Server{Command: []string{"sleep", "60"}}, 100*time.Millisecond, (*exec.Cmd).Start)
	if err != nil {
		t.Fatal(err)
	}
	defer p.close(context.Background())
	x := exchange{Call: &Call{Method: "tools/call", Name: "t", Params: json.RawMessage(`{"x":"` + strings.Repeat("y", 1<<20) + `"}`)}, idle: 100 * time.Millisecond}
	_, err = p.do(context.Background(), x)
	if ce := callError(t, err); ce.Problem.Kind != KindTimeout {
		t.Errorf("%+v", ce)
	}
}
