package wire

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"reflect"
	"strings"
	"testing"
	"unicode/utf8"
)

func FuzzParseMessage(f *testing.F) {
	for _, s := range []string{`{"jsonrpc":"2.0","id":1,"method":"m","params":{}}`, `{"jsonrpc":"2.0","id":"a","result":null}`,
		`{"jsonrpc":"2.0","error":{"code":1,"message":"x","data":1e400},"id":null}`, `[{}]`, `{"jsonrpc":"2.0","\u0069d":-0.5,"method":"é"}`,
		"\ufeff" + `{"jsonrpc":"2.0","id":1,"method":"m"}`, `{"jsonrpc":"2.0","id":"` + "\xff" + `","result":"` + "\xc3\xff" + `é"}`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		m, err := ParseMessage(b)
		if err != nil {
			return
		}
		if !json.Valid(bytes.TrimPrefix(b, byteOrderMark)) {
			t.Fatalf("accepted invalid JSON %q", b)
		}
		if !utf8.Valid(m.Bytes()) {
			t.Fatalf("%q is written as %q, which is no UTF-8", b, m.Bytes())
		}
		again, err := ParseMessage(m.Bytes())
		if err != nil {
			t.Fatalf("%q was read, then written as %q: %v", b, m.Bytes(), err)
		}
		if again.Method != m.Method || !bytes.Equal(again.ID, m.ID) || !bytes.Equal(again.Params, m.Params) {
			t.Fatalf("%q changed to %q", b, m.Bytes())
		}
	})
}

func FuzzParseObject(f *testing.F) {
	for _, s := range []string{`{}`, ` { "a" : [1,{"b":"}"}] , "a":2 } `, `{"\"":"\\","x":-1.0e5}`, `{"a":1}}`, `[]`, `{"a":{"b":[true,null]}}`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		o, err := ParseObject(b)
		var want map[string]json.RawMessage
		wantErr := json.Unmarshal(b, &want)
		if wantErr == nil && want == nil { // null
			if err == nil {
				t.Fatalf("%q is no object", b)
			}
			return
		}
		if (err == nil) != (wantErr == nil) {
			t.Fatalf("%q: %v, encoding/json says %v", b, err, wantErr)
		}
		if err != nil {
			return
		}
		got := map[string]json.RawMessage{}
		for _, f := range o {
			got[f.Key] = f.Value
		}
		if len(got) != len(want) {
			t.Fatalf("%q: members %v, want %v", b, got, want)
		}
		for k, v := range want {
			if !bytes.Equal(got[k], v) || !bytes.Equal(o.Get(k), v) {
				t.Fatalf("%q: member %q is %s, want %s", b, k, got[k], v)
			}
		}
		again, err := ParseObject(o.Bytes())
		if err != nil || len(again) != len(o) || (len(o) > 0 && !reflect.DeepEqual(again, o)) {
			t.Fatalf("%q became %q: %v", b, o.Bytes(), err)
		}
		spliced, err := Splice(b, "zz", json.RawMessage(`[1.0]`))
		if err != nil {
			t.Fatalf("splice %q: %v", b, err)
		}
		so, err := ParseObject(spliced)
		if err != nil || string(so.Get("zz")) != `[1.0]` {
			t.Fatalf("splice of %q gave %q: %v", b, spliced, err)
		}
	})
}

func FuzzEventReader(f *testing.F) {
	f.Add([]byte("data: {}\n\n"), 3)
	f.Add([]byte("data: "+strings.Repeat("x", 400)+"\n"+strings.Repeat("data: y\n", 99)+"\ndata: z\n\n"), 7)
	f.Add([]byte("id: 1\r\nretry: 5\r\ndata: a\r\ndata: b\r\n\r\n: c\n\ndata"), 1)
	f.Fuzz(func(t *testing.T, b []byte, chunk int) {
		read := func(r io.Reader) (out []Event, err error) {
			er := NewEventReader(r, 256)
			for {
				ev, err := er.Next()
				if errors.Is(err, ErrTooLarge) {
					head, tail, err := er.Skip()
					if len(head) > endsKept || len(tail) > 5*endsKept {
						t.Fatalf("the ends of a large event are %d and %d bytes", len(head), len(tail))
					}
					if err != nil {
						return out, err
					}
					continue
				}
				if err != nil {
					return out, err
				}
				if len(ev.Data) > 256 {
					t.Fatalf("event of %d bytes", len(ev.Data))
				}
				out = append(out, ev)
			}
		}
		whole, err1 := read(bytes.NewReader(b))
		if chunk < 1 {
			chunk = 1
		}
		parts, err2 := read(&slowReader{b, chunk})
		if !reflect.DeepEqual(whole, parts) || (err1 == nil) != (err2 == nil) {
			t.Fatalf("%q: how the bytes arrive changes the events: %v %v, %v %v", b, whole, parts, err1, err2)
		}
		for _, ev := range whole {
			if ev.Data == nil || bytes.IndexByte(ev.Data, '\r') >= 0 {
				continue
			}
			back, err := NewEventReader(bytes.NewReader(AppendEvent(nil, Event{Data: ev.Data})), 1024).Next()
			if err != nil || !bytes.Equal(back.Data, ev.Data) {
				t.Fatalf("data %q became %q: %v", ev.Data, back.Data, err)
			}
		}
	})
}

