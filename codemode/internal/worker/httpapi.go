package worker

import (
	"encoding/json"
	"fmt"

	"github.com/dop251/goja"

	"github.com/mcp-portal/mcp-portal/codemode/internal/proto"
)

// spec is codemode.spec: the portal gives the document, spec.js replaces its
// references. The same question is asked once in a run; each answer is a fresh
// object, so that changing one changes no other.
func (r *run) spec(ask func(goja.FunctionCall) goja.Value) func(goja.FunctionCall) goja.Value {
	var lazy goja.Callable
	resolved := func(doc goja.Value) (goja.Value, error) {
		if lazy == nil {
			v, err := r.vm.RunProgram(r.w.prelude.spec)
			if err != nil {
				return nil, err
			}
			factory, _ := goja.AssertFunction(v)
			if v, err = factory(goja.Undefined()); err != nil {
				return nil, err
			}
			lazy, _ = goja.AssertFunction(v)
		}
		return lazy(goja.Undefined(), doc)
	}
	return func(c goja.FunctionCall) goja.Value {
		w := newWriter(r.vm, r.msg.MaxArgs)
		if err := r.try(func() { w.value(r.vm.NewArray(anys(c.Arguments)...), 0) }); err != nil {
			return r.rejectWith(err)
		}
		key := string(w.b)
		if doc, known := r.specs[key]; known {
			p, resolve, reject := r.vm.NewPromise()
			v, err := resolved(doc)
			if err == nil {
				err = resolve(v)
			} else {
				err = reject(err)
			}
			if err != nil {
				return r.rejectWith(err)
			}
			return r.labelled(p, "codemode.spec")
		}
		promise := ask(c)
		if p := r.pending[proto.CallID(r.id, r.next)]; p != nil && p.then == nil && r.vm.ToValue(p.promise).SameAs(promise) {
			p.then = func(data []byte) error {
				var v goja.Value
				err := r.try(func() {
					doc, err := parseJSON(r.vm, data)
					if err == nil {
						if r.specs == nil {
							r.specs = map[string]goja.Value{}
						}
						r.specs[key] = doc
						v, err = resolved(doc)
					}
					if err != nil {
						panic(r.vm.NewGoError(err))
					}
				})
				if err != nil {
					return p.reject(err)
				}
				return p.resolve(v)
			}
		}
		return promise
	}
}

// request is codemode.request: the portal says which tool with which arguments
// the request is, and the call goes the way of all calls of that tool.
func (r *run) request(ask func(goja.FunctionCall) goja.Value) func(goja.FunctionCall) goja.Value {
	return func(c goja.FunctionCall) goja.Value {
		promise := ask(c)
		p := r.pending[proto.CallID(r.id, r.next)]
		if p == nil || p.then != nil || !r.vm.ToValue(p.promise).SameAs(promise) {
			return promise // refused before it was asked
		}
		p.then = func(data []byte) error {
			var m struct {
				Tool      string          `json:"tool"`
				Request   string          `json:"request"`
				Arguments json.RawMessage `json:"arguments"`
			}
			if err := json.Unmarshal(data, &m); err != nil {
				return fmt.Errorf("codemode.request: the portal's answer: %w", err)
			}
			label := "codemode.request(" + m.Request + ")"
			if r.calls++; r.calls > r.msg.MaxCalls {
				return p.reject(r.callError(p, kindCalls, fmt.Sprintf("the budget of %d tool calls of this run is used up; ask for larger pages, or catch this (code \"calls\"), return what you have and do the rest in another run", r.msg.MaxCalls)))
			}
			payload, err := proto.EncodeCall(m.Tool, m.Arguments)
			if err != nil {
				return p.reject(r.callError(p, "error", err.Error()))
			}
			r.next++
			id := proto.CallID(r.id, r.next)
			r.pending[id] = &pendingCall{label: label, at: p.at, promise: p.promise, resolve: p.resolve, reject: p.reject}
			if o, ok := promise.(*goja.Object); ok {
				r.sent = append(r.sent, sentCall{label, p.at, o})
			}
			r.w.link.put(proto.Call, id, payload)
			return nil
		}
		return promise
	}
}

// labelled is a promise under the name of what gave it, for whoever forgets to
// await it.
func (r *run) labelled(p *goja.Promise, label string) goja.Value {
	v := r.vm.ToValue(p)
	if o, ok := v.(*goja.Object); ok {
		r.promised[o] = label
	}
	return v
}

// pageLinks are the headers of an HTTP answer that say where the next page is.
type pageLinks struct {
	link     string
	nextPage *string
}

// linked is a call whose answer's headers codemode.paginate wants to see.
func (r *run) linked(call func(goja.FunctionCall) goja.Value) func(goja.FunctionCall) goja.Value {
	return func(c goja.FunctionCall) goja.Value {
		promise := call(c)
		if p := r.pending[proto.CallID(r.id, r.next)]; p != nil && r.vm.ToValue(p.promise).SameAs(promise) {
			p.linked = true
		}
		return promise
	}
}

// noteLinks keeps the links of a page until codemode.paginate takes them.
func (r *run) noteLinks(page *goja.Object, result []byte) {
	var links pageLinks
	found := false
	_ = eachMember(result, func(name string, value []byte) { // read before
		if name != "_meta" {
			return
		}
		var meta struct {
			HTTP *struct {
				Link     string  `json:"link"`
				NextPage *string `json:"x-next-page"`
			} `json:"mcp-portal/http"`
		}
		if json.Unmarshal(value, &meta) == nil && meta.HTTP != nil {
			links, found = pageLinks{meta.HTTP.Link, meta.HTTP.NextPage}, true
		}
	})
	if !found {
		return
	}
	if r.links == nil {
		r.links = map[*goja.Object]pageLinks{}
	}
	r.links[page] = links
}

// takeLinks gives codemode.paginate the links of a page.
func (r *run) takeLinks(c goja.FunctionCall) goja.Value {
	page, ok := c.Argument(0).(*goja.Object)
	links, known := r.links[page]
	if !ok || !known {
		return goja.Undefined()
	}
	delete(r.links, page)
	out := r.vm.NewObject()
	if links.link != "" {
		_ = out.Set("link", links.link) // a plain object
	}
	if links.nextPage != nil {
		_ = out.Set("nextPage", *links.nextPage)
	}
	return out
}
