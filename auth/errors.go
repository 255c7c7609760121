package auth

import (
	"errors"
	"fmt"
	"time"
)

// Codes of Error. The first three are those of RFC 6750 section 3.1, which
// clients act on; the others are the portal's own and only tell.
const (
	CodeInvalidRequest    = "invalid_request"         // 400: malformed, e.g. two Authorization headers
	CodeInvalidToken      = "invalid_token"           // 401: sign in again
	CodeInsufficientScope = "insufficient_scope"      // 403: ask for more scopes
	CodeAccessDenied      = "access_denied"           // 403: signing in again would not help
	CodeUnavailable       = "temporarily_unavailable" // 503: IdP or store cannot be reached
	CodeHost              = "host_not_allowed"        // 403: Host header unknown
	CodeOrigin            = "origin_not_allowed"      // 403: Origin header unknown
	CodeCSRF              = "csrf"                    // 403: not asked by the portal's own page
	CodeInternal          = "internal_error"          // 500
)

// ErrNoSession says that a browser has no valid session: it was never signed
// in, or the session ended.
var ErrNoSession = errors.New("no browser session; sign in at /auth/login")

// Error is a refusal. Description and Next may be shown to whoever asked;
// they never hold a token, a secret or an internal address. What lies behind
// it is for the log only and reached by errors.Unwrap.
type Error struct {
	Status      int           // HTTP status: 400, 401, 403, 500 or 503
	Code        string        // one of the Code constants; empty: no credential was sent
	Description string        // what is wrong, one sentence
	Next        string        // what to do about it, one sentence
	RetryAfter  time.Duration // with 503: when trying again may help
	Scopes      []string      // with CodeInsufficientScope: what the token must have

	cause error
}

// Error gives the description with status and cause, for logs.
func (e *Error) Error() string {
	s := fmt.Sprintf("sign-in refused (%d %s): %s", e.Status, e.Code, e.Description)
	if e.cause != nil {
		s += ": " + e.cause.Error()
	}
	return s
}

// Unwrap gives what lies behind the refusal, or nil.
func (e *Error) Unwrap() error { return e.cause }

func badRequest(desc, next string) *Error {
	return &Error{Status: 400, Code: CodeInvalidRequest, Description: desc, Next: next}
}

func noToken() *Error {
	return &Error{Status: 401, Description: "sign-in is required",
		Next: "get an access token from the authorization server named in resource_metadata, or a service token from the portal's admin, and send it as Authorization: Bearer"}
}

func badToken(desc, next string, cause error) *Error {
	return &Error{Status: 401, Code: CodeInvalidToken, Description: desc, Next: next, cause: cause}
}

func denied(desc, next string) *Error {
	return &Error{Status: 403, Code: CodeAccessDenied, Description: desc, Next: next}
}

func unavailable(desc string, retry time.Duration, cause error) *Error {
	if retry < time.Second {
		retry = time.Second
	}
	return &Error{Status: 503, Code: CodeUnavailable, Description: desc,
		Next: "try again shortly; nothing is wrong with the credential", RetryAfter: retry, cause: cause}
}
