package wire

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"
)

// What is no text to strict parsers becomes one; the rest keeps its bytes.
func TestMessagesThatAreNoUTF8(t *testing.T) {
	for in, want := range map[string]string{
		"\ufeff{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{}}":                                `{}`,
		"{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{\"\xe9\":\"a\xff\xfe\xc3\",\"n\":1.10}}": "{\"\ufffd\":\"a\ufffd\",\"n\":1.10}",
		"{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":\"\\ud800 \u00e9 \u2028 \ufffd\"}":        "\"\\ufffd \u00e9 \u2028 \ufffd\"",
	} {
		m, err := ParseMessage([]byte(in))
		if err != nil || string(m.Result) != want {
			t.Errorf("%q: %q, %v; want %q", in, m.Result, err, want)
		}
		parts, err := SplitBatch([]byte("\ufeff[" + strings.TrimPrefix(in, "\ufeff") + "]"))
		if err != nil || len(parts) != 1 {
			t.Fatalf("%q in a batch: %q, %v", in, parts, err)
		}
		if m, err := ParseMessage(parts[0]); err != nil || string(m.Result) != want {
			t.Errorf("%q in a batch: %q, %v; want %q", in, m.Result, err, want)
		}
	}
}

// Half a surrogate pair is no character, and strict parsers refuse the whole
// message for it. Every other escape keeps its bytes.
func TestHalfSurrogatePairs(t *testing.T) {
	for in, want := range map[string]string{
		`"\ud83d\ude00"`:                   `"\ud83d\ude00"`,
		`"\uD83D\uDE00 \u00E9 \u2028"`:     `"\uD83D\uDE00 \u00E9 \u2028"`,
		`"\ud83d"`:                         `"\ufffd"`,
		`"\uDE00x"`:                        `"\ufffdx"`,
		`"\ude00\ud83d"`:                   `"\ufffd\ufffd"`,
		`"\ud83d\ud83d\ude00"`:             `"\ufffd\ud83d\ude00"`,
		`"\ud83d\n\ude00"`:                 `"\ufffd\n\ufffd"`,
		`"\ud83d\u0041"`:                   `"\ufffd\u0041"`,
		`"\\ud83d \\\ud83d"`:               `"\\ud83d \\\ufffd"`,
		`"{\"a\":\"\\ud83d\"}"`:            `"{\"a\":\"\\ud83d\"}"`,
		`{"\udbff":["\udfff",{"a":1.10}]}`: `{"\ufffd":["\ufffd",{"a":1.10}]}`,
	} {
		whole := []byte(`{"jsonrpc":"2.0","id":1,"result":` + in + `}`)
		before := string(whole)
		m, err := ParseMessage(whole)
		if err != nil || string(m.Result) != want {
			t.Errorf("%s: %s, %v; want %s", in, m.Result, err, want)
		}
		if string(whole) != before {
			t.Errorf("%s: the input was changed", in)
		}
	}
}

