package gateway

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/mcp-portal/mcp-portal/registry"
	"github.com/mcp-portal/mcp-portal/upstreams"
	"github.com/mcp-portal/mcp-portal/wire"
	"github.com/mcp-portal/mcp-portal/writeguard"
)

// dispatch answers one request with the bytes of its result.
func (g *Gateway) dispatch(ctx context.Context, w http.ResponseWriter, r *request) (json.RawMessage, *wire.Error) {
	if strings.HasSuffix(r.msg.Method, "/list") && r.params.Get("cursor") != nil {
		return nil, wire.Errorf(wire.CodeInvalidParams, "unknown cursor: this portal lists everything on one page")
	}
	if r.modern && slices.Contains(removed, r.msg.Method) {
		return nil, notOffered(r.msg.Method)
	}
	switch r.msg.Method {
	case "initialize":
		return g.initialize(ctx, w, r)
	case "server/discover":
		return g.discover(r)
	case "ping":
		return json.RawMessage("{}"), nil
	case "logging/setLevel":
		return g.setLevel(ctx, r)
	case "resources/subscribe", "resources/unsubscribe":
		return g.subscribe(ctx, r, r.msg.Method == "resources/subscribe")
	case "tools/list":
		return listed("tools", g.toolList(r.view, r.mode)), nil
	case "prompts/list":
		return listed("prompts", r.view.prompts()), nil
	case "resources/list":
		return listed("resources", r.view.resources()), nil
	case "resources/templates/list":
		return listed("resourceTemplates", r.view.templates()), nil
	case "tools/call":
		return g.toolsCall(ctx, r)
	case "tasks/get", "tasks/result", "tasks/update", "tasks/cancel":
		return g.taskMethod(ctx, r)
	case "tasks/list":
		return g.tasksList(ctx, r)
	case "prompts/get":
		return g.promptsGet(ctx, r)
	case "resources/read":
		return g.resourcesRead(ctx, r)
	case "completion/complete":
		return g.complete(ctx, r)
	}
	return nil, notOffered(r.msg.Method)
}

// removed are the methods of 2025 that 2026-07-28 does without (SEP-2575).
var removed = []string{"initialize", "ping", "logging/setLevel", "resources/subscribe", "resources/unsubscribe"}

func notOffered(method string) *wire.Error {
	return wire.Errorf(wire.CodeMethodNotFound, "method %q is not offered by this portal", bounded(method, 80))
}

// listed joins definitions into a list result without copying them apart.
func listed(member string, items []json.RawMessage) json.RawMessage {
	n := len(member) + 8
	for _, it := range items {
		n += len(it) + 1
	}
	b := make([]byte, 0, n)
	b = append(append(append(b, `{"`...), member...), `":[`...)
	for i, it := range items {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(b, it...)
	}
	return append(b, "]}"...)
}

// initialize opens a 2025 session.
func (g *Gateway) initialize(ctx context.Context, w http.ResponseWriter, r *request) (json.RawMessage, *wire.Error) {
	version := r.params.String("protocolVersion")
	if !slices.Contains(wire.LegacyVersions(), version) {
		// The handshake belongs to the 2025 era; its newest version is the
		// answer to anything newer, older or unknown.
		version = wire.Version20251125
	}
	rec := sessionRecord{User: r.who.ID, Version: version, ClientInfo: r.params.Get("clientInfo"), Capabilities: r.params.Get("capabilities")}
	if len(rec.ClientInfo)+len(rec.Capabilities) > 64<<10 {
		return nil, wire.Errorf(wire.CodeInvalidParams, "clientInfo and capabilities are larger than 64 KiB")
	}
	s := g.sessions.create(ctx, rec)
	w.Header().Set(wire.HeaderSessionID, s.id)
	r.version = version
	return g.about(r, wire.Object{{Key: "protocolVersion", Value: wire.Quote(version)}}), nil
}

// discover is the 2026-07-28 counterpart of initialize.
func (g *Gateway) discover(r *request) (json.RawMessage, *wire.Error) {
	return g.about(r, wire.Object{{Key: "supportedVersions", Value: wire.Encode(wire.SupportedVersions())}}), nil
}

