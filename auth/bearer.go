package auth

import (
	"net/http"
	"net/url"
	"strings"
)

// maxBearer bounds the credential. Tokens with many groups reach some KB;
// what is longer than this is not a token.
const maxBearer = 16 << 10

// bearer takes the token from the Authorization header (RFC 6750 section
// 2.1), the only place where one is accepted. It gives "" when there is none.
func bearer(r *http.Request) (string, *Error) {
	inQuery := tokenInQuery(r.URL)
	headers := r.Header.Values("Authorization")
	switch {
	case len(headers) > 1:
		return "", badRequest("the request has more than one Authorization header", "send exactly one")
	case len(headers) == 1 && inQuery:
		return "", badRequest("the request has a token in the query string besides its Authorization header", "send the token as Authorization: Bearer only")
	case inQuery:
		return "", badToken("tokens in the query string are not accepted, since URLs end up in logs", "send the token as Authorization: Bearer", nil)
	case len(headers) == 0:
		return "", nil
	}
	return parseBearer(headers[0])
}

func parseBearer(h string) (string, *Error) {
	if len(h) > maxBearer {
		return "", badRequest("the Authorization header is longer than 16 KiB", "ask the IdP's admin to put fewer claims into the token")
	}
	h = strings.Trim(h, " \t")
	scheme, rest, _ := strings.Cut(h, " ")
	if !strings.EqualFold(scheme, "Bearer") {
		return "", nil // another scheme is no credential here
	}
	token := strings.Trim(rest, " ")
	if token == "" {
		return "", nil
	}
	if !isToken68(token) {
		return "", badRequest("the Authorization header is malformed", "send one token as Authorization: Bearer <token>")
	}
	return token, nil
}

// isToken68 reports whether s is a b64token of RFC 6750 section 2.1.
func isToken68(s string) bool {
	body := strings.TrimRight(s, "=")
	if body == "" {
		return false
	}
	for i := 0; i < len(body); i++ {
		switch c := body[i]; {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9':
		case c == '-', c == '.', c == '_', c == '~', c == '+', c == '/':
		default:
			return false
		}
	}
	return true
}

// tokenInQuery also looks at pairs that net/url would drop as malformed.
func tokenInQuery(u *url.URL) bool {
	for _, pair := range strings.FieldsFunc(u.RawQuery, func(r rune) bool { return r == '&' || r == ';' }) {
		key, _, _ := strings.Cut(pair, "=")
		if k, err := url.QueryUnescape(key); err == nil {
			key = k
		}
		if strings.EqualFold(strings.TrimSpace(key), "access_token") {
			return true
		}
	}
	return false
}
