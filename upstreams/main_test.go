package upstreams

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/mcp-portal/mcp-portal/config"
	"github.com/mcp-portal/mcp-portal/internal/testlog"
	"github.com/mcp-portal/mcp-portal/upstreams/upstreamtest"
)

func TestMain(m *testing.M) {
	upstreamtest.RunChild()
	os.Exit(m.Run())
}

// eras are the two eras of the fake server.
var eras = []upstreamtest.Era{upstreamtest.Legacy, upstreamtest.Modern}

// rig is a manager under test and what it told.
type rig struct {
	*Manager
	t    *testing.T
	logs *testlog.Buffer

	mu         sync.Mutex
	catalogues map[string][]*Catalogue
	statuses   []Status
}

// start runs a manager with short pauses; tweak may change the options.
func start(t *testing.T, servers map[string]config.Server, tweak func(*Options)) *rig {
	t.Helper()
	r := &rig{t: t, logs: &testlog.Buffer{}, catalogues: map[string][]*Catalogue{}}
	o := Options{
		Log:        slog.New(slog.NewTextHandler(r.logs, &slog.HandlerOptions{Level: slog.LevelDebug})),
		BackoffMin: 20 * time.Millisecond, BackoffMax: 200 * time.Millisecond, Debounce: 20 * time.Millisecond,
		Grace: 500 * time.Millisecond,
		OnCatalogue: func(id string, c *Catalogue) {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.catalogues[id] = append(r.catalogues[id], c)
		},
		OnStatus: func(s Status) {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.statuses = append(r.statuses, s)
		},
	}
	if tweak != nil {
		tweak(&o)
	}
	r.Manager = NewManager(context.Background(), o)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		r.Close(ctx)
		if t.Failed() {
			t.Log("log:\n" + r.logs.String())
		}
	})
	r.Apply(servers, nil)
	return r
}

func at(s *upstreamtest.Server) config.Server { return config.Server{URL: s.URL} }

func one(c config.Server) map[string]config.Server { return map[string]config.Server{"up": c} }

// deadline is generous: no test waits for it unless something is wrong.
func deadline(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	t.Cleanup(cancel)
	return ctx
}

func (r *rig) ready(ids ...string) {
	r.t.Helper()
	if err := r.WaitReady(deadline(r.t), ids...); err != nil {
		r.t.Fatal(err)
	}
}

func (r *rig) published(id string) []*Catalogue {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]*Catalogue(nil), r.catalogues[id]...)
}

// until waits for a condition.
func until(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(30 * time.Second); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("never: %s", what)
		}
	}
}

func tool(name, args string) *Call {
	if args == "" {
		args = "{}"
	}
	return &Call{Method: "tools/call", Name: name, User: "ann", Session: "s1",
		Params: json.RawMessage(`{"name":"` + name + `","arguments":` + args + `}`)}
}

func (r *rig) do(c *Call) (json.RawMessage, error) {
	r.t.Helper()
	u, ok := r.Get("up")
	if !ok {
		r.t.Fatal("server up is not there")
	}
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	return u.Do(ctx, c)
}

func (r *rig) must(c *Call) string {
	r.t.Helper()
	res, err := r.do(c)
	if err != nil {
		r.t.Fatalf("%s %s: %v", c.Method, c.Name, err)
	}
	return string(res)
}

func (r *rig) status(id string) Status {
	r.t.Helper()
	u, ok := r.Get(id)
	if !ok {
		r.t.Fatalf("server %s is not there", id)
	}
	return u.Status()
}

func callError(t *testing.T, err error) *CallError {
	t.Helper()
	var ce *CallError
	if !errors.As(err, &ce) {
		t.Fatalf("got %v (%T), want a CallError", err, err)
	}
	return ce
}

func names(items []json.RawMessage) string {
	var out []string
	for _, it := range items {
		var n struct{ Name, URI, URITemplate string }
		_ = json.Unmarshal(it, &n)
		out = append(out, n.Name+n.URI+n.URITemplate)
	}
	return strings.Join(out, ",")
}

// Catalogue is the last full listing of a server, if there was one.
func (r *rig) Catalogue(id string) (*Catalogue, bool) {
	c := r.server(id).lastList()
	return c, c != nil
}