// about adds what initialize and server/discover say alike.
func (g *Gateway) about(r *request, o wire.Object) json.RawMessage {
	info := wire.Encode(map[string]string{"name": "mcp-portal", "title": r.set.cfg.Name, "version": g.opt.Version})
	o = append(o, wire.Field{Key: "capabilities", Value: capabilities(r.view, r.modern)})
	if r.modern {
		o = append(o, wire.Field{Key: "_meta", Value: wire.Object{{Key: wire.MetaServerInfo, Value: info}}.Bytes()})
	}
	o = append(o, wire.Field{Key: "serverInfo", Value: info})
	return append(o, wire.Field{Key: "instructions", Value: wire.Quote(instructions(r.view, r.mode, r.note))}).Bytes()
}

// instructions tell a model how this portal is used in its mode.
func instructions(v *view, mode Mode, note string) string {
	var s string
	switch mode {
	case ModeTwoTools:
		s = "Find tools with portal_query_tools, then call them with portal_execute: one tool by name, or JavaScript that calls many and returns only what matters."
	case ModeMinimize:
		s = "Tools are listed by name only. Get parameters with portal_query_tools before the first call of a tool."
	case ModeCodemode:
		s = "Find tools with portal_codemode_search, then call them from code with portal_codemode_execute."
	case ModeCode:
		s = "All tools are called from JavaScript with portal_code; codemode.search(text) inside it finds them."
	default:
		s = "Tools are named <server>_<tool>. "
		if slices.ContainsFunc(v.servers(), func(s *registry.Server) bool { return s.Bare }) {
			s = "Tools have the names that their server gave them. "
		}
		s += "Switch servers you do not need off with portal_toggle_single_server to save context."
	}
	if servers := serverSentence(v, 600); servers != "" {
		s += " " + servers
	}
	if note != "" {
		s += " " + note
	}
	if mode == ModeAll {
		s += allNotes(v)
	}
	return s
}

// serverSentence names the connected servers within n bytes.
func serverSentence(v *view, n int) string {
	var ids []string
	for _, s := range v.servers() {
		ids = append(ids, s.ID)
	}
	if len(ids) == 0 {
		return "No servers are connected for you yet."
	}
	s := "Servers: " + strings.Join(ids, ", ") + "."
	for k := len(ids) - 1; len(s) > n && k > 0; k-- {
		s = fmt.Sprintf("Servers: %s and %d more.", strings.Join(ids[:k], ", "), len(ids)-k)
	}
	return s
}

func (g *Gateway) setLevel(ctx context.Context, r *request) (json.RawMessage, *wire.Error) {
	level := r.params.String("level")
	if wire.LogRank(level) < 0 {
		return nil, wire.Errorf(wire.CodeInvalidParams, "unknown log level %q: use one of %s", bounded(level, 40), strings.Join(wire.LogLevels(), ", "))
	}
	if r.sess != nil {
		g.sessions.update(ctx, r.sess, func(rec *sessionRecord) { rec.Level = level })
	}
	return json.RawMessage("{}"), nil
}

// passageOf is the way of a direct call.
func (g *Gateway) passageOf(r *request) *passage {
	return &passage{req: r, mode: writeguard.Direct, ask: r.ask, state: r.params.String("requestState"), responses: r.params.Get("inputResponses"),
		notify: func(method string, params json.RawMessage) {
			if method == "notifications/message" && !r.wantsLog(params) {
				return
			}
			r.stream.notify(method, params)
		}}
}

// wantsLog compares a log message with the level the client asked for. A
// client that asked for none gets none in the 2026-07-28 era, all before it.
func (r *request) wantsLog(params json.RawMessage) bool {
	if r.level == "" {
		return !r.modern
	}
	o, err := wire.ParseObject(params)
	if err != nil {
		return false
	}
	return wire.LogRank(o.String("level")) >= wire.LogRank(r.level)
}

// toolsCall calls a tool of the portal or of an upstream.
func (g *Gateway) toolsCall(ctx context.Context, r *request) (json.RawMessage, *wire.Error) {
	name := r.params.String("name")
	if name == "" {
		return nil, wire.Errorf(wire.CodeInvalidParams, "params.name is missing: it names the tool to call")
	}
	if own, ok := g.portalTool(r.mode, name); ok {
		result, e := own(ctx, r)
		if e != nil && e.Code == wire.CodeInvalidParams {
			// Wrong arguments are an error of the tool: those reach the model,
			// protocol errors often do not (2025-11-25, server/tools).
			return toolError(e.Message), nil
		}
		return result, e
	}
	t, ok := g.toolSoon(ctx, r, name)
	if !ok {
		g.recordRefused(ctx, r, "tools/call", name)
		return nil, g.unknownTool(r, name)
	}
	if r.modern {
		if e := checkHeaders(r.header, t.ParamHeaders, r.params.Get("arguments"), r.mode == ModeAll); e != nil {
			g.recordRefused(ctx, r, "tools/call", name)
			return nil, e
		}
	}
	return g.toolAnswer(r, g.passageOf(r), t, r.params, ctx)
}