func TestParseMessage(t *testing.T) {
	for _, tc := range []struct {
		name, in string
		code     int // 0: good
		kind     string
	}{
		{"request", `{"jsonrpc":"2.0","id":1,"method":"m","params":{"a":1}}`, 0, "request"},
		{"string id", `{"id":"x","method":"m","jsonrpc":"2.0"}`, 0, "request"},
		{"notification", `{"jsonrpc":"2.0","method":"m"}`, 0, "notification"},
		{"result", `{"result":{"n":9007199254740993},"jsonrpc":"2.0","id":1}`, 0, "response"},
		{"null result", `{"result":null,"jsonrpc":"2.0","id":1}`, 0, "response"},
		{"error", `{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"x","data":{"k":1.10}}}`, 0, "response"},
		{"escaped key", `{"jsonrpc":"2.0","\u0069d":4,"method":"m"}`, 0, "request"},
		{"cut", `{"jsonrpc":"2.0","id":1`, CodeParse, ""},
		{"trailing brace", `{"jsonrpc":"2.0","id":1,"method":"m"}}`, CodeParse, ""},
		{"array", `[1]`, CodeInvalidRequest, ""},
		{"version", `{"jsonrpc":"1.0","id":1,"method":"m"}`, CodeInvalidRequest, ""},
		{"object id", `{"jsonrpc":"2.0","id":{},"method":"m"}`, CodeInvalidRequest, ""},
		{"null id of a request", `{"jsonrpc":"2.0","id":null,"method":"m"}`, CodeInvalidRequest, ""},
		{"null id by an escaped key", `{"jsonrpc":"2.0","\u0069d":null,"method":"m"}`, CodeInvalidRequest, ""},
		{"null id and result", `{"jsonrpc":"2.0","id":null,"result":{}}`, 0, "response"},
		{"null params", `{"jsonrpc":"2.0","id":1,"method":"m","params":null}`, 0, "request"},
		{"number method", `{"jsonrpc":"2.0","id":1,"method":5}`, CodeInvalidRequest, ""},
		{"string params", `{"jsonrpc":"2.0","id":1,"method":"m","params":"x"}`, CodeInvalidRequest, ""},
		{"string error", `{"jsonrpc":"2.0","id":1,"error":"x"}`, CodeInvalidRequest, ""},
		{"nothing", `{"jsonrpc":"2.0","id":1}`, CodeInvalidRequest, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			m, err := ParseMessage([]byte(tc.in))
			if tc.code != 0 {
				if e, ok := AsError(err); !ok || e.Code != tc.code {
					t.Fatalf("got %v, want code %d", err, tc.code)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			got := map[bool]string{m.IsRequest(): "request", m.IsNotification(): "notification", m.IsResponse(): "response"}[true]
			if got != tc.kind {
				t.Fatalf("got %s, want %s", got, tc.kind)
			}
			again, err := ParseMessage(m.Bytes())
			if err != nil || !bytes.Equal(again.Params, m.Params) || !bytes.Equal(again.Result, m.Result) {
				t.Fatalf("does not survive: %s, %v", m.Bytes(), err)
			}
			if m.Error != nil && string(again.Error.Data) != `{"k":1.10}` {
				t.Fatalf("error data changed: %s", again.Error.Data)
			}
		})
	}
}

func TestSplitBatch(t *testing.T) {
	parts, err := SplitBatch([]byte(` [{"a":1.0} , {"b":2}]`))
	if err != nil || len(parts) != 2 || string(parts[0]) != `{"a":1.0}` {
		t.Fatalf("%s, %v", parts, err)
	}
	if parts, err := SplitBatch([]byte(`{"a":1}`)); err != nil || len(parts) != 1 {
		t.Fatalf("%s, %v", parts, err)
	}
	for _, bad := range []string{`[]`, `[1`} {
		if _, err := SplitBatch([]byte(bad)); err == nil {
			t.Errorf("%s is accepted", bad)
		}
	}
}

func TestSetMetaLeavesEveryOtherByte(t *testing.T) {
	tok := map[string]json.RawMessage{"progressToken": json.RawMessage(`7`)}
	for _, tc := range []struct {
		in, want string
		set      map[string]json.RawMessage
	}{
		{``, `{"_meta":{"progressToken":7}}`, tok},
		{` { } `, ` { "_meta":{"progressToken":7}} `, tok},
		{`{ "n" : 9007199254740993 , "z":1e400}`, `{ "n" : 9007199254740993 , "z":1e400,"_meta":{"progressToken":7}}`, tok},
		{`{"_meta" : {"a":1.10,"progressToken":"x"} , "arguments":{"_meta":{"progressToken":"no"}}}`,
			`{"_meta" : {"a":1.10,"progressToken":7} , "arguments":{"_meta":{"progressToken":"no"}}}`, tok},
		{`{"_meta":null,"\u0061":"\u00e9<"}`, `{"_meta":{"progressToken":7},"\u0061":"\u00e9<"}`, tok},
		{`{"\u005fmeta":{"x":1}}`, `{"\u005fmeta":{"x":1,"progressToken":7}}`, tok},
		{`{"_meta":{"a":1},"_meta":{"b":2}}`, `{"_meta":{"b":2,"progressToken":7}}`, tok},
		{`{"_meta":{"a":1, "b":2},"x":[ 1 ]}`, `{"_meta":{"b":2},"x":[ 1 ]}`, map[string]json.RawMessage{"a": nil}},
		{`{"x": 1}`, `{"x": 1}`, map[string]json.RawMessage{"a": nil}},
	} {
		got, err := SetMeta(json.RawMessage(tc.in), tc.set)
		if err != nil || string(got) != tc.want {
			t.Errorf("SetMeta(%s)\n got %s, %v\nwant %s", tc.in, got, err, tc.want)
		}
	}
	for _, bad := range []string{`[]`, `{"_meta":[]}`, `{"a"`, `{"_meta":"x"}`, `5`} {
		if got, err := SetMeta(json.RawMessage(bad), tok); err == nil {
			t.Errorf("SetMeta(%s) = %s, want an error", bad, got)
		}
	}
}

func TestMeta(t *testing.T) {
	if got := Meta(json.RawMessage(`{"_meta":{"progressToken":"a"}}`), MetaProgressToken); string(got) != `"a"` {
		t.Fatalf("got %s", got)
	}
	for _, none := range []string{``, `{}`, `{"_meta":3}`, `[`} {
		if got := Meta(json.RawMessage(none), MetaProgressToken); got != nil {
			t.Errorf("Meta(%s) = %s", none, got)
		}
	}
}

func TestHeaderValues(t *testing.T) {
	for in, want := range map[string]string{
		"":                   "",
		"get_weather":        "get_weather",
		"file:///a b":        "file:///a b",
		" lead":              "=?base64?IGxlYWQ=?=",
		"trail\t":            "=?base64?dHJhaWwJ?=",
		"héllo":              "=?base64?aMOpbGxv?=",
		"a\nX-Evil: 1":       "=?base64?YQpYLUV2aWw6IDE=?=",
		"=?base64?aGk=?=":    "=?base64?PT9iYXNlNjQ/YUdrPT89?=",
		"=?base64?unfinishd": "=?base64?unfinishd",
	} {
		got := EncodeHeaderValue(in)
		if got != want {
			t.Errorf("EncodeHeaderValue(%q) = %q, want %q", in, got, want)
		}
		if back, err := DecodeHeaderValue(got); err != nil || back != in {
			t.Errorf("DecodeHeaderValue(%q) = %q, %v, want %q", got, back, err, in)
		}
	}
	for _, bad := range []string{"=?base64?!!?=", "=?base64?aGk?=", "=?base64?aGl=?="} {
		if got, err := DecodeHeaderValue(bad); err == nil {
			t.Errorf("DecodeHeaderValue(%q) = %q, want an error", bad, got)
		}
	}
}

func TestSetRequestHeaders(t *testing.T) {
	h := http.Header{}
	SetRequestHeaders(h, "", "", "initialize", "")
	if len(h) != 0 {
		t.Fatalf("before negotiation: %v", h)
	}
	SetRequestHeaders(h, Version20250618, "s1", "tools/call", "x")
	if h.Get(HeaderProtocolVersion) != Version20250618 || h.Get(HeaderSessionID) != "s1" || len(h) != 2 {
		t.Fatalf("2025: %v", h)
	}
	h = http.Header{}
	SetRequestHeaders(h, Version20260728, "", "tools/call", "é")
	if h.Get(HeaderMethod) != "tools/call" || h.Get(HeaderName) != "=?base64?w6k=?=" || h.Get(HeaderProtocolVersion) != Version20260728 {
		t.Fatalf("2026: %v", h)
	}
}

func TestEventReader(t *testing.T) {
	in := "\xef\xbb\xbf: hello\n\nid: 1\nretry: 30\ndata:\n\n" +
		"event: message\r\ndata: {\"a\":\r\ndata:  1}\r\nid: 2\r\n\r\n" +
		"nonsense\nid: x\x00y\n\nevent: endpoint\ndata: /m?s=1\n\ndata: cut"
	r := NewEventReader(strings.NewReader(in), 100)
	want := []Event{
		{ID: "1", Retry: 30 * time.Millisecond, Data: []byte{}},
		{Name: "message", ID: "2", Data: []byte("{\"a\":\n 1}")},
		{Name: "endpoint", Data: []byte("/m?s=1")},
	}
	for i, w := range want {
		ev, err := r.Next()
		if err != nil || ev.ID != w.ID || ev.Name != w.Name || ev.Retry != w.Retry || !bytes.Equal(ev.Data, w.Data) {
			t.Fatalf("event %d: %+v, %v, want %+v", i, ev, err, w)
		}
	}
	if _, err := r.Next(); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Fatalf("cut event: %v", err)
	}
	for _, long := range []string{"data: " + strings.Repeat("x", 300) + "\n\n", strings.Repeat("data: 1234567890\n", 40) + "\n", strings.Repeat("z", 5000)} {
		if _, err := NewEventReader(strings.NewReader(long), 100).Next(); !errors.Is(err, ErrTooLarge) {
			t.Errorf("%d bytes over the limit: %v", len(long), err)
		}
	}
	// What comes after an event that is too large can be read.
	for _, large := range []string{`data: {"id":1,"x":"` + strings.Repeat("x", 100_000) + `"}`, `data: {"id":1,` + "\r\n" + strings.Repeat("data: "+strings.Repeat("y", 90)+"\r\n", 1000) + `data: "z":2}`, `data: {"id":1,"w":"` + strings.Repeat("w", 120) + `"}`} {
		r := NewEventReader(strings.NewReader(large+"\n\ndata: next\n\n"), 100)
		if _, err := r.Next(); !errors.Is(err, ErrTooLarge) {
			t.Fatalf("%v", err)
		}
		head, tail, err := r.Skip()
		if err != nil || !bytes.HasPrefix(head, []byte(`{"id":1,`)) || !bytes.HasSuffix(bytes.TrimSpace(tail), []byte(`}`)) || len(head) > endsKept || len(tail) > 5*endsKept {
			t.Errorf("%.40q … %q, %v", head, tail[max(0, len(tail)-40):], err)
		}
		if ev, err := r.Next(); err != nil || string(ev.Data) != "next" {
			t.Errorf("after it: %q %v", ev.Data, err)
		}
	}
}

func TestAppendEventSurvivesLineBreaks(t *testing.T) {
	b := AppendEvent(nil, Event{Name: "message", ID: "7", Retry: 2 * time.Second, Data: []byte("{\r\n\"a\":\r1,\n\"b\":2}")})
	ev, err := NewEventReader(bytes.NewReader(b), 1000).Next()
	if err != nil || string(ev.Data) != "{\n\"a\":\n1,\n\"b\":2}" || ev.ID != "7" || ev.Name != "message" || ev.Retry != 2*time.Second {
		t.Fatalf("%+v %q %v", ev, ev.Data, err)
	}
}

func TestVersions(t *testing.T) {
	if Modern("") || Modern(Version20251125) || !Modern(Version20260728) || Supported("2025-01-01") || !Supported(Version20241105) {
		t.Fatal("eras are mixed up")
	}
}
