package worker

import (
	"encoding/json"
	"fmt"
	"html"
	"regexp"
	"strings"
)

// codeSign is found in scripts and hardly in text that a script would return.
var codeSign = regexp.MustCompile(`\b(?:return|await|const|let|async)\b|=>|codemode[.\[]`)

// fromText takes code out of a JSON string, which models send when they encode
// the argument twice. A script that is nothing but a text would be of no use.
func fromText(code string) string {
	t := strings.TrimSpace(code)
	if !strings.HasPrefix(t, `"`) || !strings.HasSuffix(t, `"`) {
		return code
	}
	var inner string
	if json.Unmarshal([]byte(t), &inner) != nil || !codeSign.MatchString(inner) {
		return code
	}
	return inner
}

// refuse recognises the arguments of a tool call where code was expected: they
// are an object, and would come back as the value of the run.
func (s *source) refuse() error {
	t := strings.TrimSpace(s.text)
	if !strings.HasPrefix(t, "{") {
		return nil
	}
	var m map[string]json.RawMessage
	if json.Unmarshal([]byte(t), &m) != nil {
		return nil
	}
	name := ""
	for k, v := range m {
		switch k {
		case "tool", "name", "tool_name", "method":
			var text string
			if json.Unmarshal(v, &text) != nil {
				return nil
			}
			name = text
		case "arguments", "args", "input", "params", "parameters", "server", "id", "type", "jsonrpc":
		default:
			return nil
		}
	}
	if name == "" || len(m) < 2 {
		return nil
	}
	return &syntaxError{message: fmt.Sprintf("this is the description of a call, not code: write return await codemode.call(%q, {…}), or give tool and arguments instead of code", clip(name, 100)), line: 1}
}

var moduleExports = regexp.MustCompile(`(?m)^([ \t]*)(?:module\.exports(?:\.default)?|exports\.(?:default|main|run|handler))[ \t]*=(?:[^=]|$)`)

// commonJS reads module.exports = f as export default f.
func (s *source) commonJS() (entry string, changed bool) {
	m := moduleExports.FindAllStringIndex(s.text, 2)
	if len(m) != 1 {
		return "", false
	}
	s.set(moduleExports.ReplaceAllStringFunc(s.text, func(hit string) string {
		head, tail, _ := strings.Cut(hit, "=")
		indent := head[:len(head)-len(strings.TrimLeft(head, " \t"))]
		return indent + "const " + defaultName + "=" + tail
	}))
	return defaultName, true
}

// reading is another way to take a text that does not compile.
type reading struct{ text, note string }

// mangled are readings of code that something on its way has encoded once more.
func mangled(text string) []reading {
	var out []reading
	if !strings.Contains(strings.TrimSpace(text), "\n") && strings.Contains(text, `\n`) {
		var once string
		if json.Unmarshal([]byte(`"`+text+`"`), &once) == nil || json.Unmarshal([]byte(`"`+strings.ReplaceAll(text, `"`, `\"`)+`"`), &once) == nil {
			out = append(out, reading{once, `the code came with \n instead of line breaks and was read as if it had them: send it encoded once`})
		}
	}
	if plain := html.UnescapeString(text); plain != text {
		out = append(out, reading{plain, "the code came with &gt; and the like and was read as if it had the signs: send it as it is"})
	}
	if plain := quotes.Replace(text); plain != text {
		out = append(out, reading{plain, "the code came with typographic quotes and was read as if they were plain: send plain ones"})
	}
	return out
}

var quotes = strings.NewReplacer("\u201c", `"`, "\u201d", `"`, "\u2018", "'", "\u2019", "'", "\u00a0", " ")

var (
	proseWords = regexp.MustCompile(`^[A-Za-z][\w'’-]*[,:;]?(?:[ \t\r\n]+[\w'’"“”./-]+[,:;.!?]?){2,}[ \t\r\n]*$`)
	proseStart = regexp.MustCompile(`^[A-Z][a-z']*[,!]?(?: [a-z']+){3,}`)
)

// looksLikeProse is asked only of what does not compile.
func looksLikeProse(text string) bool {
	t := strings.TrimSpace(text)
	return proseStart.MatchString(t) || len(t) < 2000 && proseWords.MatchString(t)
}
