package authserver

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"

	"github.com/mcp-portal/mcp-portal/auth/vault"
	"github.com/mcp-portal/mcp-portal/store"
)

// Error is an answer of RFC 6749 section 5.2, or one of the same form.
// Description may be shown; it holds no secret and no address inside.
type Error struct {
	Status      int
	Code        string
	Description string
	cause       error
}

func (e *Error) Error() string {
	s := fmt.Sprintf("%s: %s", e.Code, e.Description)
	if e.cause != nil {
		s += ": " + e.cause.Error()
	}
	return s
}

// Unwrap gives what lies behind it, for the log; nil: nothing.
func (e *Error) Unwrap() error { return e.cause }

func fail(status int, code, format string, args ...any) *Error {
	return &Error{Status: status, Code: code, Description: fmt.Sprintf(format, args...)}
}

func invalidRequest(format string, args ...any) *Error {
	return fail(400, "invalid_request", format, args...)
}

func invalidClient(format string, args ...any) *Error {
	return fail(401, "invalid_client", format, args...)
}

func invalidGrant(format string, args ...any) *Error {
	return fail(400, "invalid_grant", format, args...)
}

// internal turns an error of the store or the vault into an answer: 503 where
// trying again may help.
func internal(doing string, err error) *Error {
	var e *Error
	if errors.As(err, &e) {
		return e
	}
	if errors.Is(err, store.ErrUnavailable) {
		return &Error{Status: 503, Code: "temporarily_unavailable", Description: "the portal cannot reach its store now; try again shortly", cause: fmt.Errorf("%s: %w", doing, err)}
	}
	return &Error{Status: 500, Code: "server_error", Description: "the portal failed to do this; its log says why", cause: fmt.Errorf("%s: %w", doing, err)}
}

// lostSeal reports whether a sealed value is as good as missing.
func lostSeal(err error) bool {
	return errors.Is(err, vault.ErrSealed) || errors.Is(err, vault.ErrUnknownKey)
}

// answer writes JSON that nobody keeps (RFC 6749 section 5.1).
func answer(w http.ResponseWriter, status int, v any) {
	h := w.Header()
	h.Set("Content-Type", "application/json")
	h.Set("Cache-Control", "no-store")
	h.Set("Pragma", "no-cache")
	h.Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(v) // an answer that cannot be sent has no one to tell
}

// refuse answers with an error and logs what lies behind it.
func (s *Server) refuse(w http.ResponseWriter, r *http.Request, err error) {
	var e *Error
	if !errors.As(err, &e) {
		e = internal("answering "+r.URL.Path, err)
	}
	switch {
	case e.Status >= 500:
		s.log.ErrorContext(r.Context(), "sign-in of a client failed", "path", r.URL.Path, "error", e)
	default:
		s.log.InfoContext(r.Context(), "sign-in of a client refused", "path", r.URL.Path, "remote", s.caller(r), "error", e)
	}
	switch e.Status {
	case 503:
		w.Header().Set("Retry-After", "2")
	case 401:
		if r.Header.Get("Authorization") != "" {
			w.Header().Set("WWW-Authenticate", `Basic realm="token"`)
		}
	}
	answer(w, e.Status, map[string]string{"error": e.Code, "error_description": e.Description})
}

func tooMany(w http.ResponseWriter, seconds int) {
	w.Header().Set("Retry-After", strconv.Itoa(seconds))
	answer(w, http.StatusTooManyRequests, map[string]string{"error": "temporarily_unavailable", "error_description": "too many requests from this address; wait and try again"})
}
