package auth

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"time"
	"unicode"
)

// claims is the payload of a verified token. Names are matched exactly, which
// decoding into a struct would not do.
type claims map[string]any

func parseClaims(payload []byte) (claims, error) {
	d := json.NewDecoder(bytes.NewReader(payload))
	d.UseNumber()
	var c claims
	if err := d.Decode(&c); err != nil || c == nil {
		return nil, errors.New("the payload of the token is not a JSON object")
	}
	if _, err := d.Token(); err != io.EOF {
		return nil, errors.New("the payload of the token has text after its JSON object")
	}
	return c, nil
}

func (c claims) text(name string) string {
	s, _ := c[name].(string)
	return s
}

func (c claims) has(name string) bool { _, ok := c[name]; return ok }

// texts gives a claim that is a string or a list of strings, as aud is (RFC
// 7519 section 4.1.3).
func (c claims) texts(name string) ([]string, error) { return textList(c[name], name) }

func textList(v any, name string) ([]string, error) {
	switch v := v.(type) {
	case nil:
		return nil, nil
	case string:
		return []string{v}, nil
	case []any:
		out := make([]string, 0, len(v))
		for _, e := range v {
			s, ok := e.(string)
			if !ok {
				return nil, fmt.Errorf("claim %q holds something that is not text", name)
			}
			out = append(out, s)
		}
		return out, nil
	}
	return nil, fmt.Errorf("claim %q is neither text nor a list of texts", name)
}

// time gives a NumericDate (RFC 7519 section 2); ok is false without one.
func (c claims) time(name string) (t time.Time, ok bool, err error) {
	v, ok := c[name]
	if !ok {
		return time.Time{}, false, nil
	}
	n, isNum := v.(json.Number)
	if !isNum {
		return time.Time{}, false, fmt.Errorf("claim %q is not a number", name)
	}
	f, err := n.Float64()
	if err != nil || f < 0 || f > 1<<40 {
		return time.Time{}, false, fmt.Errorf("claim %q is not a time", name)
	}
	sec, frac := math.Modf(f)
	return time.Unix(int64(sec), int64(frac*1e9)), true, nil
}

// errOverage says that the IdP left the groups out because there are too many.
var errOverage = errors.New("groups left out of the token")

// groupsAt reads the groups at a dotted path. A claim whose whole name holds
// dots, as namespaced ones do (https://example.com/groups), is found as well.
// found is false when there is no such claim. An IdP that has put a pointer in
// the claim's place (_claim_names, OpenID Connect Core 1.0 section 5.6.2; at
// Entra: more than 200 groups) is an error, since no groups would be a lie.
func (c claims) groupsAt(path string) (groups []string, found bool, err error) {
	v, found := lookup(c, path)
	if found {
		groups, err = textList(v, path)
		return slices.DeleteFunc(groups, func(g string) bool { return g == "" }), true, err
	}
	top, _, _ := strings.Cut(path, ".")
	if names, ok := c["_claim_names"].(map[string]any); ok {
		_, whole := names[path]
		_, first := names[top]
		if whole || first {
			return nil, false, errOverage
		}
	}
	if path == "groups" && c["hasgroups"] == true {
		return nil, false, errOverage
	}
	return nil, false, nil
}

func lookup(m map[string]any, path string) (any, bool) {
	if v, ok := m[path]; ok && v != nil {
		return v, true
	}
	for i := range len(path) {
		if path[i] != '.' {
			continue
		}
		if sub, ok := m[path[:i]].(map[string]any); ok {
			if v, ok := lookup(sub, path[i+1:]); ok {
				return v, true
			}
		}
	}
	return nil, false
}

// subject gives sub, which becomes part of keys: bounded as OpenID Connect
// Core 1.0 section 2 has it, and printable.
func (c claims) subject() (string, error) {
	sub := c.text("sub")
	if sub == "" {
		return "", errors.New("the token names no subject (claim sub)")
	}
	if len(sub) > 255 || strings.ContainsFunc(sub, unprintable) {
		return "", errors.New("the subject of the token (claim sub) is longer than 255 bytes or not printable")
	}
	return sub, nil
}

// principal reads who the subject is. The groups are read apart.
func (c claims) principal(issuer string, groups []string, expires time.Time) (*Principal, error) {
	sub, err := c.subject()
	if err != nil {
		return nil, err
	}
	p := &Principal{ID: issuer + "|" + sub, Kind: KindUser, Email: display(c.text("email")), Groups: groups, Expires: expires}
	for _, name := range []string{c.text("name"), c.text("preferred_username"), p.Email, p.ID} {
		if p.Name = display(name); p.Name != "" {
			break
		}
	}
	return p, nil
}

// display makes foreign text fit to be shown and logged on one line.
func display(s string) string {
	s = strings.TrimSpace(strings.Map(func(r rune) rune {
		if unprintable(r) {
			return -1
		}
		return r
	}, s))
	const limit = 200
	if len(s) > limit {
		s = strings.ToValidUTF8(s[:limit], "")
	}
	return s
}

// unprintable covers control characters and those that change the direction
// of text, with which one name can be made to look like another.
func unprintable(r rune) bool {
	return r == unicode.ReplacementChar || unicode.IsControl(r) || unicode.Is(unicode.Cf, r)
}
