package writeguard

import (
	"path"
	"strings"
)

// glob is one pattern of path.Match, except that a slash is an ordinary
// character: a tool may be called "admin/drop", and a rule for "*" that let it
// pass would be a hole.
type glob struct {
	kind    byte   // 'a' all, 'l' literal, 'p' prefix*, 'g' anything else
	pattern string // without the star for 'p', slashes hidden for 'g'
}

// hideSlash stands for a slash inside path.Match. Names never hold it.
const hideSlash = "\x00"

func compileGlob(p string) (glob, error) {
	hidden := strings.ReplaceAll(p, "/", hideSlash)
	if _, err := path.Match(hidden, ""); err != nil {
		return glob{}, err
	}
	rest, star := strings.CutSuffix(p, "*")
	switch {
	case p == "*":
		return glob{kind: 'a'}, nil
	case !strings.ContainsAny(p, `*?[\`):
		return glob{'l', p}, nil
	case star && !strings.ContainsAny(rest, `*?[\`):
		return glob{'p', rest}, nil
	}
	return glob{'g', hidden}, nil
}

func (g glob) match(name string) bool {
	switch g.kind {
	case 'a':
		return true
	case 'l':
		return g.pattern == name
	case 'p':
		return strings.HasPrefix(name, g.pattern)
	}
	ok, err := path.Match(g.pattern, strings.ReplaceAll(name, "/", hideSlash))
	return err == nil && ok // the pattern was checked when compiled
}

func matchAny(gs []glob, name string) bool {
	for _, g := range gs {
		if g.match(name) {
			return true
		}
	}
	return len(gs) == 0
}
