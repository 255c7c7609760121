package registry

import (
	"bytes"
	"encoding/json"
	"reflect"
	"strings"
	"testing"

	"github.com/mcp-portal/mcp-portal/upstreams"
	"github.com/mcp-portal/mcp-portal/wire"
)

func TestOuterDefinition(t *testing.T) {
	for _, c := range []struct{ what, in, want string }{
		{"only the name changes, order, numbers, unknown members and escapes stay",
			`{"x-new":{"n":1.50,"big":12345678901234567890},"name":"t","description":"a <b> \u00e9","icons":[{"src":"data:,"}],"_meta":{"k":true},"execution":{"taskSupport":"optional"},"inputSchema":{"type":"object","properties":{"a":{"type":"string","default":null,"const":true}},"additionalProperties":false}}`,
			`{"x-new":{"n":1.50,"big":12345678901234567890},"name":"s_t","description":"a <b> \u00e9","icons":[{"src":"data:,"}],"_meta":{"k":true},"execution":{"taskSupport":"optional"},"inputSchema":{"type":"object","properties":{"a":{"type":"string","default":null,"const":true}},"additionalProperties":false}}`},
		{"B055: no properties", `{"name":"t","inputSchema":{"type":"object"}}`, `{"name":"s_t","inputSchema":{"type":"object","properties":{}}}`},
		{"no schema", `{"name":"t"}`, `{"name":"s_t","inputSchema":{"type":"object","properties":{}}}`},
		{"null schema", `{"name":"t","inputSchema":null,"x":1}`, `{"name":"s_t","inputSchema":{"type":"object","properties":{}},"x":1}`},
		{"true schema", `{"name":"t","inputSchema":true}`, `{"name":"s_t","inputSchema":{"type":"object","properties":{}}}`},
		{"empty schema", `{"name":"t","inputSchema":{}}`, `{"name":"s_t","inputSchema":{"type":"object","properties":{}}}`},
		{"no type", `{"name":"t","inputSchema":{"properties":{"a":{}}}}`, `{"name":"s_t","inputSchema":{"properties":{"a":{}},"type":"object"}}`},
		{"type list", `{"name":"t","inputSchema":{"type":["null","object"],"properties":{}}}`, `{"name":"s_t","inputSchema":{"type":"object","properties":{}}}`},
		{"null properties", `{"name":"t","inputSchema":{"type":"object","properties":null}}`, `{"name":"s_t","inputSchema":{"type":"object","properties":{}}}`},
		{"B056: booleans",
			`{"name":"t","inputSchema":{"type":"object","properties":{"x":true,"y":false,"z":{"type":"array","items":true},"items":{"type":"object","properties":{"not":false},"additionalProperties":true}},"additionalProperties":false,"unevaluatedProperties":false,"anyOf":[true,{"not":false}]}}`,
			`{"name":"s_t","inputSchema":{"type":"object","properties":{"x":{},"y":{"not":{}},"z":{"type":"array","items":{}},"items":{"type":"object","properties":{"not":{"not":{}}},"additionalProperties":true}},"additionalProperties":false,"unevaluatedProperties":false,"anyOf":[{},{"not":{"not":{}}}]}}`},
		{"old tuples and dependencies",
			`{"name":"t","inputSchema":{"type":"object","properties":{"a":{"items":[true,{}],"additionalItems":false}},"dependencies":{"a":["b"],"c":true}}}`,
			`{"name":"s_t","inputSchema":{"type":"object","properties":{"a":{"items":[{},{}],"additionalItems":false}},"dependencies":{"a":["b"],"c":{}}}}`},
		{"data that looks like schemas stays",
			`{"name":"t","inputSchema":{"type":"object","properties":{"a":{"enum":[true,null],"default":{"properties":{"x":true}},"examples":[{"items":true}]}}}}`,
			`{"name":"s_t","inputSchema":{"type":"object","properties":{"a":{"enum":[true,null],"default":{"properties":{"x":true}},"examples":[{"items":true}]}}}}`},
		{"B053: definitions and references keep their names",
			`{"name":"t","inputSchema":{"$schema":"http://json-schema.org/draft-07/schema#","type":"object","properties":{"a":{"$ref":"#/definitions/A"},"b":{"$ref":"#/$defs/B"}},"definitions":{"A":{"$id":"#a","type":"string"}},"$defs":{"B":{"$anchor":"b","type":"object"}}}}`,
			`{"name":"s_t","inputSchema":{"$schema":"http://json-schema.org/draft-07/schema#","type":"object","properties":{"a":{"$ref":"#/definitions/A"},"b":{"$ref":"#/$defs/B"}},"definitions":{"A":{"$id":"#a","type":"string"}},"$defs":{"B":{"$anchor":"b","type":"object"}}}}`},
		{"null members are absent members", `{"name":"t","title":null,"description":null,"annotations":null,"outputSchema":null,"_meta":null,"other":null,"inputSchema":{"type":"object","properties":{}}}`,
			`{"name":"s_t","other":null,"inputSchema":{"type":"object","properties":{}}}`},
		{"output schema of objects", `{"name":"t","inputSchema":{"type":"object","properties":{}},"outputSchema":{"properties":{"a":true}}}`,
			`{"name":"s_t","inputSchema":{"type":"object","properties":{}},"outputSchema":{"properties":{"a":{}},"type":"object"}}`},
		{"output schema of a list is left out", `{"name":"t","inputSchema":{"type":"object","properties":{}},"outputSchema":{"type":"array"}}`,
			`{"name":"s_t","inputSchema":{"type":"object","properties":{}}}`},
	} {
		tool, _, _, err := outerTool("s", json.RawMessage(c.in), naming{max: 64})
		if err != nil {
			t.Errorf("%s: %v", c.what, err)
			continue
		}
		if string(tool.Outer) != c.want {
			t.Errorf("%s:\n got %s\nwant %s", c.what, tool.Outer, c.want)
		}
		if string(tool.Raw) != c.in {
			t.Errorf("%s: the raw definition changed to %s", c.what, tool.Raw)
		}
	}
}

