package auth

import (
	"encoding/json"
	"errors"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// Challenge answers a request that was refused with err: status, the
// WWW-Authenticate challenge of RFC 6750 section 3 with the pointer of RFC
// 9728 section 5.1, and a JSON body that tells the next step. An error that is
// not an *Error is answered as 500 without its text, and logged.
func (a *Auth) Challenge(w http.ResponseWriter, r *http.Request, err error) {
	s := a.state.Load()
	var e *Error
	if !errors.As(err, &e) {
		a.log.ErrorContext(r.Context(), "sign-in failed", "path", r.URL.Path, "error", err)
		e = &Error{Status: 500, Code: CodeInternal, Description: "the portal failed to check the sign-in",
			Next: "try again; if it stays, the portal's log says why"}
	}
	if h := s.challengeHeader(e, r); h != "" {
		w.Header().Set("WWW-Authenticate", h)
	}
	writeError(w, e)
}

// challengeHeader is empty where signing in is no answer: a client that got a
// challenge with 503 would throw a good token away.
func (s *settings) challengeHeader(e *Error, r *http.Request) string {
	if s.dev || e.Status < 400 || e.Status > 403 || e.Code == CodeHost || e.Code == CodeOrigin || e.Code == CodeCSRF {
		return ""
	}
	var b strings.Builder
	b.WriteString("Bearer resource_metadata=" + quoted(s.origin.String()+wellKnown+"/mcp"+s.echo(r)))
	if e.Code != "" {
		b.WriteString(", error=" + quoted(e.Code) + ", error_description=" + quoted(e.Description))
	}
	scopes := e.Scopes // all that the operation needs
	if e.Status == 401 {
		scopes = s.scopes()
	}
	if len(scopes) > 0 {
		b.WriteString(", scope=" + quoted(strings.Join(scopes, " ")))
	}
	return b.String()
}

func writeError(w http.ResponseWriter, e *Error) {
	if e.RetryAfter > 0 {
		w.Header().Set("Retry-After", strconv.Itoa(int((e.RetryAfter+time.Second-1)/time.Second)))
	}
	code := e.Code
	if code == "" {
		code = "unauthorized"
	}
	writeJSON(w, e.Status, struct {
		Error string `json:"error"`
		Desc  string `json:"error_description"`
		Next  string `json:"next_step,omitempty"`
	}{code, e.Description, e.Next})
}

func writeJSON(w http.ResponseWriter, status int, v any) {
	h := w.Header()
	h.Set("Content-Type", "application/json")
	h.Set("Cache-Control", "no-store")
	h.Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(v) // an answer that cannot be sent has no one to tell
}

// quoted makes a quoted-string of the characters that RFC 6750 section 3
// allows in error_description, which are also fit for any other parameter.
func quoted(s string) string {
	return `"` + strings.Map(func(r rune) rune {
		switch {
		case r == '"':
			return '\''
		case r == '\\', r < ' ', r > '~':
			return '?'
		}
		return r
	}, s) + `"`
}
