package codemode

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/mcp-portal/mcp-portal/codemode/internal/confine"
	"github.com/mcp-portal/mcp-portal/config"
)

// overs has one row for each limit of a run: code that goes beyond it, and what
// the text that a model reads must say: which limit, how large, and what to do.
var overs = []struct {
	name  string
	limit Limits
	code  string
	kind  string   // of the error; "": the text is in the value or the console
	says  []string // all of them
}{
	{"wall time", Limits{Wall: 700 * time.Millisecond}, "await s.hang()", kindWall, []string{"time limit of 0.7 s", "waiting for s.hang", "do less in one run"}},
	{"processor time", Limits{CPU: 300 * time.Millisecond}, "for (;;) Math.sqrt(2)", kindCPU, []string{"processor time limit of 0.3 s", "endless loop"}},
	{"memory", Limits{MemoryMB: 48}, "const a = []; for (;;) a.push({a: [1]})", kindMemory, []string{"memory limit of 48 MB", "page by page"}},
	{"depth of calls", Limits{}, "const f = n => 1 + f(n + 1); f(0)", kindStack, []string{"recursion, the limit is 1000 calls deep", "does the function end"}},
	{"calls", Limits{MaxCalls: 2}, "for (let i = 0; i < 3; i++) await s.t()", kindCalls, []string{"budget of 2 tool calls", "larger pages"}},
	{"questions", Limits{MaxCalls: 2}, "for (let i = 0; i < 3; i++) await codemode.tools()", kindCalls, []string{"codemode.tools was called more than 2 times", "keep the answer"}},
	{"source", Limits{MaxSource: 1024}, "return 1 //" + strings.Repeat("x", 1014), kindSyntax, []string{"the code has 1025 bytes, at most 1024", "split the work"}},
	{"arguments", Limits{MaxArguments: 1024}, "await s.t({a: 'x'.repeat(1020)})", kindException, []string{"the arguments of s.t are larger than the limit of 1024 bytes", "pass less"}},
	{"arguments in flight", Limits{MaxArguments: 1024, Parallel: 1, MaxCalls: 9}, "await Promise.all([1, 2, 3].map(() => s.hang({a: 'x'.repeat(900)})))", kindCalls, []string{"more than the limit of 2048 bytes", "await calls before making more"}},
	{"result of a call", Limits{MaxCallResult: 1024}, "await s.large()", kindException, []string{"the call was made", "result of 2", "more than the 1024", "fewer rows or fields"}},
	{"value", Limits{MaxValue: 1024}, "return 'x'.repeat(2000)", "", []string{"more characters"}},
	{"content", Limits{MaxContent: 1024}, "return {type: 'image', mimeType: 'image/png', data: 'x'.repeat(2000)}", "", []string{"2000 bytes are more than the 1024 that may still be returned", "fewer or smaller"}},
	{"console", Limits{MaxLogs: 100}, "for (let i = 0; i < 5; i++) console.log('x'.repeat(40)); return 1", "", []string{"more characters"}},
}

func limitedHost() *fakeHost {
	return &fakeHost{
		call: func(ctx context.Context, c HostCall) (json.RawMessage, error) {
			switch c.Tool {
			case "s_hang":
				<-ctx.Done()
				return nil, ctx.Err()
			case "s_large":
				return json.RawMessage(structured(`{"a":"` + strings.Repeat("x", 2000) + `"}`)), nil
			}
			return json.RawMessage(structured(`{"n":1}`)), nil
		},
		query: func(context.Context, string, json.RawMessage) (json.RawMessage, error) {
			return json.RawMessage("[]"), nil
		},
	}
}

func TestEveryLimitSaysWhichAndWhatToDo(t *testing.T) {
	p := testPool(t, nil)
	for _, c := range overs {
		t.Run(c.name, func(t *testing.T) {
			o, err := p.Run(context.Background(), Request{Owner: "u", Code: c.code, Tools: tools("s_t", "s_hang", "s_large"), Limits: c.limit}, limitedHost())
			if err != nil {
				t.Fatal(err)
			}
			text := string(o.Value) + strings.Join(o.Logs, "\n")
			if c.kind != "" {
				wantError(t, o, c.kind, "")
				if o.Error == nil {
					return
				}
				text = o.Error.Message
			} else if o.Error != nil {
				t.Fatalf("%s: %s", o.Error.Kind, o.Error.Message)
			}
			for _, part := range c.says {
				if !strings.Contains(text, part) {
					t.Errorf("no %q in: %.600s", part, text)
				}
			}
		})
	}
}

