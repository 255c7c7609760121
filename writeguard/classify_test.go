package writeguard

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/mcp-portal/mcp-portal/config"
)

func testConfig() *config.Config {
	return &config.Config{Servers: map[string]config.Server{
		"trusted": {TrustAnnotations: true, Tools: map[string]config.ServerTool{
			"delete_all": {Class: "read"},
			"get_it":     {Class: "destructive"},
		}},
		"api":  {OpenAPI: "api.json"},
		"wild": {Tools: map[string]config.ServerTool{"known": {Class: "read"}}},
	}}
}

func TestClassify(t *testing.T) {
	for _, tt := range []struct {
		name, server, tool, description, annotations string
		want                                         Class
		source                                       string
	}{
		{"admin loosens", "wild", "known", "Deletes everything", `{"destructiveHint":true}`, Read, "config"},
		{"admin's class is per original name", "wild", "Known", "", ``, Write, "default"},
		{"admin over trusted hints", "trusted", "get_it", "", `{"readOnlyHint":true}`, Destructive, "config"},
		{"admin over the name", "trusted", "delete_all", "", ``, Read, "config"},

		{"an API's GET", "api", "zones-list", "List zones", `{"readOnlyHint":true,"destructiveHint":false}`, Read, "openapi"},
		{"an API's GET, a noun", "api", "archive-links", "", `{"readOnlyHint":true}`, Read, "openapi"},
		{"an API's GET that destroys", "api", "auth_revoke", "", `{"readOnlyHint":true}`, Destructive, "name"},
		{"an API's POST", "api", "zones-post", "Create zone", `{"readOnlyHint":false,"destructiveHint":false}`, Write, "openapi"},
		{"an API's POST that destroys", "api", "zone-purge", "", `{"readOnlyHint":false,"destructiveHint":false}`, Destructive, "name"},
		{"an API's POST that says it destroys", "api", "update", "Cancels the order.", `{"readOnlyHint":false}`, Destructive, "description"},
		{"an API's DELETE", "api", "zones-x", "", `{"readOnlyHint":false,"destructiveHint":true}`, Destructive, "openapi"},
		{"an API's broken hints", "api", "x", "", `[]`, Destructive, "openapi"},

		{"trusted read", "trusted", "x", "", `{"readOnlyHint":true}`, Read, "annotations"},
		{"trusted write", "trusted", "x", "", `{"readOnlyHint":false,"destructiveHint":false}`, Write, "annotations"},
		{"trusted write, only one hint", "trusted", "x", "", `{"destructiveHint":false}`, Write, "annotations"},
		{"trusted destructive", "trusted", "x", "", `{"readOnlyHint":false,"destructiveHint":true}`, Destructive, "annotations"},
		{"B140: trusted, destructiveHint missing", "trusted", "x", "", `{"readOnlyHint":false}`, Destructive, "annotations"},
		{"B140: trusted, title only", "trusted", "x", "", `{"title":"X"}`, Destructive, "annotations"},
		{"B140: trusted, no annotations", "trusted", "delete_repo", "", ``, Destructive, "annotations"},
		{"B140: trusted, null", "trusted", "x", "", `null`, Destructive, "annotations"},
		{"trusted, contradiction", "trusted", "x", "", `{"readOnlyHint":true,"destructiveHint":true}`, Destructive, "annotations"},
		{"trusted, text for a boolean", "trusted", "x", "", `{"readOnlyHint":"true"}`, Destructive, "annotations"},
		{"trusted, other case", "trusted", "x", "", `{"ReadOnlyHint":true}`, Destructive, "annotations"},
		{"trusted, repeated member, strict last", "trusted", "x", "", `{"readOnlyHint":true,"readOnlyHint":false}`, Destructive, "annotations"},
		{"trusted, repeated member, strict first", "trusted", "x", "", `{"readOnlyHint":false,"readOnlyHint":true}`, Destructive, "annotations"},
		{"trusted, repeated destructiveHint", "trusted", "x", "", `{"destructiveHint":true,"destructiveHint":false}`, Destructive, "annotations"},
		{"trusted, broken annotations", "trusted", "x", "", `["readOnlyHint"]`, Destructive, "annotations"},

		{"B142: untrusted readOnlyHint", "wild", "open_table", "", `{"readOnlyHint":true}`, Write, "default"},
		{"B142: untrusted readOnlyHint on drop_table", "wild", "drop_table", "", `{"readOnlyHint":true}`, Destructive, "name"},
		{"B142: unknown server", "nowhere", "get_x", "", `{"readOnlyHint":true}`, Write, "default"},
		{"B140: untrusted, delete_repo unannotated", "wild", "delete_repo", "", ``, Destructive, "name"},
		{"untrusted destructiveHint", "wild", "get_x", "", `{"readOnlyHint":true,"destructiveHint":true}`, Destructive, "annotations"},
		{"untrusted destructiveHint false does not loosen the name", "wild", "deleteRepo", "", `{"destructiveHint":false}`, Destructive, "name"},
		{"untrusted text for a boolean", "wild", "x", "", `{"destructiveHint":"false"}`, Destructive, "annotations"},
		{"untrusted broken annotations", "wild", "x", "", `{`, Destructive, "annotations"},
		{"untrusted reading name is a write", "wild", "list_things", "Lists things", ``, Write, "default"},
		{"untrusted, description", "wild", "manage_branch", "Create, rename or delete a branch.", ``, Destructive, "description"},
		{"untrusted, phrase later in the description", "wild", "sync", "Syncs a folder. This cannot be undone.", ``, Destructive, "description"},
		{"untrusted, another tool's verb", "wild", "update_issue", "Update an issue. To delete it use another tool.", ``, Write, "default"},
		{"untrusted, negated", "wild", "archive_list", "Lists things, does not delete them", ``, Write, "default"},
		{"unknown is a write", "wild", "frobnicate", "", ``, Write, "default"},
		{"nothing known", "", "", "", ``, Write, "default"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := Call{Server: tt.server, Tool: tt.tool, Description: tt.description}
			if tt.annotations != "" {
				c.Annotations = json.RawMessage(tt.annotations)
			}
			got := Classify(c, testConfig())
			if got.Class != tt.want || got.Source != tt.source || got.Why == "" {
				t.Errorf("got %+v, want %s from %s", got, tt.want, tt.source)
			}
		})
	}
	if got := Classify(Call{Server: "trusted", Tool: "x", Annotations: json.RawMessage(`{"readOnlyHint":true}`)}, nil); got.Class != Write {
		t.Errorf("without a configuration: %+v, want a write", got)
	}
	bad := &config.Config{Servers: map[string]config.Server{"s": {Tools: map[string]config.ServerTool{"t": {Class: "raed"}}}}}
	if got := Classify(Call{Server: "s", Tool: "t"}, bad); got.Class != Destructive {
		t.Errorf("misspelt class: %+v, want destructive", got)
	}
}

