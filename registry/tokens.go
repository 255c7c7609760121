package registry

import (
	"strings"
	"unicode"
)

// words splits text into lower-case words: at everything that is neither letter
// nor digit, where a small letter meets a capital (getUser), before the last
// capital of a run (HTTPServer), and between letters and digits. Characters of
// scripts without spaces are words of their own.
func words(text string, emit func(string)) {
	const (
		none = iota
		lower
		upper
		digit
	)
	start, kind, prev := -1, none, 0
	flush := func(end int) {
		if start >= 0 && end > start {
			emit(strings.ToLower(text[start:end]))
		}
		start, kind = -1, none
	}
	for i, r := range text {
		k := none
		switch {
		case r >= '0' && r <= '9':
			k = digit
		case r >= 'a' && r <= 'z':
			k = lower
		case r >= 'A' && r <= 'Z':
			k = upper
		case r < 0x80:
		case unicode.In(r, unicode.Han, unicode.Hiragana, unicode.Katakana):
			flush(i)
			emit(string(r))
			continue
		case unicode.IsUpper(r):
			k = upper
		case unicode.IsLetter(r) || unicode.IsMark(r):
			k = lower
		case unicode.IsDigit(r):
			k = digit
		}
		switch {
		case k == none:
			flush(i)
			continue
		case start < 0:
			start = i
		case kind == k:
		case kind == upper && k == lower:
			if prev > start { // HTTPServer: the last capital begins the next word
				flush(prev)
				start = prev
			}
		default:
			flush(i)
			start = i
		}
		kind, prev = k, i
	}
	flush(len(text))
}

// terms is words without stop words, stemmed.
func terms(text string, emit func(string)) {
	words(text, func(w string) {
		if !stopWord(w) {
			emit(stem(w))
		}
	})
}

func stopWord(w string) bool {
	switch w {
	case "a", "an", "the", "of", "to", "for", "in", "on", "at", "by", "with", "and", "or", "is", "are", "was", "be", "been", "am",
		"my", "me", "i", "we", "us", "our", "you", "your", "it", "its", "this", "that", "these", "those", "there", "from", "as",
		"do", "does", "did", "how", "what", "which", "who", "whom", "when", "where", "why", "can", "could", "would", "should",
		"will", "shall", "may", "might", "please", "any", "each", "some", "into", "onto", "so", "if", "then", "than", "also",
		"just", "via", "using", "used", "want", "need", "like", "has", "have", "had", "not", "but", "s", "t":
		return true
	}
	return false
}

// stem cuts English endings lightly: words of one family should meet, words of
// different families should not.
func stem(w string) string {
	if len(w) < 4 || w[len(w)-1] < 'a' || w[len(w)-1] > 'z' {
		return w
	}
	switch {
	case strings.HasSuffix(w, "sses"), strings.HasSuffix(w, "xes"), strings.HasSuffix(w, "ches"), strings.HasSuffix(w, "shes"), strings.HasSuffix(w, "zes"):
		w = w[:len(w)-2]
	case strings.HasSuffix(w, "ies") && len(w) > 4:
		w = w[:len(w)-3] + "y"
	case strings.HasSuffix(w, "s") && !strings.HasSuffix(w, "ss") && !strings.HasSuffix(w, "us") && !strings.HasSuffix(w, "is"):
		w = w[:len(w)-1]
	}
	for _, end := range [...]string{"ization", "ation", "ition", "ution", "ing", "ed", "ment", "ion", "or", "er"} {
		cut, ok := strings.CutSuffix(w, end)
		if !ok || len(cut) < 3 || !hasVowel(cut) {
			continue
		}
		switch end {
		case "ization":
			cut += "iz"
		case "ation": // creation and create
			cut += "at"
		case "ion": // not station, action
			if len(cut) < 5 {
				continue
			}
		case "or", "er":
			if len(cut) < 5 { // order, user, error, folder keep their ends
				continue
			}
		case "ution":
			cut += "ut"
		case "ition":
			cut += "it"
		case "ment":
			if len(cut) < 4 { // document, comment, segment
				continue
			}
		}
		w = cut
		if n := len(w); n > 3 && w[n-1] == w[n-2] && strings.IndexByte("lsz", w[n-1]) < 0 {
			w = w[:n-1]
		}
		break
	}
	if n := len(w); n > 3 && w[n-1] == 'e' {
		w = w[:n-1]
	}
	return w
}

func hasVowel(s string) bool { return strings.ContainsAny(s, "aeiouy") }
