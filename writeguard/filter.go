package writeguard

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/mcp-portal/mcp-portal/audit"
	"github.com/mcp-portal/mcp-portal/config"
	"github.com/mcp-portal/mcp-portal/wire"
)

// filter is a compiled guard.filters entry.
type filter struct {
	name      string
	servers   []string
	tools     []string
	arguments bool
	results   bool
	finders   []finder
	block     bool
}

// finder returns the parts of a text that are looked for, as pairs of offsets
// that do not overlap, in order.
type finder struct {
	what string
	find func(text string) [][]int
}

// Side is which way data flows.
type Side int

const (
	Arguments Side = iota // to a server
	Results               // back from it
)

// Filtered is what filters did to one text.
type Filtered struct {
	Data    json.RawMessage // what goes on; the same bytes if nothing was found
	Blocked string          // a sentence, if it must not go on
	Found   []string        // "name: what ×n", for the audit
	Would   bool            // the guard only observes: Data is unchanged
}

// AnyTool stands for a tool that is not known, such as that of a task whose
// result is fetched: filters for any tool of the server apply.
const AnyTool = "\x00"

const redacted = "[redacted by the portal]"

func compileFilter(i int, f config.Filter) (filter, error) {
	c := filter{name: f.Name, servers: f.Servers, tools: f.Tools, block: f.Action == "block",
		arguments: len(f.In) == 0 || slices.Contains(f.In, "arguments"), results: len(f.In) == 0 || slices.Contains(f.In, "results")}
	if c.name == "" {
		c.name = fmt.Sprintf("filter %d", i+1)
	}
	fail := func(format string, a ...any) (filter, error) {
		return c, fmt.Errorf("guard.filters[%d] (%s): "+format, append([]any{i, c.name}, a...)...)
	}
	if f.Action != "block" && f.Action != "redact" {
		return fail("action: %q is none of block, redact", f.Action)
	}
	for _, name := range f.Detect {
		find, ok := detectors[name]
		if !ok {
			return fail("detect: %q is none of secrets, keys, cards", name)
		}
		c.finders = append(c.finders, finder{name, find})
	}
	if f.Pattern != "" {
		re, err := regexp.Compile(f.Pattern)
		if err != nil {
			return fail("pattern: %w", err)
		}
		c.finders = append(c.finders, finder{"pattern", func(s string) [][]int { return re.FindAllStringIndex(s, -1) }})
	}
	if len(c.finders) == 0 {
		return fail("it looks for nothing")
	}
	return c, nil
}

// detectors are the named ones.
var detectors = map[string]func(string) [][]int{
	"secrets": audit.FindSecrets,
	"keys":    findKeys,
	"cards":   findCards,
}

var privateKey = regexp.MustCompile(`-----BEGIN [A-Z0-9 ]*PRIVATE KEY(?: BLOCK)?-----[\s\S]*?(?:-----END [A-Z0-9 ]*PRIVATE KEY(?: BLOCK)?-----|$)`)

func findKeys(s string) [][]int {
	if !strings.Contains(s, "PRIVATE KEY") {
		return nil
	}
	return privateKey.FindAllStringIndex(s, -1)
}

// findCards finds runs of 13 to 19 digits, also with single spaces or dashes
// between them, that begin as payment cards do and whose check digit (Luhn) is
// right. Letters or digits right beside it mean that it is something else.
func findCards(s string) (out [][]int) {
	for i := 0; i < len(s); {
		if s[i] < '0' || s[i] > '9' {
			i++
			continue
		}
		var digits []byte
		end, j := i, i
		for j < len(s) {
			if c := s[j]; c >= '0' && c <= '9' {
				digits = append(digits, c-'0')
				j++
				end = j
				continue
			}
			if (s[j] == ' ' || s[j] == '-') && j+1 < len(s) && s[j+1] >= '0' && s[j+1] <= '9' {
				j++
				continue
			}
			break
		}
		if !wordBefore(s, i) && !wordAfter(s, end) && isCard(digits) {
			out = append(out, []int{i, end})
		}
		i = end
	}
	return out
}

