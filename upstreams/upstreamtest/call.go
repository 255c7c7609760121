package upstreamtest

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"

	"github.com/mcp-portal/mcp-portal/wire"
)

// Call is one request as a handler of the fake server sees it. A handler
// answers with Result, Error or one of the ways to misbehave.
type Call struct {
	ID      json.RawMessage
	Method  string
	Params  json.RawMessage
	Header  http.Header
	Session string // Mcp-Session-Id of the request

	ctx context.Context
	s   *Server
	w   http.ResponseWriter

	mu        sync.Mutex
	streaming bool
	answered  bool
}

// Name is the tool's name in params.
func (c *Call) Name() string { return c.param("name") }

func (c *Call) param(key string) string {
	o, _ := wire.ParseObject(c.Params)
	return o.String(key)
}

// Arguments is the arguments member of params.
func (c *Call) Arguments() wire.Object {
	o, _ := wire.ParseObject(c.Params)
	a, _ := wire.ParseObject(o.Get("arguments"))
	return a
}

// Context ends when the client closed the request or the server went down.
func (c *Call) Context() context.Context { return c.ctx }

// Result answers with the exact bytes: as JSON, or as the last event when the
// call streams.
func (c *Call) Result(raw string) { c.finish(`"result":` + raw) }

// Begin answers initialize with the exact bytes, and a session.
func (c *Call) Begin(raw string) {
	c.s.begin(c)
	c.Result(raw)
}

// Text answers a tool call with one text.
func (c *Call) Text(s string) {
	c.Result(`{"content":[{"type":"text","text":` + string(wire.Quote(s)) + `}]}`)
}

// Error answers with a JSON-RPC error; data may be empty.
func (c *Call) Error(code int, message, data string) {
	if data != "" {
		data = `,"data":` + data
	}
	c.finish(fmt.Sprintf(`"error":{"code":%d,"message":%s%s}`, code, wire.Quote(message), data))
}

func (c *Call) finish(member string) {
	body := `{"jsonrpc":"2.0","id":` + string(c.ID) + `,` + member + `}`
	c.mu.Lock()
	streaming := c.streaming || c.s.opts.Stream
	c.mu.Unlock()
	if streaming {
		c.Event("", body)
		c.mark()
		return
	}
	c.Raw(http.StatusOK, wire.TypeJSON, body)
}

func (c *Call) mark() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.answered = true
}

// Coding makes the answer claim a Content-Encoding; before it begins.
func (c *Call) Coding(name string) { c.w.Header().Set("Content-Encoding", name) }

// Raw answers with any status, content type and body.
func (c *Call) Raw(status int, contentType, body string) {
	if contentType != "" {
		c.w.Header().Set("Content-Type", contentType)
	}
	c.w.WriteHeader(status)
	_, _ = io.WriteString(c.w, body)
	c.mark()
}

// Event sends one server-sent event on the call's own stream; id may be empty,
// data too (a priming event).
func (c *Call) Event(id, data string) {
	c.start()
	var b strings.Builder
	if id != "" {
		b.WriteString("id: " + id + "\n")
	}
	b.WriteString("data: " + data + "\n\n")
	c.Write(b.String())
}

// Write sends raw bytes on the call's own stream.
func (c *Call) Write(raw string) {
	c.start()
	c.mu.Lock()
	defer c.mu.Unlock()
	_, _ = io.WriteString(c.w, raw)
	_ = http.NewResponseController(c.w).Flush()
}

func (c *Call) start() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.streaming {
		return
	}
	c.streaming = true
	c.w.Header().Set("Content-Type", wire.TypeEventStream)
	c.w.WriteHeader(http.StatusOK)
}

// Notify sends a notification on the call's own stream.
func (c *Call) Notify(method, params string) {
	c.Event("", `{"jsonrpc":"2.0","method":"`+method+`","params":`+params+`}`)
}

// Progress sends a progress notification under the token that the call has.
func (c *Call) Progress(n int) {
	c.Notify("notifications/progress", `{"progressToken":`+string(c.Token())+`,"progress":`+strconv.Itoa(n)+`}`)
}

// Token is the progress token of the request.
func (c *Call) Token() json.RawMessage {
	return wire.Meta(c.Params, wire.MetaProgressToken)
}

// Ask puts a question to the client on the call's own stream and waits for the
// answer; on the session's standalone stream when standalone is set. It has no
// params when they are empty.
func (c *Call) Ask(method, params string, standalone bool) (wire.Message, error) {
	id, ch := c.s.question()
	if params != "" {
		params = `,"params":` + params
	}
	msg := `{"jsonrpc":"2.0","id":` + string(wire.Quote(id)) + `,"method":"` + method + `"` + params + `}`
	if standalone {
		c.s.push(c.Session, msg)
	} else {
		c.Event("", msg)
	}
	select {
	case m := <-ch:
		return m, nil
	case <-c.ctx.Done():
		return wire.Message{}, c.ctx.Err()
	}
}

// Drop closes the TCP connection without an answer.
func (c *Call) Drop() {
	c.mark()
	conn, _, err := http.NewResponseController(c.w).Hijack()
	if err != nil {
		return
	}
	if tcp, ok := conn.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0)
	}
	conn.Close()
}

// CutBody promises more bytes than it sends, then closes.
func (c *Call) CutBody(body string) {
	c.w.Header().Set("Content-Type", wire.TypeJSON)
	c.w.Header().Set("Content-Length", strconv.Itoa(len(body)+100))
	c.w.WriteHeader(http.StatusOK)
	_, _ = io.WriteString(c.w, body)
	_ = http.NewResponseController(c.w).Flush()
	c.mark()
	if conn, _, err := http.NewResponseController(c.w).Hijack(); err == nil {
		conn.Close()
	}
}

// Redirect answers 307 with the location.
func (c *Call) Redirect(to string) {
	c.w.Header().Set("Location", to)
	c.Raw(http.StatusTemporaryRedirect, "", "")
}
