package authserver

import (
	"context"
	"mime"
	"net/http"
	"net/url"
	"slices"
)

const maxTokenRequest = 32 << 10 // bytes

// tokenForm reads the form of /token and /revoke. The query does not count:
// what is there ends up in logs.
func tokenForm(r *http.Request) (url.Values, error) {
	if kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || kind != "application/x-www-form-urlencoded" {
		return nil, invalidRequest("send the request as application/x-www-form-urlencoded")
	}
	r.Body = http.MaxBytesReader(nil, r.Body, maxTokenRequest)
	if err := r.ParseForm(); err != nil {
		return nil, invalidRequest("the form cannot be read")
	}
	for name, v := range r.PostForm {
		if len(v) > 1 && name != "resource" {
			return nil, invalidRequest("%s is there more than once", printable(name, 50))
		}
	}
	return r.PostForm, nil
}

// proof is what a client sends of itself.
type proof struct {
	id      string
	secrets []string // what its secret may be, read in different ways; none: it sent none
}

// credentials are what a client sends of itself: in the Authorization header
// (RFC 6749 section 2.3.1), in the form, or only its id if it is public. The
// RFC has both parts of the header form-encoded, and many clients send them as
// they are: both readings are tried, since only the right one holds.
func credentials(r *http.Request, form url.Values) (proof, error) {
	p := proof{id: form.Get("client_id")}
	secret := form.Get("client_secret")
	user, pass, basic := r.BasicAuth()
	if !basic {
		if r.Header.Get("Authorization") != "" {
			return p, invalidClient("the Authorization header is not Basic")
		}
		if secret != "" {
			p.secrets = []string{secret}
		}
		return p, nil
	}
	if secret != "" && pass != "" {
		return p, invalidRequest("the client proves itself in two ways; choose one")
	}
	if pass == "" {
		pass = secret
	}
	names := readings(user)
	switch {
	case p.id == "":
		p.id = names[0]
	case !slices.Contains(names, p.id):
		return p, invalidRequest("client_id is not that of the Authorization header")
	}
	if pass != "" {
		p.secrets = readings(pass)
	}
	return p, nil
}

// readings are a part of a Basic header decoded, if it can be, and as it is.
func readings(s string) []string {
	if d, err := url.QueryUnescape(s); err == nil && d != s {
		return []string{d, s}
	}
	return []string{s}
}

// proven gives the client of a request that has proven itself.
func (s *Server) proven(ctx context.Context, set *settings, p proof) (*Client, error) {
	if p.id == "" {
		return nil, invalidClient("client_id is missing")
	}
	c, err := s.lookup(ctx, set, p.id, true)
	if err != nil {
		return nil, err
	}
	// A public client that sends an empty secret, or any, proves nothing by
	// it, and needs not to.
	if c.SecretHash != "" && !slices.ContainsFunc(p.secrets, func(v string) bool { return same(hashed(v), c.SecretHash) }) {
		return nil, invalidClient("the client_secret is missing or wrong")
	}
	return c, nil
}
