package gateway

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/mcp-portal/mcp-portal/registry"
	"github.com/mcp-portal/mcp-portal/upstreams"
	"github.com/mcp-portal/mcp-portal/upstreams/logins"
	"github.com/mcp-portal/mcp-portal/wire"
)

// Names of the portal's own tools.
const (
	toolQuery       = "portal_query_tools"
	toolExecute     = "portal_execute"
	toolListServers = "portal_list_servers"
	toolToggle      = "portal_toggle_servers"
	toolToggleOne   = "portal_toggle_single_server"
	toolSearchCode  = "portal_codemode_search"
	toolExecuteCode = "portal_codemode_execute"
	toolCode        = "portal_code"
)

// definition is one of the portal's own tools. Schemas are plain objects
// without top-level combinators, which some clients refuse.
type definition struct {
	Name        string          `json:"name"`
	Title       string          `json:"title"`
	Description string          `json:"description"`
	InputSchema json.RawMessage `json:"inputSchema"`
	// OutputSchema of what is in structuredContent; nil: text only.
	OutputSchema json.RawMessage `json:"outputSchema,omitempty"`
	Annotations  annotations     `json:"annotations"`
}

type annotations struct {
	ReadOnly    bool `json:"readOnlyHint"`
	Destructive bool `json:"destructiveHint"`
	Idempotent  bool `json:"idempotentHint"`
	OpenWorld   bool `json:"openWorldHint"`
}

const (
	noInput = `{"type":"object","properties":{}}`

	querySchema = `{"type":"object","properties":{` +
		`"query":{"type":"string","description":"What you want to do. Empty: the servers."},` +
		`"pattern":{"type":"string","description":"Instead: a regular expression (RE2) over name, description, parameters."},` +
		`"names":{"type":"array","items":{"type":"string"},"description":"Instead: exactly these tools."},` +
		`"servers":{"type":"array","items":{"type":"string"},"description":"Only these servers."},` +
		`"detail":{"type":"string","enum":["names","brief","full"],"description":"full: with parameters and types. Default brief; with names, full."},` +
		`"limit":{"type":"integer","minimum":1,"maximum":100,"description":"Default 10."}}}`

	executeSchema = `{"type":"object","properties":{` +
		`"code":{"type":"string","description":"JavaScript or TypeScript. Statements; end with return."},` +
		`"tool":{"type":"string","description":"Instead: one tool by name."},` +
		`"arguments":{"type":"object","description":"Arguments of tool."},` +
		`"plan":{"type":"string","description":"Instead: id of a plan that an answer named, to apply it once reviewed."},` +
		`"resume":{"type":"string","description":"Instead: id of a paused run to go on with."}}}`

	executeToolSchema = `{"type":"object","properties":{` +
		`"tool":{"type":"string","description":"Name of the tool."},` +
		`"arguments":{"type":"object","description":"Arguments of tool."},` +
		`"plan":{"type":"string","description":"Instead of tool: id of a plan that an answer named, to apply it once reviewed."}},"required":["tool"]}`

	codeSchema = `{"type":"object","properties":{` +
		`"code":{"type":"string","description":"JavaScript or TypeScript. Statements; end with return."},` +
		`"plan":{"type":"string","description":"Instead: id of a plan that an answer named, to apply it once reviewed."},` +
		`"resume":{"type":"string","description":"Instead: id of a paused run to go on with."}}}`

	searchCodeSchema = `{"type":"object","properties":{` +
		`"code":{"type":"string","description":"JavaScript. Statements; end with return."}},"required":["code"]}`

	// resultSchema declares what comes back of code, be it a value, an error or
	// a pause, and of one tool. Every byte of it counts against the 700 tokens of
	// the definitions: docs/code-mode.md and TestAnswersAreWhatTheSchemaDeclares
	// say what the members of the lists are.
	resultSchema = `{"type":"object","properties":{` +
		`"status":{"enum":["ok","error","paused"]},` +
		`"value":{},` +
		`"cut":{"type":"string"},` +
		`"result":{"type":"string"},` +
		`"error":{"type":"object","properties":{"line":{"type":"integer"}},"required":["kind","message"]},` +
		`"logs":{"type":"array"},"calls":{"type":"array"},"changed":{"type":"array"},"approvals":{"type":"array"},"sign_ins":{"type":"array"},` +
		`"run":{"type":"string"},"next":{"type":"string"}},"required":["status"]}`

	codeRules = "codemode.<name>(args) calls a tool and gives its result as a plain value (object, array or text); it throws on error. Await calls; start independent ones together with Promise.all. " +
		"codemode.paginate(codemode.<name>, args) gives the items of all pages. Where a result has no declared type, first return one small page to see its fields. " +
		"Return only what you need, filtered and summed: the answer is cut at a budget, codemode.result(id) reads the rest. console.log works; no network, files or imports. " +
		"Calls that change something may wait for the user's approval, once for all started together: the result says what to do."
)

