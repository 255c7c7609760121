package gateway

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/mcp-portal/mcp-portal/codemode"
	"github.com/mcp-portal/mcp-portal/registry"
	"github.com/mcp-portal/mcp-portal/wire"
	"github.com/mcp-portal/mcp-portal/writeguard"
)

// executeArguments of portal_execute; exactly one of Code, Tool, Plan, Resume.
type executeArguments struct {
	Code      string          `json:"code"`
	Tool      string          `json:"tool"`
	Arguments json.RawMessage `json:"arguments"`
	Plan      string          `json:"plan"`
	Resume    string          `json:"resume"`
}

// execute is portal_execute.
func (g *Gateway) execute(ctx context.Context, r *request) (json.RawMessage, *wire.Error) {
	var a executeArguments
	if e := ownArguments(r, toolExecute, &a, "code", "tool", "arguments", "plan", "resume"); e != nil {
		return nil, e
	}
	var given []string
	for _, x := range []struct{ name, value string }{{"code", a.Code}, {"tool", a.Tool}, {"plan", a.Plan}, {"resume", a.Resume}} {
		if x.value != "" {
			given = append(given, x.name)
		}
	}
	switch {
	case len(given) != 1:
		what := "none of them was given"
		if len(given) > 1 {
			what = strings.Join(given, " and ") + " were given"
		}
		return toolError("portal_execute takes exactly one of code, tool, plan and resume; " + what + "."), nil
	case a.Arguments != nil && a.Tool == "":
		return toolError("arguments go with tool; in code, pass them to the call itself."), nil
	case a.Tool != "":
		return g.executeTool(ctx, r, a)
	case a.Plan != "":
		return g.applyPlan(ctx, r, a.Plan)
	case a.Resume != "":
		return g.resume(ctx, r, a.Resume)
	}
	return g.runCode(ctx, r, a.Code)
}

// executeTool calls one tool by name: the same as tools/call of that tool.
func (g *Gateway) executeTool(ctx context.Context, r *request, a executeArguments) (json.RawMessage, *wire.Error) {
	t, _ := g.toolSoon(ctx, r, a.Tool)
	if t == nil {
		t = r.view.named(a.Tool)
	}
	if t == nil && r.view.connecting(a.Tool) != "" {
		return toolError(g.unknownTool(r, a.Tool).Message), nil
	}
	if t == nil {
		g.recordRefused(ctx, r, "tools/call", a.Tool)
		if why := g.whyWithheld(r, a.Tool); why != "" {
			return toolError(sentence(why)), nil
		}
		text := fmt.Sprintf("There is no tool %q.", bounded(a.Tool, 100))
		if near := nearestTools(r.view, a.Tool, 3); len(near) > 0 {
			text += " Near: " + strings.Join(near, ", ") + "."
		}
		return toolError(text + " Find tools with portal_query_tools."), nil
	}
	params := r.params.SetString("name", t.Outward)
	if a.Arguments != nil {
		params = params.Set("arguments", a.Arguments)
	} else {
		params = params.Without("arguments")
	}
	result, e := g.toolAnswer(r, g.passageOf(r), t, params, ctx)
	if e != nil || r.whole() {
		return result, e
	}
	return g.toolResult(ctx, r, result), nil
}

// WholeKey is a member of _meta by which the portal's own command line asks for
// results as they are, whatever their size: no model reads them.
const WholeKey = "mcp-portal/whole"

func (r *request) whole() bool {
	meta, err := wire.ParseObject(r.params.Get("_meta"))
	return err == nil && string(meta.Get(WholeKey)) == "true"
}