func TestNameVerb(t *testing.T) {
	for name, want := range map[string]string{
		"delete_repo": "delete", "deleteRepo": "delete", "DeleteRepo": "delete", "DELETE-REPO": "delete",
		"repo.delete": "delete", "record_delete": "delete", "batch_deletes": "deletes", "HTTPDelete": "delete", "deleteHTTP2": "delete",
		"drop-table2": "drop", "void_invoice": "void", "refund_charge": "refund", "getAndDelete": "delete", "purges": "purges",
		"merge_branch": "merge", "get_merge_request": "", "list_archives": "", "archive_page": "archive", "execute_sql": "execute",
		"dismiss_notification": "dismiss", "get_deleted_items": "", "undelete_page": "", "dropbox_upload": "", "droplet_create": "",
		"create_issue": "", "": "", "___": "", "данные": "", "élever": "", "unset_env": "unset",
	} {
		if got := nameVerb(name); got != want {
			t.Errorf("nameVerb(%q) = %q, want %q", name, got, want)
		}
	}
}

func TestDescriptionVerb(t *testing.T) {
	for d, want := range map[string]string{
		"Deletes a record":                                            "deletes",
		"Permanently REMOVE a user":                                   "permanently remove",
		"Stop and delete the pod":                                     "delete",
		"Lists records. Never delete":                                 "",
		"Reads a page without removing it":                            "",
		"Edits a file; doesn't overwrite":                             "",
		"Moves mail. This operation is irreversible":                  "irreversibl",
		"This is not a destructive operation":                         "",
		"First line\nDelete on the second":                            "",
		"":                                                            "",
		strings.Repeat("x", descriptionMax) + " cannot be undone":     "",
		"Not irreversible, but then again it is irreversible for you": "irreversibl",
	} {
		if got := descriptionVerb(d); got != want {
			t.Errorf("descriptionVerb(%.60q) = %q, want %q", d, got, want)
		}
	}
}

func FuzzClassify(f *testing.F) {
	f.Add("drop_table", "Deletes", `{"readOnlyHint":true}`)
	f.Add("getХ", "\xff\xfe", `{"readOnlyHint":true,"destructiveHint":1}`)
	f.Fuzz(func(t *testing.T, tool, description, annotations string) {
		// Whatever an untrusted server says, nothing of it is a read, and
		// saying more never loosens.
		bare := Classify(Call{Server: "x", Tool: tool}, testConfig())
		full := Classify(Call{Server: "x", Tool: tool, Description: description, Annotations: json.RawMessage(annotations)}, testConfig())
		if bare.Class == Read || full.Class == Read {
			t.Fatalf("an untrusted tool is read: %+v %+v", bare, full)
		}
		if bare.Class == Destructive && full.Class != Destructive {
			t.Fatalf("hints loosened %+v to %+v", bare, full)
		}
	})
}
