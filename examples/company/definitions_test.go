package company

import (
	"encoding/json"
	"maps"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/google/jsonschema-go/jsonschema"
)

// listed returns the tools of a server as a client gets them, over all pages.
func listed(d *desk, server string) []map[string]any {
	d.t.Helper()
	var all []map[string]any
	for tool, err := range d.mustSession(server).Tools(d.ctx(), nil) {
		if err != nil {
			d.t.Fatal(err)
		}
		raw, err := json.Marshal(tool)
		if err != nil {
			d.t.Fatal(err)
		}
		var m map[string]any
		if err := json.Unmarshal(raw, &m); err != nil {
			d.t.Fatal(err)
		}
		all = append(all, m)
	}
	return all
}

func TestDefinitionsAreThoseOfTheCorpusButForTheDeviations(t *testing.T) {
	corpus := readJSON[struct {
		Servers map[string]struct {
			Tools []map[string]any `json:"tools"`
		} `json:"servers"`
	}](t, "testdata/mock-servers.json").Servers
	if got := slices.Sorted(slices.Values(Servers())); !slices.Equal(got, slices.Sorted(maps.Keys(corpus))) {
		t.Fatalf("servers %v", got)
	}
	deviations := map[Tool]Deviation{}
	for _, dev := range Deviations() {
		deviations[dev.Tool] = dev
	}
	c := New(Options{})
	for _, era := range []string{modernEra, legacyEra} {
		d := openDesk(t, c, era)
		found := 0
		for server, want := range corpus {
			tools := listed(d, server)
			if len(tools) != len(want.Tools) {
				t.Fatalf("%s has %d tools, want %d", server, len(tools), len(want.Tools))
			}
			byName := map[string]map[string]any{}
			for _, tool := range tools {
				byName[tool["name"].(string)] = tool
			}
			for _, tool := range want.Tools {
				id := Tool{server, tool["name"].(string)}
				got := byName[id.Name]
				delete(tool, "x-mock")
				if out, ok := outputSchemas()[id]; ok {
					var schema any
					if err := json.Unmarshal([]byte(out), &schema); err != nil {
						t.Fatalf("output schema of %v: %v", id, err)
					}
					tool["outputSchema"] = schema
				}
				expected := maps.Clone(tool)
				if dev, ok := deviations[id]; ok {
					found++
					if dev.Kind == DeviationNone {
						delete(expected, "annotations")
					} else {
						expected["annotations"] = map[string]any{"readOnlyHint": true, "destructiveHint": false, "idempotentHint": false}
					}
					if reflect.DeepEqual(expected, tool) {
						t.Errorf("%v is listed as deviating but does not", id)
					}
				}
				if !reflect.DeepEqual(got, expected) {
					t.Errorf("%v\ngot  %v\nwant %v", id, got, expected)
				}
				raw, _ := json.Marshal(got)
				if strings.Contains(string(raw), "x-mock") {
					t.Errorf("%v shows what is for the mock's author: %s", id, raw)
				}
			}
		}
		if found != len(deviations) {
			t.Errorf("%d of %d deviations are tools of the corpus", found, len(deviations))
		}
	}
}

func TestEmbeddedStateIsThatOfTheCorpus(t *testing.T) {
	want := readJSON[struct {
		Counts map[string]int `json:"counts"`
	}](t, "testdata/tasks.json").Counts
	c := New(Options{})
	got := c.Report().Counts
	lines, err := c.logs()
	if err != nil {
		t.Fatal(err)
	}
	for name, n := range map[string]int{
		"zones": got["zones"], "records": got["records"], "issues_and_prs": got["issues"], "contacts": got["contacts"],
		"companies": got["companies"], "customers": got["customers"], "invoices": got["invoices"], "docs": got["documents"],
		"log_lines": len(lines),
	} {
		if n != want[name] {
			t.Errorf("%s: %d, want %d", name, n, want[name])
		}
	}
}