// toolResult is the result of one tool as the result of portal_execute: within
// the budget, and with the structured content that resultSchema declares.
func (g *Gateway) toolResult(ctx context.Context, r *request, result json.RawMessage) json.RawMessage {
	o, err := wire.ParseObject(result)
	if err != nil || o.Get("resultType") != nil && o.String("resultType") != "complete" {
		return result // a question to the client, say
	}
	if string(o.Get("isError")) == "true" {
		if o.Get("structuredContent") == nil {
			return result
		}
		return o.Set("structuredContent", wire.Object{{Key: "status", Value: json.RawMessage(`"error"`)}, {Key: "value", Value: o.Get("structuredContent")}}.Bytes()).Bytes()
	}
	out := wire.Object{{Key: "status", Value: json.RawMessage(`"ok"`)}}
	var blocks []json.RawMessage
	_ = json.Unmarshal(o.Get("content"), &blocks) // what is no list is relayed as it is
	text := 0
	for _, b := range blocks {
		if c, err := wire.ParseObject(b); err == nil && c.String("type") == "text" {
			text += codemode.EstimateTokens([]byte(c.String("text")))
		}
	}
	structured := o.Get("structuredContent")
	budget := r.set.cfg.Code.ResultTokens
	if text <= budget && codemode.EstimateTokens(structured) <= budget {
		if structured != nil {
			out = append(out, wire.Field{Key: "value", Value: structured})
		}
		return o.Set("structuredContent", out.Bytes()).Bytes()
	}
	value, ok := codemode.Plain(result)
	if !ok {
		return o.Set("structuredContent", out.Bytes()).Bytes() // media beside text: as it is
	}
	s := g.shaped(ctx, r, value, false)
	out = append(out, wire.Field{Key: "value", Value: s.value}, wire.Field{Key: "cut", Value: wire.Quote(s.note)})
	if s.id != "" {
		out = append(out, wire.Field{Key: "result", Value: wire.Quote(s.id)})
	}
	content := []json.RawMessage{textBlock(valueText(s.value)), textBlock(s.note)}
	return o.Set("content", wire.Encode(content)).Set("structuredContent", out.Bytes()).Bytes()
}

// codeArguments of portal_codemode_execute and portal_code.
type codeArguments struct {
	Code   string `json:"code"`
	Plan   string `json:"plan"`
	Resume string `json:"resume"`
}

// executeCode is portal_codemode_execute and portal_code.
func (g *Gateway) executeCode(ctx context.Context, r *request) (json.RawMessage, *wire.Error) {
	var a codeArguments
	name := r.params.String("name")
	if e := ownArguments(r, name, &a, "code", "plan", "resume"); e != nil {
		return nil, e
	}
	given := 0
	for _, s := range []string{a.Code, a.Plan, a.Resume} {
		if s != "" {
			given++
		}
	}
	switch {
	case given != 1:
		return toolError(name + " takes exactly one of code, plan and resume."), nil
	case a.Plan != "":
		return g.applyPlan(ctx, r, a.Plan)
	case a.Resume != "":
		return g.resume(ctx, r, a.Resume)
	}
	return g.runCode(ctx, r, a.Code)
}

// searchCode is portal_codemode_search: code that can look, not call.
func (g *Gateway) searchCode(ctx context.Context, r *request) (json.RawMessage, *wire.Error) {
	var a codeArguments
	if e := ownArguments(r, toolSearchCode, &a, "code"); e != nil {
		return nil, e
	}
	if a.Code == "" {
		return toolError(toolSearchCode + " needs code, for example: return (await codemode.tools()).map(t => t.name)"), nil
	}
	h := &host{g: g, req: r}
	out, err := g.opt.Runner.Run(ctx, codemode.Request{ID: "run_" + randomID(), Owner: r.who.ID, Code: a.Code}, h)
	if err != nil {
		return toolError(g.errorText(err)), nil
	}
	return g.outcomeResult(ctx, r, nil, out), nil
}

// runCode starts a run and answers when it ends or waits for a person.
func (g *Gateway) runCode(ctx context.Context, r *request, code string) (json.RawMessage, *wire.Error) {
	if r.set.cfg.Code.Mode == "off" {
		return toolError("Code is switched off on this portal. Call one tool: give tool and arguments."), nil
	}
	if id, ok := strings.CutPrefix(r.params.String("requestState"), planPrefix); ok && r.modern {
		return g.applyPlan(ctx, r, id)
	}
	if id, ok := strings.CutPrefix(r.params.String("requestState"), runPrefix); ok && r.modern {
		return g.resume(ctx, r, id)
	}
	x := g.runs.start(r, code)
	return g.attend(ctx, r, x)
}

