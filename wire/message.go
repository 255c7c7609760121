package wire

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"unicode/utf8"
)

// Message is one JSON-RPC 2.0 message. Parts are the exact bytes received, as
// far as those are UTF-8.
type Message struct {
	ID     json.RawMessage // string or number; nil: a notification
	Method string          // empty: a response
	Params json.RawMessage
	Result json.RawMessage
	Error  *Error
}

// Error is a JSON-RPC 2.0 error object (section 5.1), data kept raw.
type Error struct {
	Code    int             `json:"code"`
	Message string          `json:"message"`
	Data    json.RawMessage `json:"data,omitempty"`
}

func (e *Error) Error() string { return fmt.Sprintf("%s (code %d)", e.Message, e.Code) }

// Error codes of JSON-RPC 2.0 and of MCP.
const (
	CodeParse              = -32700
	CodeInvalidRequest     = -32600
	CodeMethodNotFound     = -32601
	CodeInvalidParams      = -32602
	CodeInternal           = -32603
	CodeResourceNotFound   = -32002 // 2025 revisions
	CodeHeaderMismatch     = -32020 // 2026-07-28
	CodeMissingCapability  = -32021 // 2026-07-28
	CodeUnsupportedVersion = -32022 // 2026-07-28
	CodeURLElicitation     = -32042 // 2025-11-25
)

// Errorf makes an Error with a formatted message.
func Errorf(code int, format string, args ...any) *Error {
	return &Error{Code: code, Message: fmt.Sprintf(format, args...)}
}

// ParseMessage reads one JSON-RPC message, made readable by Readable. Batches
// (2025-03-26) are refused here; see IsBatch.
func ParseMessage(b []byte) (Message, error) {
	var m Message
	if b = Readable(b); !json.Valid(b) {
		return m, Errorf(CodeParse, "parse error: the body is not valid JSON")
	}
	o, err := SplitObject(b)
	if err != nil {
		return m, Errorf(CodeInvalidRequest, "invalid request: the message is not a JSON object")
	}
	if o.String("jsonrpc") != "2.0" {
		return m, Errorf(CodeInvalidRequest, `invalid request: "jsonrpc" is not "2.0"`)
	}
	if id := o.Get("id"); id != nil && !bytes.Equal(id, []byte("null")) {
		if id[0] != '"' && id[0] != '-' && (id[0] < '0' || id[0] > '9') {
			return m, Errorf(CodeInvalidRequest, `invalid request: "id" is neither string nor number`)
		}
		m.ID = id
	}
	if v := o.Get("method"); v != nil {
		if o.Get("id") != nil && m.ID == nil {
			return m, Errorf(CodeInvalidRequest, `invalid request: "id" must not be null (leave it out for a notification)`)
		}
		if m.Method = o.String("method"); m.Method == "" {
			return m, Errorf(CodeInvalidRequest, `invalid request: "method" is not a string`)
		}
		m.Params = o.Get("params")
		if p := bytes.TrimLeft(m.Params, " \t\r\n"); len(p) > 0 && p[0] != '{' && p[0] != '[' && string(p) != "null" {
			return m, Errorf(CodeInvalidRequest, `invalid request: "params" is not an object`)
		}
		return m, nil
	}
	m.Result = o.Get("result")
	if e := o.Get("error"); e != nil && !bytes.Equal(e, []byte("null")) {
		m.Error = &Error{}
		if err := json.Unmarshal(e, m.Error); err != nil {
			return m, Errorf(CodeInvalidRequest, `invalid response: malformed "error"`)
		}
	}
	if m.Result == nil && m.Error == nil {
		return m, Errorf(CodeInvalidRequest, `invalid request: neither "method" nor "result" nor "error"`)
	}
	return m, nil
}

// byteOrderMark may stand before a JSON text (RFC 8259, section 8.1).
var byteOrderMark = []byte("\ufeff")

// Readable gives bytes that every parser takes for a text: without a byte order
// mark, and with U+FFFD for what is no UTF-8 (RFC 8259, section 8.1) and for half
// a surrogate pair. encoding/json takes such bytes, but most programs do not, and
// in a list or on a connection that carries more than this message they lose all
// of it.
func Readable(b []byte) []byte {
	b = pairUp(bytes.TrimPrefix(b, byteOrderMark))
	if utf8.Valid(b) {
		return b
	}
	return bytes.ToValidUTF8(b, []byte("\ufffd"))
}

// IsBatch reports whether the bytes are a JSON array.
func IsBatch(b []byte) bool {
	b = bytes.TrimLeft(bytes.TrimPrefix(b, byteOrderMark), " \t\r\n")
	return len(b) > 0 && b[0] == '['
}

// SplitBatch returns the members of a batch (2025-03-26 and before), or the
// bytes themselves when they are not an array. An array that is not valid JSON
// or empty is an error.
func SplitBatch(b []byte) ([]json.RawMessage, error) {
	if !IsBatch(b) {
		return []json.RawMessage{b}, nil
	}
	var parts []json.RawMessage
	if err := json.Unmarshal(Readable(b), &parts); err != nil {
		return nil, Errorf(CodeParse, "parse error: the batch is not valid JSON")
	}
	if len(parts) == 0 {
		return nil, Errorf(CodeInvalidRequest, "invalid request: empty batch")
	}
	return parts, nil
}

// IsRequest reports whether an answer is expected.
func (m Message) IsRequest() bool { return m.Method != "" && m.ID != nil }

// IsNotification reports whether it is a notification.
func (m Message) IsNotification() bool { return m.Method != "" && m.ID == nil }

// IsResponse reports whether it answers a request.
func (m Message) IsResponse() bool { return m.Method == "" }

// Bytes is the message on the wire.
func (m Message) Bytes() []byte {
	b := make([]byte, 0, len(m.Params)+len(m.Result)+len(m.Method)+64)
	b = append(b, `{"jsonrpc":"2.0"`...)
	if m.ID != nil {
		b = append(append(b, `,"id":`...), m.ID...)
	} else if m.IsResponse() {
		b = append(b, `,"id":null`...)
	}
	switch {
	case m.Method != "":
		b = append(append(b, `,"method":`...), Quote(m.Method)...)
		if m.Params != nil {
			b = append(append(b, `,"params":`...), m.Params...)
		}
	case m.Error != nil:
		b = append(append(b, `,"error":`...), Encode(m.Error)...)
	default:
		b = append(append(b, `,"result":`...), m.Result...)
	}
	return append(b, '}')
}

// AsError finds a JSON-RPC error in a chain.
func AsError(err error) (*Error, bool) {
	var e *Error
	ok := errors.As(err, &e)
	return e, ok
}
