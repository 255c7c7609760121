package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/http/httptrace"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/mcp-portal/mcp-portal/wire"
)

// relayError is why a message got no answer of the portal; the text says
// whether it may have been sent and what to do.
type relayError struct {
	text string
	gone bool // the portal does not know the session: the message was not looked at
	wait time.Duration
	sent bool
}

func (e *relayError) Error() string { return e.text }

// repeatable are requests that only read: one that may have been lost on its
// way is sent once more.
var repeatable = map[string]bool{
	"ping": true, "server/discover": true, "tools/list": true, "prompts/list": true, "prompts/get": true, "resources/list": true,
	"resources/templates/list": true, "resources/read": true, "completion/complete": true, "logging/setLevel": true,
}

// exchange posts one message and returns the answer to a request. What the
// portal says before it goes to the client at once. What certainly was not
// looked at is sent again.
func (r *relay) exchange(ctx context.Context, m wire.Message) (json.RawMessage, error) {
	modern := versionOf(m) != ""
	if !modern {
		if err := r.session.ready(ctx); err != nil {
			return nil, err
		}
	}
	deadline := time.Now().Add(r.patience())
	renewed, repeated := false, false
	for pause := 100 * time.Millisecond; ; pause = min(2*pause, 2*time.Second) {
		id, version, gen := "", versionOf(m), 0
		if !modern {
			id, version, gen = r.session.current()
		}
		raw, err := r.post(ctx, m, version, id)
		var e *relayError
		if err == nil || !errors.As(err, &e) || ctx.Err() != nil {
			return raw, err
		}
		switch {
		case e.gone && !renewed:
			renewed = true
			if err := r.renew(ctx, gen); err != nil {
				return nil, err
			}
			continue
		case e.sent && !repeated && repeatable[m.Method]:
			repeated = true
		case e.sent || e.gone || e.wait == 0:
			return nil, err
		}
		wait := max(pause, e.wait)
		if time.Now().Add(wait).After(deadline) {
			return nil, err
		}
		r.log.Info("trying again", "method", m.Method, "in", wait, "because", e.text)
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

func (r *relay) patience() time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.met {
		return relayPatience
	}
	return relayFirst
}

// post sends one message once.
func (r *relay) post(ctx context.Context, m wire.Message, version, session string) (json.RawMessage, error) {
	resp, err := r.open(ctx, m, version, session)
	if err != nil {
		return answerOf(err)
	}
	defer resp.Body.Close()
	return r.receive(ctx, resp, m)
}

// open sends one message and returns the response if its status is a success.
// The request of a 2025 message, and the body of its response, outlive ctx for a
// moment when the client cancels, see keep.
func (r *relay) open(ctx context.Context, m wire.Message, version, session string) (*http.Response, error) {
	if wire.Modern(version) || !m.IsRequest() || m.Method == "initialize" {
		return r.send(ctx, m, version, session, &atomic.Bool{})
	}
	var connected atomic.Bool
	k := r.keep(ctx, version, session, connected.Load)
	resp, err := r.send(k.ctx, m, version, session, &connected)
	if err != nil {
		k.end()
		return nil, err
	}
	k.body(resp)
	return resp, nil
}

// send is open for one attempt. connected is set once the message may have left.
func (r *relay) send(ctx context.Context, m wire.Message, version, session string, connected *atomic.Bool) (*http.Response, error) {
	trace := httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{GotConn: func(httptrace.GotConnInfo) { connected.Store(true) }})
	req, err := http.NewRequestWithContext(trace, http.MethodPost, r.address, bytes.NewReader(m.Bytes()))
	if err != nil {
		return nil, &relayError{text: fmt.Sprintf("make a request to %s: %v", r.address, err)}
	}
	req.Header.Set("Content-Type", wire.TypeJSON)
	req.Header.Set("Accept", wire.TypeJSON+", "+wire.TypeEventStream)
	name := ""
	if key := wire.NameMember(m.Method); key != "" {
		if o, err := wire.ParseObject(m.Params); err == nil {
			name = o.String(key)
		}
	}
	wire.SetRequestHeaders(req.Header, version, session, m.Method, name)
	r.setHeaders(req.Header, version, name, m)
	resp, err := r.http.Do(req)
	if err != nil {
		return nil, r.unreachable(err, connected.Load())
	}
	r.mu.Lock()
	r.met = true
	r.mu.Unlock()
	if resp.StatusCode/100 == 2 {
		return resp, nil
	}
	defer resp.Body.Close()
	return nil, r.refused(resp, m, session)
}

