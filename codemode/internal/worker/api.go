package worker

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/dop251/goja"

	"github.com/mcp-portal/mcp-portal/codemode/internal/proto"
)

// namespace is an object whose members are made when a script asks for them: a
// portal can have thousands of tools and a script uses three.
type namespace struct {
	get  func(key string) goja.Value // nil: no such member
	has  func(key string) bool
	keys func() []string
	twin *goja.Object // see askFeature
}

func (n *namespace) Get(key string) goja.Value         { return n.get(key) }
func (n *namespace) Set(key string, _ goja.Value) bool { return false }
func (n *namespace) Has(key string) bool               { return n.has(key) }
func (n *namespace) Delete(string) bool                { return false }
func (n *namespace) Keys() []string                    { return n.keys() }

// protocolNames are asked for by the language itself, by printing and by await.
// They are never tools: a namespace with a "then" would be taken for a promise.
var protocolNames = map[string]bool{
	"then": true, "catch": true, "finally": true, "toJSON": true, "toString": true, "valueOf": true,
	"toLocaleString": true, "constructor": true, "prototype": true, "hasOwnProperty": true, "isPrototypeOf": true,
	"propertyIsEnumerable": true, "length": true, "name": true, "inspect": true, "nodeType": true, "$$typeof": true,
	"__proto__": true, "__defineGetter__": true, "__defineSetter__": true, "__lookupGetter__": true, "__lookupSetter__": true,
}

// helpers are the members of codemode that are not tools.
var helpers = []string{"call", "raw", "paginate", "tools", "search", "describe", "servers", "result", "spec", "request"}

// install puts the script's environment into the runtime.
func (r *run) install() error {
	if err := r.installTraps(); err != nil {
		return err
	}
	global := r.vm.GlobalObject()
	if err := global.Set("codemode", r.codemode()); err != nil {
		return fmt.Errorf("install codemode: %w", err)
	}
	for _, s := range r.names.serverIDs {
		if v := global.Get(s); v != nil && !goja.IsUndefined(v) {
			continue // a built-in keeps its name; the tools stay reachable through codemode
		}
		if err := global.Set(s, r.server(s)); err != nil {
			return fmt.Errorf("install server %s: %w", s, err)
		}
		// my-server is myServer; models also write my_server, which is nobody
		// else's: ids have no underscore.
		if other := r.names.underscored[s]; other != "" && global.Get(other) == nil {
			if err := global.Set(other, r.server(s)); err != nil {
				return fmt.Errorf("install server %s: %w", other, err)
			}
		}
	}
	if err := r.installConsole(); err != nil {
		return err
	}
	if r.msg.Marker != "" {
		return r.installGuard()
	}
	return nil
}

func (r *run) codemode() *goja.Object {
	made := map[string]goja.Value{}
	call := func(c goja.FunctionCall) goja.Value { return r.callByName(c, false) }
	describe := r.describe()
	for name, f := range map[string]func(goja.FunctionCall) goja.Value{
		"call":     call,
		"raw":      func(c goja.FunctionCall) goja.Value { return r.callByName(c, true) },
		"paginate": r.paginate(call, describe),
		"tools":    r.query("tools"),
		"search":   r.query("search"),
		"describe": describe,
		"servers":  r.query("servers"),
		"result":   r.query("result"),
		"spec":     r.spec(r.query("spec")),
		"request":  r.request(r.query("request")),
	} {
		made[name] = r.watched(r.function("codemode."+name, f))
	}
	has := func(key string) bool {
		return slices.Contains(helpers, key) || !protocolNames[key] && (r.names.exact(key) != nil || r.names.servers[key] != nil)
	}
	return r.space(&namespace{
		get: func(key string) goja.Value {
			if v := made[key]; v != nil {
				return v
			}
			if protocolNames[key] {
				return nil
			}
			var v goja.Value
			if t := r.names.find(key); t != nil {
				v = r.tool(t, "codemode."+key)
			} else if s := r.names.server(key); s != "" {
				v = r.server(s)
			} else {
				v = r.missing("codemode", key, func() []string { return append(r.identifiers(), helpers...) })
			}
			made[key] = v
			return v
		},
		has:  has,
		keys: func() []string { return append(slices.Clone(helpers), r.identifiers()...) },
	})
}

