package gateway

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/mcp-portal/mcp-portal/auth"
	"github.com/mcp-portal/mcp-portal/wire"
)

// post serves one JSON-RPC message of either era.
func (g *Gateway) post(w http.ResponseWriter, r *http.Request) {
	who, err := g.opt.Auth.Authenticate(r)
	if err != nil {
		g.opt.Auth.Challenge(w, r, err)
		return
	}
	set := g.settings()
	if ct := r.Header.Get("Content-Type"); ct != "" {
		if mt, _, err := mime.ParseMediaType(ct); err != nil || (mt != "application/json" && !strings.HasSuffix(mt, "+json")) {
			fail(w, http.StatusUnsupportedMediaType, nil, wire.Errorf(wire.CodeInvalidRequest, "the body must be application/json, not %s", bounded(ct, 80)))
			return
		}
	}
	load, err := g.load.receive(r.Context(), who.ID, r.ContentLength)
	if err != nil {
		tooBusy(w, nil, err)
		return
	}
	defer load.leave()
	// A client that stalls while sending must not hold the connection.
	control := http.NewResponseController(w)
	_ = control.SetReadDeadline(g.now().Add(time.Minute))
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, set.cfg.Limits.Body))
	if err != nil {
		var tooLarge *http.MaxBytesError
		if errors.As(err, &tooLarge) {
			fail(w, http.StatusRequestEntityTooLarge, nil, wire.Errorf(wire.CodeInvalidRequest, "the request is larger than %d bytes (limits.body): send less in one call", tooLarge.Limit))
			return
		}
		fail(w, http.StatusRequestTimeout, nil, wire.Errorf(wire.CodeInvalidRequest, "the request was not received in time"))
		return
	}
	_ = control.SetReadDeadline(time.Time{})
	load.received(int64(len(body)))
	if !utf8.Valid(body) {
		// Its servers would each read something else, or nothing at all.
		fail(w, http.StatusBadRequest, nil, wire.Errorf(wire.CodeParse, "parse error: the body is not UTF-8"))
		return
	}
	if wire.IsBatch(body) {
		fail(w, http.StatusBadRequest, nil, wire.Errorf(wire.CodeInvalidRequest, "batches are not supported: send each JSON-RPC message in a POST of its own"))
		return
	}
	msg, err := wire.ParseMessage(body)
	if err != nil {
		e, ok := wire.AsError(err)
		if !ok {
			e = wire.Errorf(wire.CodeParse, "%v", err)
		}
		fail(w, http.StatusBadRequest, nil, e)
		return
	}
	if msg.IsRequest() {
		if err := load.request(set.cfg.Limits.CallsPerUser); err != nil {
			tooBusy(w, msg.ID, err)
			return
		}
	}
	req := &request{leave: load.leave, set: set, who: who, msg: msg, header: r.Header}
	if len(msg.Params) > 0 && string(msg.Params) != "null" {
		if req.params, err = wire.ParseObject(msg.Params); err != nil {
			fail(w, http.StatusBadRequest, msg.ID, wire.Errorf(wire.CodeInvalidParams, "params must be an object with named members"))
			return
		}
	}
	if req.mode, req.note, err = modeOf(r, set); err != nil {
		fail(w, http.StatusBadRequest, msg.ID, wire.Errorf(wire.CodeInvalidRequest, "%v", err))
		return
	}
	meta, _ := wire.ParseObject(req.params.Get("_meta"))
	if status, e := sentOnce(r.Header); e != nil {
		fail(w, status, msg.ID, e)
		return
	}
	if req.modern = wire.Modern(r.Header.Get(wire.HeaderProtocolVersion)) || meta.Get(wire.MetaProtocolVersion) != nil; req.modern {
		if status, e := req.readModern(meta); e != nil {
			fail(w, status, msg.ID, e)
			return
		}
	} else if status, e := g.readLegacy(r.Context(), req); e != nil {
		fail(w, status, msg.ID, e)
		return
	}
	switch {
	case msg.IsResponse():
		g.answer(w, r, req)
	case msg.IsNotification():
		g.notification(r.Context(), req)
		w.WriteHeader(http.StatusAccepted)
	default:
		if err := g.stepUp(req); err != nil {
			g.opt.Auth.Challenge(w, r, err)
			return
		}
		g.serve(w, r, req)
	}
}