func (r *relay) unreachable(err error, connected bool) error {
	if connected {
		return &relayError{sent: true, text: fmt.Sprintf("outcome unknown: the connection to the portal at %s broke before it answered (%v). Look whether the call was done before you repeat it", r.address, cause(err))}
	}
	return &relayError{wait: time.Millisecond, text: fmt.Sprintf("no portal answers at %s (%v), nothing was sent: is it running, and is the address right? mcp-portal stdio takes it from --url or MCP_PORTAL_URL", r.address, cause(err))}
}

// cause leaves method and address out, which the messages have already.
func cause(err error) error {
	for {
		u := errors.Unwrap(err)
		if u == nil || !strings.Contains(err.Error(), "http") {
			return err
		}
		err = u
	}
}

// answered is a refusal of the portal in JSON-RPC: it goes to the client as it
// is.
type answered struct{ raw json.RawMessage }

func (a *answered) Error() string { return "the portal answered an error: " + string(a.raw) }

// answerOf is the answer that an error stands for, or the error.
func answerOf(err error) (json.RawMessage, error) {
	var a *answered
	if errors.As(err, &a) {
		return a.raw, nil
	}
	return nil, err
}

// refused turns a response that is not a success into what the client is told.
func (r *relay) refused(resp *http.Response, m wire.Message, session string) error {
	body, _ := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
	msg, bad := wire.ParseMessage(body)
	rpc := bad == nil && msg.Error != nil
	after, _ := strconv.Atoi(resp.Header.Get("Retry-After"))
	switch {
	case resp.StatusCode == http.StatusUnauthorized || resp.StatusCode == http.StatusForbidden && !rpc:
		return &relayError{text: r.noEntry(resp.StatusCode, body)}
	case resp.StatusCode == http.StatusNotFound && session != "":
		return &relayError{gone: true, text: fmt.Sprintf("the portal at %s does not know this session and a new one did not help either: %s", r.address, excerpt(body))}
	case rpc && after > 0:
		// The portal refuses so before it looks at a message.
		return &relayError{wait: time.Duration(min(after, 5)) * time.Second, text: fmt.Sprintf("the portal at %s cannot take this now: %s", r.address, msg.Error.Message)}
	case rpc && m.IsRequest():
		if msg.ID == nil {
			body = wire.Message{ID: m.ID, Error: msg.Error}.Bytes()
		}
		return &answered{body}
	case resp.StatusCode/100 == 3:
		return &relayError{text: fmt.Sprintf("%s redirects to %q: give that address to mcp-portal stdio", r.address, resp.Header.Get("Location"))}
	case resp.StatusCode/100 == 5:
		return &relayError{sent: true, text: fmt.Sprintf("outcome unknown: what stands before the portal at %s answered HTTP %d (%s). Look whether the call was done before you repeat it", r.address, resp.StatusCode, excerpt(body))}
	}
	return &relayError{text: fmt.Sprintf("%s answered HTTP %d (%s): is it the address of a portal's MCP endpoint, which ends in /mcp?", r.address, resp.StatusCode, excerpt(body))}
}

