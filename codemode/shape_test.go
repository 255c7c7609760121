package codemode

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"strings"
	"testing"

	"github.com/tiktoken-go/tokenizer"
)

// randomValue makes nested values with long and short parts; left bounds the
// number of values in all.
func randomValue(r *rand.Rand, depth int, left *int) any {
	n := r.IntN(10)
	if depth == 5 {
		n = r.IntN(5)
	}
	*left--
	switch {
	case n < 2 && depth > 0:
		m := map[string]any{}
		for i := r.IntN(30); i > 0 && *left > 0; i-- {
			m[randomText(r, 12)] = randomValue(r, depth-1, left)
		}
		return m
	case n < 4 && depth > 0:
		l := []any{}
		for i := r.IntN(200); i > 0 && *left > 0; i-- {
			l = append(l, randomValue(r, depth-1, left))
		}
		return l
	case n < 7:
		return randomText(r, 1<<r.IntN(11))
	case n < 8:
		return r.Float64() * 1e6
	case n < 9:
		return r.Int64()
	default:
		return []any{true, nil, "", "…", map[string]any{"…": 1}}[r.IntN(5)]
	}
}

func randomText(r *rand.Rand, n int) string {
	alphabets := []string{"abcdefgh ijkl", "0123456789abcdef", "日本語テキスト", "\"\\\n\t{}[],:", "😀é ß", "AbCd01+/"}
	a := []rune(alphabets[r.IntN(len(alphabets))])
	var b strings.Builder
	for range r.IntN(n + 1) {
		b.WriteRune(a[r.IntN(len(a))])
	}
	return b.String()
}

func TestShapeStaysValidAndWithinTheBudget(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	cuts := 0
	for i := range 1000 {
		left := 1 << r.IntN(10)
		raw, err := json.Marshal(randomValue(r, 5, &left))
		if err != nil {
			t.Fatal(err)
		}
		budget := 4 << r.IntN(11)
		out, cut, info := Shape(raw, budget)
		if !json.Valid(out) {
			t.Fatalf("%d: not valid: %.300s\nfrom %.300s", i, out, raw)
		}
		if got := EstimateTokens(out); got > budget {
			t.Fatalf("%d: %d tokens of %d: %.300s", i, got, budget, out)
		}
		if info.Bytes != len(raw) || info.Kept != len(out) {
			t.Fatalf("%d: %+v for %d bytes in and %d out", i, info, len(raw), len(out))
		}
		if !cut {
			var a, b any
			if json.Unmarshal(raw, &a) != nil || json.Unmarshal(out, &b) != nil || !reflect.DeepEqual(a, b) {
				t.Fatalf("%d: changed without saying so", i)
			}
			continue
		}
		cuts++
		if !strings.Contains(string(out), "…") {
			t.Fatalf("%d: cut without a word: %.300s", i, out)
		}
		// Most of the budget is used where there is enough to fill it.
		if got := EstimateTokens(out); budget >= 256 && got < budget/4 {
			t.Errorf("%d: only %d of %d tokens used: %.200s", i, got, budget, out)
		}
	}
	if cuts < 300 {
		t.Errorf("only %d of the values were cut", cuts)
	}
}

func TestShapeKeepsSmallFields(t *testing.T) {
	var rows []any
	for i := range 2000 {
		rows = append(rows, map[string]any{"id": i, "name": fmt.Sprintf("record %d", i), "ok": true})
	}
	raw, _ := json.Marshal(map[string]any{"success": true, "errors": []any{}, "result": rows, "result_info": map[string]any{"page": 1, "total": 2000}})
	out, cut, info := Shape(raw, 1000)
	var got struct {
		Success    bool
		ResultInfo map[string]int `json:"result_info"`
		Result     []any
	}
	if err := json.Unmarshal(out, &got); err != nil {
		t.Fatal(err)
	}
	if !cut || !got.Success || got.ResultInfo["total"] != 2000 || len(got.Result) < 20 {
		t.Errorf("kept %d rows, %+v", len(got.Result), got.ResultInfo)
	}
	if want := fmt.Sprintf("… %d more items", info.Items); got.Result[len(got.Result)-1] != want || info.Items != 2000-len(got.Result)+1 {
		t.Errorf("last item %v, want %q for %d kept", got.Result[len(got.Result)-1], want, len(got.Result))
	}
	for _, row := range got.Result[:len(got.Result)-1] {
		if m, ok := row.(map[string]any); !ok || m["name"] == nil || m["ok"] != true {
			t.Fatalf("a row lost its fields: %v", row)
		}
	}

	// Long parts of records are clipped before records are dropped.
	rows = nil
	for i := range 20 {
		rows = append(rows, map[string]any{"id": i, "body": strings.Repeat("long text ", 2000)})
	}
	raw, _ = json.Marshal(rows)
	out, _, info = Shape(raw, 2000)
	var records []struct {
		ID   int
		Body string
	}
	if err := json.Unmarshal(out, &records); err != nil {
		t.Fatal(err)
	}
	if len(records) != 20 || records[19].ID != 19 || !strings.Contains(records[19].Body, "more characters") || info.Characters == 0 {
		t.Errorf("%d records, %+v", len(records), info)
	}
}