func wordBefore(s string, i int) bool {
	r, _ := utf8.DecodeLastRuneInString(s[:i])
	return i > 0 && (r == '_' || r == '.' || isLetter(r))
}

func wordAfter(s string, i int) bool {
	r, _ := utf8.DecodeRuneInString(s[i:])
	return i < len(s) && (r == '_' || isLetter(r))
}

func isLetter(r rune) bool { return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' }

func isCard(d []byte) bool {
	if len(d) < 13 || len(d) > 19 || d[0] < 2 || d[0] > 6 {
		return false
	}
	sum := 0
	for i, x := range slices.Backward(d) {
		n := int(x)
		if (len(d)-1-i)%2 == 1 {
			if n *= 2; n > 9 {
				n -= 9
			}
		}
		sum += n
	}
	return sum%10 == 0
}

// Filters reports whether any filter looks at what goes that way for a tool,
// prompt or resource of a server. tool is empty for what is no tool.
func (p *Policy) Filters(side Side, server, tool string) bool {
	for i := range p.filters {
		if p.filters[i].applies(side, server, tool) {
			return true
		}
	}
	return false
}

func (f *filter) applies(side Side, server, tool string) bool {
	if side == Arguments && !f.arguments || side == Results && !f.results {
		return false
	}
	return matchAny(f.servers, server) && (len(f.tools) == 0 || tool == AnyTool || tool != "" && matchAny(f.tools, tool))
}

// Filter looks into JSON that goes to a server or comes back: into every text,
// names of members included, and every number. What is redacted becomes
// "[redacted by the portal]"; all other bytes stay as they are. Data that is
// no JSON is blocked, for nothing can be said of it.
func (p *Policy) Filter(side Side, server, tool string, data json.RawMessage) Filtered {
	out := Filtered{Data: data, Would: p.Observes()}
	for i := range p.filters {
		f := &p.filters[i]
		if !f.applies(side, server, tool) {
			continue
		}
		next, found, err := f.rewrite(out.Data)
		if err != nil {
			out.Blocked = fmt.Sprintf("%s could not look into it (%v)", f.name, err)
			out.Found = append(out.Found, f.name+": not readable")
			break
		}
		if len(found) == 0 {
			continue
		}
		for _, x := range found {
			out.Found = append(out.Found, f.name+": "+x)
		}
		if f.block {
			out.Blocked = fmt.Sprintf("%s found %s in it", f.name, strings.Join(found, ", "))
			break
		}
		out.Data = next
	}
	if out.Would {
		out.Data, out.Blocked = data, ""
	}
	return out
}

// FilterText is Filter for a text that is no JSON, such as an error message.
func (p *Policy) FilterText(side Side, server, tool, text string) (string, Filtered) {
	if !p.Filters(side, server, tool) {
		return text, Filtered{}
	}
	out := p.Filter(side, server, tool, wire.Quote(text))
	var s string
	if out.Blocked != "" || json.Unmarshal(out.Data, &s) != nil {
		return redacted, out
	}
	return s, out
}

// rewrite looks into every literal of a JSON text.
func (f *filter) rewrite(data json.RawMessage) (next json.RawMessage, found []string, err error) {
	if !json.Valid(data) {
		return nil, nil, fmt.Errorf("it is no JSON")
	}
	counts := make([]int, len(f.finders))
	var out []byte
	var in containers
	last, secret := 0, false // secret: the next literal is the value of a member named like a credential
	for i := 0; i < len(data); {
		start := i
		var text string
		switch c := data[i]; {
		case c == '"':
			for i++; data[i] != '"'; i++ {
				if data[i] == '\\' {
					i++
				}
			}
			i++
			if err := json.Unmarshal(data[start:i], &text); err != nil {
				return nil, nil, err
			}
		case c == '-' || c >= '0' && c <= '9':
			for i++; i < len(data) && strings.IndexByte("0123456789+-.eE", data[i]) >= 0; i++ {
			}
			text = string(data[start:i])
		default:
			secret = in.next(c, secret)
			i++
			continue
		}
		clean, n := f.clean(text, counts)
		if whole := wholeNumber(text); n == 0 && data[start] != '"' && whole != text {
			clean, n = f.clean(whole, counts)
		}
		member := data[start] == '"' && isMember(data[i:])
		if secret && !member && text != "" && n == 0 {
			clean, n = redacted, 1
			counts[f.secrets()]++
		}
		secret = member && f.secrets() >= 0 && (audit.SecretMember(text) || in.secret('{') && holdsValue(text))
		if n == 0 {
			continue
		}
		out = append(append(out, data[last:start]...), wire.Quote(clean)...)
		last = i
	}
	for i, n := range counts {
		if n > 0 {
			found = append(found, fmt.Sprintf("%s ×%d", f.finders[i].what, n))
		}
	}
	if len(found) == 0 {
		return data, nil, nil
	}
	return append(out, data[last:]...), found, nil
}

// containers are the objects and lists around a place in a JSON text.
type containers []struct {
	open   byte // '{' or '['
	secret bool // it is the value of a member named like a credential
}

// next takes a byte between literals and reports whether the next literal is
// the value, or one of the values, of a member named like a credential; secret
// is what it was before.
func (in *containers) next(c byte, secret bool) bool {
	switch c {
	case ':', ' ', '\t', '\r', '\n':
		return secret
	case '{', '[':
		*in = append(*in, struct {
			open   byte
			secret bool
		}{c, secret})
		return secret && c == '['
	case '}', ']':
		*in = (*in)[:len(*in)-1]
	case ',':
		return in.secret('[')
	}
	return false
}

// secret reports whether the innermost container is of that kind and the value
// of a member named like a credential.
func (in containers) secret(open byte) bool {
	n := len(in)
	return n > 0 && in[n-1].open == open && in[n-1].secret
}

// holdsValue reports whether a member of {"password": {…}} is the password.
// Others, such as type or description, tell about it.
func holdsValue(name string) bool {
	return slices.Contains([]string{"value", "values", "data", "raw", "text", "plain", "plaintext", "current", "new", "old"}, strings.ToLower(name))
}

// wholeNumber writes a number that is whole without point and exponent, as its
// reader may show it: 4.1e3 is 4100. What is no such number stays as it is.
func wholeNumber(text string) string {
	if !strings.ContainsAny(text, ".eE") {
		return text
	}
	v, err := strconv.ParseFloat(text, 64)
	if err != nil || v != math.Trunc(v) || math.Abs(v) >= 1e20 {
		return text
	}
	return strconv.FormatFloat(v, 'f', 0, 64)
}

// secrets is the place of the detector of credentials, or -1.
func (f *filter) secrets() int {
	return slices.IndexFunc(f.finders, func(x finder) bool { return x.what == "secrets" })
}

// isMember reports whether what follows a text makes it the name of a member.
func isMember(rest []byte) bool {
	rest = bytes.TrimLeft(rest, " \t\r\n")
	return len(rest) > 0 && rest[0] == ':'
}

// clean replaces what is found in one text.
func (f *filter) clean(text string, counts []int) (string, int) {
	n := 0
	for i, x := range f.finders {
		spans := x.find(text)
		if len(spans) == 0 {
			continue
		}
		var b strings.Builder
		last := 0
		for _, s := range spans {
			b.WriteString(text[last:s[0]] + redacted)
			last = s[1]
		}
		b.WriteString(text[last:])
		text = b.String()
		counts[i] += len(spans)
		n += len(spans)
	}
	return text, n
}
