package registry

import (
	"cmp"
	"math"
	"slices"
	"strings"
	"sync"
)

// Ranking is BM25 over weighted fields: a word counts by how rare it is, by
// where it stands, and less the longer that field is. Fields are normalised one
// by one, so that a long description neither helps nor harms the name.

type field int

const (
	fieldName field = iota
	fieldTitle
	fieldServer
	fieldText
	fieldParams
	fieldParamText
	fieldCount
)

// Tuning of the ranking. The measured quality (search_quality_test.go) is flat
// around these values, so they are round rather than fitted.
var (
	fieldWeight = [fieldCount]float32{fieldName: 4, fieldTitle: 1.5, fieldServer: 2, fieldText: 1, fieldParams: 0.3, fieldParamText: 0.25}
	fieldB      = [fieldCount]float32{fieldName: 0.6, fieldTitle: 0.3, fieldServer: 0, fieldText: 0.6, fieldParams: 0.7, fieldParamText: 0.7}
)

const (
	countMost   = 3    // of one word in one field: saying it more often earns nothing
	saturation  = 1.6  // k1 of BM25
	coverage    = 0.3  // share of a score that depends on how much of the query was found
	lookBoost   = 1.05 // for tools that look, when the query does not say to change anything
	serverBoost = 1.6  // for tools of a server the query names
)

// Weights of what is not the very word.
const (
	weightSynonym = 0.3
	weightPrefix  = 0.7
	weightTypo    = 0.6
	weightJoined  = 0.9
)

// document is what the index knows of one tool, independent of all others.
type document struct {
	terms  []termCount
	length [fieldCount]float32
}

// termCount says how often a term occurs in each field.
type termCount struct {
	term  string
	count [fieldCount]uint8
}

// newDocument reads a tool's words. schema is its decoded input schema.
func newDocument(t *Tool, serverTitle string, schema any) document {
	var d document
	at := map[string]int{}
	add := func(f field, text string) {
		terms(text, func(w string) {
			i, ok := at[w]
			if !ok {
				i = len(d.terms)
				at[w] = i
				d.terms = append(d.terms, termCount{term: w})
			}
			if c := &d.terms[i].count[f]; *c < math.MaxUint8 {
				*c++
			}
			d.length[f]++
		})
	}
	add(fieldName, t.Name)
	add(fieldTitle, t.Title)
	add(fieldServer, t.Server)
	if serverTitle != t.Server {
		add(fieldServer, serverTitle)
	}
	add(fieldText, t.Description)
	top, _ := schema.(map[string]any)
	params, _ := top["properties"].(map[string]any)
	for name, p := range params {
		add(fieldParams, name)
		if p, ok := p.(map[string]any); ok {
			text, _ := p["description"].(string)
			add(fieldParamText, text)
			choices, _ := p["enum"].([]any)
			for _, c := range choices {
				if c, ok := c.(string); ok {
					add(fieldParamText, c)
				}
			}
		}
	}
	slices.SortFunc(d.terms, func(a, b termCount) int { return cmp.Compare(a.term, b.term) })
	return d
}

// index finds documents by term. It is built at the first search of a snapshot
// and shared by all snapshots with the same tools.
type index struct {
	once     sync.Once
	tools    []*Tool
	server   []int32 // of each tool: index in servers
	looks    []bool  // of each tool: its name says that it only looks
	servers  []serverWords
	vocab    map[string]int32
	words    []string // by term number
	sorted   []int32  // term numbers by word
	postings [][]posting
	scratch  sync.Pool // *scores
	exact    map[string][]int32
}

// serverWords are the terms that name a server.
type serverWords struct {
	id    string
	terms []string
}

// posting is one document of a term, with the part of the score that does not
// depend on the query.
type posting struct {
	doc    int32
	impact float32
}

func (s *Snapshot) searchIndex() *index {
	s.index.once.Do(func() { s.index.build(s.Servers) })
	return s.index
}

