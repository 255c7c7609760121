package outbound

import (
	"errors"
	"fmt"
)

// ErrTooLong is wrapped by reads of a body that is longer than allowed. A body
// is never cut short silently.
var ErrTooLong = errors.New("the answer is too long")

// RefusedError says that a request was not sent, or not to the end, because
// of where it would go. Its text names no address that a name resolved to, so
// that nobody can explore the network with it; Detail is for the log.
type RefusedError struct {
	Host   string // as in the URL
	Reason string // one clause: "it is not https"
	Detail string // the address, for the log only
}

// Error is fit to be shown to whoever named the address.
func (e *RefusedError) Error() string {
	return fmt.Sprintf("the portal does not contact %q: %s", e.Host, e.Reason)
}