// B056: what cannot be made acceptable costs one tool, with a reason.
func TestHopelessDefinitionsAreWithheldAlone(t *testing.T) {
	deep := strings.Repeat(`{"not":`, 100) + `{}` + strings.Repeat(`}`, 100)
	bad := map[string]string{ // definition → what the warning says
		`{"name":"b1","inputSchema":{"type":"string"}}`:                                              "not an object",
		`{"name":"b2","inputSchema":{"type":"object","properties":{"a":"string"}}}`:                  "a schema is expected",
		`{"name":"b3","inputSchema":{"type":"object","properties":[]}}`:                              "object of schemas",
		`{"name":"b4","inputSchema":false}`:                                                          "no call could ever be valid",
		`{"name":"b5","inputSchema":[1]}`:                                                            "a schema is expected",
		`{"name":"b6","description":5}`:                                                              "description is not a string",
		`{"name":"b7","inputSchema":{"type":"object","properties":{"a":` + deep + `,"b":true}}}`:     "deeper",
		`{"name":"b8","annotations":[]}`:                                                             "annotations",
		`{"name":"b9","inputSchema":{"type":"object","properties":{"a":{"anyOf":{"type":"null"}}}}}`: "list of schemas",
		`{"title":"nameless"}`:                                                                       "no name",
		`"text"`:                                                                                     "not an object",
		`{"name":`:                                                                                   "not valid JSON",
		`{"name":7}`:                                                                                 "name is not a string",
	}
	for def, why := range bad {
		c := named("good", "fine")
		c.Tools = append(c.Tools, json.RawMessage(def))
		s := loaded(t, map[string]*upstreams.Catalogue{"s": c}, 0).Snapshot()
		if len(s.Tools()) != 2 || s.Tool("s_good") == nil || s.Tool("s_fine") == nil {
			t.Errorf("%s: the others are gone too: %d tools", def, len(s.Tools()))
		}
		if w := s.Server("s").Warnings; len(w) != 1 || !strings.Contains(w[0], why) || !strings.Contains(w[0], "withheld") {
			t.Errorf("%s: warnings %q, want one that says %q", def, w, why)
		}
	}
}

// Every real definition comes through, and differs from what its server sent
// in the name and in nothing that means something else.
func TestRealDefinitionsStayFaithful(t *testing.T) {
	total := 0
	for id, c := range dumps(t) {
		r := loaded(t, map[string]*upstreams.Catalogue{id: c}, 0)
		s := r.Snapshot()
		if len(s.Tools()) != len(c.Tools) {
			t.Errorf("%s: %d of %d tools; %q", id, len(s.Tools()), len(c.Tools), s.Server(id).Warnings)
		}
		total += len(s.Tools())
		for _, tool := range s.Tools() {
			in, err := wire.ParseObject(tool.Raw)
			if err != nil {
				t.Fatal(err)
			}
			out, err := wire.ParseObject(tool.Outer)
			if err != nil {
				t.Fatalf("%s: %v", tool.Outward, err)
			}
			for _, f := range in {
				switch got := out.Get(f.Key); {
				case f.Key == "name", f.Key == "inputSchema" && !bytes.Equal(got, f.Value):
				case !bytes.Equal(got, f.Value) && f.Key != "outputSchema":
					t.Errorf("%s: %s changed from %s to %s", tool.Outward, f.Key, f.Value, got)
				}
			}
			if p := problems(tool.Outer); p != "" {
				t.Errorf("%s: %s", tool.Outward, p)
			}
		}
	}
	t.Logf("%d tools", total)
}

