package authserver

import (
	"context"
	"mime"
	"net/http"
	"net/url"
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

// credentials are what a client sends of itself: in the Authorization header
// (RFC 6749 section 2.3.1, where both parts are form-encoded), in the form, or
// only its id if it is public.
func credentials(r *http.Request, form url.Values) (id, secret string, err error) {
	id, secret = form.Get("client_id"), form.Get("client_secret")
	user, pass, basic := r.BasicAuth()
	if !basic {
		if r.Header.Get("Authorization") != "" {
			return "", "", invalidClient("the Authorization header is not Basic")
		}
		return id, secret, nil
	}
	if user, err = url.QueryUnescape(user); err == nil {
		pass, err = url.QueryUnescape(pass)
	}
	switch {
	case err != nil:
		return "", "", invalidClient("the Authorization header is not encoded as RFC 6749 section 2.3.1 has it")
	case id != "" && id != user:
		return "", "", invalidRequest("client_id is not that of the Authorization header")
	case secret != "" && pass != "":
		return "", "", invalidRequest("the client proves itself in two ways; choose one")
	case pass == "":
		pass = secret
	}
	return user, pass, nil
}

// proven gives the client of a request that has proven itself.
func (s *Server) proven(ctx context.Context, set *settings, id, secret string) (*Client, error) {
	if id == "" {
		return nil, invalidClient("client_id is missing")
	}
	c, err := s.client(ctx, set, id)
	if err != nil {
		return nil, err
	}
	// A public client that sends an empty secret, or any, proves nothing by
	// it, and needs not to.
	if c.SecretHash != "" && !same(hashed(secret), c.SecretHash) {
		return nil, invalidClient("the client_secret is missing or wrong")
	}
	return c, nil
}
