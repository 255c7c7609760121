package gateway_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/mcp-portal/mcp-portal/internal/corpora"
	"github.com/mcp-portal/mcp-portal/registry"
	"github.com/mcp-portal/mcp-portal/wire"
)

// realTools are the definitions of real servers, byte for byte but for their
// names, which have the server's in front so that one list holds them all.
func realTools(t *testing.T) []json.RawMessage {
	t.Helper()
	files, err := filepath.Glob(corpora.Path(t, "mcp-tools", "*", "tools-list.json"))
	if err != nil || len(files) < 30 {
		t.Fatalf("%d lists of real servers: %v", len(files), err)
	}
	var all []json.RawMessage
	for _, f := range files {
		b, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		var list struct{ Tools []json.RawMessage }
		if err := json.Unmarshal(b, &list); err != nil {
			t.Fatalf("%s: %v", f, err)
		}
		for _, def := range list.Tools {
			def = json.RawMessage(strings.NewReplacer("\n", " ", "\r", " ").Replace(string(def))) // one line, as a pipe wants it
			o, err := wire.ParseObject(def)
			if err != nil {
				t.Fatalf("%s: %v", f, err)
			}
			if def, err = wire.Splice(def, "name", wire.Quote(filepath.Base(filepath.Dir(f))+"."+o.String("name"))); err != nil {
				t.Fatalf("%s: %v", f, err)
			}
			all = append(all, def)
		}
	}
	return all
}

// Every definition of every real server reaches clients of both eras from
// servers of both, over every transport, with the bytes that its server sent.
// Another are only
//
//   - name: the outward one,
//   - the address of an app's resource in _meta, which all five servers of this
//     test share, and
//   - inputSchema and outputSchema, where a strict client would refuse the tool
//     (registry/strict.go); these are counted, and each is still the same but
//     for what such a client refuses (the registry's tests say how).
func TestFidelityOfDefinitions(t *testing.T) {
	tools := realTools(t)
	p, peers := full(t, "", tools...)
	for _, e := range []era{legacy, modern} {
		raw := p.client(e, "", noCaps, nil).do("tools/list", "", nil).Raw
		var list struct {
			Result struct{ Tools []json.RawMessage } `json:"result"`
		}
		if err := json.Unmarshal([]byte(raw), &list); err != nil {
			t.Fatal(err)
		}
		got := map[string]json.RawMessage{}
		for _, def := range list.Result.Tools {
			o, _ := wire.ParseObject(def)
			got[o.String("name")] = def
		}
		for _, s := range peers {
			same, strict := 0, 0
			for _, def := range tools {
				o, _ := wire.ParseObject(def)
				tool := p.registry.Snapshot().ToolByIdentity(s.id, o.String("name"))
				if tool == nil {
					t.Errorf("%s: %s is not offered", s.id, o.String("name"))
					continue
				}
				shown, _ := wire.ParseObject(got[tool.Outward])
				want, _ := wire.Splice(def, "name", wire.Quote(tool.Outward))
				if app := registry.AppURI(def); app != "" {
					want = registry.WithAppURI(want, app, registry.ExplicitURI(s.id, app))
				}
				if string(got[tool.Outward]) == string(want) {
					same++
					continue
				}
				strict++
				if len(shown) != len(o) {
					t.Errorf("%s client, %s: %s has other members: %s", e, s.id, o.String("name"), got[tool.Outward])
					continue
				}
				for i, f := range o {
					if f.Key == "name" || f.Key == "inputSchema" || f.Key == "outputSchema" {
						continue
					}
					if shown[i].Key != f.Key || string(shown[i].Value) != string(f.Value) {
						t.Errorf("%s client, %s: %s has another %s: %s", e, s.id, o.String("name"), f.Key, shown[i].Value)
					}
				}
			}
			if same < len(tools)*9/10 {
				t.Errorf("%s client, %s: %d of %d definitions are the same, %d were made strict", e, s.id, same, len(tools), strict)
			}
			t.Logf("%s client, %s server: %d of %d definitions byte for byte but for the name, %d with a schema made acceptable", e, s.id, same, len(tools), strict)
		}
	}
}

