package worker

import (
	"fmt"
	"regexp"
	"strings"
)

var (
	importStatement = regexp.MustCompile(`(?m)^[ \t]*import\b[ \t]*(?:[\w$*{"'][^\n]*)`)
	importCall      = regexp.MustCompile(`\bimport[ \t]*\(`)
	pythonSign      = regexp.MustCompile(`(?m)^[ \t]*(?:def[ \t]+\w+[ \t]*\(.*\)[ \t]*(?:->.*)?:|async[ \t]+def\b|from[ \t]+[\w.]+[ \t]+import\b|import[ \t]+[\w.]+[ \t]*(?:as[ \t]+\w+)?[ \t]*$|(?:for|while|if|elif|with|try|else|except)\b[^{;\n]*:[ \t]*(?:#.*)?$|class[ \t]+\w+(?:\(.*\))?:|print[ \t]*\(f?["'])`)
	shellSign       = regexp.MustCompile(`^(?:\$[ \t]+)?(?:curl|wget|grep|ls|cd|echo|cat|jq|npm|npx|pip3?|python3?|node|sudo|mkdir|git|kubectl|docker|ssh|set[ \t]+-[eux]+|export[ \t]+\w+=|for[ \t]+\w+[ \t]+in[ \t].*;[ \t]*do)\b`)
	sqlSign         = regexp.MustCompile(`(?i)^(?:select\b.+\bfrom|insert[ \t]+into|update\b.+\bset|delete[ \t]+from)\b`)
	// Python that has no block, but brackets or words JavaScript does not know.
	pythonLine = regexp.MustCompile(`\[[^\[\]\n]+ for [\w, ()]+ in [^\]\n]+\]|\blambda [\w, ]*:|(?m:^[ \t]*(?:elif\b|from[ \t]+\w+[ \t]+import\b))|\bf"[^"\n]*\{|\b(?:not in|is not None|is None)\b`)
	// Other languages by how their files begin.
	others = []struct {
		sign *regexp.Regexp
		name string
	}{
		{regexp.MustCompile(`^#include\b`), "C"},
		{regexp.MustCompile(`^package[ \t]+\w+[ \t]*;?$`), "Go or Java"},
		{regexp.MustCompile(`^(?:pub[ \t]+)?fn[ \t]+\w+[ \t]*\(|\bprintln!\(`), "Rust"},
		{regexp.MustCompile(`^using[ \t]+[A-Z][\w.]*;`), "C#"},
		{regexp.MustCompile(`^(?:puts|require|require_relative)[ \t]+['"]|^def[ \t]+\w+[ \t]*$|\bdo[ \t]*\|\w+\|`), "Ruby"},
		{regexp.MustCompile(`^public[ \t]+(?:static|class)\b`), "Java or C#"},
	}
	xmlSign = regexp.MustCompile(`^<[?!\w]`)
)

const speaks = "this sandbox runs JavaScript or TypeScript, for example: const r = await codemode.<tool>({…}); return r"

func wrongLanguage(name string) error {
	return &syntaxError{message: fmt.Sprintf("this is %s, and %s", name, speaks), line: 1}
}

// otherLanguage recognises code that is no JavaScript. It is asked only when
// the text does not compile.
func otherLanguage(text string) error {
	first := ""
	for line := range strings.SplitSeq(text, "\n") {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") && !strings.HasPrefix(line, "#!") && !strings.HasPrefix(line, "#include") {
			continue
		}
		first = line
		break
	}
	switch {
	case strings.HasPrefix(first, "#!") && strings.Contains(first, "python"):
		return wrongLanguage("Python")
	case strings.HasPrefix(first, "#!"):
		return wrongLanguage("a shell script")
	case shellSign.MatchString(first):
		return wrongLanguage("a shell command")
	case pythonSign.MatchString(text):
		return wrongLanguage("Python")
	case pythonLine.MatchString(text):
		return wrongLanguage("Python")
	case sqlSign.MatchString(first):
		return wrongLanguage("SQL")
	case xmlSign.MatchString(first):
		return wrongLanguage("markup")
	case strings.HasPrefix(first, "portal_") && strings.Contains(first, "--"):
		return wrongLanguage("a shell command")
	}
	for _, o := range others {
		if o.sign.MatchString(first) {
			return wrongLanguage(o.name)
		}
	}
	return nil
}

// jsx finds an element where an expression begins.
var jsx = regexp.MustCompile(`(?:\breturn|=>|[=(?:])[ \t\r\n]*<(?:[A-Za-z][\w.]*)?(?:[ \t]+[\w-]+=(?:"[^"]*"|\{[^}]*\}))*[ \t]*/?>[^\n]*(?:</|/>|\n)`)

func (s *source) lineOf(re *regexp.Regexp) int {
	if m := re.FindStringIndex(s.text); m != nil {
		return strings.Count(s.text[:m[0]], "\n") + 1
	}
	return 0
}

// imported reports a use of modules, which do not exist here.
func imported(text string) error {
	m := importStatement.FindStringIndex(text)
	if m == nil {
		m = importCall.FindStringIndex(text)
	}
	if m == nil {
		return nil
	}
	return &syntaxError{
		message: "import is not available: there are no modules, and every tool is reachable through codemode; remove the line",
		line:    strings.Count(text[:m[0]], "\n") + 1,
	}
}
