package registry

import (
	"cmp"
	"fmt"
	"regexp"
	"regexp/syntax"
	"slices"
	"strings"
	"time"
)

// Query says which tools are wanted. What is given narrows: Servers and Pattern
// filter, Names picks, Text ranks. A query without Names and Text gives all
// tools the filters leave, by outward name.
type Query struct {
	Text    string   // words to rank by
	Pattern string   // RE2, ignoring case, searched in name, title, description, input schema and server id
	Names   []string // exact: outward name, server/tool, the server's own name, or an identifier for code
	Servers []string // ids; empty: all
	Limit   int      // at most so many hits; 0 or less: all
	Offset  int      // hits to skip
}

// Result is the part of the hits a Query asked for.
type Result struct {
	Total   int      // hits in all, before Limit and Offset
	Hits    []Hit    // exact names first, then best first; ties by outward name
	Unknown []string // Names that no visible tool has
}

// Hit is one tool found. Score only compares within one result; exact names
// and unranked hits have 0.
type Hit struct {
	Tool  *Tool
	Score float64
	Exact bool // found by its name
}

// Bounds of a pattern. RE2 takes time linear in the text, but also in the size
// of the pattern, and a catalogue has megabytes of text.
const (
	patternMax  = 1000 // bytes
	patternOps  = 2000 // instructions once compiled
	patternTime = 3 * time.Second
)

// UnknownServerError is a filter for a server that is not there, or that has
// nothing the caller may see.
type UnknownServerError struct {
	Server  string
	Nearest []string // ids most like it that the caller may see
}

func (e *UnknownServerError) Error() string {
	if len(e.Nearest) == 0 {
		return fmt.Sprintf("there is no server %q", e.Server)
	}
	return fmt.Sprintf("there is no server %q; the nearest are %s", e.Server, strings.Join(e.Nearest, ", "))
}

// PatternError is a pattern that cannot be used.
type PatternError struct {
	Pattern string
	At      int // byte where the trouble begins; -1: the pattern as a whole
	Reason  string
}

func (e *PatternError) Error() string {
	if e.At < 0 {
		return fmt.Sprintf("the pattern cannot be used: %s", e.Reason)
	}
	return fmt.Sprintf("the pattern cannot be used: %s at character %d (%s). The syntax is RE2: no look-around, no back references", e.Reason, e.At+1, excerpt([]byte(e.Pattern[e.At:])))
}

// Search finds tools. visible says which the caller may see: others are neither
// returned nor counted, nor do errors name them. Errors are *UnknownServerError
// and *PatternError.
func (s *Snapshot) Search(q Query, visible func(*Tool) bool) (Result, error) {
	if visible == nil {
		visible = func(*Tool) bool { return true }
	}
	servers, err := s.serverFilter(q.Servers, visible)
	if err != nil {
		return Result{}, err
	}
	pattern, err := compilePattern(q.Pattern)
	if err != nil {
		return Result{}, err
	}
	var deadline time.Time
	if pattern != nil {
		deadline = time.Now().Add(patternTime)
	}
	late := false
	allowed := func(t *Tool) bool {
		if servers != nil && !servers[t.Server] || !visible(t) || late {
			return false
		}
		if pattern == nil {
			return true
		}
		late = time.Now().After(deadline)
		return !late && matches(pattern, t)
	}

	var hits []Hit
	var unknown []string
	switch {
	case q.Text == "" && len(q.Names) == 0:
		for _, t := range s.tools {
			if allowed(t) {
				hits = append(hits, Hit{Tool: t})
			}
		}
	default:
		x := s.searchIndex()
		taken := map[int32]bool{}
		take := func(name string) bool {
			found := false
			docs := slices.Clone(x.exact[name])
			slices.SortFunc(docs, func(a, b int32) int { return cmp.Compare(x.tools[a].Outward, x.tools[b].Outward) })
			for _, d := range docs {
				if taken[d] {
					found = true
				} else if allowed(x.tools[d]) {
					found, taken[d] = true, true
					hits = append(hits, Hit{Tool: x.tools[d], Exact: true})
				}
			}
			return found
		}
		for _, name := range q.Names {
			if !take(strings.TrimPrefix(name, "codemode.")) {
				unknown = append(unknown, name)
			}
		}
		for _, name := range namesIn(q.Text) {
			take(name)
		}
		hits = append(hits, x.ranked(q.Text, taken, allowed)...)
	}
	if late {
		return Result{}, &PatternError{q.Pattern, -1, fmt.Sprintf("it did not get through the catalogue within %s; make it simpler or name the servers", patternTime)}
	}
	r := Result{Total: len(hits), Unknown: unknown}
	if q.Offset < len(hits) {
		hits = hits[max(0, q.Offset):]
		if q.Limit > 0 && len(hits) > q.Limit {
			hits = hits[:q.Limit]
		}
		r.Hits = hits
	}
	return r, nil
}

// leastShare of the best score is what a hit needs: below are tools that share
// one common word with the query.
const leastShare = 0.12