func (x *index) build(servers []*Server) {
	n := 0
	for _, s := range servers {
		n += len(s.Tools)
	}
	x.tools, x.server = make([]*Tool, 0, n), make([]int32, 0, n)
	x.exact = make(map[string][]int32, 4*n)
	var mean [fieldCount]float32
	for i, s := range servers {
		x.servers = append(x.servers, newServerWords(s))
		for j, t := range s.Tools {
			doc := int32(len(x.tools))
			x.tools, x.server, x.looks = append(x.tools, t), append(x.server, int32(i)), append(x.looks, namesALook(t.Name))
			names := []string{t.Outward, t.Server + "/" + t.Name, t.Name, t.Identifier, s.Identifier + "." + t.Member}
			slices.Sort(names)
			for _, name := range slices.Compact(names) {
				x.exact[name] = append(x.exact[name], doc)
			}
			for f, l := range s.docs[j].length {
				mean[f] += l
			}
		}
	}
	for f := range mean {
		mean[f] = max(1, mean[f]/float32(max(1, n)))
	}
	x.vocab = make(map[string]int32, 4096)
	doc := int32(0)
	for _, s := range servers {
		for _, d := range s.docs {
			var norm [fieldCount]float32
			for f := range norm {
				norm[f] = fieldWeight[f] / (1 - fieldB[f] + fieldB[f]*d.length[f]/mean[f])
			}
			for _, t := range d.terms {
				var tf float32
				for f, c := range t.count {
					if c > 0 {
						tf += norm[f] * float32(min(c, countMost))
					}
				}
				id, ok := x.vocab[t.term]
				if !ok {
					id = int32(len(x.words))
					x.vocab[t.term] = id
					x.words = append(x.words, t.term)
					x.postings = append(x.postings, nil)
				}
				x.postings[id] = append(x.postings[id], posting{doc, tf * (saturation + 1) / (tf + saturation)})
			}
			doc++
		}
	}
	x.sorted = make([]int32, len(x.words))
	for i := range x.sorted {
		x.sorted[i] = int32(i)
	}
	slices.SortFunc(x.sorted, func(a, b int32) int { return cmp.Compare(x.words[a], x.words[b]) })
	x.scratch.New = func() any {
		return &scores{total: make([]float32, n), best: make([]float32, n), word: make([]int32, n), matched: make([]float32, n)}
	}
}

// newServerWords leaves out what many ids carry and nobody means.
func newServerWords(s *Server) serverWords {
	w := serverWords{id: s.ID}
	terms(s.ID, func(t string) {
		switch t {
		case "mcp", "server", "api", "tool", "ref", "community", "official", "default":
		default:
			w.terms = append(w.terms, t)
		}
	})
	return w
}

// scores is the working space of one search.
type scores struct {
	total   []float32 // score so far
	best    []float32 // share of the present query word
	word    []int32   // query word best belongs to, counted from 1
	matched []float32 // weight of the query words found
	touched []int32   // documents with any
}

func (s *scores) reset() {
	for _, d := range s.touched {
		s.total[d], s.word[d], s.matched[d] = 0, 0, 0
	}
	s.touched = s.touched[:0]
}

// queryWord is one word of a query with everything it may stand for.
type queryWord struct {
	term string
	alts []alternative
}

type alternative struct {
	term   int32
	weight float32
}

// parse reads a query. Words that nothing contains are tried as the beginning
// of one, as two words run together and as a misspelling, in this order.
func (x *index) parse(text string) []queryWord {
	var list []queryWord
	terms(text, func(w string) {
		if len(list) < maxQueryWords && !slices.ContainsFunc(list, func(q queryWord) bool { return q.term == w }) {
			list = append(list, queryWord{term: w})
		}
	})
	for i := range list {
		q := &list[i]
		id, known := x.vocab[q.term]
		if known {
			q.alts = append(q.alts, alternative{id, 1})
		}
		for _, s := range synonyms()[q.term] {
			if id, ok := x.vocab[s]; ok {
				q.alts = append(q.alts, alternative{id, weightSynonym})
			}
		}
		if i > 0 { // web hook also finds webhook
			if id, ok := x.vocab[stem(list[i-1].term+q.term)]; ok {
				a := alternative{id, weightJoined}
				q.alts, list[i-1].alts = append(q.alts, a), append(list[i-1].alts, a)
			}
		}
		if !known {
			x.guess(q)
		}
	}
	return list
}

