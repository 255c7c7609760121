package company

import (
	"encoding/json"
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"
)

type task struct {
	ID     string          `json:"id"`
	Answer json.RawMessage `json:"answer"`
	Grade  string          `json:"grade"`
	State  map[string]any  `json:"state"`
}

// TestTasks works off all tasks of the corpus at the running servers, in both
// eras, and compares with the answers that were computed from the state.
func TestTasks(t *testing.T) {
	tasks := readJSON[struct {
		Tasks []task `json:"tasks"`
	}](t, "testdata/tasks.json").Tasks
	if len(tasks) != 24 {
		t.Fatalf("%d tasks, want 24", len(tasks))
	}
	c := New(Options{})
	for _, era := range []string{modernEra, legacyEra} {
		t.Run(era, func(t *testing.T) {
			d := openDesk(t, c, era)
			for _, tk := range tasks {
				t.Run(tk.ID, func(t *testing.T) {
					d.t = t
					c.Reset()
					solve := solvers()[tk.ID]
					if solve == nil {
						t.Fatal("no solver")
					}
					got, want := canonical(t, solve(d)), canonical(t, tk.Answer)
					if strings.HasPrefix(tk.Grade, "set") {
						sortAny(got)
						sortAny(want)
					}
					if !reflect.DeepEqual(got, want) {
						t.Fatalf("got  %v\nwant %v", got, want)
					}
					checkWrites(t, tk, c.Report())
				})
			}
		})
	}
}

// checkWrites holds what a task changed against what it should.
func checkWrites(t *testing.T, tk task, rep Report) {
	t.Helper()
	want := 0
	switch tk.ID {
	case "T04":
		perZone := map[string]int{}
		if err := json.Unmarshal(tk.Answer, &perZone); err != nil {
			t.Fatal(err)
		}
		for _, n := range perZone {
			want += n
		}
	case "T14":
		var answer struct{ Updated int }
		if err := json.Unmarshal(tk.Answer, &answer); err != nil {
			t.Fatal(err)
		}
		want = answer.Updated
	}
	if len(rep.Changes) != want {
		t.Errorf("%d changes of records, issues, contacts or invoices, want %d", len(rep.Changes), want)
	}
	for _, ch := range rep.Changes {
		switch after := ch.After.(type) {
		case Record:
			if ch.Kind != ChangeUpdated || after.Content != "edge.hosting.example" || ch.Before.(Record).Content != "old-lb.hosting.example" {
				t.Errorf("unexpected change %+v", ch)
			}
		case Contact:
			if ch.Kind != ChangeUpdated || after.Lifecycle != "churned" || ch.Before.(Contact).Lifecycle != "lead" {
				t.Errorf("unexpected change %+v", ch)
			}
		default:
			t.Errorf("unexpected change %+v", ch)
		}
	}
	if want := map[string]int{"T18": 1, "T19": 5}[tk.ID]; len(rep.Articles) != want {
		t.Errorf("%d articles, want %d", len(rep.Articles), want)
	}
	if want := map[string]int{"T21": 1}[tk.ID]; len(rep.Messages) != want {
		t.Errorf("%d messages, want %d", len(rep.Messages), want)
	}
	if wanted, ok := tk.State["kb.articles"].([]any); ok {
		a := wanted[0].(map[string]any)
		if rep.Articles[0].SHA256 != a["sha256"] || rep.Articles[0].Title != a["title"] {
			t.Errorf("article %q has SHA-256 %s, want %v", rep.Articles[0].Title, rep.Articles[0].SHA256, a)
		}
	}
}

// canonical makes values comparable: through JSON, numbers rounded.
func canonical(t *testing.T, v any) any {
	t.Helper()
	raw, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	var out any
	if err := json.Unmarshal(raw, &out); err != nil {
		t.Fatal(err)
	}
	return round(out)
}

func round(v any) any {
	switch v := v.(type) {
	case float64:
		return math.Round(v*1e6) / 1e6
	case []any:
		for i := range v {
			v[i] = round(v[i])
		}
	case map[string]any:
		for k := range v {
			v[k] = round(v[k])
		}
	}
	return v
}

func sortAny(v any) {
	list, _ := v.([]any)
	slices.SortFunc(list, func(a, b any) int {
		x, _ := json.Marshal(a)
		y, _ := json.Marshal(b)
		return strings.Compare(string(x), string(y))
	})
}