func TestShapeText(t *testing.T) {
	for _, c := range []struct {
		in     string
		budget int
		cut    bool
	}{{"short", 10, false}, {strings.Repeat("word ", 10_000), 100, true}, {strings.Repeat("日", 5000), 50, true}, {"", 1, false}, {"\xff\xfe", 10, false}} {
		out, cut := ShapeText(c.in, c.budget)
		if cut != c.cut || EstimateTokens([]byte(out)) > max(c.budget, 10) {
			t.Errorf("%.20q: cut %v, %d tokens", c.in, cut, EstimateTokens([]byte(out)))
		}
	}
	if out, cut, _ := Shape(nil, 100); out != nil || cut {
		t.Errorf("no value became %q", out)
	}
	out, cut, _ := Shape(json.RawMessage("not { json"), 100)
	if cut || string(out) != `"not { json"` {
		t.Errorf("%s", out)
	}
	out, cut, _ = Shape(json.RawMessage(`"`+strings.Repeat("x", 3_000_000)+`"`), 1000)
	if !cut || len(out) > 5000 || !strings.Contains(string(out), "more characters") {
		t.Errorf("%d bytes", len(out))
	}
}

// TestEstimateIsConservative compares the estimate with the real tokenizer on
// texts of this kind.
func TestEstimateIsConservative(t *testing.T) {
	enc, err := tokenizer.Get(tokenizer.O200kBase)
	if err != nil {
		t.Fatal(err)
	}
	samples := map[string][]byte{
		"prose":  []byte(strings.Repeat("The quick brown fox jumps over the lazy dog and the portal forwards the request. ", 50)),
		"hex":    []byte(strings.Repeat(`{"sha":"9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"},`, 50)),
		"cjk":    []byte(strings.Repeat("これは日本語の文章です。請求書を確認してください。", 50)),
		"base64": []byte(strings.Repeat("iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk", 50)),
		"rows":   []byte(strings.Repeat(`{"id":48213,"zone":"example.com","type":"A","content":"198.51.100.7","ttl":300,"proxied":false},`, 50)),
	}
	files, _ := filepath.Glob(filepath.Join("..", "..", "shared", "corpora", "mcp-tools", "*", "*.json"))
	for i, f := range files {
		if b, err := os.ReadFile(f); err == nil && i%8 == 0 && len(b) < 300_000 {
			samples[filepath.Base(filepath.Dir(f))] = b
		}
	}
	for name, text := range samples {
		n, err := enc.Count(string(text))
		if err != nil {
			t.Fatal(err)
		}
		got := EstimateTokens(text)
		if ratio := float64(got) / float64(n); ratio < 0.85 || ratio > 2.6 {
			t.Errorf("%s: estimated %d, real %d (%.2f)", name, got, n, ratio)
		}
	}
}

func FuzzShape(f *testing.F) {
	f.Add([]byte(`{"a":[1,2,{"b":"c"}],"…":null}`), 10)
	f.Add([]byte(`"\ud800 x"`), 1)
	f.Add([]byte(`[[[[[[]]]]]]`), 3)
	f.Fuzz(func(t *testing.T, in []byte, budget int) {
		budget = budget%5000 + 4
		if budget < 4 {
			budget = 4
		}
		out, _, _ := Shape(in, budget)
		if len(in) == 0 {
			return
		}
		if !json.Valid(out) {
			t.Fatalf("%q → %q", in, out)
		}
		if EstimateTokens(out) > budget {
			t.Fatalf("%q → %d tokens of %d", in, EstimateTokens(out), budget)
		}
	})
}

// A value that takes all the room it may costs little more than its own size:
// the portal does this for every run, whatever the script returned.
func TestShapeOfLargeValuesIsCheap(t *testing.T) {
	const size = 1 << 20
	for name, value := range map[string]string{
		"small numbers": "[" + strings.Repeat("1,", size/2) + "1]",
		"empty lists":   "[" + strings.Repeat("[],", size/3) + "1]",
		"lists of many": "[" + strings.Repeat("["+strings.Repeat("1,", 2000)+"1],", size/4000) + "1]",
		"many fields":   `{"a":1` + strings.Repeat(`,"b":1`, size/6) + "}",
		"one text":      `"` + strings.Repeat("x", size) + `"`,
		"deep":          strings.Repeat("[", 5000) + `"` + strings.Repeat("x", size) + `"` + strings.Repeat("]", 5000),
		"records":       "[" + strings.Repeat(`{"id":123456,"name":"a name of some length","tags":["a","b"]},`, size/64) + "1]",
	} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		out, cut, info := Shape(json.RawMessage(value), 6000)
		runtime.ReadMemStats(&after)
		if !cut || !json.Valid(out) || EstimateTokens(out) > 6000 || info.Bytes != len(value) {
			t.Errorf("%s: cut %v, %d bytes, %+v", name, cut, len(out), info)
		}
		if used := after.TotalAlloc - before.TotalAlloc; used > 16<<20 {
			t.Errorf("%s: %d MB for a value of 1 MB", name, used>>20)
		}
	}
}