// toolSoon finds a tool; one of a server that is just connecting, as in the
// first moments of the portal, is waited for a little.
func (g *Gateway) toolSoon(ctx context.Context, r *request, name string) (*registry.Tool, bool) {
	deadline := time.Now().Add(5 * time.Second)
	for {
		if t, ok := r.view.tool(name); ok {
			return t, true
		}
		if r.view.connecting(name) == "" || time.Now().After(deadline) {
			return nil, false
		}
		select {
		case <-ctx.Done():
			return nil, false
		case <-time.After(50 * time.Millisecond):
		}
		// Nothing of this request was answered from the old view yet.
		r.view = g.newView(ctx, r.set, r.who, r.grant)
	}
}

// toolAnswer turns what the door says into the answer of a tools/call.
func (g *Gateway) toolAnswer(r *request, p *passage, t *registry.Tool, params wire.Object, ctx context.Context) (json.RawMessage, *wire.Error) {
	result, err := g.callTool(ctx, p, t, params)
	if err == nil {
		return result, nil
	}
	var need *needInput
	if errors.As(err, &need) {
		return askModern(map[string]*writeguard.Approval{"approval": need.approval}, approvalState(need.approval.ID)).Bytes(), nil
	}
	var plan *needPlan
	if errors.As(err, &plan) {
		return plan.result, nil
	}
	if e, ok := wire.AsError(err); ok {
		return nil, e
	}
	return toolError(g.errorText(err)), nil
}

// errorText is an error as the agent reads it.
func (g *Gateway) errorText(err error) string {
	var ref *refusal
	var call *upstreams.CallError
	switch {
	case errors.As(err, &ref):
		return ref.message
	case errors.As(err, &call):
		return call.Error()
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return "The call was cancelled before it finished."
	}
	return err.Error()
}

