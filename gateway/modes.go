package gateway

import (
	"fmt"
	"net/url"
	"slices"
	"strings"
)

// Mode is what a client's URL asks tools/list to look like.
type Mode string

const (
	ModeAll      Mode = "all"                // every tool, and the three portal tools
	ModeMinimize Mode = "minimize_tools"     // every tool by name only, and portal_query_tools
	ModeTwoTools Mode = "search_and_execute" // portal_query_tools and portal_execute
	ModeCode     Mode = "code"               // portal_code alone
	ModeCodemode Mode = "codemode"           // portal_codemode_search and portal_codemode_execute
)

var (
	optimizeValues = []string{"minimize_tools", "search_and_execute"}
	codemodeValues = []string{"search_and_execute", "code", "off", "false"}
)

// parseMode reads ?optimize_context= and ?codemode= under the admin's policy
// (code.mode). A value that is not known is an error that names those that
// are. The note says when policy overruled what the URL asked for.
func parseMode(q url.Values, policy string) (mode Mode, note string, err error) {
	optimize, err := one(q, "optimize_context", optimizeValues)
	if err != nil {
		return "", "", err
	}
	code, err := one(q, "codemode", codemodeValues)
	if err != nil {
		return "", "", err
	}
	wantsCode := code == "search_and_execute" || code == "code"
	if wantsCode && optimize != "" {
		return "", "", fmt.Errorf("optimize_context=%s and codemode=%s cannot both be asked for: keep one of them in the URL", optimize, code)
	}
	if policy == "off" && wantsCode {
		return "", "", fmt.Errorf("code mode is switched off on this portal (code.mode: off): remove codemode=%s from the URL", code)
	}
	asked := ModeAll
	switch {
	case code == "search_and_execute":
		asked = ModeCodemode
	case code == "code":
		asked = ModeCode
	case optimize != "":
		asked = Mode(optimize)
	}
	switch policy {
	case "default_on":
		if optimize == "" && code == "" {
			return ModeCodemode, "", nil
		}
	case "enforced":
		if asked == ModeAll || asked == ModeMinimize {
			if optimize != "" || code != "" {
				note = "This portal enforces code mode, so the mode in the URL was not followed."
			}
			return ModeCodemode, note, nil
		}
	}
	return asked, "", nil
}

func one(q url.Values, key string, valid []string) (string, error) {
	vs, ok := q[key]
	if !ok {
		return "", nil
	}
	if len(vs) > 1 {
		return "", fmt.Errorf("%s is given %d times in the URL: keep one", key, len(vs))
	}
	if !slices.Contains(valid, vs[0]) {
		return "", fmt.Errorf("unknown value %q of %s in the URL: use one of %s, or leave it out", bounded(vs[0], 60), key, strings.Join(valid, ", "))
	}
	return vs[0], nil
}

// bounded cuts s to n bytes at a rune border, with a mark.
func bounded(s string, n int) string {
	if len(s) <= n {
		return s
	}
	for n > 0 && s[n]&0xC0 == 0x80 {
		n--
	}
	return s[:n] + "…"
}
