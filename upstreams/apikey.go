package upstreams

import (
	"bytes"
	"encoding/json"
	"net/http"
	"net/url"
	"strings"

	"github.com/mcp-portal/mcp-portal/config"
)

// Some APIs take their key in the query. It is put on last, like a header, so
// that no argument can replace it. APIs of that kind like to repeat the address
// of a request, in links to the next page for one, and with it the key: there
// it is taken out again before anybody sees it.

// queryKeys are the parameters that the administrator has set for every request.
type queryKeys map[string]string

func newQueryKeys(cfg config.Server) queryKeys {
	keys := queryKeys{}
	for name, value := range cfg.Query {
		keys[name] = value.Reveal()
	}
	return keys
}

// sign puts the keys on an address, in place of whatever has their names.
func (k queryKeys) sign(u *url.URL) *url.URL {
	if len(k) == 0 {
		return u
	}
	var parts []string
	for part := range strings.SplitSeq(u.RawQuery, "&") {
		name, _, _ := strings.Cut(part, "=")
		if plain, err := url.QueryUnescape(name); err == nil {
			name = plain
		}
		own := false
		for n := range k { // some APIs take a name in any capitals
			own = own || strings.EqualFold(n, name)
		}
		if part != "" && !own {
			parts = append(parts, part)
		}
	}
	values := url.Values{}
	for name, value := range k {
		values.Set(name, value)
	}
	signed := *u
	signed.RawQuery = strings.Join(append(parts, values.Encode()), "&")
	return &signed
}

// shortKey is up to which length a value is looked for only behind its name:
// alone it would be found in much that is no key.
const shortKey = 7

// hide takes the keys out of what an API says.
func (k queryKeys) hide(text []byte) []byte {
	for name, value := range k {
		if value == "" {
			continue
		}
		for _, form := range config.Secret(value).Forms() {
			if !bytes.Contains(text, []byte(form)) {
				continue
			}
			for _, n := range []string{name, url.QueryEscape(name)} {
				pair := n + "=" + form
				for _, and := range []string{"&amp;", `\u0026`, "&", "%26"} {
					text = bytes.ReplaceAll(text, []byte(and+pair), nil)
					text = bytes.ReplaceAll(text, []byte("?"+pair+and), []byte("?"))
				}
				text = bytes.ReplaceAll(text, []byte("?"+pair), nil)
				text = bytes.ReplaceAll(text, []byte(pair), []byte(n+"=[redacted]"))
			}
			if len(value) > shortKey {
				text = bytes.ReplaceAll(text, []byte(form), []byte("[redacted]"))
			} else { // {"api_key": "short"}
				quoted, _ := json.Marshal(form) // text always encodes
				text = bytes.ReplaceAll(text, quoted, []byte(`"[redacted]"`))
			}
		}
	}
	return text
}

// hideHeader is hide for headers, in place.
func (k queryKeys) hideHeader(h http.Header) {
	if len(k) == 0 {
		return
	}
	for _, values := range h {
		for i, v := range values {
			values[i] = string(k.hide([]byte(v)))
		}
	}
}
