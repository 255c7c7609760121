package writeguard

import (
	"encoding/json"
	"os"
	"strings"
	"testing"

	"github.com/mcp-portal/mcp-portal/auth"
	"github.com/mcp-portal/mcp-portal/config"
)

const manyActions = `name: Test
auth: {mode: none}
servers:
  s:
    url: https://s.example.com/mcp
    trust_annotations: true
    labels: []
    tools:
      manage:
        class: destructive
        classes:
          - {class: read, when: 'args.action in ["get", "list"]'}
          - {class: external, when: 'args.action == "mail"'}
          - {class: write, when: 'args.action == "rename" && args.items.size() < 3'}
guard:
  rules:
    - {name: no-mails, class: [external], action: deny}
    - {name: renames, class: [write], action: allow}
`

// A tool that does many things has the class of what a call does; whatever the
// lines do not name, and what they cannot judge, has the strictest.
func TestClassByArguments(t *testing.T) {
	cfg, err := config.Parse("portal.yaml", []byte(manyActions), os.LookupEnv)
	if err != nil {
		t.Fatal(err)
	}
	p, err := Compile(cfg)
	if err != nil {
		t.Fatal(err)
	}
	for args, want := range map[string]struct {
		class  Class
		action Action
	}{
		`{"action":"get"}`:                         {Read, Allow},
		`{"\u0061ction":"l\u0069st"}`:              {Read, Allow},
		`{"action":"mail"}`:                        {Write, Deny},
		`{"action":"rename","items":[1,2]}`:        {Write, Allow},
		`{"action":"rename","items":[1,2,3]}`:      {Destructive, Approve},
		`{"action":"rename"}`:                      {Destructive, Approve}, // cannot be judged
		`{"action":"delete"}`:                      {Destructive, Approve},
		`{"action":"GET"}`:                         {Destructive, Approve},
		`{"action":" get"}`:                        {Destructive, Approve},
		`{"action":["get"]}`:                       {Destructive, Approve},
		`{"action":"get","action":"delete"}`:       {Destructive, Approve},
		`{"action":"get","Action":"delete"}`:       {Destructive, Approve}, // programs that read names in any case take the last
		`{"action":"get","acTıon":"delete"}`:       {Destructive, Approve},
		`{"action":"get","x":{"K":1,"\u212a":2}}`:  {Destructive, Approve},
		`{"Action":"get"}`:                         {Destructive, Approve},
		`{}`:                                       {Destructive, Approve},
		`null`:                                     {Destructive, Approve},
		`{"action":"get","n":1e999}`:               {Destructive, Approve},
		`{"action":{"action":"get"},"get":"list"}`: {Destructive, Approve},
	} {
		call := Call{Principal: &auth.Principal{ID: "ann"}, Mode: Direct, Server: "s", Tool: "manage", Annotations: json.RawMessage(`{"readOnlyHint":true}`), Arguments: json.RawMessage(args)}
		if d := p.Decide(call); d.Class != want.class || d.Action != want.action {
			t.Errorf("%s: %s, %s (%s), want %v", args, d.Class, d.Action, d.Why, want)
		}
	}
	// Without arguments: the strictest, and that it depends.
	o := p.Outlook(Call{Principal: &auth.Principal{ID: "ann"}, Mode: Direct, Server: "s", Tool: "manage"})
	if o.Class != Destructive || o.Action != Deny && o.Action != Approve || o.Worst != Deny || len(o.If) == 0 {
		t.Errorf("%+v", o)
	}
	// Another tool of the same name on another server has no lines.
	if d := p.Decide(Call{Principal: &auth.Principal{ID: "ann"}, Mode: Direct, Server: "t", Tool: "manage", Arguments: json.RawMessage(`{"action":"get"}`)}); d.Class != Write {
		t.Errorf("%+v", d)
	}
}

func TestClassLinesAreChecked(t *testing.T) {
	for line, want := range map[string]string{
		`{class: read}`:                                                    "write a condition over args",
		`{class: read, when: 'args.action == '}`:                           "when",
		`{class: read, when: 'user.name == "ann"'}`:                        "something else than args",
		`{class: read, when: 'args.a == 1 && run.calls < 3'}`:              "something else than args",
		`{class: read, when: 'args.a == 1 && "x" in tool.labels'}`:         "something else than args",
		`{class: read, when: 'true'}`:                                      "something else than args",
		`{class: harmless, when: 'args.a == 1'}`:                           "harmless",
		`{class: read, when: '["x"].exists(a, args.a == a && mode == a)'}`: "something else than args",
	} {
		text := strings.Replace(manyActions, `{class: read, when: 'args.action in ["get", "list"]'}`, line, 1)
		cfg, err := config.Parse("portal.yaml", []byte(text), os.LookupEnv)
		if err == nil {
			_, err = Compile(cfg)
		}
		if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "classes[0]") {
			t.Errorf("%s: %v", line, err)
		}
	}
	text := strings.Replace(manyActions, `{class: read, when: 'args.action in ["get", "list"]'}`, `{class: read, when: 'args.tags.exists(t, t == "x")'}`, 1)
	if cfg, err := config.Parse("portal.yaml", []byte(text), os.LookupEnv); err != nil {
		t.Error(err)
	} else if _, err := Compile(cfg); err != nil {
		t.Errorf("a loop over arguments: %v", err)
	}
}

// guard suggest proposes a class for each action that a tool's schema names.
func TestSuggestClassesByAction(t *testing.T) {
	tools := []Call{{Server: "s", Tool: "manage_page", Description: "Manages a page."}, {Server: "s", Tool: "delete_page"}, {Server: "s", Tool: "get_page"}}
	schemas := []string{
		`{"properties":{"action":{"type":"string","enum":["get","list_all","it's","rename","delete"]},"id":{"type":"string"}}}`,
		`{"properties":{"mode":{"enum":["soft","hard"]}}}`,
		`{"properties":{"op":{"enum":[1,2]}}}`,
	}
	text := SuggestPolicy("s", tools, func(i int) json.RawMessage { return json.RawMessage(schemas[i]) })
	cfg, err := config.Parse("portal.yaml", []byte(text), os.LookupEnv)
	if err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	p, err := Compile(cfg)
	if err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	for action, want := range map[string]Class{"get": Read, "list_all": Read, "it's": Write, "rename": Write, "delete": Destructive, "other": Destructive} {
		args, _ := json.Marshal(map[string]string{"action": action})
		if k := p.Classify(Call{Server: "s", Tool: "manage_page", Arguments: args}); k.Class != want {
			t.Errorf("%s is %s, want %s\n%s", action, k.Class, want, text)
		}
	}
	if strings.Count(text, "classes:") != 1 {
		t.Errorf("%s", text)
	}
}
