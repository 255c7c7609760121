package gateway

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/mcp-portal/mcp-portal/codemode"
)

func newKept(t *testing.T) *kept {
	t.Helper()
	return &kept{store: openStore(t), log: slog.New(slog.NewTextHandler(io.Discard, nil)), now: time.Now}
}

func readKept(k *kept, user string, args ...string) (string, error) {
	var raw []json.RawMessage
	for _, a := range args {
		raw = append(raw, json.RawMessage(a))
	}
	v, _, err := k.read(context.Background(), user, raw)
	return string(v), err
}

func TestKeptValuesAreReadInParts(t *testing.T) {
	k := newKept(t)
	id, err := k.put(context.Background(), "ann", 0, json.RawMessage(`{"rows":[{"n":1},{"n":2},{"n":3}],"text":"äbcdé","big":9007199254740993,"a.b":1,"empty":[]}`))
	if err != nil {
		t.Fatal(err)
	}
	q := `"` + id + `"`
	for _, c := range []struct{ options, want, problem string }{
		{`{}`, `{"rows":[{"n":1},{"n":2},{"n":3}],"text":"äbcdé","big":9007199254740993,"a.b":1,"empty":[]}`, ""},
		{`{"path":"rows"}`, `[{"n":1},{"n":2},{"n":3}]`, ""},
		{`{"path":"rows.1.n"}`, `2`, ""},
		{`{"path":"rows","from":1}`, `[{"n":2},{"n":3}]`, ""},
		{`{"path":"rows","from":0,"to":1}`, `[{"n":1}]`, ""},
		{`{"path":"rows","from":5,"to":9}`, `[]`, ""},
		{`{"path":"rows","to":0}`, `[]`, ""},
		{`{"path":"text","from":1,"to":4}`, `"bcd"`, ""},
		{`{"path":"text","from":4}`, `"é"`, ""},
		{`{"path":"text","from":9}`, `""`, ""},
		{`{"path":"big"}`, `9007199254740993`, ""},
		{`{"path":"empty","from":0}`, `[]`, ""},
		{`{"path":"rows.7"}`, "", `no "7" in it; there is 0, 1, 2`},
		{`{"path":"nope"}`, "", `no "nope" in it; there is rows, text, big`},
		{`{"path":"big.x"}`, "", `no "x" in it`},
		{`{"path":"big","from":1}`, "", "for lists and texts"},
		{`{"from":-1}`, "", "places from 0 on"},
		{`{"path":"rows","from":2,"to":1}`, "", "places from 0 on"},
		{`{"form":1}`, "", `unknown field "form"`},
		{`[]`, "", "takes {path"},
	} {
		got, err := readKept(k, "ann", q, c.options)
		if c.problem != "" {
			var h *codemode.HostError
			if !errors.As(err, &h) || h.Code != "invalid_arguments" || !strings.Contains(h.Message, c.problem) {
				t.Errorf("%s: %v, want %q", c.options, err, c.problem)
			}
			continue
		}
		if err != nil || got != c.want {
			t.Errorf("%s: %s %v, want %s", c.options, got, err, c.want)
		}
	}
	for _, args := range [][]string{{}, {`5`}, {`"run_x"`}, {`{"id":1}`}} {
		if _, err := readKept(k, "ann", args...); err == nil || !strings.Contains(err.Error(), "takes the id") {
			t.Errorf("%v: %v", args, err)
		}
	}
}

// What is kept is its user's alone, bounded, and gone after its time.
func TestKeptValuesArePrivateAndBounded(t *testing.T) {
	k, ctx := newKept(t), context.Background()
	first, err := k.put(ctx, "ann", 0, json.RawMessage(`"secret"`))
	if err != nil {
		t.Fatal(err)
	}
	if got, err := readKept(k, "bob", `"`+first+`"`); err == nil || strings.Contains(err.Error(), "secret") {
		t.Errorf("another user reads it: %s %v", got, err)
	}
	if _, err := readKept(k, "bob", `"res_x:../`+first+`"`); err == nil {
		t.Error("a path of keys leads there")
	}
	var wg sync.WaitGroup
	for i := range keptEntries + 3 {
		wg.Go(func() {
			if _, err := k.put(ctx, "ann", 0, json.RawMessage(fmt.Sprint(i))); err != nil {
				t.Errorf("put %d: %v", i, err)
			}
		})
	}
	wg.Wait()
	if keys, err := k.store.Keys(ctx, "kept:"+userKey("ann")); err != nil || len(keys) != keptEntries {
		t.Errorf("%d values kept, %v", len(keys), err)
	}
	if _, err := readKept(k, "ann", `"`+first+`"`); err == nil || !strings.Contains(err.Error(), "only the latest") {
		t.Errorf("the oldest is still there: %v", err)
	}
	big := json.RawMessage(`"` + strings.Repeat("x", keptMost-2) + `"`)
	for range 4 {
		if _, err := k.put(ctx, "ann", 0, big); err != nil {
			t.Fatal(err)
		}
	}
	keys, _ := k.store.Keys(ctx, "kept:"+userKey("ann"))
	if len(keys) != keptOfUser/keptMost {
		t.Errorf("%d values of %d bytes kept, at most %d in all", len(keys), keptMost, keptOfUser)
	}
	if _, err := k.put(ctx, "ann", 0, append(big[:1:1], big...)); err == nil {
		t.Error("a value beyond the bound is kept")
	}
	// What has expired does not count.
	now := time.Now().Add(valueKeptFor + time.Minute)
	k.now = func() time.Time { return now }
	for range 3 {
		if _, err := k.put(ctx, "ann", 0, json.RawMessage(`1`)); err != nil {
			t.Fatal(err)
		}
	}
	var list []keptEntry
	raw, _, _ := k.store.Get(ctx, "kept-of:"+userKey("ann"))
	if err := json.Unmarshal(raw, &list); err != nil || len(list) != 3 {
		t.Errorf("%d entries, %v", len(list), err)
	}
}