// stepUp refuses a call of a tool or prompt that the person may use but the
// scopes of this token do not cover, with the scopes to ask for. What the
// person may not use stays unknown.
func (g *Gateway) stepUp(r *request) error {
	if r.who.Scope == nil || (r.msg.Method != "tools/call" && r.msg.Method != "prompts/get") {
		return nil
	}
	snap, name := g.opt.Registry.Snapshot(), r.params.String("name")
	server := ""
	if t := snap.Tool(name); t != nil && r.msg.Method == "tools/call" && (r.set.access.CanTool(unscoped(r.who), t.Server, t.Name)) {
		server = t.Server
	}
	if p := snap.Prompt(name); p != nil && r.msg.Method == "prompts/get" {
		server = p.Server
	}
	if server == "" || r.set.access.CanServer(r.who, server) || !r.set.access.CouldServer(r.who, server) {
		return nil
	}
	return auth.NeedScope(r.who, server)
}

// unscoped is a principal without the limits of its token's scopes.
func unscoped(p *auth.Principal) *auth.Principal {
	q := *p
	q.Scope = nil
	return &q
}

// tooBusy answers what cannot be taken now.
func tooBusy(w http.ResponseWriter, id json.RawMessage, err error) {
	w.Header().Set("Retry-After", "1")
	fail(w, http.StatusTooManyRequests, id, wire.Errorf(wire.CodeInternal, "%v", err))
}

// modeOf reads the mode from the URL. A query that cannot be read, or a
// misspelt parameter of ours, is an error and not the ordinary mode.
func modeOf(r *http.Request, set *settings) (Mode, string, error) {
	q, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return "", "", fmt.Errorf("the query of the URL cannot be read: %w", err)
	}
	for k := range q {
		plain := strings.NewReplacer("-", "", "_", "", "s", "z").Replace(strings.ToLower(k))
		for _, own := range []string{"optimize_context", "codemode"} {
			if k != own && plain == strings.ReplaceAll(own, "_", "") {
				return "", "", fmt.Errorf("unknown parameter %q in the URL: write %s", bounded(k, 60), own)
			}
		}
	}
	return parseMode(q, set.cfg.Code.Mode)
}

// sentOnce refuses a header that says which protocol, session or request it is
// and is there more than once: of two, each on the way may read another. What
// 2026-07-28 alone has means nothing before it.
func sentOnce(h http.Header) (int, *wire.Error) {
	names, code := []string{wire.HeaderProtocolVersion, wire.HeaderSessionID}, wire.CodeInvalidRequest
	if slices.ContainsFunc(h.Values(wire.HeaderProtocolVersion), wire.Modern) {
		names, code = append(names, wire.HeaderMethod, wire.HeaderName), wire.CodeHeaderMismatch
	}
	for _, name := range names {
		if n := len(h.Values(name)); n > 1 {
			return http.StatusBadRequest, wire.Errorf(code, "the %s header is there %d times: send it once", name, n)
		}
	}
	return 0, nil
}

