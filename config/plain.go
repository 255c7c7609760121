package config

import (
	"net/url"
	"regexp"
	"slices"
	"strings"
)

// almostReference is a reference to a variable as shells, other programs and
// Windows write it; here it is text.
var almostReference = regexp.MustCompile(`^(?:\$([A-Za-z_]\w*)|\$\{(?:env[:.])?([A-Za-z_]\w*)(?:[:?+=-].*)?\}|%([A-Za-z_]\w*)%|\{\{ *(?:env\.)?([A-Za-z_]\w*) *\}\})$`)

// plainSecrets warns of credentials that stand in the file itself, and of
// references that are none. Both are valid: a password may look like anything.
func (v *validator) plainSecrets() {
	for path, p := range v.plain {
		if v.isBroken(path) {
			continue
		}
		if m := almostReference.FindStringSubmatch(v.written[path]); m != nil {
			v.warn(path, "is this text, not the value of a variable; write ${%s}", strings.Join(m[1:], ""))
			continue
		}
		if v.isCredential(p) {
			v.warn(path, "stands in the file for everybody who may read that; write ${NAME} for an environment variable, or file:/path")
		}
	}
}

// isCredential reports whether a value of type secret is one: what a header or
// a variable of a program is for, only its name can tell.
func (v *validator) isCredential(p place) bool {
	switch key := p.generic[strings.LastIndex(p.generic, ".")+1:]; key {
	case "redis":
		u, err := url.Parse(v.written[p.path])
		if err != nil || u.User == nil {
			return false
		}
		_, has := u.User.Password()
		return has
	case "*": // a header, a variable, or a key in the query
		if strings.HasSuffix(p.generic, ".query.*") {
			return true
		}
		name := strings.ToLower(p.path[strings.LastIndex(p.path, ".")+1:])
		return slices.ContainsFunc([]string{"authorization", "cookie", "token", "secret", "password", "api-key", "api_key", "apikey"}, func(s string) bool { return strings.Contains(name, s) })
	}
	return true
}
