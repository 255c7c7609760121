package gateway

import (
	"net/url"
	"strings"
	"testing"
)

func TestParseMode(t *testing.T) {
	for _, c := range []struct {
		query, policy string
		want          Mode
		note          bool
		err           string
	}{
		{"", "opt_in", ModeAll, false, ""},
		{"", "off", ModeAll, false, ""},
		{"", "default_on", ModeCodemode, false, ""},
		{"", "enforced", ModeCodemode, false, ""},
		{"optimize_context=minimize_tools", "opt_in", ModeMinimize, false, ""},
		{"optimize_context=search_and_execute", "opt_in", ModeTwoTools, false, ""},
		{"optimize_context=search_and_execute", "off", ModeTwoTools, false, ""},
		{"optimize_context=search_and_execute", "enforced", ModeTwoTools, false, ""},
		{"optimize_context=minimize_tools", "enforced", ModeCodemode, true, ""},
		{"codemode=search_and_execute", "opt_in", ModeCodemode, false, ""},
		{"codemode=code", "opt_in", ModeCode, false, ""},
		{"codemode=code", "enforced", ModeCode, false, ""},
		{"codemode=off", "opt_in", ModeAll, false, ""},
		{"codemode=off", "default_on", ModeAll, false, ""},
		{"codemode=false", "default_on", ModeAll, false, ""},
		{"codemode=off", "enforced", ModeCodemode, true, ""},
		{"codemode=off&optimize_context=minimize_tools", "default_on", ModeMinimize, false, ""},
		{"codemode=code", "off", "", false, "switched off"},
		{"codemode=search_and_execute", "off", "", false, "switched off"},
		{"codemode=code&optimize_context=minimize_tools", "opt_in", "", false, "cannot both"},
		{"codemode=", "opt_in", "", false, `""`},
		{"codemode=on", "opt_in", "", false, "search_and_execute, code, off, false"},
		{"codemode=CODE", "opt_in", "", false, "CODE"},
		{"optimize_context=all", "opt_in", "", false, "minimize_tools, search_and_execute"},
		{"optimize_context=minimize_tools&optimize_context=minimize_tools", "opt_in", "", false, "2 times"},
		{"other=1", "opt_in", ModeAll, false, ""},
	} {
		q, err := url.ParseQuery(c.query)
		if err != nil {
			t.Fatal(err)
		}
		got, note, err := parseMode(q, c.policy)
		if c.err != "" {
			if err == nil || !strings.Contains(err.Error(), c.err) {
				t.Errorf("%q under %s: error %v, want one with %q", c.query, c.policy, err, c.err)
			}
			continue
		}
		if err != nil || got != c.want || (note != "") != c.note {
			t.Errorf("%q under %s: %q, note %q, %v; want %q", c.query, c.policy, got, note, err, c.want)
		}
	}
}

func TestAccepts(t *testing.T) {
	for header, want := range map[string][2]bool{
		"":                                    {true, false},
		"*/*":                                 {true, false},
		"application/json":                    {true, false},
		"text/event-stream":                   {false, true},
		"application/json, text/event-stream": {true, true},
		"TEXT/Event-Stream;q=0.5 , application/json;q=0.1": {true, true},
		"text/html": {false, false},
	} {
		j, s := accepts([]string{header})
		if j != want[0] || s != want[1] {
			t.Errorf("Accept %q: json %v, stream %v; want %v", header, j, s, want)
		}
	}
}