// readModern checks headers against the body, as 2026-07-28 demands
// (basic/transports, "Standard headers"), and takes what the hop says of the
// client.
func (r *request) readModern(meta wire.Object) (int, *wire.Error) {
	h := r.header.Get(wire.HeaderProtocolVersion)
	if h != "" && !wire.Supported(h) {
		return 400, unsupported(h)
	}
	v := meta.String(wire.MetaProtocolVersion)
	if r.msg.IsRequest() {
		switch {
		case h == "":
			return 400, wire.Errorf(wire.CodeHeaderMismatch, "the %s header is required with _meta %q", wire.HeaderProtocolVersion, wire.MetaProtocolVersion)
		case v == "":
			return 400, wire.Errorf(wire.CodeInvalidParams, "_meta %q is required with protocol version %s", wire.MetaProtocolVersion, bounded(h, 20))
		case h != v:
			return 400, wire.Errorf(wire.CodeHeaderMismatch, "the %s header says %q, _meta says %q: they must be equal", wire.HeaderProtocolVersion, bounded(h, 40), bounded(v, 40))
		}
	}
	r.version = h
	if h != wire.Version20260728 {
		return 400, unsupported(h)
	}
	if r.msg.Method != "" {
		if m := r.header.Get(wire.HeaderMethod); m == "" && r.msg.IsRequest() {
			return 400, wire.Errorf(wire.CodeHeaderMismatch, "the %s header is required: set it to %q", wire.HeaderMethod, r.msg.Method)
		} else if m != "" && m != r.msg.Method {
			return 400, wire.Errorf(wire.CodeHeaderMismatch, "the %s header says %q, the body says %q: they must be equal", wire.HeaderMethod, bounded(m, 60), r.msg.Method)
		}
	}
	if key := wire.NameMember(r.msg.Method); key != "" {
		got, err := wire.DecodeHeaderValue(r.header.Get(wire.HeaderName))
		want := r.params.String(key)
		switch {
		case err != nil:
			return 400, wire.Errorf(wire.CodeHeaderMismatch, "the %s header cannot be decoded: %v", wire.HeaderName, err)
		case r.header.Get(wire.HeaderName) == "" && key == "taskId": // asked of clients, not of servers
		case r.header.Get(wire.HeaderName) == "":
			return 400, wire.Errorf(wire.CodeHeaderMismatch, "the %s header is required for %s: set it to the %s of the request", wire.HeaderName, r.msg.Method, key)
		case got != want:
			return 400, wire.Errorf(wire.CodeHeaderMismatch, "the %s header says %q, the body says %q: they must be equal", wire.HeaderName, bounded(got, 80), bounded(want, 80))
		}
	}
	r.clientInfo = meta.Get(wire.MetaClientInfo)
	r.client = clientName(r.clientInfo)
	if r.caps = meta.Get(wire.MetaClientCapabilities); r.caps == nil && r.msg.IsRequest() {
		return 400, wire.Errorf(wire.CodeInvalidParams, "_meta %q is required with protocol version %s: send {} if there are none", wire.MetaClientCapabilities, h)
	}
	r.level = meta.String(wire.MetaLogLevel)
	r.grant = shortHash(r.who.ID) + ":" + shortHash(strings.SplitN(r.client, "/", 2)[0])
	return 0, nil
}

func unsupported(version string) *wire.Error {
	e := wire.Errorf(wire.CodeUnsupportedVersion, "protocol version %q is not supported here: use one of %s", bounded(version, 40), strings.Join(wire.SupportedVersions(), ", "))
	e.Data = wire.Encode(map[string]any{"supported": wire.SupportedVersions(), "requested": bounded(version, 40)})
	return e
}

// readLegacy finds the session of a 2025 message. Requests without a session
// are served as far as they need none.
func (g *Gateway) readLegacy(ctx context.Context, r *request) (int, *wire.Error) {
	v := r.header.Get(wire.HeaderProtocolVersion)
	if v != "" && !wire.Supported(v) {
		e := wire.Errorf(wire.CodeInvalidRequest, "protocol version %q in the %s header is not supported here: use one of %s", bounded(v, 40), wire.HeaderProtocolVersion, strings.Join(wire.SupportedVersions(), ", "))
		return 400, e
	}
	id := r.header.Get(wire.HeaderSessionID)
	if r.msg.Method == "initialize" {
		return 0, nil // a new session, whatever id the client still holds
	}
	if id == "" {
		if v == "" {
			v = wire.Version20250326 // the spec's assumption when the header is absent
		}
		r.version = v
		r.grant = shortHash(r.who.ID) + ":"
		return 0, nil
	}
	s, err := g.sessions.get(ctx, r.who.ID, id)
	if err != nil {
		if errors.Is(err, errSessionUnavailable) {
			return http.StatusServiceUnavailable, wire.Errorf(wire.CodeInternal, "%v", err)
		}
		g.recordRefused(ctx, r, "session", cmp.Or(r.msg.Method, "answer"))
		return http.StatusNotFound, wire.Errorf(wire.CodeInvalidRequest, "%v", err)
	}
	rec := g.sessions.record(s)
	r.sess, r.version, r.grant = s, rec.Version, s.key
	r.clientInfo, r.caps, r.level = rec.ClientInfo, rec.Capabilities, rec.Level
	r.client = clientName(rec.ClientInfo)
	return 0, nil
}

