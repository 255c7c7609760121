package codemode

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/mcp-portal/mcp-portal/config"
	"github.com/mcp-portal/mcp-portal/internal/testprogram"
)

// workerProgram is built once: workers need a binary without cgo, which the
// test binary is not under -race.
var workerProgram string

// evilProgram pretends to be a worker that a script has taken over. What it
// does follows from the name it is started under.
var evilProgram string

func TestMain(m *testing.M) {
	os.Exit(testprogram.Main(m.Run, func(dir string) {
		workerProgram = filepath.Join(dir, "testworker")
		evilProgram = filepath.Join(dir, "evilworker")
	}, "./internal/testworker", "./internal/evilworker"))
}

func quiet() *slog.Logger { return slog.New(slog.NewTextHandler(io.Discard, nil)) }

// testPool makes a pool with short limits.
func testPool(t testing.TB, change func(*config.Code)) *Pool {
	t.Helper()
	testprogram.Depend(t)
	code := config.Defaults().Code
	code.Workers, code.MaxWorkers, code.WallTime, code.CPUTime = 1, 4, 20*time.Second, 4*time.Second
	if change != nil {
		change(&code)
	}
	p, err := NewPool(context.Background(), PoolOptions{Executable: workerProgram, Code: code, Log: quiet()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	return p
}

// fakeHost answers calls from functions; results are raw CallToolResults.
type fakeHost struct {
	call  func(ctx context.Context, c HostCall) (json.RawMessage, error)
	query func(ctx context.Context, name string, args json.RawMessage) (json.RawMessage, error)

	forget bool // seen stays empty

	mu   sync.Mutex
	seen []HostCall
}

func (h *fakeHost) Call(ctx context.Context, c HostCall) (json.RawMessage, error) {
	h.mu.Lock()
	if !h.forget {
		h.seen = append(h.seen, c)
	}
	h.mu.Unlock()
	if h.call == nil {
		return nil, fmt.Errorf("no tool is expected to be called, but %s was", c.Tool)
	}
	return h.call(ctx, c)
}

func (h *fakeHost) Query(ctx context.Context, name string, args json.RawMessage) (json.RawMessage, error) {
	if h.query == nil {
		return nil, fmt.Errorf("no query is expected, but %s was asked", name)
	}
	return h.query(ctx, name, args)
}

func (h *fakeHost) calls() []HostCall {
	h.mu.Lock()
	defer h.mu.Unlock()
	return append([]HostCall(nil), h.seen...)
}

// answers makes a host whose tools answer with fixed results.
func answers(results map[string]string) *fakeHost {
	return &fakeHost{call: func(_ context.Context, c HostCall) (json.RawMessage, error) {
		r, ok := results[c.Tool]
		if !ok {
			return nil, &HostError{Code: "not_found", Message: "no such tool: " + c.Tool}
		}
		return json.RawMessage(r), nil
	}}
}

// tools makes the tools of a run from outward names of the form server_member.
func tools(outward ...string) []Tool {
	var out []Tool
	for _, o := range outward {
		server, member, _ := strings.Cut(o, "_")
		out = append(out, Tool{Outward: o, Identifier: strings.ReplaceAll(o, "-", "$"), Server: strings.ReplaceAll(server, "-", "$"), Member: strings.ReplaceAll(member, "-", "$")})
	}
	return out
}

func text(s string) string {
	b, _ := json.Marshal(map[string]any{"content": []any{map[string]any{"type": "text", "text": s}}})
	return string(b)
}

func structured(s string) string {
	return `{"content":[{"type":"text","text":"see structured"}],"structuredContent":` + s + `}`
}

// run runs code and fails the test when the pool itself fails.
func run(t testing.TB, p *Pool, host Host, code string, ts ...Tool) *Outcome {
	t.Helper()
	o, err := p.Run(context.Background(), Request{ID: "r", Owner: "u", Code: code, Tools: ts}, host)
	if err != nil {
		t.Fatalf("run %.80q: %v", code, err)
	}
	return o
}

func wantValue(t testing.TB, o *Outcome, want string) {
	t.Helper()
	if o.Error != nil {
		t.Errorf("error %s %s (line %d): %s; want value %s", o.Error.Kind, o.Error.Name, o.Error.Line, o.Error.Message, want)
		return
	}
	got := string(o.Value)
	if o.Value == nil {
		got = "undefined"
	}
	if got != want {
		t.Errorf("value %s, want %s", got, want)
	}
}

func wantError(t testing.TB, o *Outcome, kind, part string) {
	t.Helper()
	if o.Error == nil {
		t.Errorf("value %.200s, want an error of kind %s with %q", o.Value, kind, part)
		return
	}
	if o.Error.Kind != kind || !strings.Contains(o.Error.Message, part) {
		t.Errorf("error %s: %s; want kind %s with %q", o.Error.Kind, o.Error.Message, kind, part)
	}
}

// eventually waits for a condition with a generous deadline.
func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(30 * time.Second); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		if ok() {
			return
		}
	}
	t.Fatalf("%s did not happen", what)
}
