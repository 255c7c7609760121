package writeguard

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"testing"
)

// plain is arguments read by the standard decoder, after they were brought
// into the form in which approvals compare them.
func plain(raw json.RawMessage) (map[string]any, error) {
	canonical, err := Canonical(raw)
	if err != nil {
		return nil, err
	}
	dec := json.NewDecoder(bytes.NewReader(canonical))
	dec.UseNumber()
	var v map[string]any
	if err := dec.Decode(&v); err != nil {
		return nil, err
	}
	out, err := numbers(v)
	if err != nil {
		return nil, err
	}
	return out.(map[string]any), nil
}

func numbers(v any) (any, error) {
	var err error
	switch x := v.(type) {
	case json.Number:
		if n, err := x.Int64(); err == nil {
			return n, nil
		}
		return x.Float64()
	case []any:
		for i := range x {
			if x[i], err = numbers(x[i]); err != nil {
				return nil, err
			}
		}
	case map[string]any:
		for k := range x {
			if x[k], err = numbers(x[k]); err != nil {
				return nil, err
			}
		}
	}
	return v, nil
}

var argumentTexts = []string{
	"", "null", "{}", " {} ", "[]", `{"a":1}`, `{"a":1.0,"b":-0,"c":1e3,"d":9007199254740993,"e":18446744073709551616}`, `{"a":1e999}`,
	`{"a":"\u00e9\ud83d\ude00\"\\","b":"é"}`, `{"a":"\ud83d"}`, `{"a":"\udc00\ud800"}`, "{\"a\":\"\xff\"}", `{"a":1,"a":2}`, `{"a":1,"\u0061":2}`,
	`{"x":{"b":[1,[2,{}],[],null,true,false]}}`, `{"a":1`, `{"a":1} x`, `{,}`, "{\"a\" :\t[ 1 ,\n2 ] }", "\u00a0{}",
	`{"a":` + strings.Repeat("[", 256) + strings.Repeat("]", 256) + `}`, `{"a":` + strings.Repeat("[", 255) + "1" + strings.Repeat("]", 255) + `}`, `{"a":` + strings.Repeat("[", 256) + "1" + strings.Repeat("]", 256) + `}`,
}

// What conditions see is what the standard decoder reads, and what it would
// read in more than one way is refused.
func FuzzDecodeArguments(f *testing.F) {
	for _, s := range argumentTexts {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		got, err := decodeArguments(raw)
		want, wantErr := plain(raw)
		if (err != nil) != (wantErr != nil) {
			t.Fatalf("decodeArguments(%q): %v; the standard decoder: %v", raw, err, wantErr)
		}
		if err == nil && !reflect.DeepEqual(got, want) {
			t.Fatalf("decodeArguments(%q) = %#v, want %#v", raw, got, want)
		}
	})
}

// A decision over many rules does not read the arguments once per condition,
// and looks only at the rules that can match its tool. The number of
// allocations tells; how long it takes is for the benchmark.
func TestDecisionsReadArgumentsOnce(t *testing.T) {
	p, c := conditions200(t)
	few := testing.AllocsPerRun(50, func() { p.Decide(c) })
	big := c
	var items []string
	for i := range 100 {
		items = append(items, fmt.Sprintf(`{"id":"r%d"}`, i))
	}
	big.Arguments = json.RawMessage(`{"amount":5,"items":[` + strings.Join(items, ",") + `]}`)
	many := testing.AllocsPerRun(50, func() { p.Decide(big) })
	// An object, its name and its value for each of a hundred items, read once.
	if few > 120 || many > few+600 {
		t.Errorf("a decision allocates %v times, with a hundred items in the arguments %v times", few, many)
	}
	if n := len(p.tool(&c).rules); n != 5 {
		t.Errorf("%d of 200 rules are looked at, want the 5 that can match the tool", n)
	}
}
