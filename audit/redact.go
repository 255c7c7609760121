package audit

import (
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"
)

// Mask stands where a credential was.
const Mask = "[redacted]"

// Redact masks what looks like a credential in a text that goes to a log, an
// error or a page: authorization headers, bearer and basic values, tokens with
// known prefixes, JSON Web Tokens, private keys, the user part of a URL, and
// the values of keys named like password, token, secret or api_key. It is a
// net under texts that others wrote, such as the errors of upstream servers;
// it is no reason to put credentials into a text.
func Redact(s string) string {
	if s == "" {
		return s
	}
	// Most texts hold no credential, and looking for a few words is far
	// cheaper than two dozen expressions. Masking adds none of the words.
	lower := strings.ToLower(s)
	for _, r := range redactions {
		if slices.ContainsFunc(r.needs, func(w string) bool { return strings.Contains(lower, w) }) {
			s = r.pattern.ReplaceAllString(s, r.with)
		}
	}
	return s
}

type redaction struct {
	needs   []string // one of these must be there, in lower case, to try at all
	pattern *regexp.Regexp
	with    string
}

// secretWord is a key whose value is a credential: the word alone or at the
// end of a longer name, so that max_tokens=5 and token_count=7 stay readable.
const secretWord = `(?:[a-z0-9_.-]*[_.-])?(?:password|passwd|pwd|passphrase|secret|token|api[_-]?key|apikey|access[_-]?key|secret[_-]?key|private[_-]?key|client[_-]?secret|refresh[_-]?token|access[_-]?token|id[_-]?token|session[_-]?id|credentials?|code[_-]?verifier|client[_-]?assertion)`

// secretHints are parts of which every secretWord has one.
var secretHints = []string{"passw", "pwd", "passphrase", "secret", "token", "key", "session", "credential", "verifier", "assertion"}

var redactions = []redaction{
	// A whole private key, also one that was cut off.
	{[]string{"private key"}, regexp.MustCompile(`-----BEGIN [A-Z0-9 ]*PRIVATE KEY-----[\s\S]*?(?:-----END [A-Z0-9 ]*PRIVATE KEY-----|$)`), Mask},
	// Headers that carry credentials, to the end of the line or quote.
	{[]string{"authorization", "api-key", "auth-token", "private-token", "cookie", "session-id"}, regexp.MustCompile(`(?i)\b((?:proxy-)?authorization|x-api-key|api-key|x-auth-token|x-goog-api-key|private-token|cookie|set-cookie|mcp-session-id)(\\?"?\s*[:=]\s*\\?"?)(\[[^\]\r\n]*\](?:[^"\r\n\]\\]|\\[^"])*|(?:[^"\r\n\]\\]|\\[^"])+)`), "${1}${2}" + Mask},
	// Schemes outside a header line.
	{[]string{"bearer", "basic", "dpop", "digest", "negotiate"}, regexp.MustCompile(`(?i)\b(bearer|basic|dpop|digest|negotiate)(\s+|%20|\+)("?)([A-Za-z0-9._~+/=-]{8,})`), "${1}${2}${3}" + Mask},
	// scheme://user:password@host, also with only a user, which may be a token.
	{[]string{"://"}, regexp.MustCompile(`([A-Za-z][A-Za-z0-9+.-]*://)[^\s/?#"'<>]*@`), "${1}" + Mask + "@"},
	// JSON Web Tokens, signed or encrypted.
	{[]string{"eyj"}, regexp.MustCompile(`\beyJ[A-Za-z0-9_-]{5,}\.[A-Za-z0-9_-]*(?:\.[A-Za-z0-9_-]*){0,3}`), Mask},
	// Tokens of well-known issuers by their prefix.
	{[]string{"sk-", "sk_", "pk-", "pk_", "rk-", "rk_"}, regexp.MustCompile(`\b(?:sk|pk|rk)[-_](?:[A-Za-z0-9]+[-_])*[A-Za-z0-9_-]{12,}`), Mask},
	{[]string{"gh", "github_pat_"}, regexp.MustCompile(`\b(?:gh[pousr]_[A-Za-z0-9]{16,}|github_pat_[A-Za-z0-9_]{20,})`), Mask},
	{[]string{"xox"}, regexp.MustCompile(`\bxox[a-z]-[A-Za-z0-9-]{8,}`), Mask},
	{[]string{"xapp-"}, regexp.MustCompile(`\bxapp-[A-Za-z0-9-]{8,}`), Mask},
	{[]string{"glpat-"}, regexp.MustCompile(`\bglpat-[A-Za-z0-9_-]{16,}`), Mask},
	{[]string{"npm_"}, regexp.MustCompile(`\bnpm_[A-Za-z0-9]{20,}`), Mask},
	{[]string{"aiza"}, regexp.MustCompile(`\bAIza[A-Za-z0-9_-]{30,}`), Mask},
	{[]string{"ya29."}, regexp.MustCompile(`\bya29\.[A-Za-z0-9_-]{10,}`), Mask},
	{[]string{"akia", "asia"}, regexp.MustCompile(`\b(?:AKIA|ASIA)[A-Z0-9]{16}\b`), Mask},
	{[]string{"hf_"}, regexp.MustCompile(`\bhf_[A-Za-z0-9]{20,}`), Mask},
	// key=value, key: value, "key":"value", also with escaped quotes. Quoted
	// values first, because they may contain what ends a bare one.
	{secretHints, regexp.MustCompile(`(?i)\b(` + secretWord + `)(\\?["']?\s*[:=]\s*\\")((?:[^"\\]|\\[^"])+)`), "${1}${2}" + Mask},
	{secretHints, regexp.MustCompile(`(?i)\b(` + secretWord + `)(["']?\s*[:=]\s*")((?:[^"\\]|\\.)+)`), "${1}${2}" + Mask},
	{secretHints, regexp.MustCompile(`(?i)\b(` + secretWord + `)(["']?\s*[:=]\s*')([^']+)`), "${1}${2}" + Mask},
	{secretHints, regexp.MustCompile(`(?i)\b(` + secretWord + `)(["']?\s*(?:=|%3d|:)\s*)(\[redacted\]|(?:[^\s"'&,;\]}\\]|\\[^"\s])+)`), "${1}${2}" + Mask},
}

// cut bounds a text to n characters, marking that something is missing.
func cut(s string, n int) string {
	if len(s) <= n {
		return strings.ToValidUTF8(s, "\uFFFD")
	}
	s = strings.ToValidUTF8(s, "\uFFFD")
	if utf8.RuneCountInString(s) <= n {
		return s
	}
	r := []rune(s)
	return string(r[:n-1]) + "…"
}
