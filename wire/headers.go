package wire

import (
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"strings"
)

// Request headers of the Streamable HTTP transport.
const (
	HeaderProtocolVersion = "Mcp-Protocol-Version" // since 2025-06-18
	HeaderSessionID       = "Mcp-Session-Id"       // 2025-xx only
	HeaderLastEventID     = "Last-Event-ID"        // 2025-xx only
	HeaderMethod          = "Mcp-Method"           // since 2026-07-28
	HeaderName            = "Mcp-Name"             // since 2026-07-28
	HeaderParamPrefix     = "Mcp-Param-"           // since 2026-07-28
)

// Media types of the Streamable HTTP transport.
const (
	TypeJSON        = "application/json"
	TypeEventStream = "text/event-stream"
)

const (
	base64Open  = "=?base64?"
	base64Close = "?="
)

// EncodeHeaderValue makes s fit for an Mcp-Name or Mcp-Param-* header: as it
// is when it is printable ASCII without blanks at its ends, else base64 in the
// wrapper "=?base64?…?=" (2026-07-28, SEP-2243). A value that already looks
// wrapped is wrapped once more, so that decoding gives it back.
func EncodeHeaderValue(s string) string {
	if plainHeaderValue(s) {
		return s
	}
	return base64Open + base64.StdEncoding.EncodeToString([]byte(s)) + base64Close
}

// DecodeHeaderValue undoes EncodeHeaderValue. It fails when the wrapper is
// there but what it holds is not standard base64.
func DecodeHeaderValue(s string) (string, error) {
	inner, ok := strings.CutPrefix(s, base64Open)
	if !ok {
		return s, nil
	}
	inner, ok = strings.CutSuffix(inner, base64Close)
	if !ok {
		return s, nil
	}
	b, err := base64.StdEncoding.Strict().DecodeString(inner)
	if err != nil {
		return "", fmt.Errorf("decode header value: %w", err)
	}
	if strings.ContainsAny(inner, "\r\n") { // the decoder skips them
		return "", errors.New("decode header value: line break in base64")
	}
	return string(b), nil
}

func plainHeaderValue(s string) bool {
	if s == "" {
		return true
	}
	if strings.Trim(s, " \t") != s {
		return false
	}
	for i := range len(s) {
		if s[i] < 0x20 || s[i] > 0x7e {
			return false
		}
	}
	return !strings.HasPrefix(s, base64Open) || !strings.HasSuffix(s, base64Close)
}

// NameMember is the member of params that the Mcp-Name header repeats; "" for
// methods that have none (2026-07-28, basic/transports, "Standard headers").
func NameMember(method string) string {
	switch method {
	case "tools/call", "prompts/get":
		return "name"
	case "resources/read":
		return "uri"
	case "tasks/get", "tasks/update", "tasks/cancel": // of the tasks extension
		return "taskId"
	}
	return ""
}

// SetRequestHeaders sets the headers that the version asks for on a request
// that carries one message. Version "" is before negotiation: none are set.
// Method is empty for responses, name for methods that have none.
func SetRequestHeaders(h http.Header, version, session, method, name string) {
	if version != "" {
		h.Set(HeaderProtocolVersion, version)
	}
	if session != "" {
		h.Set(HeaderSessionID, session)
	}
	if !Modern(version) || method == "" {
		return
	}
	h.Set(HeaderMethod, method)
	if name != "" {
		h.Set(HeaderName, EncodeHeaderValue(name))
	}
}