// paginate returns the function of paginate.js, which is made at its first use.
func (r *run) paginate(call, describe func(goja.FunctionCall) goja.Value) func(goja.FunctionCall) goja.Value {
	var made goja.Callable
	return func(c goja.FunctionCall) goja.Value {
		if made == nil {
			v, err := r.vm.RunProgram(r.prelude.paginate)
			if err != nil {
				panic(err)
			}
			factory, _ := goja.AssertFunction(v)
			if v, err = factory(goja.Undefined(), r.vm.ToValue(r.linked(call)), r.vm.ToValue(describe), r.vm.ToValue(r.takeLinks)); err != nil {
				panic(err)
			}
			made, _ = goja.AssertFunction(v)
		}
		v, err := made(goja.Undefined(), c.Arguments...)
		if err != nil {
			panic(err)
		}
		if o, ok := v.(*goja.Object); ok {
			r.promised[o] = helperPaginate
		}
		return v
	}
}

func (r *run) identifiers() []string {
	out := make([]string, 0, len(r.names.tools()))
	for _, t := range r.names.tools() {
		out = append(out, t.Identifier)
	}
	return out
}

func (r *run) server(name string) *goja.Object {
	tools := r.names.servers[name]
	made := map[string]goja.Value{}
	members := func() []string {
		return slices.Sorted(maps.Keys(tools.tools()))
	}
	return r.space(&namespace{
		get: func(key string) goja.Value {
			if v := made[key]; v != nil {
				return v
			}
			t := tools.tools()[key]
			if protocolNames[key] && (t == nil || key == "then") {
				return nil
			}
			if t == nil {
				// The whole name in the wrong place still says what was meant.
				if o := r.names.find(key); o != nil && o.Server == name {
					t = o
				} else {
					t = r.names.find(name + "." + key)
				}
			}
			var v goja.Value
			if t != nil {
				v = r.tool(t, name+"."+key)
			} else {
				v = r.missing(name, key, members)
			}
			made[key] = v
			return v
		},
		has:  func(key string) bool { return tools.tools()[key] != nil && key != "then" },
		keys: members,
	})
}

// space makes the object of a namespace.
func (r *run) space(n *namespace) *goja.Object {
	o := r.vm.NewDynamicObject(n)
	r.spaces[o] = n
	return o
}

// function makes a native function with a name of ours: goja would show Go's.
func (r *run) function(name string, f func(goja.FunctionCall) goja.Value) goja.Value {
	v := r.vm.ToValue(f)
	if o, ok := v.(*goja.Object); ok {
		_ = o.DefineDataProperty("name", r.vm.ToValue(name), goja.FLAG_FALSE, goja.FLAG_TRUE, goja.FLAG_FALSE)
	}
	return v
}

func (r *run) tool(t *proto.Tool, label string) goja.Value {
	return r.watched(r.function(label, func(c goja.FunctionCall) goja.Value {
		return r.call(t.Outward, label, c.Arguments, false)
	}))
}

// missing stands for a tool that does not exist. Calling it is a rejection that
// names what does; merely looking at it is harmless.
func (r *run) missing(object, key string, candidates func() []string) goja.Value {
	message := func() string { return r.unknownTool(object+"."+key, key, object+".", candidates()) }
	o := r.watched(r.function(object+"."+key, func(goja.FunctionCall) goja.Value {
		return r.rejected("unknown_tool", message())
	}))
	r.absentTools[o] = message
	return o
}

// fewTools is how many tools a server may have for all to be named where one of
// them was meant.
const fewTools = 8