// definitions are the portal's own tools in a mode.
func (g *Gateway) definitions(v *view, mode Mode) []definition {
	read := annotations{ReadOnly: true, Idempotent: true}
	acts := annotations{Destructive: true, OpenWorld: true}
	servers := serverSentence(v, 200)
	codeOff := v.set.cfg.Code.Mode == "off"
	query := definition{toolQuery, "Find tools", "Find tools of the connected servers by what they do. Start here; then call what you found with portal_execute. " + servers, json.RawMessage(querySchema), nil, read}
	switch mode {
	case ModeMinimize:
		query.Description = "Get description and parameters of tools, which are listed here by name only. Ask before the first call of a tool. " + servers
		return []definition{query}
	case ModeTwoTools:
		run := definition{toolExecute, "Call tools", "Call tools found with portal_query_tools. For one call give tool and arguments. For several calls, loops or filtering give code: " + codeRules, json.RawMessage(executeSchema), json.RawMessage(resultSchema), acts}
		if codeOff {
			run.Description = "Call one tool found with portal_query_tools: give tool and arguments."
			run.InputSchema = json.RawMessage(executeToolSchema)
		}
		return []definition{query, run}
	case ModeCodemode:
		return []definition{
			{toolSearchCode, "Search tools with code", "Find tools with code. await codemode.tools() gives all of {name, server, description, inputSchema}; filter it and return what you need: return (await codemode.tools()).filter(t => /dns/.test(t.name)). codemode.search(text) ranks. " + servers, json.RawMessage(searchCodeSchema), json.RawMessage(resultSchema), read},
			{toolExecuteCode, "Run code that calls tools", "Run code that calls tools found with portal_codemode_search. " + codeRules, json.RawMessage(codeSchema), json.RawMessage(resultSchema), acts},
		}
	case ModeCode:
		return []definition{{toolCode, "Run code that calls tools", "Run code that finds and calls tools. await codemode.search(text) ranks tools for a task, codemode.describe(name) shows one with its parameters. " + codeRules + " " + servers, json.RawMessage(codeSchema), json.RawMessage(resultSchema), acts}}
	}
	return []definition{
		{toolListServers, "List servers", "List the servers behind this portal: what each is for, its state, how many tools it has, and whether it is switched on for you.", json.RawMessage(noInput), nil, read},
		{toolToggle, "Choose servers", "Get a web address where the user chooses which servers are switched on.", json.RawMessage(noInput), nil, read},
		{toolToggleOne, "Switch a server", "Switch one server on or off for this session; the tool list changes with it. Find ids with portal_list_servers.", json.RawMessage(
			`{"type":"object","properties":{"server_id":{"type":"string","description":"Id of the server."},"action":{"type":"string","enum":["toggle","untoggle"],"description":"toggle: switch on; untoggle: switch off."}},"required":["server_id","action"]}`), nil,
			annotations{Idempotent: true}},
	}
}

// toolList is what tools/list shows in a mode, as definitions in wire form.
func (g *Gateway) toolList(v *view, mode Mode) []json.RawMessage {
	own := g.definitions(v, mode)
	out := make([]json.RawMessage, 0, len(own))
	for _, d := range own {
		out = append(out, wire.Encode(d))
	}
	switch mode {
	case ModeAll:
		for _, t := range v.tools() {
			out = append(out, t.Outer)
		}
	case ModeMinimize:
		for _, t := range v.tools() {
			out = append(out, json.RawMessage(`{"name":"`+t.Outward+`","inputSchema":{"type":"object"}}`))
		}
	}
	return out
}

type ownTool func(ctx context.Context, r *request) (json.RawMessage, *wire.Error)

// portalTool finds one of the portal's own tools, if the mode offers it.
func (g *Gateway) portalTool(mode Mode, name string) (ownTool, bool) {
	offered := map[Mode]map[string]ownTool{
		ModeAll:      {toolListServers: g.listServers, toolToggle: g.toggleServers, toolToggleOne: g.toggleOne},
		ModeMinimize: {toolQuery: g.queryTools},
		ModeTwoTools: {toolQuery: g.queryTools, toolExecute: g.execute},
		ModeCodemode: {toolSearchCode: g.searchCode, toolExecuteCode: g.executeCode},
		ModeCode:     {toolCode: g.executeCode},
	}
	f, ok := offered[mode][name]
	return f, ok
}

// arguments of a portal tool, with unknown members refused by name.
func ownArguments(r *request, tool string, into any, known ...string) *wire.Error {
	raw := r.params.Get("arguments")
	if raw == nil {
		raw = json.RawMessage("{}")
	}
	o, err := wire.ParseObject(raw)
	if err != nil {
		return wire.Errorf(wire.CodeInvalidParams, "arguments of %s must be an object", tool)
	}
	for _, f := range o {
		if !slices.Contains(known, f.Key) {
			return wire.Errorf(wire.CodeInvalidParams, "%s has no argument %q: it takes %s. Nothing was done.", tool, bounded(f.Key, 60), orNone(known))
		}
	}
	if err := json.Unmarshal(raw, into); err != nil {
		return wire.Errorf(wire.CodeInvalidParams, "arguments of %s: %v", tool, err)
	}
	return nil
}