// host is what a script of this request reaches: the door, and questions about
// the catalogue.
type host struct {
	g   *Gateway
	req *request
	run *run // nil: calls are not possible
	// before is what the run called before this call.
	before writeguard.Facts
}

// Call lets a script call a tool, through the door.
func (h *host) Call(ctx context.Context, c codemode.HostCall) (json.RawMessage, error) {
	t, ok := h.req.view.tool(c.Tool)
	if !ok {
		if why := h.g.whyWithheld(h.req, c.Tool); why != "" {
			return nil, &codemode.HostError{Code: "unknown_tool", Message: sentence(why)}
		}
		msg := fmt.Sprintf("There is no tool %q.", bounded(c.Tool, 100))
		if near := nearestTools(h.req.view, c.Tool, 3); len(near) > 0 {
			msg += " Near: " + strings.Join(near, ", ") + "."
		}
		return nil, &codemode.HostError{Code: "unknown_tool", Message: msg}
	}
	if h.run == nil {
		return nil, &codemode.HostError{Code: "denied", Message: "This code can only look at the catalogue. Call tools with " + toolExecuteCode + "."}
	}
	params := wire.Object{{Key: "name", Value: wire.Quote(t.Outward)}, {Key: "arguments", Value: c.Arguments}}
	p := &passage{req: h.req, mode: writeguard.Code, run: h.run.id, before: h.before, wait: h.run.waitAside(c), waitLogin: h.run.waitForLogin, sending: h.run.sending,
		collecting: h.run.collecting, collect: func(s writeguard.PlanStep) { h.run.collect(c, h.before, s) }}
	result, err := h.g.callTool(ctx, p, t, params)
	var kept *collected
	if errors.As(err, &kept) {
		return nil, &codemode.Held{StandIn: true}
	}
	if err != nil {
		return nil, h.hostError(err)
	}
	if most := h.req.set.cfg.Code.MaxCallResult; len(result) > most {
		return nil, h.tooLarge(ctx, result, most)
	}
	return result, nil
}

// tooLarge is the error for a result that a script may not receive whole.
func (h *host) tooLarge(ctx context.Context, result json.RawMessage, most int) error {
	e := &codemode.HostError{Code: "too_large", Message: fmt.Sprintf("The call was made, but its result of %d bytes is more than the %d a script may receive at once. Ask for fewer rows or fields", len(result), most)}
	if value, ok := codemode.Plain(result); ok {
		id, err := h.g.kept.put(ctx, h.req.who.ID, h.g.readBy(ctx, h.req.grant), value)
		if err == nil {
			e.Message += fmt.Sprintf(", or read it in parts within %d minutes: await codemode.result(%q, {path: \"a.b\", from: 0, to: 100}).", int(valueKeptFor.Minutes()), id)
			return e
		}
		h.g.log.Warn("a large result could not be kept", "run", h.run.id, "error", err)
	}
	e.Message += "."
	return e
}

func (h *host) hostError(err error) error {
	var ref *refusal
	code := "unavailable"
	switch {
	case errors.As(err, &ref):
		code = ref.status
	case outcome(context.Background(), nil, err) == "unknown":
		code = "outcome_unknown"
	}
	if e, ok := wire.AsError(err); ok {
		return &codemode.HostError{Code: "protocol_error", Message: fmt.Sprintf("%s (JSON-RPC code %d)", e.Message, e.Code)}
	}
	return &codemode.HostError{Code: code, Message: h.g.errorText(err)}
}

