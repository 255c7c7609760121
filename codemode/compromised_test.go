package codemode

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/mcp-portal/mcp-portal/config"
)

// evilPool starts the evil worker under a name that says what it does.
func evilPool(t *testing.T, mode string, change func(*config.Code)) *Pool {
	t.Helper()
	path := filepath.Join(filepath.Dir(evilProgram), "evil-"+mode)
	if err := os.Link(evilProgram, path); err != nil && !os.IsExist(err) {
		t.Fatal(err)
	}
	code := config.Defaults().Code
	code.Workers, code.MaxWorkers, code.WallTime, code.CPUTime, code.MaxCalls, code.Parallel = 1, 2, time.Second, 500*time.Millisecond, 50, 4
	if change != nil {
		change(&code)
	}
	p, err := NewPool(context.Background(), PoolOptions{Executable: path, Code: code, Log: quiet()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	return p
}

// TestCompromisedWorker: a worker may send anything. The run ends, the gateway
// stays small, and nothing is left behind.
func TestCompromisedWorker(t *testing.T) {
	for _, c := range []struct{ mode, kind, part string }{
		{"noise", kindEngine, "misbehaved"}, {"hugeframe", kindEngine, "misbehaved"}, {"bigclaim", kindWall, "killed"},
		{"padding", kindEngine, "misbehaved"}, {"kind", kindEngine, "misbehaved"}, {"gatewayskind", kindEngine, "misbehaved"},
		{"calls", kindEngine, "misbehaved"}, {"queries", kindEngine, "misbehaved"}, {"bigcalls", kindCalls, "limit of 8388608 bytes"},
		{"order", kindEngine, "misbehaved"}, {"otherrun", kindEngine, "misbehaved"}, {"badargs", kindEngine, "misbehaved"},
		{"shortcall", kindEngine, "misbehaved"}, {"deaf", kindEngine, "misbehaved"}, {"logs", kindEngine, "misbehaved"},
		{"emptylogs", kindEngine, "misbehaved"}, {"baddone", kindEngine, "misbehaved"}, {"wrongend", kindEngine, "misbehaved"},
		{"kindofend", kindEngine, "misbehaved"}, {"deepdone", kindEngine, "misbehaved"}, {"bigvalue", kindEngine, "misbehaved"},
		{"dribble", kindWall, "killed"}, {"silence", kindWall, "killed"}, {"stderr", kindEngine, ""}, {"dies", kindEngine, "failed"},
		{"spins", kindCPU, "processor time"}, {"lateidle", kindEngine, "misbehaved"}, {"idles", kindEngine, "misbehaved"},
		{"longidle", kindEngine, "misbehaved"}, {"otheridle", kindEngine, "misbehaved"}, {"callsidle", kindEngine, "misbehaved"},
	} {
		t.Run(c.mode, func(t *testing.T) {
			before, resident := runtime.NumGoroutine(), residentKB()
			p := evilPool(t, c.mode, func(code *config.Code) {
				if c.kind != kindWall { // what decides is not the clock
					code.WallTime = time.Minute
				}
			})
			var active atomic.Int32
			host := &fakeHost{
				call: func(ctx context.Context, hc HostCall) (json.RawMessage, error) {
					active.Add(1)
					defer active.Add(-1)
					switch hc.Tool {
					case "s_hang":
						<-ctx.Done()
						return nil, ctx.Err()
					case "s_big":
						return json.RawMessage(structured(`"` + strings.Repeat("x", 1<<20) + `"`)), nil
					}
					return json.RawMessage(structured("1")), nil
				},
				query: func(context.Context, string, json.RawMessage) (json.RawMessage, error) {
					return json.RawMessage("[]"), nil
				},
			}
			o, err := p.Run(context.Background(), Request{ID: "r", Owner: "u", Code: "1", Tools: tools("s_t", "s_hang", "s_big")}, host)
			if err != nil {
				t.Fatal(err)
			}
			wantError(t, o, c.kind, c.part)
			if len(o.Calls) > 50 {
				t.Errorf("%d calls", len(o.Calls))
			}
			p.Close()
			eventually(t, "the end of all calls", func() bool { return active.Load() == 0 })
			eventually(t, "the end of all goroutines", func() bool { return runtime.NumGoroutine() <= before+1 })
			if after := residentKB(); resident > 0 && after > resident+100<<10 {
				t.Errorf("this process grew from %d to %d KB", resident, after)
			}
		})
	}
	t.Run("computes while it waits for a person, it says", func(t *testing.T) {
		pause := &Pause{}
		host := &fakeHost{call: func(ctx context.Context, _ HostCall) (json.RawMessage, error) {
			pause.Begin()
			defer pause.End()
			<-ctx.Done()
			return nil, ctx.Err()
		}}
		p := evilPool(t, "liar", func(code *config.Code) { code.CPUTime, code.WallTime = time.Hour, time.Hour })
		o, err := p.Run(context.Background(), Request{ID: "r", Owner: "u", Code: "1", Tools: tools("s_person"), Paused: pause}, host)
		if err != nil {
			t.Fatal(err)
		}
		wantError(t, o, kindEngine, "misbehaved")
		eventuallyFree(t, p)
	})
	t.Run("spoken to about other tools", func(t *testing.T) {
		host := answers(map[string]string{"secret_tool": structured("1"), "s_t": structured("1")})
		o := run(t, evilPool(t, "othertool", nil), host, "1", tools("s_t")...)
		if len(host.calls()) != 0 || len(o.Calls) != 1 || o.Calls[0].Status != callError {
			t.Errorf("the host saw %v, records %+v", host.calls(), o.Calls)
		}
	})
	t.Run("text that is no text", func(t *testing.T) {
		o := run(t, evilPool(t, "badutf8", nil), nil, "1")
		if o.Error != nil || len(o.Logs) != 1 || o.Logs[0] != "\ufffd" {
			t.Errorf("logs %q, error %v", o.Logs, o.Error)
		}
	})
	t.Run("an endless message", func(t *testing.T) {
		o := run(t, evilPool(t, "bigmessage", nil), nil, "1")
		if o.Error == nil || len(o.Error.Message) > 9<<10 || len(o.Error.Name) > 300 || o.Error.Line != 0 {
			t.Errorf("error with %d bytes", len(o.Error.Message))
		}
	})
}

func TestWorkersThatDoNotStart(t *testing.T) {
	for _, mode := range []string{"exits", "notready", "hugeready"} {
		t.Run(mode, func(t *testing.T) {
			p := evilPool(t, mode, nil)
			o := run(t, p, nil, "1")
			wantError(t, o, kindUnavailable, "did not become ready")
			if s := p.Status(); s.Failures == 0 || s.LastFailure == "" {
				t.Errorf("status %+v", s)
			}
		})
	}
	t.Run("no such program", func(t *testing.T) {
		p, err := NewPool(context.Background(), PoolOptions{Executable: "/nonexistent/portal", Code: config.Defaults().Code, Log: quiet()})
		if err != nil {
			t.Fatal(err)
		}
		defer p.Close()
		wantError(t, run(t, p, nil, "1"), kindUnavailable, "/nonexistent/portal")
	})
	t.Run("a worker that never answers does not hold a caller who leaves", func(t *testing.T) {
		p := evilPool(t, "mute", nil)
		ctx, cancel := context.WithTimeout(context.Background(), 200*time.Millisecond)
		defer cancel()
		o, err := p.Run(ctx, Request{Owner: "u", Code: "1"}, nil)
		if err == nil || o.Error.Kind != kindCancelled {
			t.Errorf("error %v, outcome %+v", err, o)
		}
	})
}

// TestConfinement asks a confined process what it can still do.
func TestConfinement(t *testing.T) {
	if !platformLayers {
		t.Skip("the kernel's walls exist on Linux only")
	}
	p := testPool(t, func(c *config.Code) {
		c.Require = []string{"seccomp", "landlock", "rlimits", "no_new_privs", "uid", "parent_death", "environment", "descriptors"}
	})
	wantValue(t, run(t, p, nil, "1"), "1")
	layers := p.Status().Layers
	for _, name := range []string{"seccomp", "landlock", "rlimits", "no_new_privs", "uid", "oom", "dumpable", "nice", "parent_death", "environment", "descriptors"} {
		found := false
		for _, l := range layers {
			if l.Name == name {
				found = true
				if !l.OK {
					t.Errorf("layer %s: %s", l.Name, l.Detail)
				}
			}
		}
		if !found {
			t.Errorf("layer %s is not reported", name)
		}
	}
	o := run(t, evilPool(t, "probefile", nil), nil, "1")
	want := "[true,true,65534]"
	if os.Getuid() != 0 {
		want = "[true,true," + string(mustJSON(t, os.Getuid())) + "]"
	}
	wantValue(t, o, want)
	for _, mode := range []string{"probesocket", "probekill", "probeexec"} {
		wantError(t, run(t, evilPool(t, mode, nil), nil, "1"), kindEngine, "ended by the kernel")
	}
}

// What whoever started the portal left open, its workers do not have: the end of
// this pipe is seen although they live.
func TestNoInheritedFiles(t *testing.T) {
	if !platformLayers {
		t.Skip("workers close what they inherit on Linux only")
	}
	var ends [2]int
	if err := unix.Pipe(ends[:]); err != nil { // not to be closed by exec
		t.Fatal(err)
	}
	r := os.NewFile(uintptr(ends[0]), "reading end")
	defer r.Close()
	p := testPool(t, nil)
	wantValue(t, run(t, p, nil, "1"), "1")
	if err := unix.Close(ends[1]); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() {
		_, err := r.Read(make([]byte, 1))
		ended <- err
	}()
	select {
	case err := <-ended:
		if !errors.Is(err, io.EOF) {
			t.Error(err)
		}
	case <-time.After(30 * time.Second):
		t.Error("a worker holds the pipe")
	}
}

func mustJSON(t *testing.T, v any) []byte {
	t.Helper()
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return b
}