// serve answers one request.
func (g *Gateway) serve(w http.ResponseWriter, r *http.Request, req *request) {
	key := ""
	if req.sess != nil {
		key = req.sess.key + "\x00" + string(req.msg.ID)
	}
	ctx, end, err := g.calls.begin(r.Context(), key)
	if err != nil {
		status := http.StatusBadRequest
		if errors.Is(err, errClosing) {
			status = http.StatusServiceUnavailable
			w.Header().Set("Connection", "close")
		}
		fail(w, status, req.msg.ID, wire.Errorf(wire.CodeInvalidRequest, "%v", err))
		return
	}
	defer end()
	if req.msg.Method == "subscriptions/listen" && req.modern {
		req.leave() // an open stream is no load
		g.listen(ctx, w, req)
		return
	}
	req.stream = newStream(w, r)
	if req.msg.Method != "initialize" {
		req.stream.streamSoon()
	}
	defer func() {
		if v := recover(); v != nil {
			g.log.Error("a request failed inside the portal", "method", req.msg.Method, "panic", v, "stack", stack())
			req.stream.finish(wire.Message{ID: req.msg.ID, Error: wire.Errorf(wire.CodeInternal, "internal error of the portal; it was logged")}, http.StatusInternalServerError)
		}
	}()
	if m, err := wire.ParseObject(req.params.Get("_meta")); err == nil {
		req.progress = m.Get("progressToken")
	}
	if req.sess != nil && req.stream.sseOK {
		req.ask = g.askOn(req.stream, req)
	}
	req.view = g.newView(ctx, req.set, req.who, req.grant)
	result, e := g.dispatch(ctx, w, req)
	if errors.Is(context.Cause(ctx), errCancelled) && req.stream.end() {
		return // who cancels a request takes no answer (2025-11-25, basic/utilities/cancellation)
	}
	out := wire.Message{ID: req.msg.ID, Result: result, Error: e}
	status := http.StatusOK
	if e != nil {
		out.Result = nil
		if req.modern {
			status = modernStatus(e.Code)
		}
	} else if req.modern {
		out.Result = modernResult(req.msg.Method, result)
	}
	req.stream.finish(out, status)
}

// modernStatus is the HTTP status of a JSON-RPC error (2026-07-28,
// basic/transports).
func modernStatus(code int) int {
	switch code {
	case wire.CodeMethodNotFound:
		return http.StatusNotFound
	case wire.CodeInvalidParams, wire.CodeUnsupportedVersion, wire.CodeMissingCapability, wire.CodeHeaderMismatch:
		return http.StatusBadRequest
	}
	return http.StatusOK
}

// modernResult adds what 2026-07-28 requires of a result and a legacy server
// does not send. Every byte of the result stays.
func modernResult(method string, result json.RawMessage) json.RawMessage {
	o, err := wire.ParseObject(result)
	if err != nil {
		return result
	}
	add := func(key, value string) {
		if o.Get(key) == nil {
			if out, err := wire.Splice(result, key, json.RawMessage(value)); err == nil {
				result = out
			}
		}
	}
	add("resultType", `"complete"`)
	switch method {
	case "tools/list", "prompts/list", "resources/list", "resources/templates/list", "resources/read", "server/discover":
		add("ttlMs", "0")
		add("cacheScope", `"private"`)
	}
	return result
}

// notification takes a notification of the client.
func (g *Gateway) notification(ctx context.Context, r *request) {
	if r.msg.Method == "notifications/roots/list_changed" && r.sess != nil {
		g.rootsChanged(ctx, r)
		return
	}
	if r.msg.Method != "notifications/cancelled" || r.sess == nil {
		return // initialized, progress: nothing waits for them
	}
	key := r.sess.key + "\x00" + string(r.params.Get("requestId"))
	if g.calls.cancel(key, errCancelled) {
		return
	}
	if err := g.bus.tell(ctx, note{Kind: "cancel", Key: key}); err != nil {
		g.log.Warn("a cancellation could not be passed to the other replicas", "error", err)
	}
}