const (
	maxQueryWords = 64
	// Longer words are looked up, not guessed at: the work of guessing grows
	// with the square of the length, and no name has such words.
	maxGuess = 64
)

func (x *index) guess(q *queryWord) {
	n := len(q.alts)
	if len(q.term) >= 3 {
		at, _ := slices.BinarySearchFunc(x.sorted, q.term, func(t int32, w string) int { return cmp.Compare(x.words[t], w) })
		for ; at < len(x.sorted) && len(q.alts) < n+8 && strings.HasPrefix(x.words[x.sorted[at]], q.term); at++ {
			q.alts = append(q.alts, alternative{x.sorted[at], weightPrefix})
		}
	}
	if len(q.alts) > n || len(q.term) < 5 || len(q.term) > maxGuess {
		return
	}
	for cut := 3; cut <= len(q.term)-3; cut++ {
		a, okA := x.vocab[stem(q.term[:cut])]
		b, okB := x.vocab[stem(q.term[cut:])]
		if okA && okB {
			q.alts = append(q.alts, alternative{a, weightJoined / 2}, alternative{b, weightJoined / 2})
		}
	}
	if len(q.alts) > n {
		return
	}
	for id, w := range x.words {
		if len(w) >= 4 && oneEdit(q.term, w) {
			q.alts = append(q.alts, alternative{int32(id), weightTypo})
		}
	}
}

// oneEdit reports whether one letter added, dropped, replaced, or two
// neighbours swapped make a out of b.
func oneEdit(a, b string) bool {
	if len(a) > len(b) {
		a, b = b, a
	}
	if len(b)-len(a) > 1 {
		return false
	}
	i := 0
	for i < len(a) && a[i] == b[i] {
		i++
	}
	if len(a) == len(b) {
		return a[min(i+1, len(a)):] == b[min(i+1, len(b)):] ||
			i+1 < len(a) && a[i] == b[i+1] && a[i+1] == b[i] && a[i+2:] == b[i+2:]
	}
	return a[i:] == b[i+1:]
}

// rank scores every document for a query; touched lists those with a score.
func (x *index) rank(list []queryWord, sc *scores) {
	n := float64(len(x.tools))
	var all float32
	for i, q := range list {
		var top float32
		for _, a := range q.alts {
			df := float64(len(x.postings[a.term]))
			idf := float32(math.Log(1+(n-df+0.5)/(df+0.5))) * a.weight
			top = max(top, idf)
			for _, p := range x.postings[a.term] {
				v := idf * p.impact
				switch word := int32(i + 1); {
				case sc.word[p.doc] == word: // another reading of the same word counts only if better
					if v > sc.best[p.doc] {
						sc.total[p.doc] += v - sc.best[p.doc]
						sc.matched[p.doc] += (v - sc.best[p.doc]) / p.impact
						sc.best[p.doc] = v
					}
					continue
				case sc.word[p.doc] == 0:
					sc.touched = append(sc.touched, p.doc)
				}
				sc.word[p.doc], sc.best[p.doc] = int32(i+1), v
				sc.total[p.doc] += v
				sc.matched[p.doc] += idf
			}
		}
		all += top
	}
	named := x.named(list)
	looking := !slices.ContainsFunc(list, func(q queryWord) bool { return changingWords()[q.term] })
	for _, d := range sc.touched {
		sc.total[d] *= 1 - coverage + coverage*min(1, sc.matched[d]/max(all, 1e-6))
		if named != nil && named[x.server[d]] {
			sc.total[d] *= serverBoost
		}
		if looking && x.looks[d] {
			sc.total[d] *= lookBoost
		}
	}
}

// named says which servers a query mentions by name, or nil for none.
func (x *index) named(list []queryWord) []bool {
	var out []bool
	for i, s := range x.servers {
		if len(s.terms) == 0 {
			continue
		}
		all := true
		for _, t := range s.terms {
			all = all && slices.ContainsFunc(list, func(q queryWord) bool { return q.term == t })
		}
		if all {
			if out == nil {
				out = make([]bool, len(x.servers))
			}
			out[i] = true
		}
	}
	return out
}