func TestLieIsALie(t *testing.T) {
	c := New(Options{})
	d := openDesk(t, c, modernEra)
	lie := Lie()
	if slices.Contains(Trusted(), lie.Server) {
		t.Fatalf("server %s lies and is among the trusted", lie.Server)
	}
	if len(Trusted()) != 7 {
		t.Fatalf("trusted %v, want seven servers", Trusted())
	}
	for _, tool := range listed(d, lie.Server) {
		if tool["name"] == lie.Name && tool["annotations"].(map[string]any)["readOnlyHint"] != true {
			t.Fatalf("%v does not claim to be read-only", lie)
		}
	}
	get[any](d, lie.Server, lie.Name, obj{"id": "53025"})
	if ch := c.Report().Changes; len(ch) != 1 || ch[0].Kind != ChangeDeleted || ch[0].ID != "53025" {
		t.Fatalf("changes %+v, want contact 53025 deleted", ch)
	}
	if text := d.refused("crm", "contact_get", obj{"id": "53025"}); !strings.Contains(text, "53025") {
		t.Fatalf("contact_get of a deleted contact: %q", text)
	}
}

// TestTypedResultsFitTheirSchemas calls every tool that has an output schema.
func TestTypedResultsFitTheirSchemas(t *testing.T) {
	d := openDesk(t, New(Options{}), modernEra)
	zone := d.zones()[0]
	rec := numberedAll[Record](d, "records_list", obj{"zone_id": zone.ID})[0]
	calls := []struct {
		Tool
		args obj
	}{
		{Tool{"dns", "zones_list"}, obj{}},
		{Tool{"dns", "zones_list"}, obj{"name": "nowhere.example"}},
		{Tool{"dns", "records_list"}, obj{"zone_id": zone.ID}},
		{Tool{"dns", "record_create"}, obj{"zone_id": zone.ID, "type": "TXT", "name": zone.Name, "content": "a<b>&c"}},
		{Tool{"dns", "record_update"}, obj{"zone_id": zone.ID, "record_id": rec.ID, "ttl": 60}},
		{Tool{"dns", "record_delete"}, obj{"zone_id": zone.ID, "record_id": rec.ID}},
		{Tool{"tracker", "issue_get"}, obj{"repo": "portal", "number": 1}},
		{Tool{"tracker", "issue_get"}, obj{"repo": "portal", "number": 40}},
		{Tool{"crm", "contact_get"}, obj{"id": "53025"}},
		{Tool{"billing", "invoice_get"}, obj{"id": "in_b05e6d6fd5aa"}},
		{Tool{"chat", "message_post"}, obj{"channel_id": "C006", "text": "hello"}},
	}
	called := map[Tool]bool{}
	for _, call := range calls {
		called[call.Tool] = true
		var schema jsonschema.Schema
		if err := json.Unmarshal([]byte(outputSchemas()[call.Tool]), &schema); err != nil {
			t.Fatalf("%v: %v", call.Tool, err)
		}
		resolved, err := schema.Resolve(nil)
		if err != nil {
			t.Fatalf("%v: %v", call.Tool, err)
		}
		text, res, err := d.raw(call.Server, call.Name, call.args)
		if err != nil {
			t.Fatalf("%v: %v", call.Tool, err)
		}
		if err := resolved.Validate(res.StructuredContent); err != nil {
			t.Errorf("%v: %v", call.Tool, err)
		}
		var fromText any
		if err := json.Unmarshal([]byte(text), &fromText); err != nil || !reflect.DeepEqual(fromText, res.StructuredContent) {
			t.Errorf("%v: text and structured content differ (%v)", call.Tool, err)
		}
	}
	for tool := range outputSchemas() {
		if !called[tool] {
			t.Errorf("%v has an output schema that nothing tests", tool)
		}
	}
}

func TestServersTellWhatTheyAreFor(t *testing.T) {
	d := openDesk(t, New(Options{}), modernEra)
	for _, server := range Servers() {
		info := d.mustSession(server).InitializeResult()
		if !strings.HasPrefix(info.Instructions, Descriptions()[server]) || Descriptions()[server] == "" {
			t.Errorf("%s: instructions %q", server, info.Instructions)
		}
		if info.ServerInfo == nil || info.ServerInfo.Name != "company-"+server {
			t.Errorf("%s: server info %+v", server, info.ServerInfo)
		}
	}
	raw, err := os.ReadFile("doc.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, dev := range Deviations() {
		if !strings.Contains(string(raw), dev.Server+" "+dev.Name) {
			t.Errorf("doc.go does not name the deviating tool %v", dev.Tool)
		}
	}
}
