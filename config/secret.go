package config

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/url"
	"slices"
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

// Forms are the ways in which a text may repeat the secret: as it is, and in
// the encodings of URLs, forms, JSON and Basic credentials. Longest first; none
// if it is so short that ordinary words would be taken for it.
func (s Secret) Forms() []string {
	v := string(s)
	if len(v) < 4 {
		return nil
	}
	quoted, _ := json.Marshal(v) // a string always encodes
	out := []string{v, url.QueryEscape(v), url.PathEscape(v), string(quoted[1 : len(quoted)-1]),
		base64.StdEncoding.EncodeToString([]byte(v)), base64.RawStdEncoding.EncodeToString([]byte(v)), base64.RawURLEncoding.EncodeToString([]byte(v))}
	slices.SortFunc(out, func(a, b string) int { return len(b) - len(a) })
	return slices.Compact(out)
}

var _ fmt.Formatter = Secret("")
