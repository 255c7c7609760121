package gateway

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
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
		return toolError(fmt.Sprintf("There is no plan %q to apply. Plans are made by policies that collect writes for review; no rule of this portal does so. Call the tools directly: calls that need a person's yes are asked about one by one.", bounded(a.Plan, 60))), nil
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
	return g.toolAnswer(r, g.passageOf(r), t, params, ctx)
}

// codeArguments of portal_codemode_execute and portal_code.
type codeArguments struct {
	Code   string `json:"code"`
	Resume string `json:"resume"`
}

// executeCode is portal_codemode_execute and portal_code.
func (g *Gateway) executeCode(ctx context.Context, r *request) (json.RawMessage, *wire.Error) {
	var a codeArguments
	name := r.params.String("name")
	if e := ownArguments(r, name, &a, "code", "resume"); e != nil {
		return nil, e
	}
	switch {
	case (a.Code == "") == (a.Resume == ""):
		return toolError(name + " takes exactly one of code and resume."), nil
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
	return g.outcomeResult(r, "", out), nil
}

// runCode starts a run and answers when it ends or waits for a person.
func (g *Gateway) runCode(ctx context.Context, r *request, code string) (json.RawMessage, *wire.Error) {
	if r.set.cfg.Code.Mode == "off" {
		return toolError("Code is switched off on this portal. Call one tool: give tool and arguments."), nil
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
	p := &passage{req: h.req, mode: writeguard.Code, run: h.run.id, before: h.before, wait: h.run.waitFor, waitLogin: h.run.waitForLogin, sending: h.run.sending}
	result, err := h.g.callTool(ctx, p, t, params)
	if err != nil {
		return nil, h.hostError(err)
	}
	return result, nil
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

// Query answers codemode.tools, search, describe and servers.
func (h *host) Query(_ context.Context, name string, args json.RawMessage) (json.RawMessage, error) {
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
		t := r.view.named(first)
		if t == nil {
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
		return append(o, wire.Field{Key: "types", Value: wire.Quote(codemode.Declare(t.Identifier, t.Description, t.InputSchema, t.OutputSchema))}).Bytes(), nil
	case "servers":
		type row struct {
			ID          string `json:"id"`
			Description string `json:"description"`
			State       string `json:"state"`
			Tools       int    `json:"tools"`
		}
		rows := []row{}
		for _, s := range r.view.servers() {
			n := len(slices.DeleteFunc(slices.Clone(s.Tools), func(t *registry.Tool) bool { return !r.view.sees(t) }))
			rows = append(rows, row{s.ID, s.Description, string(s.State), n})
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
	for _, t := range all {
		out = append(out, codemode.Tool{Outward: t.Outward, Identifier: t.Identifier, Server: registry.ServerIdentifier(t.Server), Member: t.Member})
	}
	return out
}
