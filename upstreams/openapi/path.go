package openapi

import (
	"errors"
	"fmt"
	"net/url"
	"strings"
)

// segment is what stands between two slashes of a path template.
type segment []part

// part is text, or the name of a parameter.
type part struct{ text, param string }

// parsePath reads a path template. What could lead to another host or out of
// the path of the server is refused here, whatever the arguments are.
func parsePath(path string) (segments []segment, query string, err error) {
	path, _, _ = strings.Cut(path, "#") // some documents tell operations of one address apart so
	path, query, _ = strings.Cut(path, "?")
	if !strings.HasPrefix(path, "/") || strings.HasPrefix(path, "//") {
		return nil, "", errors.New("its path does not begin with one slash")
	}
	if bad := controls(path + query); bad {
		return nil, "", errors.New("its path has characters that no address has")
	}
	for s := range strings.SplitSeq(path[1:], "/") {
		seg, err := parseSegment(s)
		if err != nil {
			return nil, "", err
		}
		if dots(s) {
			return nil, "", errors.New("its path has dots that lead out of it")
		}
		segments = append(segments, seg)
	}
	if _, err := url.ParseQuery(query); err != nil {
		return nil, "", errors.New("its path has a query that cannot be read")
	}
	return segments, query, nil
}

func parseSegment(s string) (segment, error) {
	var seg segment
	for s != "" {
		open := strings.IndexByte(s, '{')
		if open < 0 {
			return append(seg, part{text: s}), nil
		}
		if open > 0 {
			seg = append(seg, part{text: s[:open]})
		}
		end := strings.IndexByte(s[open:], '}')
		if end < 0 {
			return nil, fmt.Errorf("its path has a brace that is not closed")
		}
		name := s[open+1 : open+end]
		if name == "" || strings.Contains(name, "{") {
			return nil, errors.New("its path has a parameter without a name")
		}
		seg = append(seg, part{param: name})
		s = s[open+end+1:]
	}
	return seg, nil
}

// dots reports whether a segment is "." or "..", however often its signs were
// percent-encoded: some proxies decode once more.
func dots(s string) bool {
	for range 4 {
		if s == "." || s == ".." {
			return true
		}
		next, err := url.PathUnescape(s)
		if err != nil || next == s {
			return false
		}
		s = next
	}
	return true // encoded more often than anybody does in good faith
}

// climbs reports whether a value, put into a path, could lead out of it once a
// server decodes its slashes.
func climbs(s string) bool {
	for range 4 {
		for part := range strings.FieldsFuncSeq(s, func(r rune) bool { return r == '/' || r == '\\' }) {
			if part == "." || part == ".." {
				return true
			}
		}
		next, err := url.PathUnescape(s)
		if err != nil || next == s {
			return false
		}
		s = next
	}
	return true
}

func controls(s string) bool {
	return strings.ContainsFunc(s, func(r rune) bool { return r < 0x20 || r == 0x7f || r == '\\' })
}

// escapeSegment keeps the unreserved characters of RFC 3986 and encodes all
// others.
func escapeSegment(s string) string {
	const hex = "0123456789ABCDEF"
	var b strings.Builder
	for i := range len(s) {
		c := s[i]
		if c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '-' || c == '.' || c == '_' || c == '~' {
			b.WriteByte(c)
		} else {
			b.WriteString("%" + string(hex[c>>4]) + string(hex[c&15]))
		}
	}
	return b.String()
}

// literal is the text of a template as it stands in an address: what is encoded
// in it stays so.
func literal(s string) string {
	if p, err := url.PathUnescape(s); err == nil {
		s = p
	}
	// Colons, commas and the like belong to templates such as /v1/things:batch.
	const kept = ":@!$&'()*+,;="
	var b strings.Builder
	for i := range len(s) {
		if strings.IndexByte(kept, s[i]) >= 0 {
			b.WriteByte(s[i])
		} else {
			b.WriteString(escapeSegment(s[i : i+1]))
		}
	}
	return b.String()
}