// problems is what a strict client would refuse in a definition, told from the
// decoded form by code of its own.
func problems(def []byte) string {
	var d map[string]any // by exact key, unlike a struct
	if err := json.Unmarshal(def, &d); err != nil {
		return err.Error()
	}
	if name, ok := d["name"].(string); !ok || !outwardForm.MatchString(name) {
		return "name"
	}
	in, _ := d["inputSchema"].(map[string]any)
	if in["type"] != "object" {
		return "inputSchema.type"
	}
	if _, ok := in["properties"].(map[string]any); !ok {
		return "inputSchema.properties"
	}
	out, ok := d["outputSchema"].(map[string]any)
	if _, has := d["outputSchema"]; has && !ok || ok && out["type"] != "object" {
		return "outputSchema.type"
	}
	for _, k := range []string{"title", "description"} {
		if v, has := d[k]; has {
			if _, ok := v.(string); !ok {
				return k
			}
		}
	}
	if v, has := d["annotations"]; has {
		if _, ok := v.(map[string]any); !ok {
			return "annotations"
		}
	}
	for _, s := range []map[string]any{in, out} {
		if p := boolean(s, "properties", "patternProperties", "$defs", "definitions"); p != "" {
			return p
		}
	}
	return ""
}

func boolean(s map[string]any, maps ...string) string {
	for _, m := range maps {
		subs, _ := s[m].(map[string]any)
		for k, v := range subs {
			sub, ok := v.(map[string]any)
			if !ok {
				return m + "." + k + " is no object"
			}
			if p := boolean(sub, maps...); p != "" {
				return p
			}
		}
	}
	for _, k := range []string{"items", "not", "contains", "if", "then", "else", "propertyNames"} {
		if v, ok := s[k]; ok {
			if sub, ok := v.(map[string]any); ok {
				if p := boolean(sub, maps...); p != "" {
					return p
				}
			} else if _, list := v.([]any); !list || k != "items" {
				return k + " is no object"
			}
		}
	}
	for _, k := range []string{"anyOf", "oneOf", "allOf", "prefixItems"} {
		list, _ := s[k].([]any)
		for _, v := range list {
			sub, ok := v.(map[string]any)
			if !ok {
				return k + " has no object"
			}
			if p := boolean(sub, maps...); p != "" {
				return p
			}
		}
	}
	return ""
}

// Whatever a server sends, the outward form is acceptable or withheld, the
// second rewriting changes nothing, and members of unknown meaning stay.
func FuzzOuter(f *testing.F) {
	f.Add([]byte(`{"name":"t","inputSchema":{"type":"object","properties":{"x":true}}}`))
	f.Add([]byte(`{"name":"a.b","inputSchema":null,"outputSchema":{"type":"array"},"annotations":null}`))
	f.Add([]byte(`{"name":"t","name":"u","inputSchema":{"type":["object"],"items":[true,false],"dependencies":{"a":["b"]}}}`))
	f.Add([]byte(`{"name":"t","inputSchema":{"properties":{"properties":{"properties":false}},"anyOf":[{"not":true}]},"x":1e400}`))
	f.Add([]byte(`{"name":"\ud800","inputSchema":{"type":"object","properties":null}}`))
	f.Fuzz(func(t *testing.T, def []byte) {
		tool, _, _, err := outerTool("s", def, naming{max: 64})
		if err != nil {
			return
		}
		if p := problems(tool.Outer); p != "" && !strings.Contains(p, "cannot unmarshal number") {
			t.Fatalf("%s became %s: %s", def, tool.Outer, p)
		}
		again, _, _, err := outerTool("s", tool.Outer, naming{max: 64})
		if err != nil {
			t.Fatalf("%s became %s, which is refused: %v", def, tool.Outer, err)
		}
		before, _ := wire.ParseObject(tool.Outer)
		after, _ := wire.ParseObject(again.Outer)
		if !reflect.DeepEqual(before.Without("name"), after.Without("name")) {
			t.Fatalf("%s became %s and then %s", def, tool.Outer, again.Outer)
		}
	})
}