// oddResults are results that typed relays change, lose or refuse.
var oddResults = []string{
	`{}`,
	`{"content":[]}`,
	`{"content":[],"structuredContent":{"beyond":9007199254740993,"more":123456789012345678901234567890,"trailing":1.10,"huge":1e400,"tiny":1E-400,"zero":-0,"exp":1.0e+2}}`,
	`{"z":1,"a":2,"content":[],"Content":[],"isError":false}`,
	`{"content":[{"text":"order","type":"text","annotations":{"priority":0,"audience":["user"]},"vendor":{"b":1,"a":[]}}],"_meta":{"vendor/x":1.0,"a":null}}`,
	`{"content":[{"type":"hologram","data":{"x":[1.0]}},{"type":"text","text":""}],"isError":false}`,
	`{"content":[{"type":"image","data":"not=base64!","mimeType":"x"}],"structuredContent":null}`,
	`{"content":"a string","structuredContent":[1,2.50,"three",null,true]}`,
	`{"content":[{"type":"resource","resource":{"uri":"nobody://x","text":"","size":1.5}}]}`,
	`{"content":[{"type":"resource_link","uri":"https://example.com/?a=1&b=<2>","name":"l","size":1.5,"annotations":{"audience":"user"}}]}`,
	`{"content":[{"type":"text","text":"\u00e9 \u2028 \/ < > & \ud83d\ude00 é 😀"}],"k\u0065y":"\t"}`,
	`{ "content" : [ { "type" : "text" , "text" : "spaces" } ] , "x" : 1.0 }`,
	`{"content":[],"twice":1,"twice":2.0}`,
	`{"content":[],"structuredContent":{"":"empty key","a.b":{"c":{}}, "deep":` + strings.Repeat("[", 200) + strings.Repeat("]", 200) + `}}`,
	`{"toolResult":{"old":1.0}}`,
	`{"content":[],"isError":true,"error":{"code":1},"nextCursor":"x","ttlMs":5.0,"cacheScope":"public"}`,
	`{"resultType":"complete","content":[{"type":"text","text":"a result of 2026-07-28"}],"structuredContent":7}`,
	`{"resultType":"vendor_kind","payload":{"n":1.10}}`,
	`{"content":[{"type":"text","text":"` + strings.Repeat("256 KiB of text. ", 15000) + `"}]}`,
}

// Odd results and errors pass with every byte, and odd arguments arrive with
// every byte. To a 2026-07-28 client a result gets one member, at its end, if
// its server did not send it: resultType.
func TestFidelityOfResults(t *testing.T) {
	eachPair(t, func(t *testing.T, p pair) {
		c := p.client(p.era, "", noCaps, nil)
		result := func(id, tool, args string) string {
			got := c.doAs(t.Context(), id, "tools/call", `"_meta":{},"name":"`+p.id+`_`+tool+`","arguments":`+args, nil, nil)
			body, ok := strings.CutPrefix(got.Raw, `{"jsonrpc":"2.0","id":`+id+`,`)
			if !ok || got.Err != nil && got.Raw == "" {
				t.Fatalf("%s %v", got.Raw, got.Err)
			}
			return strings.TrimSuffix(body, "}")
		}
		for i, odd := range oddResults {
			id := []string{"1", `"x"`, "1.50", "-7"}[i%4]
			want := odd
			if p.era == modern && !strings.Contains(odd, `"resultType"`) {
				inner := strings.TrimSuffix(odd, "}")
				comma := ","
				if inner == "{" {
					comma = ""
				}
				want = inner + comma + `"resultType":"complete"}`
			}
			if got := result(id, "raw", `{"result":`+string(wire.Quote(odd))+`}`); got != `"result":`+want {
				t.Errorf("result %d: got\n%.400s\nwant\n%.400s", i, got, want)
			}
			if strings.Contains(odd, "twice") {
				continue // arguments that say two things are refused or made one
			}
			if got := result(id, "echo", odd); !strings.Contains(got, `"arguments":`+odd) {
				t.Errorf("arguments %d: arrived as\n%.400s\nwant\n%.400s", i, got, odd)
			}
		}
		data := `{"beyond":9007199254740993,"trailing":1.10,"huge":1e400,"z":1,"a":"<&>"}`
		if got := result("1", "fail", `{"data":`+data+`}`); got != `"error":{"code":-31999,"message":"on purpose <&>","data":`+data+`}` {
			t.Errorf("error: %s", got)
		}
	})
}

// Prompts, resources and templates keep their bytes, too; another are their
// names and, where several servers share them, their URIs.
func TestFidelityOfOtherLists(t *testing.T) {
	p, peers := full(t, "")
	for _, e := range []era{legacy, modern} {
		c := p.client(e, "", noCaps, nil)
		for _, s := range peers {
			for method, want := range map[string]string{
				"prompts/list":             `{"name":"` + s.id + `_hello","arguments":[{"name":"who"}]}`,
				"resources/list":           `{"uri":"portal+` + s.id + `:ui://app/main.html","name":"app","mimeType":"text/html;profile=mcp-app"}`,
				"resources/templates/list": `{"uriTemplate":"portal+` + s.id + `:mem://t/{x}","name":"t"}`,
			} {
				got := c.do(method, "", nil)
				if !strings.Contains(got.Raw, want) {
					t.Errorf("%s, %s: %s is not in %s", e, method, want, got.Raw)
				}
				if e == modern && !slices.ContainsFunc([]string{`"ttlMs":0,"cacheScope":"private"}}`}, func(end string) bool { return strings.HasSuffix(got.Raw, end) }) {
					t.Errorf("%s: %s", method, got.Raw)
				}
			}
		}
	}
}
