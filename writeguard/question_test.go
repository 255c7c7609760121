package writeguard

import (
	"encoding/json"
	"strings"
	"testing"
	"time"
)

// TestQuestion is the second half of B143: the question shows server, tool and
// all arguments.
func TestQuestion(t *testing.T) {
	a := &Approval{ID: "ap-X", Server: "dns", Tool: "record\ndelete", Class: Destructive, Why: `the name says "delete"`,
		Reason: "frozen\u202e zone", Mode: Code, Run: "run-7", Expires: time.Date(2026, 12, 2, 9, 15, 0, 0, time.UTC),
		Arguments: json.RawMessage(`{"force":true,"id":9007199254740993,"note":"a` + "\u200b" + `b"}`)}
	msg, schema := Question(a)
	for _, want := range []string{"Server: dns\n", `Tool: record\u000adelete`, "destructive", `the name says "delete"`, `frozen\u202e zone`,
		"script (run run-7)", `"force": true`, `"id": 9007199254740993`, `"note": "a\u200bb"`, "once", "09:15 UTC"} {
		if !strings.Contains(msg, want) {
			t.Errorf("the question does not say %q:\n%s", want, msg)
		}
	}
	if !Fits(a) || strings.Contains(msg, "CUT") {
		t.Error("a short question says that it is cut")
	}
	var s struct {
		Type       string
		Properties map[string]struct {
			Type            string
			Enum, EnumNames []string
			Default         any
		}
		Required []string
	}
	if err := json.Unmarshal(schema, &s); err != nil {
		t.Fatal(err)
	}
	d := s.Properties["decision"]
	if s.Type != "object" || len(s.Properties) != 1 || d.Type != "string" || len(d.Enum) != 2 || len(d.EnumNames) != 2 || d.Default != nil || len(s.Required) != 1 {
		t.Errorf("schema %s", schema)
	}

	a.Arguments = json.RawMessage(`{"body":"` + strings.Repeat("ü", 5000) + `"}`)
	msg, _ = Question(a)
	if Fits(a) || !strings.Contains(msg, "CUT") || !strings.Contains(msg, a.ID) || len([]rune(msg)) > questionArguments+1000 {
		t.Errorf("a long question of %d characters: fits %v", len([]rune(msg)), Fits(a))
	}
}

// TestParseAnswer is the first half of B143: only a clear yes is a yes.
func TestParseAnswer(t *testing.T) {
	for _, tt := range []struct {
		action, content string
		want            bool
	}{
		{"accept", `{"decision":"approve"}`, true},
		{"accept", `{"decision":"approve","note":"x"}`, true},
		{"accept", `{"decision":"deny"}`, false},
		{"accept", `{"decision":"Approve"}`, false},
		{"accept", `{"Decision":"approve"}`, false},
		{"accept", `{"decision":"deny","decision":"approve"}`, false},
		{"accept", `{"decision":"approve","decision":"deny"}`, false},
		{"accept", `{"decision":true}`, false},
		{"accept", `{"decision":["approve"]}`, false},
		{"accept", `{"decision":null}`, false},
		{"accept", `{}`, false},
		{"accept", `null`, false},
		{"accept", ``, false},
		{"accept", `"approve"`, false},
		{"accept", `{"decision":"approve"`, false},
		{"decline", `{"decision":"approve"}`, false},
		{"cancel", `{"decision":"approve"}`, false},
		{"Accept", `{"decision":"approve"}`, false},
		{"", `{"decision":"approve"}`, false},
	} {
		got, reason := ParseAnswer(tt.action, json.RawMessage(tt.content))
		if got != tt.want || reason == "" {
			t.Errorf("ParseAnswer(%q, %s) = %v, %q", tt.action, tt.content, got, reason)
		}
	}
}

func FuzzParseAnswer(f *testing.F) {
	f.Add("accept", []byte(`{"decision":"approve"}`))
	f.Add("accept", []byte(`{"decision":"deny","decision":"approve"}`))
	f.Fuzz(func(t *testing.T, action string, content []byte) {
		if ok, _ := ParseAnswer(action, content); ok && (action != "accept" || !strings.Contains(string(content), "approve") && !strings.Contains(string(content), `\u`)) {
			t.Fatalf("%q %s approves", action, content)
		}
	})
}
