package company

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// The protocol versions of the two eras.
const (
	legacyEra = "2025-11-25"
	modernEra = "2026-07-28"
)

// desk is someone who works at the company's servers over real HTTP with the
// SDK's client.
type desk struct {
	t        *testing.T
	c        *Company
	url      string
	era      string
	mu       sync.Mutex
	sessions map[string]*mcp.ClientSession
	kept     map[string]any // what a task has already listed
}

func openDesk(t *testing.T, c *Company, era string) *desk {
	t.Helper()
	srv := httptest.NewServer(c.Handler())
	t.Cleanup(srv.Close)
	d := &desk{t: t, c: c, url: srv.URL, era: era, sessions: map[string]*mcp.ClientSession{}, kept: map[string]any{}}
	t.Cleanup(d.close)
	return d
}

func (d *desk) close() {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, s := range d.sessions {
		s.Close()
	}
}

func (d *desk) ctx() context.Context {
	ctx, cancel := context.WithTimeout(d.t.Context(), time.Minute)
	context.AfterFunc(d.t.Context(), cancel)
	return ctx
}

func (d *desk) session(server string) (*mcp.ClientSession, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if s := d.sessions[server]; s != nil {
		return s, nil
	}
	client := mcp.NewClient(&mcp.Implementation{Name: "company-test", Version: "1"}, nil)
	s, err := client.Connect(context.Background(), &mcp.StreamableClientTransport{Endpoint: d.url + Path(server), MaxRetries: -1},
		&mcp.ClientSessionOptions{ProtocolVersion: d.era})
	if err != nil {
		return nil, fmt.Errorf("connecting to %s: %w", server, err)
	}
	if got := s.InitializeResult().ProtocolVersion; got != d.era {
		return nil, fmt.Errorf("server %s speaks %s, want %s", server, got, d.era)
	}
	d.sessions[server] = s
	return s, nil
}

func (d *desk) mustSession(server string) *mcp.ClientSession {
	d.t.Helper()
	s, err := d.session(server)
	if err != nil {
		d.t.Fatal(err)
	}
	return s
}

// refusal is an isError result.
type refusal string

func (r refusal) Error() string { return string(r) }

// raw calls a tool and returns its text, or a refusal, or what went wrong below.
func (d *desk) raw(server, tool string, args any) (string, *mcp.CallToolResult, error) {
	s, err := d.session(server)
	if err != nil {
		return "", nil, err
	}
	if args == nil {
		args = map[string]any{}
	}
	res, err := s.CallTool(d.ctx(), &mcp.CallToolParams{Name: tool, Arguments: args})
	if err != nil {
		return "", nil, err
	}
	if len(res.Content) != 1 {
		return "", res, fmt.Errorf("%s %s: %d content blocks, want 1", server, tool, len(res.Content))
	}
	text := res.Content[0].(*mcp.TextContent).Text
	if res.IsError {
		return "", res, refusal(text)
	}
	return text, res, nil
}

// try calls a tool and reads its JSON text.
func try[T any](d *desk, server, tool string, args any) (T, error) {
	var v T
	text, res, err := d.raw(server, tool, args)
	if err != nil {
		return v, err
	}
	if res.StructuredContent == nil {
		return v, fmt.Errorf("%s %s: no structured content", server, tool)
	}
	return v, json.Unmarshal([]byte(text), &v)
}

// get is try for a call that must succeed.
func get[T any](d *desk, server, tool string, args any) T {
	d.t.Helper()
	v, err := try[T](d, server, tool, args)
	if err != nil {
		d.t.Fatalf("%s %s %v: %v", server, tool, args, err)
	}
	return v
}

// refused calls a tool that must answer with isError, and returns the text.
func (d *desk) refused(server, tool string, args any) string {
	d.t.Helper()
	_, _, err := d.raw(server, tool, args)
	var text refusal
	if !errors.As(err, &text) {
		d.t.Fatalf("%s %s %v: got %v, want a result with isError", server, tool, args, err)
	}
	return string(text)
}

// obj shortens the writing of arguments.
type obj = map[string]any

func with(base obj, more ...any) obj {
	args := obj{}
	for k, v := range base {
		args[k] = v
	}
	for i := 0; i+1 < len(more); i += 2 {
		args[more[i].(string)] = more[i+1]
	}
	return args
}

// keep computes a list once for all tasks of a desk.
func keep[T any](d *desk, name string, list func() T) T {
	if v, ok := d.kept[name]; ok {
		return v.(T)
	}
	v := list()
	d.kept[name] = v
	return v
}

