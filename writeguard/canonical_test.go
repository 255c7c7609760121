package writeguard

import (
	"bytes"
	"encoding/json"
	"reflect"
	"strings"
	"testing"
)

func TestCanonical(t *testing.T) {
	deep := strings.Repeat(`{"a":`, depthMax+1) + "1" + strings.Repeat("}", depthMax+1)
	for _, tt := range []struct{ name, in, want string }{
		{"absent", ``, `{}`},
		{"null", ` null `, `{}`},
		{"empty", `{ }`, `{}`},
		{"order", `{"b":1,"a":2}`, `{"a":2,"b":1}`},
		{"order inside", `{"x":{"b":[{"d":1,"c":2}],"a":2}}`, `{"x":{"a":2,"b":[{"c":2,"d":1}]}}`},
		{"order of arrays stays", `{"a":[2,1]}`, `{"a":[2,1]}`},
		{"white space", "{ \"a\" :\t[ 1 ,\n2 ] }", `{"a":[1,2]}`},
		{"large integer", `{"n":9007199254740993}`, `{"n":9007199254740993}`},
		{"huge", `{"n":1e400}`, `{"n":1e400}`},
		{"digits stay", `{"n":[1,1.0,1e0,-0,0.10]}`, `{"n":[1,1.0,1e0,-0,0.10]}`},
		{"escapes", `{"\u0061":"\u00e9\/\n"}`, `{"a":"é/\n"}`},
		{"pair", `{"a":"\ud83d\ude00"}`, `{"a":"😀"}`},
		{"html stays", `{"a":"<&>"}`, `{"a":"<&>"}`},
		{"literals", `{"a":[true,false,null,""]}`, `{"a":[true,false,null,""]}`},
		{"escaped backslash before u", `{"a":"\\ud800"}`, `{"a":"\\ud800"}`},
	} {
		got, err := Canonical(json.RawMessage(tt.in))
		if err != nil || string(got) != tt.want {
			t.Errorf("%s: %s, %v; want %s", tt.name, got, err, tt.want)
		}
	}
	for name, in := range map[string]string{
		"array": `[1]`, "form feed": "\f{}", "next line": "\u0085{}", "string": `"a"`, "number": `1`, "cut": `{"a":`, "two values": `{} {}`, "trailing brace": `{}}`,
		"repeated member": `{"a":1,"a":2}`, "repeated by escape": `{"a":1,"\u0061":2}`, "repeated inside": `{"x":[{"a":1,"a":1}]}`,
		"not UTF-8": "{\"a\":\"\xff\"}", "half pair": `{"a":"\ud800"}`, "half pair, text": `{"a":"\ud800xxxxxx"}`,
		"low half": `{"a":"\udc00"}`, "two highs": `{"a":"\ud800\ud800"}`, "half in a name": `{"\uD800":1}`, "too deep": deep,
	} {
		if got, err := Canonical(json.RawMessage(in)); err == nil {
			t.Errorf("%s: %s, want an error", name, got)
		}
	}
}

func FuzzCanonical(f *testing.F) {
	f.Add([]byte(`{"b":[1,{"d":null,"c":"\u2028"}],"a":1.50}`))
	f.Add([]byte(`{"a":"\ud83d\ude00","A":-0}`))
	f.Fuzz(func(t *testing.T, in []byte) {
		once, err := Canonical(in)
		if err != nil {
			return
		}
		twice, err := Canonical(once)
		if err != nil || !bytes.Equal(once, twice) {
			t.Fatalf("not stable: %s, then %s (%v)", once, twice, err)
		}
		if s := string(bytes.Trim(in, " \t\r\n")); s == "" || s == "null" {
			return
		}
		if a, b := decode(t, in), decode(t, once); !reflect.DeepEqual(a, b) {
			t.Fatalf("another value: %s is %s", in, once)
		}
		// What a person reads is the same value too.
		if shown, err := Canonical(json.RawMessage(VisibleJSON(once))); err != nil || !bytes.Equal(shown, once) {
			t.Fatalf("shown as another value: %s is %s (%v)", once, shown, err)
		}
	})
}

func decode(t *testing.T, b []byte) (v any) {
	d := json.NewDecoder(bytes.NewReader(b))
	d.UseNumber()
	if err := d.Decode(&v); err != nil {
		t.Fatal(err)
	}
	return v
}

func TestVisible(t *testing.T) {
	for in, want := range map[string]string{
		"plain text, ümläut, 日本, 😀":   "plain text, ümläut, 日本, 😀",
		"a\u202eb":                    `a\u202eb`,
		"a\u200bb\ufeff":              `a\u200bb\ufeff`,
		"line\nline\r\ttab":           `line\u000aline\u000d\u0009tab`,
		"bad\xffbyte":                 `bad\ufffdbyte`,
		"tag \U000e0041":              `tag \udb40\udc41`,
		"filler \u3164\u2800":         `filler \u3164\u2800`,
		"nbsp\u00a0soft\u00adhyphen":  `nbsp\u00a0soft\u00adhyphen`,
		"sep\u2028\u2029":             `sep\u2028\u2029`,
		"e\u0301 combining is a mark": "e\u0301 combining is a mark",
		"private \ue000 \U0010ffff":   `private \ue000 \udbff\udfff`,
	} {
		if got := Visible(in); got != want {
			t.Errorf("Visible(%q) = %q, want %q", in, got, want)
		}
	}
	if got, want := VisibleJSON(json.RawMessage("{\"a\":\"x\u202e\",\"b\":[1]}")), "{\n  \"a\": \"x\\u202e\",\n  \"b\": [\n    1\n  ]\n}"; got != want {
		t.Errorf("VisibleJSON = %s", got)
	}
}
