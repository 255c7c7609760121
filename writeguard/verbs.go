package writeguard

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// destructiveVerbs say, wherever they stand in a name, that something may be
// lost. Plain and third person forms are looked up alike.
var destructiveVerbs = words(`
	abort cancel deactivate decommission delete del deprovision destroy detach
	disable discard drop erase evict expunge flush forget kill nuke obliterate
	overwrite prune purge refund remove revoke rm rmdir shred shutdown
	teardown terminate trash truncate unassign undeploy uninstall unlink
	unpublish unset wipe`)

// ambiguousVerbs say the same, but are nouns or adjectives as often. They
// count only in a name without a reading verb: merge_branch, but not
// get_merge_request. Running given code or commands is here too, because what
// it does is not known before, and put, which replaces what is there.
var ambiguousVerbs = words(`
	archive ban block clear dismiss downgrade eval evaluate exec execute
	format force kick merge override put rebuild reject reset restore revert
	rollback rotate shell silence stop suspend transfer void`)

// readingVerbs never loosen anything: they only tell a noun from a verb above.
var readingVerbs = words(`
	check count describe download fetch find get head inspect list lookup
	preview query read retrieve search show stat status view`)

// destructivePhrases in a description say it without one of the verbs.
var destructivePhrases = []string{
	"cannot be undone", "can not be undone", "can't be undone",
	"irreversibl", "permanently delete", "permanently remove",
	"permanently erase", "permanently destroy", "destructive operation", "destructive action",
	"execute a sql", "execute sql", "executes sql", "execute raw sql", "executes raw sql", "arbitrary sql", "arbitrary code",
}

// descriptionMax bounds how many bytes of a description are looked at: a
// server cannot make a decision slow, and what a tool does is said early.
const descriptionMax = 4096

func words(s string) map[string]bool {
	m := map[string]bool{}
	for _, w := range strings.Fields(s) {
		m[w] = true
	}
	return m
}

// nameVerb returns the word of a tool name that says destructive, or "".
func nameVerb(name string) string {
	tokens := nameTokens(name)
	reading := false
	for _, t := range tokens {
		if base(t, destructiveVerbs) != "" {
			return t
		}
		reading = reading || base(t, readingVerbs) != ""
	}
	if reading {
		return ""
	}
	for _, t := range tokens {
		if base(t, ambiguousVerbs) != "" {
			return t
		}
	}
	return ""
}

// descriptionVerb returns the word or phrase of a description that says
// destructive, or "". Verbs count only in the first sentence and only where
// they do not follow a negation, because later sentences tell of other tools.
func descriptionVerb(d string) string {
	if len(d) > descriptionMax {
		d = d[:descriptionMax]
	}
	low := strings.ToLower(d)
	for _, p := range destructivePhrases {
		for rest := low; ; {
			i := strings.Index(rest, p)
			if i < 0 {
				break
			}
			if !negated(rest[:i]) {
				return p
			}
			rest = rest[i+len(p):]
		}
	}
	first := low
	if i := strings.IndexAny(low, "\n"); i > 0 {
		first = first[:i]
	}
	if i := strings.Index(first, ". "); i > 0 {
		first = first[:i]
	}
	tokens := strings.FieldsFunc(first, func(r rune) bool { return !unicode.IsLetter(r) && r != '\'' && r != '’' })
	for i, t := range tokens {
		if base(t, destructiveVerbs) == "" {
			continue
		}
		if i > 0 && (isNegation(tokens[i-1]) || i > 1 && isNegation(tokens[i-2])) {
			continue
		}
		return t
	}
	return ""
}

func negated(before string) bool {
	f := strings.Fields(before)
	n := len(f)
	return n > 0 && isNegation(f[n-1]) || n > 1 && isNegation(f[n-2])
}

func isNegation(w string) bool {
	switch w {
	case "not", "never", "no", "without", "cannot", "non":
		return true
	}
	return strings.HasSuffix(w, "n't") || strings.HasSuffix(w, "n’t")
}

// base returns the plain form of a word if it is in the set.
func base(w string, set map[string]bool) string {
	if set[w] {
		return w
	}
	for _, suffix := range []string{"s", "es"} {
		if b, ok := strings.CutSuffix(w, suffix); ok && set[b] {
			return b
		}
	}
	if b, ok := strings.CutSuffix(w, "ies"); ok && set[b+"y"] {
		return b + "y"
	}
	return ""
}

// nameTokens splits a tool name into lower-case words at everything that is
// not a letter and at changes of case: dropTable, DROP_TABLE and drop-table2
// all hold "drop".
func nameTokens(name string) []string {
	var out []string
	var word []rune
	end := func() {
		if len(word) > 0 {
			out = append(out, string(word))
			word = word[:0]
		}
	}
	var prev rune
	for i, r := range name {
		if !unicode.IsLetter(r) {
			end()
			prev = r
			continue
		}
		next, _ := utf8.DecodeRuneInString(name[i+utf8.RuneLen(r):])
		camel := unicode.IsUpper(r) && unicode.IsLower(prev)
		acronym := unicode.IsUpper(r) && unicode.IsUpper(prev) && unicode.IsLower(next)
		if camel || acronym {
			end()
		}
		word = append(word, unicode.ToLower(r))
		prev = r
	}
	end()
	return out
}