// ranked returns the allowed hits for some text, best first, without those
// already taken.
func (x *index) ranked(text string, taken map[int32]bool, allowed func(*Tool) bool) []Hit {
	list := x.parse(text)
	if len(list) == 0 {
		return nil
	}
	sc := x.scratch.Get().(*scores)
	defer func() {
		sc.reset()
		x.scratch.Put(sc)
	}()
	x.rank(list, sc)
	hits := make([]Hit, 0, min(len(sc.touched), 256))
	var best float32
	for _, d := range sc.touched {
		// What cannot reach the share any more need not be asked about.
		if sc.total[d] < best*leastShare || taken[d] || !allowed(x.tools[d]) {
			continue
		}
		best = max(best, sc.total[d])
		hits = append(hits, Hit{Tool: x.tools[d], Score: float64(sc.total[d])})
	}
	hits = slices.DeleteFunc(hits, func(h Hit) bool { return float32(h.Score) < best*leastShare })
	slices.SortFunc(hits, func(a, b Hit) int {
		return cmp.Or(cmp.Compare(b.Score, a.Score), cmp.Compare(a.Tool.Outward, b.Tool.Outward))
	})
	return hits
}

// namesIn returns the parts of a text that can only be meant as tool names: the
// whole of it, and pieces that consist of several words without a space. A
// plain word like "search" is not one, or every tool of that name would stand
// before all that fit the sentence.
func namesIn(text string) []string {
	text = strings.TrimSpace(text)
	var out []string
	if text != "" && len(text) <= 200 && !strings.ContainsAny(text, " \t\n") {
		out = append(out, text)
	}
	pieces := strings.FieldsFunc(text, func(r rune) bool { return strings.ContainsRune(" \t\r\n,;\"'`()[]{}", r) })
	for _, p := range pieces[:min(len(pieces), maxQueryWords)] {
		n := 0
		words(p, func(string) { n++ })
		if p = strings.TrimPrefix(strings.TrimRight(p, ".:?!"), "codemode."); n > 1 && p != "" {
			out = append(out, p)
		}
	}
	return out
}

// serverFilter resolves ids (or identifiers for code) to a set; nil means all.
func (s *Snapshot) serverFilter(ids []string, visible func(*Tool) bool) (map[string]bool, error) {
	if len(ids) == 0 {
		return nil, nil
	}
	may := func(srv *Server) bool { return len(srv.Tools) == 0 || slices.ContainsFunc(srv.Tools, visible) }
	set := make(map[string]bool, len(ids))
	for _, id := range ids {
		i := slices.IndexFunc(s.Servers, func(srv *Server) bool { return (srv.ID == id || srv.Identifier == id) && may(srv) })
		if i < 0 {
			return nil, &UnknownServerError{Server: id, Nearest: s.nearestServers(id, may)}
		}
		set[s.Servers[i].ID] = true
	}
	return set, nil
}

// nearestServers returns up to three ids most like one that does not exist.
func (s *Snapshot) nearestServers(id string, may func(*Server) bool) []string {
	type near struct {
		id       string
		distance int
	}
	id = strings.ToLower(id)
	if len(id) > 100 {
		id = id[:100]
	}
	var list []near
	for _, srv := range s.Servers {
		if may(srv) {
			d := editDistance(id, srv.ID)
			if strings.Contains(srv.ID, id) || strings.Contains(id, srv.ID) {
				d = min(d, 1)
			}
			list = append(list, near{srv.ID, d})
		}
	}
	slices.SortFunc(list, func(a, b near) int { return cmp.Or(cmp.Compare(a.distance, b.distance), cmp.Compare(a.id, b.id)) })
	var out []string
	for _, n := range list[:min(3, len(list))] {
		out = append(out, n.id)
	}
	return out
}

// editDistance counts the letters to add, drop or replace.
func editDistance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			d := diagonal
			if a[i] != b[j] {
				d++
			}
			diagonal = row[j+1]
			row[j+1] = min(d, row[j+1]+1, row[j]+1)
		}
	}
	return row[len(b)]
}

// compilePattern returns nil for no pattern.
func compilePattern(pattern string) (*regexp.Regexp, error) {
	if pattern == "" {
		return nil, nil
	}
	if len(pattern) > patternMax {
		return nil, &PatternError{pattern, -1, fmt.Sprintf("it has %d bytes, more than %d", len(pattern), patternMax)}
	}
	parsed, err := syntax.Parse(pattern, syntax.Perl|syntax.FoldCase)
	if err != nil {
		e := &PatternError{pattern, -1, err.Error()}
		if se, ok := err.(*syntax.Error); ok {
			e.At, e.Reason = strings.Index(pattern, se.Expr), se.Code.String()
		}
		return nil, e
	}
	prog, err := syntax.Compile(parsed.Simplify())
	if err != nil || len(prog.Inst) > patternOps {
		return nil, &PatternError{pattern, -1, "it is too large once its repetitions are written out"}
	}
	re, err := regexp.Compile("(?i)" + pattern)
	if err != nil {
		return nil, &PatternError{pattern, -1, err.Error()}
	}
	return re, nil
}

// matches looks in the short texts first.
func matches(re *regexp.Regexp, t *Tool) bool {
	return re.MatchString(t.Outward) || re.MatchString(t.Name) || re.MatchString(t.Server) ||
		re.MatchString(t.Title) || re.MatchString(t.Description) || re.Match(t.InputSchema)
}