// Each of those limits is one of the configuration, and the next run obeys the
// new one.
func TestLimitsChangeWhileThePoolRuns(t *testing.T) {
	p := testPool(t, nil)
	first := runAs(t, p, "u", "return 1")
	wantValue(t, first, "1")
	p.mu.Lock()
	old := p.owned["u"][0]
	p.mu.Unlock()

	for _, c := range overs {
		code := config.Defaults().Code
		set := func(to *int, n int) {
			if n > 0 {
				*to = n
			}
		}
		l := c.limit
		set(&code.MemoryMB, l.MemoryMB)
		set(&code.MaxCalls, l.MaxCalls)
		set(&code.Parallel, l.Parallel)
		set(&code.MaxSource, l.MaxSource)
		set(&code.MaxArguments, l.MaxArguments)
		set(&code.MaxCallResult, l.MaxCallResult)
		set(&code.MaxValue, l.MaxValue)
		set(&code.MaxContent, l.MaxContent)
		set(&code.MaxLogs, l.MaxLogs)
		if l.Wall > 0 {
			code.WallTime = l.Wall
		}
		if l.CPU > 0 {
			code.CPUTime = l.CPU
		}
		if err := p.SetConfig(code); err != nil {
			t.Fatal(err)
		}
		o, err := p.Run(context.Background(), Request{Owner: "u", Code: c.code, Tools: tools("s_t", "s_hang", "s_large")}, limitedHost())
		if err != nil {
			t.Fatal(err)
		}
		text := string(o.Value) + strings.Join(o.Logs, "\n")
		if o.Error != nil {
			text = o.Error.Kind + " " + o.Error.Message
		}
		if c.kind != "" && (o.Error == nil || o.Error.Kind != c.kind) || !strings.Contains(text, c.says[0]) {
			t.Errorf("%s: %.300s", c.name, text)
		}
		if got := p.Status().Limits; l.MaxCalls > 0 && got.MaxCalls != l.MaxCalls {
			t.Errorf("%s: the status shows %+v", c.name, got)
		}
	}
	if !old.dead() {
		t.Error("the worker of other limits of memory is still there")
	}

	code := config.Defaults().Code
	code.Reuse = "perhaps"
	if err := p.SetConfig(code); err == nil {
		t.Error("an unknown reuse was accepted")
	}
}

func TestPlacesChangeWhileThePoolRuns(t *testing.T) {
	places := newTurns(1, 1, 0, 1, 1)
	held, err := places.take(context.Background(), "u", time.Second)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := places.take(context.Background(), "u", time.Second); err == nil {
		t.Fatal("a second run of the user got a place")
	}
	places.bound(2, 2, 5, 1, 1)
	second, err := places.take(context.Background(), "u", time.Second)
	if err != nil {
		t.Fatalf("with two places: %v", err)
	}
	// Of two that wait for a person one lends its place, then, with room, both.
	held.rest()
	second.rest()
	if running, lent, _ := places.counts(); running != 1 || lent != 1 {
		t.Errorf("%d held, %d lent; want one of each", running, lent)
	}
	places.bound(2, 2, 5, 2, 2)
	if running, lent, _ := places.counts(); running != 0 || lent != 2 {
		t.Errorf("%d held, %d lent; want both lent", running, lent)
	}
	// Fewer places take nothing away from a run that goes on.
	<-held.wake()
	<-second.wake()
	places.bound(1, 1, 5, 2, 2)
	if running, _, _ := places.counts(); running != 2 {
		t.Errorf("%d held, want the two of before", running)
	}
	waiting := make(chan error, 1)
	go func() {
		third, err := places.take(context.Background(), "v", time.Minute)
		if err == nil {
			third.give()
		}
		waiting <- err
	}()
	held.give()
	select {
	case <-waiting:
		t.Error("a run began although one place is one too many")
	default:
	}
	second.give()
	if err := <-waiting; err != nil {
		t.Error(err)
	}
}

// The page names every layer that a worker reports, every fuzz target and every
// test it leans on.
func TestDocumentedLayers(t *testing.T) {
	doc, err := os.ReadFile(filepath.Join("..", "docs", "code-mode.md"))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range confine.Layers() {
		if !strings.Contains(string(doc), "| `"+name+"` | ") {
			t.Errorf("docs/code-mode.md does not say what the layer %s is", name)
		}
	}
	var sources strings.Builder
	for _, pattern := range []string{"*_test.go", "internal/*/*_test.go"} {
		files, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range files {
			text, err := os.ReadFile(f)
			if err != nil {
				t.Fatal(err)
			}
			sources.Write(text)
		}
	}
	for _, m := range regexp.MustCompile(`(?m)^func (Fuzz\w+)`).FindAllStringSubmatch(sources.String(), -1) {
		if !strings.Contains(string(doc), "`"+m[1]+"`") {
			t.Errorf("docs/code-mode.md does not name %s", m[1])
		}
	}
	for _, m := range regexp.MustCompile("`((?:Test|Fuzz)\\w+)`").FindAllStringSubmatch(string(doc), -1) {
		if m[1] != "TestAnswersAreWhatTheSchemaDeclares" && !strings.Contains(sources.String(), "func "+m[1]+"(") {
			t.Errorf("docs/code-mode.md names %s, which does not exist here", m[1])
		}
	}
}
