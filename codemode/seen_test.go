package codemode

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
)

// flat is a type on one line.
func flat(s string) string { return strings.Join(strings.Fields(s), " ") }

func TestSeenTypes(t *testing.T) {
	words := Words("list the articles of the knowledge base", `{"properties":{"folder_name":{}}}`)
	for _, c := range []struct {
		name    string
		results []string
		want    string
	}{
		{"a list page", []string{`{"result":[{"id":"a","name":"x","proxied":true},{"id":"b","name":"y","proxied":false,"comment":null}],"result_info":{"page":1,"total_pages":3}}`},
			`{ result: { id: string; name: string; proxied: boolean; comment?: unknown; }[]; result_info: { page: number; total_pages: number; }; }`},
		{"null and a value", []string{`{"id":1,"due":null,"ok":true}`, `{"id":2,"due":"x","ok":true}`}, `{ id: number; due: string | null; ok: boolean; }`},
		{"several types", []string{`[1,"a",null,{"id":1,"ok":true}]`}, `(string | number | { id: number; ok: boolean; } | null)[]`},
		{"text", []string{`"some words"`}, `string`},
		{"empty", []string{`{}`, `[]`}, `Record<string, unknown> | unknown[]`},
		{"a word of the tool", []string{`{"articles":[],"folders":[]}`}, `{ articles: unknown[]; folders: unknown[]; }`},
		{"odd names", []string{`{"@odata.nextLink":"x","content-type":"y","id":1}`}, `{ "@odata.nextLink": string; "content-type": string; id: number; }`},
		// Names that are data.
		{"keyed by address", []string{`{"ann@example.com":{"id":1,"ok":true},"bob@example.com":{"id":2,"ok":false}}`}, `Record<string, { id: number; ok: boolean; }>`},
		{"keyed by login, numbers", []string{`{"annika":3,"bogdan":5}`}, `Record<string, number>`},
		{"keyed by login, one", []string{`{"annika":3}`}, `Record<string, number>`},
		{"keyed by login, objects", []string{`{"counts":{"annika":{"open":3},"bogdan":{"open":1}}}`}, `{ counts: Record<string, { open: number; }>; }`},
		{"keyed by number", []string{`{"1001":{"id":1,"ok":true}}`}, `Record<string, { id: number; ok: boolean; }>`},
		{"keyed by hash", []string{`{"a9f3b2c4d5e6f708":true,"ok":1}`}, `Record<string, number | boolean>`},
		{"very many names", []string{`{"id":1` + many(80, `,"field%c%c":"x"`) + `}`}, `Record<string, string | number>`},
		{"data after fields", []string{`{"total":1,"open":2}`, `{"total":1,"annika":2}`}, `Record<string, number>`},
	} {
		t.Run(c.name, func(t *testing.T) {
			var s Seen
			for _, r := range c.results {
				s.Add(json.RawMessage(r), "u", words)
				// It is kept as JSON between two results.
				raw, err := json.Marshal(&s)
				if err != nil {
					t.Fatal(err)
				}
				s = Seen{}
				if err := json.Unmarshal(raw, &s); err != nil {
					t.Fatal(err)
				}
			}
			got := s.Type("u")
			if flat(got) != c.want {
				t.Errorf("got  %s\nwant %s", flat(got), c.want)
			}
			if err := parses(DeclareSeen("s_t", "d", nil, got, s.Results)); err != nil {
				t.Error(err)
			}
		})
	}
	d := DeclareSeen("s_t", "Lists.", json.RawMessage(`{"type":"object"}`), "{\n  id: number;\n}", 3)
	for _, want := range []string{"Not declared by the server, but seen in 3 earlier results: fields may be missing", "type s_t_Seen = {", "Promise<s_t_Seen>", "Lists."} {
		if !strings.Contains(d, want) {
			t.Errorf("lacks %q:\n%s", want, d)
		}
	}
	if d := DeclareSeen("s_t", "Lists.", nil, "", 0); !strings.Contains(d, "Promise<unknown>") {
		t.Errorf("%s", d)
	}
}

func many(n int, format string) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, format, 'a'+i/26, 'a'+i%26)
	}
	return b.String()
}

// Nothing of one user's data reaches another: no value at all, and a name only
// once both had it, several times.
func TestSeenKeepsDataOfUsersApart(t *testing.T) {
	none := func(string) bool { return false }
	var s Seen
	secret := `{"id":1,"ok":true,"project_falcon":"alpha","members":{"zelda.fitz@example.com":["x"],"orson":["y"]},"by_login":{"zelda":3,"orson":1},"note":"password hunter2"}`
	for range 5 {
		s.Add(json.RawMessage(secret), "ann", none)
	}
	raw, err := json.Marshal(&s)
	if err != nil {
		t.Fatal(err)
	}
	for _, word := range []string{"zelda", "orson", "example.com", "hunter2", "alpha"} {
		if strings.Contains(string(raw), word) {
			t.Errorf("%q is kept: %s", word, raw)
		}
	}
	if got := s.Type("ann"); !strings.Contains(got, "project_falcon") {
		t.Errorf("what ann saw is not shown to her: %s", got)
	}
	if got := s.Type("bob"); strings.Contains(got, "falcon") || strings.Contains(got, "members") {
		t.Errorf("bob is told what only ann saw: %s", got)
	}
	s.Add(json.RawMessage(`{"id":2,"ok":false,"members":{},"bobs_own":"x"}`), "bob", none)
	if got := flat(s.Type("bob")); strings.Contains(got, "falcon") || !strings.Contains(got, "id: number; ok: boolean;") || !strings.Contains(got, "bobs_own") {
		t.Errorf("bob: %s", got)
	}
	if got := s.Type("eve"); strings.Contains(got, "falcon") || strings.Contains(got, "bobs_own") || !strings.Contains(got, "id: number") {
		t.Errorf("eve: %s", got)
	}
}

// However much comes, it stays small.
func TestSeenIsBounded(t *testing.T) {
	var s Seen
	none := func(string) bool { return true }
	for i := range 40 {
		var b strings.Builder
		b.WriteString(`{"id":1`)
		for j := range 30 {
			fmt.Fprintf(&b, `,"n%c%c":{"id":1,"ok":true,"deep%c":{"a":{"b":{"c":{"d":{"e":{"f":{"g":{"h":1}}}}}}}}}`, 'a'+i%26, 'a'+j%26, 'a'+j%26)
		}
		b.WriteString("}")
		s.Add(json.RawMessage(b.String()), "u", none)
	}
	raw, err := json.Marshal(&s)
	if err != nil || len(raw) > 64<<10 {
		t.Errorf("%d bytes, %v", len(raw), err)
	}
	if n := len(s.Names()); n > seenNodes {
		t.Errorf("%d names", n)
	}
	s.Add(json.RawMessage(`{"broken`), "u", none)
	s.Add(nil, "u", none)
	if err := parses("type X = " + s.Type("u")); err != nil {
		t.Error(err)
	}
	if w := splitWords("totalPages_HTTPStatus-code2"); !slices.Equal(w, []string{"total", "pages", "http", "status", "code"}) {
		t.Errorf("%q", w)
	}
}