// Query answers codemode.tools, search, describe, servers, spec and result, and
// says which tool codemode.request means.
func (h *host) Query(ctx context.Context, name string, args json.RawMessage) (json.RawMessage, error) {
	var list []json.RawMessage
	if err := json.Unmarshal(args, &list); err != nil {
		list = []json.RawMessage{args}
	}
	var first string
	if len(list) > 0 {
		_ = json.Unmarshal(list[0], &first)
	}
	r := h.req
	switch name {
	case "tools":
		all := r.view.tools()
		out := make([]json.RawMessage, 0, len(all))
		for _, t := range all {
			out = append(out, h.entry(t, true))
		}
		return wire.Encode(out), nil
	case "search":
		if strings.TrimSpace(first) == "" {
			return nil, &codemode.HostError{Code: "invalid_arguments", Message: `codemode.search needs words, for example codemode.search("list dns records").`}
		}
		res, err := r.view.snap.Search(registry.Query{Text: first, Limit: 20}, r.view.sees)
		if err != nil {
			return nil, &codemode.HostError{Code: "invalid_arguments", Message: err.Error()}
		}
		out := make([]json.RawMessage, 0, len(res.Hits))
		for _, hit := range res.Hits {
			out = append(out, h.entry(hit.Tool, false))
		}
		return wire.Encode(out), nil
	case "describe":
		if first == "" {
			return nil, &codemode.HostError{Code: "invalid_arguments", Message: `codemode.describe takes the name of one tool as text, for example codemode.describe("dns_records_list"); for several, await Promise.all(names.map(n => codemode.describe(n))).`}
		}
		t := r.view.named(first)
		if t == nil {
			if why := h.g.whyWithheld(r, first); why != "" {
				return nil, &codemode.HostError{Code: "unknown_tool", Message: sentence(why)}
			}
			msg := fmt.Sprintf("There is no tool %q.", bounded(first, 100))
			if near := nearestTools(r.view, first, 3); len(near) > 0 {
				msg += " Near: " + strings.Join(near, ", ") + "."
			}
			return nil, &codemode.HostError{Code: "unknown_tool", Message: msg}
		}
		o, err := wire.ParseObject(h.entry(t, true))
		if err != nil {
			return nil, err
		}
		if n := r.view.note(t.Server); n != "" {
			o = append(o, wire.Field{Key: "notes", Value: wire.Quote(n)})
		}
		return append(o, wire.Field{Key: "types", Value: wire.Quote(h.g.seen.declare(ctx, t, r.who.ID))}).Bytes(), nil
	case "spec":
		return h.spec(list)
	case "request":
		return h.request(list)
	case "result":
		value, reads, err := h.g.kept.read(ctx, r.who.ID, list)
		h.g.taints.Add(ctx, r.grant, reads)
		return value, err
	case "servers":
		type row struct {
			ID          string `json:"id"`
			Description string `json:"description"`
			State       string `json:"state"`
			Tools       int    `json:"tools"`
			Notes       string `json:"notes,omitempty"`
		}
		rows := []row{}
		for _, s := range r.view.servers() {
			rows = append(rows, row{s.ID, s.Description, string(s.State), len(r.view.toolsOf(s)), r.view.note(s.ID)})
		}
		return wire.Encode(rows), nil
	}
	return nil, &codemode.HostError{Code: "unknown_function", Message: fmt.Sprintf("codemode.%s is not offered.", bounded(name, 60))}
}

// entry is a tool as code sees it.
func (h *host) entry(t *registry.Tool, schema bool) json.RawMessage {
	o := wire.Object{
		{Key: "name", Value: wire.Quote(t.Identifier)},
		{Key: "server", Value: wire.Quote(t.Server)},
		{Key: "description", Value: wire.Quote(t.Description)},
		{Key: "class", Value: wire.Quote(h.g.verdict(h.req, t))},
	}
	if schema && t.InputSchema != nil {
		o = append(o, wire.Field{Key: "inputSchema", Value: t.InputSchema})
	}
	return o.Bytes()
}

// codeTools are the visible tools as the sandbox names them.
func codeTools(v *view) []codemode.Tool {
	all := v.tools()
	out := make([]codemode.Tool, 0, len(all))
	server, identifier := "", "" // they come server by server
	for _, t := range all {
		if t.Server != server {
			server, identifier = t.Server, registry.ServerIdentifier(t.Server)
		}
		out = append(out, codemode.Tool{Outward: t.Outward, Identifier: t.Identifier, Server: identifier, Member: t.Member})
	}
	return out
}
