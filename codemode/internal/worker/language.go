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
	xmlSign         = regexp.MustCompile(`^<[?!\w]`)
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
		if line == "" || strings.HasPrefix(line, "#") && !strings.HasPrefix(line, "#!") {
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
	case sqlSign.MatchString(first):
		return wrongLanguage("SQL")
	case xmlSign.MatchString(first):
		return wrongLanguage("markup")
	}
	return nil
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