// noEntry explains 401 and 403 to somebody who has to do something about it.
func (r *relay) noEntry(status int, body []byte) string {
	o, _ := wire.ParseObject(body)
	why, next := o.String("error_description"), o.String("next_step")
	if why == "" {
		why = excerpt(body)
	}
	switch {
	case status == http.StatusUnauthorized && !r.hasKey:
		return fmt.Sprintf("the portal at %s wants a token. Set MCP_PORTAL_TOKEN where your client starts this program (its \"env\"), or give --token. A service token is made by the portal's admin with: mcp-portal token <id>", r.address)
	case status == http.StatusUnauthorized:
		return fmt.Sprintf("the portal at %s refuses the token (%s). %s. Set a valid one as MCP_PORTAL_TOKEN where your client starts this program; the portal's admin makes one with: mcp-portal token <id>", r.address, why, strings.TrimSuffix(next, "."))
	}
	return strings.TrimSpace(fmt.Sprintf("the portal at %s does not let this token in (%s). %s", r.address, why, next))
}

// receive reads the answer to one message.
// What comes before it is the client's, unless it has cancelled.
func (r *relay) receive(ctx context.Context, resp *http.Response, m wire.Message) (json.RawMessage, error) {
	if !m.IsRequest() {
		_, _ = io.Copy(io.Discard, io.LimitReader(resp.Body, 64<<10))
		return nil, nil
	}
	lost := func(format string, args ...any) error {
		return &relayError{sent: true, text: "outcome unknown: " + fmt.Sprintf(format, args...) + ". Look whether the call was done before you repeat it"}
	}
	switch ct := mediaType(resp); ct {
	case wire.TypeJSON:
		body, err := io.ReadAll(io.LimitReader(resp.Body, relayMessage+1))
		switch {
		case err != nil:
			return nil, lost("the answer of the portal at %s broke off (%v)", r.address, err)
		case len(body) > relayMessage:
			return nil, lost("the answer of the portal is larger than %d bytes", relayMessage)
		}
		msg, err := wire.ParseMessage(body)
		if err != nil || !msg.IsResponse() || !bytes.Equal(msg.ID, m.ID) {
			return nil, lost("%s did not answer with the response to this request (%s)", r.address, excerpt(body))
		}
		return body, nil
	case wire.TypeEventStream:
		raw, err := r.events(resp.Body, m.ID, func(wire.Event, wire.Message) bool { return ctx.Err() == nil })
		if err != nil {
			return nil, lost("the answer of the portal at %s broke off (%v)", r.address, err)
		}
		return raw, nil
	default:
		return nil, lost("%s answered HTTP %d with content type %q and not in JSON-RPC: is it the address of a portal's MCP endpoint, which ends in /mcp?", r.address, resp.StatusCode, ct)
	}
}

func mediaType(resp *http.Response) string {
	ct, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	return ct
}

// events passes the messages of a stream to the client until the response to
// id; with a nil id until the stream ends. seen is told of every event and may
// keep one from the client by answering false.
func (r *relay) events(body io.Reader, id json.RawMessage, seen func(wire.Event, wire.Message) bool) (json.RawMessage, error) {
	er := wire.NewEventReader(body, relayMessage)
	for {
		ev, err := er.Next()
		if err != nil {
			if err == io.EOF && id != nil {
				err = errors.New("it ended without the result")
			}
			return nil, err
		}
		if len(ev.Data) == 0 {
			if seen != nil {
				seen(ev, wire.Message{})
			}
			continue
		}
		msg, err := wire.ParseMessage(ev.Data)
		switch {
		case err != nil:
			r.log.Warn("an event of the portal is not JSON-RPC and was left out", "event", excerpt(ev.Data))
		case msg.IsResponse() && id != nil && bytes.Equal(msg.ID, id):
			return ev.Data, nil
		case msg.IsResponse():
			r.log.Warn("an answer of the portal to another request was left out", "id", excerpt(msg.ID))
		case seen == nil || seen(ev, msg):
			r.write(ev.Data)
		}
	}
}

func excerpt(b []byte) string {
	s := strings.Join(strings.Fields(strings.ToValidUTF8(string(b[:min(len(b), 300)]), "")), " ")
	if s == "" {
		return "without a text"
	}
	return s
}