var errCancelled = errors.New("cancelled by the client")

// answer takes the client's answer to a question of ours.
func (g *Gateway) answer(w http.ResponseWriter, r *http.Request, req *request) {
	if req.sess == nil {
		fail(w, http.StatusBadRequest, nil, wire.Errorf(wire.CodeInvalidRequest, "an answer belongs to a session: send the %s header", wire.HeaderSessionID))
		return
	}
	if !g.answers.deliver(req.sess.key, req.msg) {
		n := note{Kind: "answer", Key: req.sess.key, Body: req.msg.Bytes()}
		if err := g.bus.tell(r.Context(), n); err != nil {
			fail(w, http.StatusServiceUnavailable, nil, wire.Errorf(wire.CodeInternal, "the answer could not be passed on, the store cannot be reached: send it again"))
			return
		}
	}
	w.WriteHeader(http.StatusAccepted)
}

// del ends a session.
func (g *Gateway) del(w http.ResponseWriter, r *http.Request) {
	who, s, ok := g.bySession(w, r)
	if !ok {
		return
	}
	if err := g.sessions.end(r.Context(), s.key); err != nil {
		fail(w, http.StatusServiceUnavailable, nil, wire.Errorf(wire.CodeInternal, "the session could not be ended, the store cannot be reached: try again"))
		return
	}
	g.sessionEnded(who.ID, s.key)
	g.tellEnded(who.ID, s.key)
	w.WriteHeader(http.StatusNoContent)
}

// tellEnded tells the other replicas that a session ended.
func (g *Gateway) tellEnded(user, key string) {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	if err := g.bus.tell(ctx, note{Kind: "ended", Key: key, Body: wire.Quote(user)}); err != nil {
		g.log.Warn("the other replicas could not be told that a session ended", "error", err)
	}
}

// sessionEnded drops what this replica holds of a session. What the session
// still does ends with it; its questions can no longer be answered.
func (g *Gateway) sessionEnded(user, key string) {
	g.sessions.forget(key)
	g.calls.cancelAll(key+"\x00", errors.New("the session was ended"))
	g.listeners.drop(key)
	g.opt.Upstreams.CloseSession(user, key)
}

// bySession authenticates and finds the session of a GET or DELETE.
func (g *Gateway) bySession(w http.ResponseWriter, r *http.Request) (*auth.Principal, *session, bool) {
	who, err := g.opt.Auth.Authenticate(r)
	if err != nil {
		g.opt.Auth.Challenge(w, r, err)
		return nil, nil, false
	}
	id := r.Header.Get(wire.HeaderSessionID)
	if id == "" {
		w.Header().Set("Allow", "POST")
		status, text := http.StatusMethodNotAllowed, fmt.Sprintf("%s needs the %s header of a 2025 session; MCP 2026-07-28 uses POST only", r.Method, wire.HeaderSessionID)
		if r.Method == http.MethodGet && strings.Contains(r.Header.Get("Accept"), "text/html") {
			text = "This is the MCP endpoint, for agents. Open " + g.baseURL() + "/ in the browser instead."
		}
		fail(w, status, nil, wire.Errorf(wire.CodeInvalidRequest, "%s", text))
		return nil, nil, false
	}
	s, err := g.sessions.get(r.Context(), who.ID, id)
	if err != nil {
		status := http.StatusNotFound
		if errors.Is(err, errSessionUnavailable) {
			status = http.StatusServiceUnavailable
		} else {
			g.recordRefused(r.Context(), &request{who: who}, "session", r.Method)
		}
		fail(w, status, nil, wire.Errorf(wire.CodeInvalidRequest, "%v", err))
		return nil, nil, false
	}
	return who, s, true
}

// fail answers with a JSON-RPC error before any stream has begun.
func fail(w http.ResponseWriter, status int, id json.RawMessage, e *wire.Error) {
	if status == http.StatusServiceUnavailable {
		w.Header().Set("Retry-After", "5")
	}
	writeJSON(w, status, wire.Message{ID: id, Error: e}.Bytes())
}
