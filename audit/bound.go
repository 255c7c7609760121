package audit

import (
	"encoding/json"
	"fmt"
)

const (
	maxError     = 500      // characters of Event.Error
	maxName      = 200      // of ids, names and other short fields
	maxURI       = 2000     // of Capability, which may be a resource URI
	maxArguments = 64 << 10 // bytes of Event.Arguments
)

// bound returns the event as it may be written: fields cut to their limits,
// credentials masked where others choose the text, arguments dropped unless
// wanted.
func bound(e Event, arguments bool) Event {
	for _, f := range []*string{
		&e.ID, &e.User, &e.Client, &e.Session, &e.Mode, &e.Run, &e.Method, &e.Server,
		&e.Class, &e.Source, &e.Decision, &e.Rule, &e.Approval, &e.Status,
	} {
		*f = cut(*f, maxName)
	}
	// Mask before cutting: half a token is not recognised any more.
	e.Client = cut(Redact(e.Client), maxName)
	e.Capability = cut(Redact(cut(e.Capability, 4*maxURI)), maxURI)
	e.Error = cut(Redact(cut(e.Error, 64<<10)), maxError)
	switch {
	case !arguments:
		e.Arguments = nil
	case len(e.Arguments) == 0:
		e.Arguments = nil
	case !json.Valid(e.Arguments):
		e.Arguments = note("not valid JSON, %d bytes", len(e.Arguments))
	case len(e.Arguments) > maxArguments:
		e.Arguments = note("%d bytes are too many to keep, the limit is %d", len(e.Arguments), maxArguments)
	default:
		e.Arguments = redactJSON(e.Arguments)
	}
	return e
}

// note stands in for arguments that are not kept, as a JSON string.
func note(format string, args ...any) json.RawMessage {
	b, err := json.Marshal("[" + fmt.Sprintf(format, args...) + "]")
	if err != nil {
		return nil
	}
	return b
}