type slowReader struct {
	b []byte
	n int
}

func (s *slowReader) Read(p []byte) (int, error) {
	if len(s.b) == 0 {
		return 0, io.EOF
	}
	n := copy(p[:min(len(p), s.n)], s.b)
	s.b = s.b[n:]
	return n, nil
}

func FuzzHeaderValue(f *testing.F) {
	for _, s := range []string{"", "a", " a", "=?base64?YQ==?=", "=?base64??=", "é\x00\xff"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		enc := EncodeHeaderValue(s)
		for i := range len(enc) {
			if enc[i] < 0x20 || enc[i] > 0x7e {
				t.Fatalf("%q encodes to the unsafe %q", s, enc)
			}
		}
		if back, err := DecodeHeaderValue(enc); err != nil || back != s {
			t.Fatalf("%q -> %q -> %q, %v", s, enc, back, err)
		}
		_, _ = DecodeHeaderValue(s) // must not panic
	})
}

// Whatever is set in _meta can be read there, and every other member keeps its
// bytes.
func FuzzSetMeta(f *testing.F) {
	for _, s := range []string{``, `{}`, `{"a":1,"_meta":{"x":[1]},"b":2}`, `{"_meta":null}`, `{"_meta":[]}`, `{ "_meta" : {"progressToken" : 1 } }`, `{"_meta":{},"_meta":{"k":1}}`, `[]`} {
		f.Add([]byte(s), "progressToken", false)
		f.Add([]byte(s), "k\"\\é", true)
	}
	f.Fuzz(func(t *testing.T, params []byte, key string, remove bool) {
		if !utf8.ValidString(key) {
			return // no key of JSON
		}
		value := json.RawMessage(`"v"`)
		if remove {
			value = nil
		}
		got, err := SetMeta(params, map[string]json.RawMessage{key: value})
		if err != nil {
			return
		}
		if !json.Valid(got) {
			t.Fatalf("%q became %q", params, got)
		}
		if v := Meta(got, key); !bytes.Equal(v, value) {
			t.Fatalf("%q in %q is %q, want %q", key, got, v, value)
		}
		if len(bytes.TrimSpace(params)) == 0 {
			return
		}
		before, _ := ParseObject(params)
		after, err := ParseObject(got)
		if err != nil {
			t.Fatalf("%q became %q: %v", params, got, err)
		}
		if a, b := before.Without("_meta"), after.Without("_meta"); !bytes.Equal(a.Bytes(), b.Bytes()) {
			t.Fatalf("%q became %q", params, got)
		}
	})
}

// A batch falls into its members, whose bytes are those of the batch.
func FuzzSplitBatch(f *testing.F) {
	for _, s := range []string{`[]`, `[{}]`, ` [ {"a":1} , {"b":[2]} ] `, `{}`, `[[],[1]]`, `[1,]`, `[`, `]`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		parts, err := SplitBatch(b)
		if err != nil {
			return
		}
		if !IsBatch(b) {
			if len(parts) != 1 || !bytes.Equal(parts[0], b) {
				t.Fatalf("%q became %q", b, parts)
			}
			return
		}
		var want []any
		if err := json.Unmarshal(b, &want); err != nil || len(want) != len(parts) {
			t.Fatalf("%q became %d parts: %v", b, len(parts), err)
		}
		for i, p := range parts {
			var got any
			if err := json.Unmarshal(p, &got); err != nil || !reflect.DeepEqual(got, want[i]) || !bytes.Contains(b, p) {
				t.Fatalf("part %d of %q is %q: %v", i, b, p, err)
			}
		}
	})
}

// What decodes as base64 or as it is, encodes to something that decodes to the
// same; names of tools and URIs are compared so.
func FuzzDecodeHeaderValue(f *testing.F) {
	for _, s := range []string{"", "plain", "=?base64?w6k=?=", "=?base64??=", "=?base64?!?=", "=?base64?YQ==", "=?base64?YQ\r\n==?="} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		v, err := DecodeHeaderValue(s)
		if err != nil {
			return
		}
		again, err := DecodeHeaderValue(EncodeHeaderValue(v))
		if err != nil || again != v {
			t.Fatalf("%q decodes to %q, and that to %q, %v", s, v, again, err)
		}
	})
}
