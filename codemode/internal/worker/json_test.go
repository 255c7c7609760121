package worker

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/big"
	"reflect"
	"strings"
	"testing"

	"github.com/dop251/goja"
)

// write turns a value back into JSON.
func write(t testing.TB, vm *goja.Runtime, v goja.Value) string {
	t.Helper()
	w := newWriter(vm, 1<<20)
	if ex := vm.Try(func() { w.value(v, 0) }); ex != nil {
		t.Fatal(ex)
	}
	return string(w.b)
}

func TestParseRejects(t *testing.T) {
	vm := compilePrelude().newRuntime()
	for _, in := range []string{
		"", " ", "{", "[", "]", "[1,]", "[,1]", "{,}", `{"a"}`, `{"a":}`, `{"a":1,}`, `{a:1}`, "01", "-", "1.", ".5", "1e", "+1", "nul", "tru", "NaN",
		`"a`, `"\x"`, "\"a\nb\"", "1 2", "[1] x", `{"a":1}}`, "\x00", `"\u12"`, strings.Repeat("9", 5000),
		strings.Repeat("[", 201) + strings.Repeat("]", 201), strings.Repeat(`{"a":`, 201) + "1" + strings.Repeat("}", 201),
	} {
		if v, err := parseJSON(vm, []byte(in)); err == nil {
			t.Errorf("%.40q gave %v", in, v)
		}
	}
}

func TestParseKeeps(t *testing.T) {
	vm := compilePrelude().newRuntime()
	for in, want := range map[string]string{
		`{"b":1,"a":{"x":[true,false,null]}}`: ``, `[9007199254740992,9007199254740993,-9007199254740993]`: ``,
		`{"__proto__":{"a":1}}`: ``, ` [ 1 , 2 ] `: `[1,2]`, `1e999`: `"Infinity"`, `1.50`: `1.5`, `{"a":1,"a":2}`: `{"a":2}`,
		`"\ud83d\ude00 \u00e9"`: `"😀 é"`, `"\ud800"`: "\"\ufffd\"", `-0`: `0`, `[]`: ``, `{}`: ``, `"\u0000"`: ``, `1e2`: `100`,
	} {
		if want == "" {
			want = in
		}
		v, err := parseJSON(vm, []byte(in))
		if err != nil {
			t.Errorf("%s: %v", in, err)
			continue
		}
		if got := write(t, vm, v); got != want {
			t.Errorf("%s became %s, want %s", in, got, want)
		}
	}
}

// Rows repeat their strings; none is taken for another.
func TestParseKeepsManyStrings(t *testing.T) {
	vm := compilePrelude().newRuntime()
	var rows []map[string]string
	for i := range 3000 {
		key := strings.Repeat(string(rune('a'+i%26)), 1+i%40)
		rows = append(rows, map[string]string{key: fmt.Sprintf("%x", i*i), "name": strings.Repeat("é", i%20), fmt.Sprint(i % 97): key, "": ""})
	}
	in, err := json.Marshal(append(rows, rows...))
	if err != nil {
		t.Fatal(err)
	}
	v, err := parseJSON(vm, in)
	if err != nil {
		t.Fatal(err)
	}
	var want, got any
	if err := json.Unmarshal(in, &want); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal([]byte(write(t, vm, v)), &got); err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(got, want) {
		t.Error("the rows changed on their way")
	}
}

func TestPreludeRunsTwice(t *testing.T) {
	p := compilePrelude()
	a, b := p.newRuntime(), p.newRuntime()
	if _, err := a.RunString("Array.prototype.map = null"); err != nil {
		t.Fatal(err)
	}
	if v, err := b.RunString("typeof [].map"); err != nil || v.String() != "function" {
		t.Errorf("%v %v", v, err)
	}
}

func TestFilesAreNotRead(t *testing.T) {
	// goja reads the file of a source map by default; both ways in are closed.
	r := newRun(&worker{link: newLink(-1), prelude: compilePrelude()}, 0, runMessage("return 1\n//# sourceMappingURL=file:///dev/zero"), compilePrelude().newRuntime())
	if _, err := r.compile(); err != nil {
		t.Error(err)
	}
	r = newRun(r.w, 0, runMessage("const x: number = 1; return x\n//# sourceMappingURL=file:///dev/zero"), compilePrelude().newRuntime())
	if _, err := r.compile(); err != nil {
		t.Error(err)
	}
}

func TestNearest(t *testing.T) {
	names := []string{"crm_contacts_list", "crm_contacts_get", "dns_zones_list", "billing_invoices_list", "x"}
	for name, want := range map[string]string{"crm_contact_list": "crm_contacts_list", "CRMContactsGet": "crm_contacts_get", "zones_list": "dns_zones_list", "qqqqqqqqqqqqqqq": "", "exit": ""} {
		got := nearest(name, names)
		if want == "" && len(got) > 0 || want != "" && (len(got) == 0 || got[0] != want) {
			t.Errorf("%s: %v, want %s", name, got, want)
		}
	}
}

// FuzzParseJSON compares the parser with encoding/json.
func FuzzParseJSON(f *testing.F) {
	for _, s := range []string{`{"a":[1,2.5,"x",null,true]}`, `[9007199254740993]`, `"\ud83d\ude00"`, `{"__proto__":1}`, `[[[]]]`, `-0`, `1e999`} {
		f.Add([]byte(s))
	}
	vm := compilePrelude().newRuntime()
	f.Fuzz(func(t *testing.T, in []byte) {
		v, err := parseJSON(vm, in)
		_, _ = unwrap(vm, in, func(string) {})
		if err != nil {
			if json.Valid(in) && depth(in) <= maxDepth && !bytes.Contains(in, bytes.Repeat([]byte("9"), 100)) && len(in) < maxIntChars {
				t.Fatalf("%q is valid, but: %v", in, err)
			}
			return
		}
		if !json.Valid(in) {
			t.Fatalf("%q is not valid, but was accepted", in)
		}
		out := write(t, vm, v)
		if !json.Valid([]byte(out)) {
			t.Fatalf("%q became %q", in, out)
		}
		if n, ok := new(big.Int).SetString(strings.TrimSpace(string(in)), 10); ok && strings.TrimSpace(string(in))[0] != '+' {
			if out != n.String() {
				t.Fatalf("%s became %s", in, out)
			}
		}
	})
}

func depth(in []byte) int {
	n, most := 0, 0
	for _, c := range in {
		switch c {
		case '[', '{':
			n++
			most = max(most, n)
		case ']', '}':
			n--
		}
	}
	return most
}

// FuzzCompile: no text makes the front end fail in a way that is not an error.
func FuzzCompile(f *testing.F) {
	for _, s := range []string{"async () => 1;", "```js\nreturn 1\n```", "export default function () {}", "{a: 1}", `{"code":"return 1"}`, "const {a, b: [c] = []} = {}", "const x: number = 1"} {
		f.Add(s)
	}
	p := compilePrelude()
	vm := p.newRuntime()
	f.Fuzz(func(t *testing.T, code string) {
		if len(code) > 2000 || strings.Count(code, "<") > 20 || strings.Count(code, "{") > 50 {
			return // esbuild's own exponential inputs are the worker's limits' business
		}
		r := newRun(&worker{link: newLink(-1), prelude: p}, 0, runMessage(code), vm)
		if prg, err := r.compile(); err == nil && prg == nil {
			t.Fatal("neither a program nor an error")
		} else if err != nil {
			if d := r.failure(err); d.Kind == "" || d.Message == "" || d.Line < 0 {
				t.Fatalf("%q: %+v", code, d)
			}
		}
	})
}