// The pagers go on as each style asks.

func numberedAll[T any](d *desk, tool string, args obj) []T {
	d.t.Helper()
	var all []T
	for page := 1; ; page++ {
		p := get[numberedPage[T]](d, "dns", tool, with(args, "page", page))
		all = append(all, p.Result...)
		if p.ResultInfo.Count != len(p.Result) {
			d.t.Fatalf("%s page %d: count %d of %d items", tool, page, p.ResultInfo.Count, len(p.Result))
		}
		if page >= p.ResultInfo.TotalPages {
			if len(all) != p.ResultInfo.TotalCount {
				d.t.Fatalf("%s: %d items over all pages, total_count says %d", tool, len(all), p.ResultInfo.TotalCount)
			}
			return all
		}
	}
}

// cursorAll pages a list whose items are in the member key.
func cursorAll[T any](d *desk, server, tool, key string, args obj) []T {
	d.t.Helper()
	var all []T
	for cursor := ""; ; {
		if cursor != "" {
			args = with(args, "cursor", cursor)
		}
		p := get[map[string]json.RawMessage](d, server, tool, args)
		var items []T
		if err := json.Unmarshal(p[key], &items); err != nil || items == nil {
			d.t.Fatalf("%s %s: member %s is %s (%v)", server, tool, key, p[key], err)
		}
		all = append(all, items...)
		if p["nextCursor"] == nil {
			return all
		}
		if err := json.Unmarshal(p["nextCursor"], &cursor); err != nil {
			d.t.Fatal(err)
		}
	}
}

func billingAll[T any](d *desk, tool string, args obj, id func(T) string) []T {
	d.t.Helper()
	var all []T
	for {
		p := get[listPage[T]](d, "billing", tool, args)
		all = append(all, p.Data...)
		if !p.HasMore {
			return all
		}
		args = with(args, "starting_after", id(p.Data[len(p.Data)-1]))
	}
}

func (d *desk) contacts(args obj) []Contact {
	d.t.Helper()
	var all []Contact
	for {
		p := get[afterPage[Contact]](d, "crm", "contacts_search", args)
		all = append(all, p.Results...)
		if p.Paging == nil {
			if len(all) != p.Total {
				d.t.Fatalf("contacts_search: %d contacts over all pages, total says %d", len(all), p.Total)
			}
			return all
		}
		args = with(args, "after", p.Paging.Next.After)
	}
}

// logEntry is a line of the log as a client reads it.
type logEntry struct {
	TS        time.Time `json:"ts"`
	Service   string    `json:"service"`
	Level     string    `json:"level"`
	Status    int       `json:"status"`
	Route     string    `json:"route"`
	MS        int       `json:"ms"`
	User      string    `json:"user"`
	Next      string    `json:"next_page_token"`
	Partial   bool      `json:"partial"`
	FailedSh  []int     `json:"failed_shards"`
	Shard     int       `json:"shard"`
	Requested string    `json:"req"`
}

// logsPageOf splits one answer into its lines and what it says about itself.
func logsPageOf(d *desk, args obj) (lines []logEntry, next string, partial bool) {
	d.t.Helper()
	text, res, err := d.raw("logs", "logs_query", args)
	if err != nil {
		d.t.Fatalf("logs_query %v: %v", args, err)
	}
	if res.StructuredContent != nil {
		d.t.Fatal("logs_query has structured content; it must be text only")
	}
	s := bufio.NewScanner(strings.NewReader(text))
	s.Buffer(nil, 1<<20)
	for s.Scan() {
		var l logEntry
		if err := json.Unmarshal(s.Bytes(), &l); err != nil {
			d.t.Fatalf("logs_query: line %q: %v", s.Text(), err)
		}
		switch {
		case l.Next != "":
			next = l.Next
		case l.Partial:
			partial = true
		default:
			lines = append(lines, l)
		}
	}
	return lines, next, partial
}

// logs reads all lines of a service, asking again after a partial answer.
func (d *desk) logs(service, from, to string) []logEntry {
	d.t.Helper()
	base := obj{"service": service, "from": from, "to": to}
	var all []logEntry
	for args := base; ; {
		lines, next, partial := logsPageOf(d, args)
		if partial {
			continue
		}
		all = append(all, lines...)
		if next == "" {
			return all
		}
		args = with(base, "page_token", next)
	}
}

func readJSON[T any](t *testing.T, file string) T {
	t.Helper()
	raw, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var v T
	if err := json.Unmarshal(raw, &v); err != nil {
		t.Fatal(err)
	}
	return v
}