func orNone(known []string) string {
	if len(known) == 0 {
		return "none"
	}
	return strings.Join(known, ", ")
}

// listServers is portal_list_servers.
func (g *Gateway) listServers(ctx context.Context, r *request) (json.RawMessage, *wire.Error) {
	if e := ownArguments(r, toolListServers, &struct{}{}); e != nil {
		return nil, e
	}
	type row struct {
		ID          string `json:"server_id"`
		Title       string `json:"title,omitempty"`
		Description string `json:"description,omitempty"`
		State       string `json:"state"`
		Reason      string `json:"reason,omitempty"`
		Enabled     bool   `json:"enabled"`
		Tools       int    `json:"tools"`
	}
	reasons := g.reasons(ctx, r.view)
	rows := []row{}
	for _, s := range r.view.allowed() {
		n := 0
		for _, t := range s.Tools {
			if r.view.set.access.CanTool(r.who, s.ID, t.Name) {
				n++
			}
		}
		rows = append(rows, row{s.ID, s.Title, bounded(s.Description, 200), string(s.State), reasons[s.ID], !r.view.off[s.ID], n})
	}
	body := wire.Encode(map[string]any{"servers": rows})
	return wire.Encode(map[string]any{"content": []any{map[string]string{"type": "text", "text": string(body)}}, "structuredContent": body}), nil
}

// reasons tells why servers are not ready for the caller, by id.
func (g *Gateway) reasons(ctx context.Context, v *view) map[string]string {
	out := map[string]string{}
	for _, st := range g.opt.Upstreams.Statuses() {
		if st.State != upstreams.Ready && st.Error != nil {
			out[st.Server] = reason(isAdmin(v.set, v.who), st.Server, st.Error)
		}
	}
	if g.opt.Logins == nil {
		return out
	}
	for id, s := range v.set.cfg.Servers {
		if !s.IsEnabled() || !s.Auth.PerUser() || !v.shows(id) {
			continue
		}
		_, err := g.opt.Logins.Current(ctx, id, v.who.ID)
		var need *logins.Needed
		wants := []string(nil)
		if err == nil && s.Auth.Interactive() {
			wants = g.unlisted(ctx, id, v.who.ID)
		}
		switch {
		case errors.As(err, &need) && s.Auth.Interactive():
			out[id] = "sign-in needed: ask the user to open " + g.baseURL() + "/servers and sign in there"
		case err != nil:
			out[id] = err.Error()
		case len(wants) > 0:
			out[id] = "sign-in needed: the server wants more rights (" + strings.Join(wants, " ") + "): ask the user to open " + g.baseURL() + "/servers and sign in there"
		case v.snap.Server(id) != nil && v.snap.Server(id).State == upstreams.Ready:
			delete(out, id) // by the user's own login
		}
	}
	return out
}

// unlisted are the rights for want of which a server lists nothing to a user.
func (g *Gateway) unlisted(ctx context.Context, server, user string) []string {
	if shared, at := g.opt.Registry.Personal(server, user); shared || !at.IsZero() {
		return nil
	}
	st, err := g.opt.Logins.State(ctx, server, user)
	if err != nil || !st.SignedIn {
		return nil
	}
	return st.Wants
}

// toggleServers is portal_toggle_servers: a page for the person.
func (g *Gateway) toggleServers(_ context.Context, r *request) (json.RawMessage, *wire.Error) {
	if e := ownArguments(r, toolToggle, &struct{}{}); e != nil {
		return nil, e
	}
	return toolText("Ask the user to open " + g.togglesURL(r.grant) + " and choose the servers. The tool list follows their choice."), nil
}

// toggleOne is portal_toggle_single_server.
func (g *Gateway) toggleOne(ctx context.Context, r *request) (json.RawMessage, *wire.Error) {
	var a struct {
		Server string `json:"server_id"`
		Action string `json:"action"`
	}
	if e := ownArguments(r, toolToggleOne, &a, "server_id", "action"); e != nil {
		return nil, e
	}
	if a.Action != "toggle" && a.Action != "untoggle" {
		return nil, wire.Errorf(wire.CodeInvalidParams, `action must be "toggle" (switch on) or "untoggle" (switch off)`)
	}
	if !slices.ContainsFunc(r.view.allowed(), func(s *registry.Server) bool { return s.ID == a.Server }) {
		return nil, wire.Errorf(wire.CodeInvalidParams, "unknown server %q: list the ids with portal_list_servers", bounded(a.Server, 60))
	}
	off := a.Action == "untoggle"
	if err := g.toggles.set(ctx, r.grant, a.Server, off); err != nil {
		return nil, wire.Errorf(wire.CodeInternal, "the choice could not be kept, the store cannot be reached: try again")
	}
	word := map[bool]string{true: "off", false: "on"}[off]
	return toolText(fmt.Sprintf("Server %s is switched %s for this session. List the tools again.", a.Server, word)), nil
}
