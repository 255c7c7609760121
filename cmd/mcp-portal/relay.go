package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/mcp-portal/mcp-portal/registry"
	"github.com/mcp-portal/mcp-portal/wire"
)

const (
	relayLine    = 64 << 20  // longest message from the client
	relayMessage = 256 << 20 // longest message from the portal
	relayAtOnce  = 1000      // requests of the client under way

	// What is still under way when standard input ends may finish for so long.
	relayGrace = 10 * time.Second
	// A portal that restarts, or is busy, is tried again for so long; one that
	// never answered only for a moment.
	relayPatience = 15 * time.Second
	relayFirst    = 2 * time.Second
)

// relay passes JSON-RPC messages between a client on standard input and output
// and the MCP endpoint of a portal. It keeps every byte and decides nothing:
// messages of the 2025 revisions travel in one session, those of 2026-07-28
// each for itself.
type relay struct {
	address string // of the endpoint, with its query
	hasKey  bool   // a token is sent
	http    *http.Client
	log     *slog.Logger
	grace   time.Duration
	life    context.Context // ends with run

	out struct {
		sync.Mutex
		w      io.Writer
		failed chan struct{} // closed when nobody reads any more
		broken bool
	}
	notes chan wire.Message // to the portal, in order

	mu      sync.Mutex
	pending map[string]*pending               // requests of the client by id
	telling int                               // other messages of the client on their way
	met     bool                              // the portal has answered
	headers map[string][]registry.ParamHeader // arguments that travel in headers, by tool

	session legacySession
}

// pending is a request of the client that is not answered yet.
type pending struct {
	cancel    context.CancelCauseFunc
	cancelled bool // by the client: it wants no answer
}

func newRelay(address string, hasKey bool, via http.RoundTripper, out io.Writer, log *slog.Logger) *relay {
	r := &relay{address: address, hasKey: hasKey, log: log, grace: relayGrace, notes: make(chan wire.Message, 100), pending: map[string]*pending{},
		http: &http.Client{Transport: via, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}}
	r.out.w, r.out.failed = out, make(chan struct{})
	return r
}

// run relays until the input ends, the output is closed or ctx ends, and then
// ends the session.
func (r *relay) run(ctx context.Context, in io.Reader) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	r.life = ctx
	var work sync.WaitGroup
	work.Go(func() { r.sendNotes(ctx) })
	ended := make(chan error, 1)
	go func() { ended <- r.read(ctx, in, &work) }() // a read cannot be interrupted: left behind when ctx ends
	var err error
	select {
	case err = <-ended:
		r.waitPending(ctx)
	case <-r.out.failed:
	case <-ctx.Done():
	}
	cancel()
	done := make(chan struct{})
	go func() { work.Wait(); close(done) }()
	select {
	case <-done:
	case <-time.After(3 * time.Second):
	}
	r.endSession()
	return err
}

// waitPending lets requests finish whose answers somebody may still read, and
// what else the client has said arrive. Streams that only end with their client are not among them.
func (r *relay) waitPending(ctx context.Context) {
	deadline := time.After(r.grace)
	for {
		r.mu.Lock()
		n := len(r.pending) + r.telling
		r.mu.Unlock()
		if n == 0 {
			return
		}
		select {
		case <-time.After(10 * time.Millisecond):
		case <-deadline:
			return
		case <-r.out.failed:
			return
		case <-ctx.Done():
			return
		}
	}
}

// read takes messages of the client until the input ends.
func (r *relay) read(ctx context.Context, in io.Reader, work *sync.WaitGroup) error {
	br := bufio.NewReaderSize(in, 64<<10)
	for {
		line, err := readLine(br, relayLine)
		switch {
		case errors.Is(err, wire.ErrTooLarge):
			r.refuse(nil, wire.CodeInvalidRequest, fmt.Sprintf("a message is longer than %d bytes", relayLine))
			continue
		case err != nil && !errors.Is(err, io.EOF):
			return fmt.Errorf("read standard input: %w", err)
		}
		if line = bytes.TrimSpace(line); len(line) > 0 {
			r.take(ctx, line, work)
		}
		if err != nil || ctx.Err() != nil {
			return nil
		}
	}
}

// readLine reads one line without bound on the buffer's size but with one on
// the line's: what is beyond is skipped to its end.
func readLine(br *bufio.Reader, max int) ([]byte, error) {
	var out []byte
	over := false
	for {
		part, err := br.ReadSlice('\n')
		if !over {
			out = append(out, part...)
		}
		if len(out) > max {
			over, out = true, nil
		}
		if errors.Is(err, bufio.ErrBufferFull) {
			continue
		}
		if over && (err == nil || errors.Is(err, io.EOF)) {
			return nil, wire.ErrTooLarge
		}
		return out, err
	}
}

// take passes one message of the client on.
func (r *relay) take(ctx context.Context, line []byte, work *sync.WaitGroup) {
	if !utf8.Valid(line) {
		r.refuse(nil, wire.CodeParse, "parse error: the message is not UTF-8")
		return
	}
	if wire.IsBatch(line) {
		r.refuse(nil, wire.CodeInvalidRequest, "batches are not supported: send each JSON-RPC message on a line of its own")
		return
	}
	m, err := wire.ParseMessage(line)
	if err != nil {
		e, ok := wire.AsError(err)
		if !ok {
			e = wire.Errorf(wire.CodeParse, "%v", err)
		}
		r.refuse(m.ID, e.Code, e.Message)
		return
	}
	switch {
	case m.IsResponse():
		r.tells(1)
		work.Go(func() { r.answer(ctx, m) })
	case m.Method == "notifications/cancelled":
		r.cancel(m)
	case m.IsNotification():
		r.queue(ctx, m)
	default:
		r.begin(ctx, m, work)
	}
}

