package writeguard

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/mcp-portal/mcp-portal/config"
)

func filters(t testing.TB, list ...config.Filter) *Policy {
	t.Helper()
	cfg := guardConfig("open")
	cfg.Guard.Filters = list
	return compiled(t, cfg)
}

func TestFilterRedacts(t *testing.T) {
	key := "-----BEGIN RSA PRIVATE" + " KEY-----\\nMIIE\\n-----END RSA PRIVATE" + " KEY-----"
	p := filters(t, config.Filter{Detect: []string{"secrets", "keys", "cards"}, Pattern: `C-[0-9]{8}`, Action: "redact"})
	r := `"[redacted by the portal]"`
	in := "[redacted by the portal]"
	for _, tt := range []struct{ in, want string }{
		{`{"a":"nothing","n":1.50,"l":[true,null]}`, `{"a":"nothing","n":1.50,"l":[true,null]}`},
		{`{"t":"pay with 4111 1111 1111 1111 now"}`, `{"t":"pay with ` + in + ` now"}`},
		{`{"t":"4111-1111-1111-1111"}`, `{"t":` + r + `}`},
		{`{"t":"4111 1111 1111 1112"}`, `{"t":"4111 1111 1111 1112"}`},
		{`{"n":5555555555554444}`, `{"n":` + r + `}`},
		{`{"n":1764633600000}`, `{"n":1764633600000}`},
		{`{"t":"id_4111111111111111"}`, `{"t":"id_4111111111111111"}`},
		{`{"t":"customer C-12345678, C-1"}`, `{"t":"customer ` + in + `, C-1"}`},
		{`{"4111111111111111":1}`, `{` + r + `:1}`},
		{`{"k":"x ` + key + ` y"}`, `{"k":"x ` + in + ` y"}`},
		{`{"password" : "hunter2","next_page_token":"abc"}`, `{"password" : ` + r + `,"next_page_token":"abc"}`},
		{`{"password":{"type":"string","hint":["b"]},"api_key":["x", [12]],"n":["y"]}`, `{"password":{"type":"string","hint":["b"]},"api_key":[` + r + `, [` + r + `]],"n":["y"]}`},
		{`{"password":{"value":"x","of":{"value":"y"}},"value":"z","l":[{"token":[]},"k"]}`, `{"password":{"value":` + r + `,"of":{"value":"y"}},"value":"z","l":[{"token":[]},"k"]}`},
		{`{"api_key":[{"id":"a","value":"x"},"y"],"b":true,"c":"d"}`, `{"api_key":[{"id":"a","value":` + r + `},` + r + `],"b":true,"c":"d"}`},
		{`{"n":4.111111111111111e15,"m":41111111111111110e-1,"o":1.5e3}`, `{"n":` + r + `,"m":` + r + `,"o":1.5e3}`},
		{`{"t":"password=hunter2 ok"}`, `{"t":"password=` + in + ` ok"}`},
		{`{"t":"\u0034111111111111111"}`, `{"t":` + r + `}`},
		{`{"t":"say \"4111111111111111\""}`, `{"t":"say \"` + in + `\""}`},
	} {
		f := p.Filter(Results, "s", "t", json.RawMessage(tt.in))
		if string(f.Data) != tt.want || f.Blocked != "" || (len(f.Found) == 0) != (tt.in == tt.want) {
			t.Errorf("%s\n is %s\nnot %s (%v)", tt.in, f.Data, tt.want, f.Found)
		}
		if strings.Contains(strings.Join(f.Found, " "), "4111") {
			t.Errorf("the audit would hold it: %v", f.Found)
		}
	}
}

func TestFilterBlocks(t *testing.T) {
	p := filters(t, config.Filter{Name: "no cards", Servers: []string{"crm"}, Tools: []string{"get_*"}, In: []string{"results"}, Detect: []string{"cards"}, Action: "block"})
	data := json.RawMessage(`{"t":"4111111111111111"}`)
	for _, tt := range []struct {
		side         Side
		server, tool string
		blocked      bool
	}{
		{Results, "crm", "get_x", true}, {Arguments, "crm", "get_x", false}, {Results, "dns", "get_x", false}, {Results, "crm", "put_x", false}, {Results, "crm", "", false},
	} {
		f := p.Filter(tt.side, tt.server, tt.tool, data)
		if (f.Blocked != "") != tt.blocked || p.Filters(tt.side, tt.server, tt.tool) != tt.blocked {
			t.Errorf("%+v: %+v", tt, f)
		}
		if strings.Contains(f.Blocked, "4111") {
			t.Error(f.Blocked)
		}
	}
	if f := p.Filter(Results, "crm", "get_x", json.RawMessage(`{"t":`)); f.Blocked == "" {
		t.Error("what is no JSON goes through")
	}
	cfg := guardConfig("open")
	cfg.Guard.Observe = true
	cfg.Guard.Filters = []config.Filter{{Detect: []string{"cards"}, Action: "block"}}
	if f := compiled(t, cfg).Filter(Results, "crm", "x", data); f.Blocked != "" || string(f.Data) != string(data) || len(f.Found) != 1 || !f.Would {
		t.Errorf("observing: %+v", f)
	}
}

func TestFiltersAreChecked(t *testing.T) {
	for _, f := range []config.Filter{{Detect: []string{"cards"}}, {Detect: []string{"cats"}, Action: "block"}, {Pattern: "(", Action: "block"}, {Action: "redact"}} {
		cfg := guardConfig("open")
		cfg.Guard.Filters = []config.Filter{f}
		if _, err := Compile(cfg); err == nil {
			t.Errorf("%+v compiles", f)
		}
	}
}

func FuzzFilter(f *testing.F) {
	p := filters(f, config.Filter{Detect: []string{"secrets", "keys", "cards"}, Action: "redact"})
	f.Add(`{"a":"4111111111111111","password":"x","n":-1.5e9}`)
	f.Add(`["\"", "\\", {"token":null}]`)
	f.Fuzz(func(t *testing.T, s string) {
		out := p.Filter(Results, "s", "t", json.RawMessage(s))
		if !json.Valid([]byte(s)) {
			if out.Blocked == "" {
				t.Errorf("%q goes through", s)
			}
			return
		}
		if !json.Valid(out.Data) {
			t.Errorf("%q becomes %q", s, out.Data)
		}
		if len(out.Found) == 0 && string(out.Data) != s {
			t.Errorf("%q is changed to %q for nothing", s, out.Data)
		}
	})
}