func (r *run) unknownTool(label, name, prefix string, candidates []string) string {
	if why := proto.WhyWithheld(r.msg.Withheld, label); why != "" {
		return why
	}
	msg := "there is no tool " + label
	if instead := otherHelpers[fold(name)]; instead != "" && prefix == "codemode." {
		return msg + ": write " + instead
	}
	if near := nearest(name, candidates); len(near) > 0 {
		for i := range near {
			near[i] = prefix + near[i]
		}
		return msg + "; the nearest names are " + strings.Join(near, ", ")
	}
	if prefix != "" && prefix != "codemode." && len(candidates) > 0 && len(candidates) <= fewTools {
		return msg + "; " + strings.TrimSuffix(prefix, ".") + " has " + strings.Join(candidates, ", ")
	}
	return msg + "; find the right name with await codemode.search(\"what you need\")"
}

// otherHelpers are the names that other tools have for what codemode offers,
// as fold makes them.
var otherHelpers = map[string]string{
	"calltool": helperCall, "callmcptool": helperCall, "invoke": helperCall, "invoketool": helperCall, "execute": helperCall, "executetool": helperCall, "run": helperCall, "runtool": helperCall,
	"tool": helperCall, "usetool": helperCall, "exec": helperCall,
	"list": helperTools, "listtools": helperTools, "gettools": helperTools, "alltools": helperTools, "help": helperTools,
	"find": helperSearch, "searchtools": helperSearch, "findtools": helperSearch, "query": helperSearch, "querytools": helperSearch, "portalquerytools": helperSearch,
	"schema": helperDescribe, "getschema": helperDescribe, "gettool": helperDescribe, "describetool": helperDescribe, "inspect": helperDescribe, "info": helperDescribe,
	"listservers": helperServers, "getservers": helperServers,
	"log": "console.log(…)", "print": "console.log(…)", "output": "return value", "return": "return value",
}

const (
	helperCall     = "await codemode.<tool>({…}) or await codemode.call(\"name\", {…})"
	helperTools    = "await codemode.tools()"
	helperSearch   = "await codemode.search(\"what you need\")"
	helperDescribe = "await codemode.describe(\"name\")"
	helperServers  = "await codemode.servers()"

	helperPaginate = "codemode.paginate" // label of its promise
)

// toolNamed is the name that a script gave, as text or by the tool itself.
func (r *run) toolNamed(v goja.Value) (string, bool) {
	if o, ok := v.(*goja.Object); ok && r.toolTrap != nil && o.Prototype() == r.toolTrap && r.absentTools[o] == nil {
		v = o.Get("name")
	}
	if v == nil || !goja.IsString(v) {
		return "", false
	}
	return v.String(), true
}

// exampleTool is the name of a tool to show in a text.
func (r *run) exampleTool() string {
	if list := r.names.tools(); len(list) > 0 {
		return list[0].Outward
	}
	return "server_tool"
}

// describe is codemode.describe, of the tool itself as well.
func (r *run) describe() func(goja.FunctionCall) goja.Value {
	ask := r.query("describe")
	return func(c goja.FunctionCall) goja.Value {
		if !goja.IsString(c.Argument(0)) {
			if name, ok := r.toolNamed(c.Argument(0)); ok {
				if t := r.names.find(name); t != nil {
					c.Arguments = []goja.Value{r.vm.ToValue(t.Outward)}
				}
			}
		}
		return ask(c)
	}
}

func (r *run) callByName(c goja.FunctionCall, raw bool) goja.Value {
	helper := "codemode.call"
	if raw {
		helper = "codemode.raw"
	}
	r.asked(c.Argument(0))
	name, ok := r.toolNamed(c.Argument(0))
	if !ok {
		return r.rejectType(fmt.Sprintf("%s takes the name of a tool as text, then its arguments: await %s(%q, {…})", helper, helper, r.exampleTool()))
	}
	t := r.names.find(name)
	if t == nil {
		candidates := make([]string, 0, len(r.names.tools()))
		for _, t := range r.names.tools() {
			candidates = append(candidates, t.Outward)
		}
		return r.rejected("unknown_tool", r.unknownTool(fmt.Sprintf("%.80q", name), name, "", candidates))
	}
	return r.call(t.Outward, fmt.Sprintf("%s(%q)", helper, t.Outward), c.Arguments[1:], raw)
}