// begin starts a request of the client.
func (r *relay) begin(ctx context.Context, m wire.Message, work *sync.WaitGroup) {
	reqCtx, cancel := context.WithCancelCause(ctx)
	p := &pending{cancel: cancel}
	key := string(m.ID)
	r.mu.Lock()
	_, twice := r.pending[key]
	full := len(r.pending) >= relayAtOnce
	if !twice && !full {
		r.pending[key] = p
	}
	r.mu.Unlock()
	switch {
	case twice:
		cancel(nil)
		r.refuse(m.ID, wire.CodeInvalidRequest, "a request with this id is already under way: use another id")
		return
	case full:
		cancel(nil)
		r.refuse(m.ID, wire.CodeInternal, fmt.Sprintf("%d requests are already under way: wait for some to end", relayAtOnce))
		return
	}
	if m.Method == "initialize" {
		r.session.begin()
	}
	work.Go(func() {
		defer cancel(nil)
		raw, err := r.serve(reqCtx, m)
		r.mu.Lock()
		delete(r.pending, key)
		quiet := p.cancelled
		r.mu.Unlock()
		switch {
		case quiet || err != nil && ctx.Err() != nil:
		case err != nil:
			var e *relayError
			if !errors.As(err, &e) {
				e = &relayError{text: err.Error()}
			}
			r.log.Warn("a request failed", "method", m.Method, "error", e.text)
			r.refuse(m.ID, wire.CodeInternal, e.text)
		default:
			r.write(raw)
		}
	})
}

// serve gets the answer of the portal to one request of the client.
func (r *relay) serve(ctx context.Context, m wire.Message) (json.RawMessage, error) {
	switch {
	case m.Method == "initialize" && versionOf(m) == "":
		return r.initialize(ctx, m)
	case m.Method == "subscriptions/listen":
		return r.listen(ctx, m)
	}
	raw, err := r.exchange(ctx, m)
	if err != nil {
		return nil, err
	}
	if versionOf(m) == "" {
		r.session.remember(m, raw)
		return raw, nil
	}
	if m.Method == "tools/list" {
		r.learnHeaders(raw)
	}
	if m.Method == "tools/call" && lacksHeader(raw) && r.listHeaders(ctx, m) {
		return r.exchange(ctx, m)
	}
	return raw, nil
}

// cancel ends a request of the client, here and at the portal.
func (r *relay) cancel(m wire.Message) {
	o, err := wire.ParseObject(m.Params)
	if err != nil {
		return
	}
	r.mu.Lock()
	p := r.pending[string(o.Get("requestId"))]
	if p != nil {
		p.cancelled = true
	}
	r.mu.Unlock()
	if p == nil {
		return // answered meanwhile
	}
	p.cancel(&errGivenUp{m}) // closes the request: in both eras, in 2025 not without a word
}

// tells counts messages of the client on their way that are no requests.
func (r *relay) tells(n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.telling += n
}

// queue sends a notification after those before it.
func (r *relay) queue(ctx context.Context, m wire.Message) {
	r.tells(1)
	select {
	case r.notes <- m:
	case <-ctx.Done():
	}
}

func (r *relay) sendNotes(ctx context.Context) {
	for {
		select {
		case m := <-r.notes:
			if _, err := r.exchange(ctx, m); err != nil && ctx.Err() == nil {
				r.log.Warn("a notification of the client did not reach the portal", "method", m.Method, "error", err)
			}
			r.tells(-1)
		case <-ctx.Done():
			return
		}
	}
}

// answer passes the client's answer to a question on.
func (r *relay) answer(ctx context.Context, m wire.Message) {
	defer r.tells(-1)
	if _, err := r.exchange(ctx, m); err != nil && ctx.Err() == nil {
		r.log.Warn("an answer of the client did not reach the portal", "error", err)
	}
}

// write puts one message on a line of standard output. Line breaks of JSON can
// only stand between tokens, where a blank means the same.
func (r *relay) write(msg []byte) {
	line := make([]byte, 0, len(msg)+1)
	for _, c := range wire.Readable(msg) {
		if c == '\n' || c == '\r' {
			c = ' '
		}
		line = append(line, c)
	}
	r.out.Lock()
	defer r.out.Unlock()
	if r.out.broken {
		return
	}
	if _, err := r.out.w.Write(append(line, '\n')); err != nil {
		r.log.Warn("the client does not read any more", "error", err)
		r.out.broken = true
		close(r.out.failed)
	}
}

func (r *relay) refuse(id json.RawMessage, code int, text string) {
	r.write(wire.Message{ID: id, Error: wire.Errorf(code, "%s", text)}.Bytes())
}

// versionOf is the protocol version that a message names in its _meta, as all
// requests since 2026-07-28 do; "" for those of the 2025 revisions.
func versionOf(m wire.Message) string {
	v := wire.Meta(m.Params, wire.MetaProtocolVersion)
	var s string
	if v == nil || json.Unmarshal(v, &s) != nil {
		return ""
	}
	return s
}
