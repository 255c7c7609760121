package worker

import (
	"encoding/json"
	"regexp"
	"strings"
)

// sourceName is the file name of the user's code in positions.
const sourceName = "script"

// source is the code inside what the model sent. Text around it is blanked, not
// removed, so that line numbers stay those of the text as sent.
type source struct {
	text   string
	lines  int
	prefix string // what was put before the first line to compile it
	notes  []string
}

func newSource(code string) *source {
	code = strings.TrimPrefix(code, "\ufeff")
	code = fromJSON(fromText(code))
	if strings.HasPrefix(code, "#!") {
		end := strings.IndexByte(code, '\n')
		if end < 0 {
			end = len(code)
		}
		if !strings.Contains(code[:end], "sh") && !strings.Contains(code[:end], "python") {
			code = code[end:]
		}
	}
	s := &source{}
	s.set(code)
	return s
}

func (s *source) set(text string) {
	s.text = text
	s.lines = strings.Count(strings.TrimRight(text, " \t\r\n"), "\n") + 1
}

// wrapperKeys are the members that a JSON object around code may have.
var wrapperKeys = map[string]bool{"code": true, "script": true, "language": true, "lang": true, "description": true, "title": true, "type": true, "reason": true}

// fromJSON takes code out of {"code": "…"}, which models send when they repeat
// the arguments object inside the argument.
func fromJSON(code string) string {
	t := strings.TrimSpace(code)
	if !strings.HasPrefix(t, "{") {
		return code
	}
	var m map[string]json.RawMessage
	if json.Unmarshal([]byte(t), &m) != nil {
		return code
	}
	for k := range m {
		if !wrapperKeys[k] {
			return code
		}
	}
	var inner string
	if json.Unmarshal(m["code"], &inner) != nil || inner == "" {
		return code
	}
	return inner
}

var fenceLine = regexp.MustCompile("(?m)^[ \t]*(`{3,}|~{3,})[ \t]*([\\w+#.-]*)[^\n`]*$")

type fenced struct {
	lang     string
	from, to int // of the code between the fences
}

func fences(text string) []fenced {
	var out []fenced
	var open *fenced
	var mark string
	for _, m := range fenceLine.FindAllStringSubmatchIndex(text, -1) {
		tick, lang := text[m[2]:m[3]], strings.ToLower(text[m[4]:m[5]])
		if open == nil {
			mark = tick
			open = &fenced{lang: lang, from: min(m[1]+1, len(text)), to: len(text)}
			continue
		}
		if tick[0] == mark[0] && len(tick) >= len(mark) && lang == "" {
			open.to = m[0]
			out = append(out, *open)
			open = nil
		}
	}
	if open != nil { // a model that ran out of tokens, or forgot
		out = append(out, *open)
	}
	return out
}

// fencedForSure finds fences even where the whole happens to be valid
// JavaScript: three backquotes are an empty template and the start of another,
// so "Here:", a fence and its code can parse as a label before a template.
func (s *source) fencedForSure() bool {
	t := strings.TrimSpace(s.text)
	if strings.HasPrefix(t, "```") || strings.HasPrefix(t, "~~~") {
		return true
	}
	m := fenceLine.FindStringSubmatchIndex(s.text)
	// An odd number of backquotes before it: the line is inside a template.
	return m != nil && m[4] < m[5] && strings.Count(s.text[:m[0]], "`")%2 == 0
}

var scriptLanguages = map[string]bool{"": true, "js": true, "javascript": true, "jsx": true, "mjs": true, "ts": true, "typescript": true, "tsx": true, "node": true, "code": true, "ecmascript": true}

// unfence blanks everything outside the one code block. ok is false when there
// is no fence; an error says why the blocks cannot be run.
func (s *source) unfence() (ok bool, err error) {
	all := fences(s.text)
	if len(all) == 0 {
		return false, nil
	}
	var scripts []fenced
	for _, f := range all {
		if scriptLanguages[f.lang] {
			scripts = append(scripts, f)
		}
	}
	switch {
	case len(scripts) == 0 && strings.HasPrefix(all[0].lang, "json"):
		inside := s.text[all[0].from:all[0].to]
		if code := fromJSON(inside); code != inside {
			s.set(code)
			return true, nil
		}
		if err := (&source{text: inside}).refuse(); err != nil {
			return true, err
		}
		return true, wrongLanguage("JSON data")
	case len(scripts) == 0:
		return true, wrongLanguage(all[0].lang)
	case len(scripts) > 1:
		line := strings.Count(s.text[:scripts[1].from], "\n") + 1
		return true, &syntaxError{message: "the text holds several code blocks: send the one to run, alone", line: line}
	}
	f := scripts[0]
	to := f.to
	for to > f.from && (s.text[to-1] == '\n' || s.text[to-1] == '\r') {
		to--
	}
	lines := s.lines
	s.set(strings.Repeat("\n", strings.Count(s.text[:f.from], "\n")) + s.text[f.from:to])
	s.lines = min(s.lines, lines)
	return true, nil
}

var (
	exportDefaultFunc = regexp.MustCompile(`(?m)^([ \t]*)(export[ \t]+default[ \t]+)((?:async[ \t]+)?function\b[ \t]*\*?[ \t]*[\w$]+)`)
	exportDefault     = regexp.MustCompile(`(?m)^([ \t]*)export[ \t]+default\b[ \t]?`)
	exportDecl        = regexp.MustCompile(`(?m)^([ \t]*)(export[ \t]+)((?:async[ \t]+function|function|const|let|var|class|type|interface|enum)\b)`)
	exportList        = regexp.MustCompile(`(?m)^[ \t]*export[ \t]*\{([^}]*)\}[ \t]*;?`)
)

// defaultName is the variable that stands for "export default".
const defaultName = "$default"

// unexport turns the exports of a module into declarations, at equal length
// where the columns matter. entry is the name the module exports as default.
func (s *source) unexport() (entry string, changed bool) {
	before := s.text
	text := s.text
	if m := exportDefaultFunc.FindStringSubmatch(text); m != nil {
		fields := strings.Fields(strings.ReplaceAll(m[3], "*", " "))
		entry = fields[len(fields)-1]
		text = exportDefaultFunc.ReplaceAllStringFunc(text, func(hit string) string {
			p := exportDefaultFunc.FindStringSubmatch(hit)
			return p[1] + strings.Repeat(" ", len(p[2])) + p[3]
		})
	}
	if exportDefault.MatchString(text) {
		entry = defaultName
		text = exportDefault.ReplaceAllString(text, "${1}const $$default=")
	}
	text = exportDecl.ReplaceAllStringFunc(text, func(hit string) string {
		p := exportDecl.FindStringSubmatch(hit)
		return p[1] + strings.Repeat(" ", len(p[2])) + p[3]
	})
	text = exportList.ReplaceAllStringFunc(text, func(hit string) string {
		for _, item := range strings.Split(exportList.FindStringSubmatch(hit)[1], ",") {
			if name, as, ok := strings.Cut(strings.TrimSpace(item), " as "); ok && strings.TrimSpace(as) == "default" {
				entry = strings.TrimSpace(name)
			}
		}
		return strings.Repeat("\n", strings.Count(hit, "\n"))
	})
	s.set(text)
	return entry, text != before
}
