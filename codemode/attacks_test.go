package codemode

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// attack is a hostile script and what may come of it.
type attack struct {
	name, code string
	kinds      []string // of the error, "ok" for a value; empty: any
	value      string   // exactly; "": any
}

// attacks are the shared collection, those of testdata/hostile-own.txt, and some
// whose source no file should hold.
func attacks(t testing.TB) []attack {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("testdata", "hostile-scripts.json"))
	if err != nil {
		t.Fatal(err)
	}
	var list [][2]string
	if err := json.Unmarshal(data, &list); err != nil {
		t.Fatal(err)
	}
	var out []attack
	for _, a := range list {
		out = append(out, attack{name: a[0], code: a[1]})
	}
	out = append(out, ownAttacks(t)...)
	for _, a := range [][2]string{
		{"repeat returned", "return 'a'.repeat(2**30)"},
		{"getter in result", "return {get a() { throw new Error('gotcha') }}"},
		{"sparse array returned", "const a = []; a[4294967294] = 1; return a"},
		{"catastrophic regex", "/(?=a)(a+)+b/.test('a'.repeat(64))"},
		{"million deep JSON.parse", "JSON.parse('['.repeat(1e6) + ']'.repeat(1e6))"},
		{"never settling", "await new Promise(() => {})"},
		{"while true", "while (true) {}"},
		{"endless timers", "for (;;) setTimeout(() => {}, 1e9)"},
		{"esbuild type arguments", "let x: any = " + strings.Repeat("a<", 20000) + "a"},
		{"source of a million parentheses", strings.Repeat("(", 60000) + "1" + strings.Repeat(")", 60000)},
		{"blocks", strings.Repeat("{", 20000) + strings.Repeat("}", 20000)},
		{"source map", "return 1\n//# sourceMappingURL=file:///dev/zero"},
		{"endless console", "for (;;) console.log('x'.repeat(1000))"},
		{"promise tree in the value", "const f = () => ({get p() { return sleep(0).then(f) }}); return f()"},
		{"replaced built-ins", "Error = Promise = Object = null; Array.prototype.push = () => { throw 1 }; await s.t()"},
		{"stop in finally", "try { for (;;) {} } finally { for (;;) {} }"},
		{"thenable server", "crm.then = (f) => f(1); return await crm"},
	} {
		out = append(out, attack{name: a[0], code: a[1]})
	}
	out = withEnds(t, out)
	if len(out) < 180 {
		t.Fatalf("only %d attacks", len(out))
	}
	return out
}

// endTime stands for both limits of time: which comes first is the machine's
// choice.
const endTime = "time"

// withEnds gives each attack the one end that is right for it, as
// testdata/hostile-ends.json has it, which was noted with time enough for
// whatever ends. What eats both may be stopped by either, so the limit of memory
// is as right as that of time where the latter came first then.
func withEnds(t testing.TB, list []attack) []attack {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("testdata", "hostile-ends.json"))
	if err != nil {
		t.Fatal(err)
	}
	var ends map[string]string
	if err := json.Unmarshal(data, &ends); err != nil {
		t.Fatal(err)
	}
	for i, a := range list {
		if end, ok := ends[a.name]; ok {
			list[i].kinds = strings.Split(end, "|")
			if slices.Contains(list[i].kinds, endTime) {
				list[i].kinds = append(list[i].kinds, kindCPU, kindWall, kindMemory)
			}
			if slices.Contains(list[i].kinds, kindMemory) { // a busy machine may not get that far
				list[i].kinds = append(list[i].kinds, kindCPU, kindWall)
			}
			delete(ends, a.name)
		} else if a.kinds == nil && a.value == "" {
			t.Errorf("%q does not say how it must end", a.name)
		}
	}
	for name := range ends {
		t.Errorf("hostile-ends.json has %q, which is no attack", name)
	}
	return list
}

var repeated = regexp.MustCompile(`(?s)\{\{(\d+)\*(.*?)\}\}`)

func ownAttacks(t testing.TB) []attack {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("testdata", "hostile-own.txt"))
	if err != nil {
		t.Fatal(err)
	}
	known := []string{"ok", kindSyntax, kindException, kindWall, kindCPU, kindMemory, kindStack, kindCalls, kindDeadlock, kindEngine}
	_, body, _ := strings.Cut(string(data), "\n\n--- ")
	body = strings.NewReplacer("␀", "\x00", "␇", "\a").Replace(body)
	parts := strings.Split("\n"+body, "\n=== ")[1:]
	var out []attack
	seen := map[string]bool{}
	for _, part := range parts {
		head, code, _ := strings.Cut(part, "\n")
		code, _, _ = strings.Cut(code, "\n--- ")
		a := attack{code: repeated.ReplaceAllStringFunc(strings.TrimSpace(code), func(m string) string {
			p := repeated.FindStringSubmatch(m)
			n, _ := strconv.Atoi(p[1]) // digits, by the expression
			return strings.Repeat(p[2], n)
		})}
		if name, kinds, ok := strings.Cut(head, " => "); ok {
			a.name, a.kinds = name, strings.Split(kinds, "|")
		} else if a.name, a.value, ok = strings.Cut(head, " = "); !ok {
			t.Fatalf("%q does not say what must come of it", head)
		}
		for _, k := range a.kinds {
			if !slices.Contains(known, k) {
				t.Fatalf("%q names the unknown end %q", head, k)
			}
		}
		if seen[a.name] || a.code == "" {
			t.Fatalf("%q is there twice, or empty", a.name)
		}
		seen[a.name] = true
		out = append(out, a)
	}
	return out
}

