package auth

import (
	"crypto/subtle"
	"errors"
	"net/http"
)

// CSRFField is the form field with the token of Browser; CSRFHeader is the
// header that carries it where the body is no form.
const (
	CSRFField  = "csrf"
	CSRFHeader = "X-CSRF-Token"
)

// maxForm bounds the body of a form, bytes.
const maxForm = 1 << 20

// CheckCSRF demands that a request which changes something was made by one of
// the portal's own pages in the same browser session: the Origin is the
// portal's own (those under origins do not count), and the token is that of
// the session. It returns nil, ErrNoSession, or an *Error.
//
// The form is parsed; read its fields from r.PostForm afterwards. Pages with
// forms are better served with Referrer-Policy: same-origin than no-referrer:
// with the latter browsers hide the Origin, and ones too old to send
// Sec-Fetch-Site are refused.
func (a *Auth) CheckCSRF(r *http.Request) error {
	s := a.state.Load()
	_, want, err := a.Session(r)
	if err != nil {
		return err
	}
	refuse := func(desc string) error {
		return &Error{Status: 403, Code: CodeCSRF, Description: desc, Next: "go back, reload the page and try again"}
	}
	switch r.Header.Get("Sec-Fetch-Site") {
	case "", "same-origin", "none":
	default:
		return refuse("the request was made by a page of another site")
	}
	if origins := r.Header.Values("Origin"); len(origins) > 0 && !hiddenOwn(origins[0], r) {
		o, ok := canonicalOrigin(origins[0])
		if len(origins) > 1 || !ok || !s.hosts.own(o, r) {
			return refuse("the request was made by a page of another site")
		}
	}
	got := r.Header.Get(CSRFHeader)
	if got == "" {
		if got, err = formToken(r); err != nil {
			return err
		}
	}
	if want == "" || subtle.ConstantTimeCompare([]byte(got), []byte(want)) != 1 {
		return refuse("the page was not of this browser session, or is too old")
	}
	return nil
}

// formToken takes the token from a URL-encoded body; bodies of other types are
// left unread, and the query does not count.
func formToken(r *http.Request) (string, error) {
	r.Body = http.MaxBytesReader(nil, r.Body, maxForm)
	if err := r.ParseForm(); err != nil {
		var tooLong *http.MaxBytesError
		if errors.As(err, &tooLong) {
			return "", badRequest("the form is too long", "send less")
		}
		return "", badRequest("the form cannot be read", "go back, reload the page and try again")
	}
	return r.PostForm.Get(CSRFField), nil
}