// call sends one tool call and returns the promise of its result. Everything
// that can go wrong is a rejection, so that .catch and allSettled see it.
func (r *run) call(outward, label string, args []goja.Value, raw bool) goja.Value {
	r.asked(args...)
	if len(args) > 1 {
		return r.rejectType(fmt.Sprintf("%s takes one object with named arguments, not %d values", label, len(args)))
	}
	var arg goja.Value = goja.Undefined()
	if len(args) == 1 {
		arg = args[0]
	}
	body := []byte("{}")
	if !goja.IsUndefined(arg) && !goja.IsNull(arg) {
		o, ok := arg.(*goja.Object)
		if !ok || isArray(o) || o.ClassName() == "Function" {
			return r.rejectType(label + " takes one object with named arguments, such as {limit: 10}")
		}
		if _, isPromise := asPromise(o); isPromise {
			return r.rejectType("the arguments of " + label + " are a promise: await it first")
		}
		w := newWriter(r.vm, r.msg.MaxArgs)
		w.strict, w.run = true, r
		if err := r.try(func() { w.value(arg, 0) }); err != nil {
			return r.rejectWith(err)
		}
		if w.cut || len(w.b) > r.msg.MaxArgs {
			return r.rejectType(fmt.Sprintf("the arguments of %s are larger than the limit of %d bytes: pass less, or in several calls", label, r.msg.MaxArgs))
		}
		body = w.b
	}
	if r.calls++; r.calls > r.msg.MaxCalls {
		return r.rejected(kindCalls, fmt.Sprintf("the budget of %d tool calls of this run is used up; ask for larger pages, or catch this (code \"calls\"), return what you have and do the rest in another run", r.msg.MaxCalls))
	}
	return r.send(proto.Call, outward, label, body, raw)
}

// query returns a helper that the host answers.
func (r *run) query(name string) func(goja.FunctionCall) goja.Value {
	made := 0
	return func(c goja.FunctionCall) goja.Value {
		if made++; made > r.msg.MaxCalls {
			return r.rejected(kindCalls, fmt.Sprintf("codemode.%s was called more than %d times, the limit of one run: ask once and keep the answer", name, r.msg.MaxCalls))
		}
		w := newWriter(r.vm, r.msg.MaxArgs)
		w.strict, w.run, w.noStandIns = true, r, true
		if err := r.try(func() { w.value(r.vm.NewArray(anys(c.Arguments)...), 0) }); err != nil {
			return r.rejectWith(err)
		}
		if w.cut || len(w.b) > r.msg.MaxArgs {
			return r.rejectType(fmt.Sprintf("the arguments of codemode.%s are larger than the limit of %d bytes: pass less", name, r.msg.MaxArgs))
		}
		return r.send(proto.Query, name, "codemode."+name, w.b, true)
	}
}

func (r *run) send(kind proto.Kind, name, label string, args []byte, raw bool) goja.Value {
	payload, err := proto.EncodeCall(name, args)
	if err != nil {
		return r.rejectType(err.Error())
	}
	p, resolve, reject := r.vm.NewPromise()
	r.next++
	id := proto.CallID(r.id, r.next)
	r.pending[id] = &pendingCall{label: label, at: r.here(), raw: raw, query: kind == proto.Query, promise: p, resolve: resolve, reject: reject}
	r.w.link.put(kind, id, payload)
	v := r.vm.ToValue(p)
	if o, ok := v.(*goja.Object); ok {
		r.promised[o] = label
		if kind == proto.Call {
			r.sent = append(r.sent, sentCall{label, r.pending[id].at, o})
		}
	}
	return v
}

func anys(vs []goja.Value) []any {
	out := make([]any, len(vs))
	for i, v := range vs {
		out[i] = v
	}
	return out
}
