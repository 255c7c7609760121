package audit

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"
)

func TestReadFilters(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a.jsonl")
	lines := []string{
		`{"time":"2026-01-01T00:00:00Z","id":"1","user":"a","server":"dns","capability":"x","method":"tools/call","mode":"direct","status":"ok","decision":"allow"}`,
		`{"time":"2026-01-02T00:00:00Z","id":"2","user":"b","server":"dns","capability":"y","method":"tools/call","mode":"code","run":"r","status":"denied","decision":"deny"}`,
		``,
		`not json`,
		`{"time":"2026-01-03T00:00:00Z","id":"3","user":"a","server":"crm","capability":"x","method":"prompts/get","mode":"direct","status":"error"}`,
		strings.Repeat("x", maxLine+10),
		`{"id":"5","user":"a","time":"2026-01-04T00:00:00Z"}`,
	}
	if err := os.WriteFile(path, []byte(strings.Join(lines, "\n")+"\n"+`{"id":"being written"`), 0o600); err != nil {
		t.Fatal(err)
	}
	at := func(d int) time.Time { return time.Date(2026, 1, d, 0, 0, 0, 0, time.UTC) }
	for _, c := range []struct {
		name string
		f    Filter
		want string
	}{
		{"all", Filter{}, "1 2 3 5"}, {"user", Filter{User: "a"}, "1 3 5"}, {"server", Filter{Server: "dns"}, "1 2"},
		{"capability", Filter{Capability: "x"}, "1 3"}, {"method", Filter{Method: "prompts/get"}, "3"}, {"mode", Filter{Mode: "code"}, "2"},
		{"run", Filter{Run: "r"}, "2"}, {"status", Filter{Status: "ok"}, "1"}, {"decision", Filter{Decision: "deny"}, "2"},
		{"since", Filter{Since: at(2)}, "2 3 5"}, {"until", Filter{Until: at(2)}, "1"}, {"both", Filter{User: "a", Since: at(2), Until: at(4)}, "3"},
		{"none", Filter{User: "c"}, ""},
	} {
		var ids []string
		var bad []int
		for e, err := range Read(path, c.f) {
			var le *LineError
			switch {
			case errors.As(err, &le):
				bad = append(bad, le.Line)
			case err != nil:
				t.Fatal(err)
			default:
				ids = append(ids, e.ID)
			}
		}
		if got := strings.Join(ids, " "); got != c.want {
			t.Errorf("%s: %q; want %q", c.name, got, c.want)
		}
		if !reflect.DeepEqual(bad, []int{4, 6}) {
			t.Errorf("%s: damaged lines %v; want 4 and 6", c.name, bad)
		}
	}
	for range Read(path, Filter{}) {
		break // stopping early must be possible
	}
}

func TestReadMissingFile(t *testing.T) {
	n := 0
	for _, err := range Read(filepath.Join(t.TempDir(), "none"), Filter{}) {
		n++
		if !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("got %v", err)
		}
	}
	if n != 1 {
		t.Errorf("%d results; a missing file must be one error and not an empty list", n)
	}
}

func TestFilterCoversItsFields(t *testing.T) {
	e := Event{User: "x", Server: "x", Capability: "x", Method: "x", Mode: "x", Run: "x", Status: "x", Decision: "x"}
	v := reflect.TypeFor[Filter]()
	for i := range v.NumField() {
		if v.Field(i).Type.Kind() != reflect.String {
			continue
		}
		var f Filter
		reflect.ValueOf(&f).Elem().Field(i).SetString("y")
		if f.Match(e) {
			t.Errorf("Filter.%s has no effect", v.Field(i).Name)
		}
	}
}