// askModern is an input_required result that asks for approvals by form.
func askModern(approvals map[string]*writeguard.Approval, state string) wire.Object {
	var reqs wire.Object
	keys := make([]string, 0, len(approvals))
	for k := range approvals {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	for _, k := range keys {
		message, schema := writeguard.Question(approvals[k])
		q := wire.Object{{Key: "method", Value: json.RawMessage(`"elicitation/create"`)}, {Key: "params", Value: elicitParams(message, schema)}}
		reqs = append(reqs, wire.Field{Key: k, Value: q.Bytes()})
	}
	return wire.Object{
		{Key: "resultType", Value: json.RawMessage(`"input_required"`)},
		{Key: "inputRequests", Value: reqs.Bytes()},
		{Key: "requestState", Value: wire.Quote(state)},
	}
}

// unknownTool says what is wrong with a name and what to do.
func (g *Gateway) unknownTool(r *request, name string) *wire.Error {
	if strings.HasPrefix(name, "portal") {
		switch name {
		case toolQuery, toolExecute:
			return wire.Errorf(wire.CodeInvalidParams, "%s is not offered in this mode: connect with ?optimize_context=search_and_execute", name)
		case toolSearchCode, toolExecuteCode:
			return wire.Errorf(wire.CodeInvalidParams, "%s is not offered in this mode: connect with ?codemode=search_and_execute", name)
		case toolListServers, toolToggle, toolToggleOne:
			return wire.Errorf(wire.CodeInvalidParams, "%s is not offered in this mode: connect without optimize_context and codemode", name)
		}
		var own []string
		for _, d := range g.definitions(r.view, r.mode) {
			own = append(own, d.Name)
		}
		return wire.Errorf(wire.CodeInvalidParams, "there is no tool %q: the portal's own tools here are %s", bounded(name, 100), strings.Join(own, ", "))
	}
	if id := r.view.connecting(name); id != "" {
		return wire.Errorf(wire.CodeInternal, "server %s is still connecting and its tools are not known yet: try again in a moment", id)
	}
	if why := g.whyWithheld(r, name); why != "" {
		return wire.Errorf(wire.CodeInvalidParams, "%s", why)
	}
	msg := fmt.Sprintf("unknown tool %q", bounded(name, 100))
	if near := nearestTools(r.view, name, 3); len(near) > 0 {
		msg += ": did you mean " + strings.Join(near, ", ") + "?"
	} else {
		msg += ": list the tools again"
	}
	return &wire.Error{Code: wire.CodeInvalidParams, Message: msg}
}

// promptsGet relays a prompt.
func (g *Gateway) promptsGet(ctx context.Context, r *request) (json.RawMessage, *wire.Error) {
	name := r.params.String("name")
	p := r.view.snap.Prompt(name)
	if p == nil || !r.view.content(p.Server) {
		g.recordRefused(ctx, r, "prompts/get", name)
		return nil, wire.Errorf(wire.CodeInvalidParams, "unknown prompt %q: list the prompts again", bounded(name, 100))
	}
	return g.relayed(ctx, r, crossing{method: "prompts/get", server: p.Server, name: p.Name, params: forwardParams(r.params, "name", p.Name)})
}

// resourcesRead relays a resource: one that is listed, else one that a
// template matches.
func (g *Gateway) resourcesRead(ctx context.Context, r *request) (json.RawMessage, *wire.Error) {
	uri := r.params.String("uri")
	server, own, ok := r.view.resource(uri)
	if !ok {
		g.recordRefused(ctx, r, "resources/read", uri)
		return nil, unknownResource(r, uri)
	}
	return g.relayed(ctx, r, crossing{method: "resources/read", server: server, name: own, params: forwardParams(r.params, "uri", own)})
}

func unknownResource(r *request, uri string) *wire.Error {
	code := wire.CodeResourceNotFound
	if r.modern {
		code = wire.CodeInvalidParams
	}
	return &wire.Error{Code: code, Message: fmt.Sprintf("resource %q is not offered by any server you may use", bounded(uri, 200)), Data: wire.Encode(map[string]string{"uri": bounded(uri, 200)})}
}

// complete relays an argument completion to the owner of the prompt or
// template.
func (g *Gateway) complete(ctx context.Context, r *request) (json.RawMessage, *wire.Error) {
	ref, err := wire.ParseObject(r.params.Get("ref"))
	if err != nil {
		return nil, wire.Errorf(wire.CodeInvalidParams, "params.ref is missing: it names a prompt or a resource template")
	}
	switch ref.String("type") {
	case "ref/prompt":
		p := r.view.snap.Prompt(ref.String("name"))
		if p == nil || !r.view.content(p.Server) {
			return nil, wire.Errorf(wire.CodeInvalidParams, "unknown prompt %q", bounded(ref.String("name"), 100))
		}
		params := forwardParams(r.params, "", "").Set("ref", ref.SetString("name", p.Name).Bytes())
		return g.relayed(ctx, r, crossing{method: "completion/complete", server: p.Server, name: p.Name, params: params})
	case "ref/resource":
		server, own, ok := r.view.templateRef(ref.String("uri"))
		if !ok {
			return nil, wire.Errorf(wire.CodeInvalidParams, "unknown resource template %q", bounded(ref.String("uri"), 200))
		}
		params := forwardParams(r.params, "", "").Set("ref", ref.SetString("uri", own).Bytes())
		return g.relayed(ctx, r, crossing{method: "completion/complete", server: server, name: own, params: params})
	}
	return nil, wire.Errorf(wire.CodeInvalidParams, `params.ref.type must be "ref/prompt" or "ref/resource"`)
}

// relayed is relay with the error as JSON-RPC wants it.
func (g *Gateway) relayed(ctx context.Context, r *request, x crossing) (json.RawMessage, *wire.Error) {
	result, err := g.relay(ctx, g.passageOf(r), x)
	if err == nil {
		return result, nil
	}
	if e, ok := wire.AsError(err); ok {
		return nil, e
	}
	return nil, wire.Errorf(wire.CodeInternal, "%s", g.errorText(err))
}

// content reports whether the caller sees the prompts and resources of a
// server.
func (v *view) content(server string) bool {
	return !v.off[server] && v.set.access.CanContent(v.who, server)
}

// shows reports whether the caller sees anything of a server.
func (v *view) shows(server string) bool {
	return !v.off[server] && v.set.access.CanServer(v.who, server)
}

// toolError is a CallToolResult that tells an error to the agent.
func toolError(text string) json.RawMessage {
	return wire.Encode(map[string]any{"content": []any{map[string]string{"type": "text", "text": text}}, "isError": true})
}

// toolText is a CallToolResult of one text.
func toolText(text string) json.RawMessage {
	return wire.Encode(map[string]any{"content": []any{map[string]string{"type": "text", "text": text}}})
}
