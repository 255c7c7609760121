package config

import (
	"fmt"
	"io"
	"log/slog"
)

// redacted is what every way of printing a Secret shows.
const redacted = "[redacted]"

// String returns "[redacted]".
func (Secret) String() string { return redacted }

// GoString returns "[redacted]", so that %#v of a struct shows no secret.
func (Secret) GoString() string { return redacted }

// Format writes "[redacted]" for every verb. Without it %x and %q would reach
// the bytes of the string.
func (Secret) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, redacted) }

// MarshalText returns "[redacted]".
func (Secret) MarshalText() ([]byte, error) { return []byte(redacted), nil }

// MarshalJSON returns "[redacted]" as a JSON string.
func (Secret) MarshalJSON() ([]byte, error) { return []byte(`"` + redacted + `"`), nil }

// MarshalYAML returns "[redacted]".
func (Secret) MarshalYAML() (any, error) { return redacted, nil }

// LogValue returns "[redacted]" for log/slog.
func (Secret) LogValue() slog.Value { return slog.StringValue(redacted) }

var _ fmt.Formatter = Secret("")
