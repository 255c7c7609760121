package auth

import (
	"net/url"
	"strings"
)

// maxReturn bounds return_to, bytes.
const maxReturn = 2048

// returnPath checks where a sign-in shall lead back to: a path of the portal
// and nothing that any browser or proxy could take for another place. Empty
// means the home page.
//
// Browsers take a backslash for a slash and drop tabs and line breaks in URLs;
// proxies may decode %2f. So none of these pass, wherever they would matter.
func returnPath(raw string) (string, bool) {
	if raw == "" {
		return "/", true
	}
	if len(raw) > maxReturn || raw[0] != '/' {
		return "", false
	}
	for i := range len(raw) {
		if c := raw[i]; c <= ' ' || c >= 0x7f || c == '\\' || c == '#' {
			return "", false
		}
	}
	u, err := url.Parse(raw)
	if err != nil || u.Scheme != "" || u.Host != "" || u.User != nil || u.Opaque != "" {
		return "", false
	}
	// However often it is decoded on the way.
	path := u.EscapedPath()
	for range 4 {
		if !plainPath(path) {
			return "", false
		}
		next, err := url.PathUnescape(path)
		if err != nil {
			return "", false
		}
		if next == path {
			break
		}
		path = next
	}
	if strings.Contains(path, "%") || path == "/auth" || strings.HasPrefix(path, "/auth/") {
		return "", false // still encoded, or it would sign in or out once more
	}
	// Writing it out may escape what was not, and so make it longer; what is
	// given out must be taken again when it comes back in a link.
	out := (&url.URL{Path: u.Path, RawPath: u.RawPath, RawQuery: u.RawQuery}).String()
	if len(out) > maxReturn {
		return "", false
	}
	return out, true
}

func plainPath(p string) bool {
	if !strings.HasPrefix(p, "/") || strings.Contains(p, "//") || strings.Contains(p, "\\") {
		return false
	}
	for _, seg := range strings.Split(p, "/") {
		if seg == "." || seg == ".." {
			return false
		}
	}
	return !strings.ContainsFunc(p, func(r rune) bool { return r < ' ' || r == 0x7f })
}