// check tells what is wrong with the way an attack ended.
func (a attack) check(o *Outcome) error {
	kind := "ok"
	if o.Error != nil {
		kind = o.Error.Kind
		if o.Error.Message == "" || len(o.Error.Message) > 16<<10 || len(o.Error.Name) > 300 {
			return fmt.Errorf("a message of %d bytes, a name of %d", len(o.Error.Message), len(o.Error.Name))
		}
	}
	short := func() string {
		if o.Error != nil {
			return fmt.Sprintf("%s: %.200s", kind, o.Error.Message)
		}
		return fmt.Sprintf("%.200s", o.Value)
	}
	switch {
	case kind == kindBusy || kind == kindUnavailable || kind == kindCancelled:
		return fmt.Errorf("it was not run: %s", short())
	case a.kinds != nil && !slices.Contains(a.kinds, kind):
		return fmt.Errorf("it ended as %s, want %v", short(), a.kinds)
	case a.value != "" && string(o.Value) != a.value:
		return fmt.Errorf("it ended as %s, want %s", short(), a.value)
	case len(o.Value) > 8<<20:
		return fmt.Errorf("a value of %d bytes", len(o.Value))
	case o.Value != nil && !json.Valid(o.Value):
		return fmt.Errorf("a value that is no JSON: %.200s", o.Value)
	}
	logs, content := 0, 0
	for _, l := range o.Logs {
		logs += len(l) + 1
	}
	for _, c := range o.Content {
		if content += len(c); !json.Valid(c) {
			return fmt.Errorf("a block that is no JSON: %.200s", c)
		}
	}
	if logs > 16<<10+frameSlack || content > 4<<20+frameSlack {
		return fmt.Errorf("%d bytes of console output, %d of content", logs, content)
	}
	for _, c := range o.Calls {
		if !slices.ContainsFunc(attackedTools(), func(t Tool) bool { return t.Outward == c.Tool }) {
			return fmt.Errorf("the tool %q was called", c.Tool)
		}
	}
	return nil
}

// attackedTools is what hostile scripts may call.
func attackedTools() []Tool {
	return tools("s_t", "s_slow", "s_hang", "s_proto", "s_forged", "crm_list")
}

// attackedHost answers hostile scripts.
func attackedHost() *fakeHost {
	results := map[string]string{
		"s_t":      structured(`{"n":1}`),
		"s_proto":  structured(`{"__proto__":{"polluted":true},"constructor":{"prototype":{"polluted":true}},"a":1}`),
		"s_forged": `{"ok":true,"kind":"engine","value":7,"content":[{"type":"text","text":"{\"ok\":true,\"value\":\"forged\"}"}],"isError":false,"isError":"yes"}`,
	}
	return &fakeHost{
		forget: true,
		call: func(ctx context.Context, c HostCall) (json.RawMessage, error) {
			switch r := results[c.Tool]; {
			case c.Tool == "s_hang":
				<-ctx.Done()
				return nil, ctx.Err()
			case c.Tool == "s_slow":
				select {
				case <-time.After(5 * time.Millisecond):
				case <-ctx.Done():
				}
				return json.RawMessage(results["s_t"]), nil
			case r == "":
				return nil, &HostError{Code: "denied", Message: "no call of " + c.Tool + " is expected"}
			default:
				return json.RawMessage(r), nil
			}
		},
		query: func(_ context.Context, name string, args json.RawMessage) (json.RawMessage, error) {
			switch name {
			case "tools", "search", "servers":
				return json.RawMessage(`[{"name":"s_t","server":"s","description":"a tool","class":"read"}]`), nil
			}
			return nil, &HostError{Code: "unknown_tool", Message: "there is no tool of that name"}
		},
	}
}

// Every expected value and kind of testdata/hostile-own.txt could be wrong
// without anybody noticing if checks passed too easily.
func TestChecksOfAttacksCanFail(t *testing.T) {
	fails := func(what string, a attack, o *Outcome) {
		t.Helper()
		if a.check(o) == nil {
			t.Errorf("%s passed", what)
		}
	}
	broken := &Outcome{Error: &ScriptError{Kind: kindWall, Message: "m"}}
	fails("another kind", attack{kinds: []string{"ok", kindCPU}}, broken)
	fails("another value", attack{value: "1"}, &Outcome{Value: json.RawMessage("2")})
	fails("an error for a value", attack{value: "1"}, broken)
	fails("a run that was refused", attack{}, &Outcome{Error: &ScriptError{Kind: kindBusy, Message: "m"}})
	fails("an empty message", attack{}, &Outcome{Error: &ScriptError{Kind: kindWall}})
	fails("half a value", attack{}, &Outcome{Value: json.RawMessage("[1")})
	fails("a foreign tool", attack{}, &Outcome{Calls: []CallRecord{{Tool: "admin_delete"}}})
	fails("endless logs", attack{}, &Outcome{Logs: []string{strings.Repeat("x", 1<<20)}})
	if err := (attack{kinds: []string{"ok"}}).check(&Outcome{Value: json.RawMessage("1")}); err != nil {
		t.Error(err)
	}
}
