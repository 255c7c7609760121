package worker

import (
	"encoding/json"
	"slices"
	"strconv"
	"strings"

	"github.com/dop251/goja"
	"github.com/dop251/goja/ast"
)

// Code that reads fields which no result has often comes to an end without an
// error: r.items ?? [] is an empty list, and filter(x => x.archived) finds
// nothing. "There are none" is then reported where nobody has looked. So when
// the value is empty and calls gave something, the fields that were read and
// never seen are named.

const (
	mostRead   = 200   // names kept of those that a script reads
	mostKeys   = 2_000 // fields of results that are remembered
	seenOfList = 5     // items of a list whose fields are looked at
)

// readFields are the names of fields that a program reads and does not make.
func readFields(body ast.Node) map[string]bool {
	read, made := map[string]bool{}, map[string]bool{}
	add := func(name string) {
		if len(read) < mostRead && !builtinMember[name] {
			read[name] = true
		}
	}
	called := map[ast.Expression]bool{}
	walk(body, func(n ast.Node) {
		switch x := n.(type) {
		case *ast.CallExpression:
			callee := x.Callee
			if o, ok := callee.(*ast.Optional); ok {
				callee = o.Expression
			}
			called[callee] = true // a method, or a tool
		case *ast.DotExpression:
			if !called[x] {
				add(x.Identifier.Name.String())
			}
		case *ast.AssignExpression:
			if to, ok := x.Left.(*ast.DotExpression); ok {
				made[to.Identifier.Name.String()] = true
			}
		case *ast.ObjectPattern:
			for _, p := range x.Properties {
				switch p := p.(type) {
				case *ast.PropertyShort:
					add(p.Name.Name.String())
				case *ast.PropertyKeyed:
					if k, ok := p.Key.(*ast.StringLiteral); ok {
						add(k.Value.String())
					}
				}
			}
		case *ast.ObjectLiteral:
			for _, p := range x.Value {
				switch p := p.(type) {
				case *ast.PropertyShort:
					made[p.Name.Name.String()] = true
				case *ast.PropertyKeyed:
					if k, ok := p.Key.(*ast.StringLiteral); ok {
						made[k.Value.String()] = true
					}
				}
			}
		case *ast.FieldDefinition:
			if k, ok := x.Key.(*ast.StringLiteral); ok {
				made[k.Value.String()] = true
			}
		case *ast.MethodDefinition:
			if k, ok := x.Key.(*ast.StringLiteral); ok {
				made[k.Value.String()] = true
			}
		}
	})
	for name := range made {
		delete(read, name)
	}
	return read
}

// builtinMember are members that lists, texts, promises and errors have.
var builtinMember = map[string]bool{"length": true, "size": true, "prototype": true, "constructor": true, "message": true, "name": true, "code": true, "stack": true, "cause": true,
	"status": true, "reason": true, "value": true, "done": true, "groups": true, "index": true, "input": true, "lastIndex": true}

// sees remembers the fields of a result.
func (r *run) sees(v goja.Value, depth int) {
	o, ok := v.(*goja.Object)
	if !ok || depth > 8 || len(r.fields) >= mostKeys {
		return
	}
	if isArray(o) {
		for i := range min(o.Get("length").ToInteger(), seenOfList) {
			r.sees(o.Get(strconv.FormatInt(i, 10)), depth+1)
		}
		return
	}
	if r.fields == nil {
		r.fields = map[string]bool{}
	}
	for _, k := range o.Keys() {
		if len(r.fields) >= mostKeys {
			return
		}
		r.fields[k] = true
		r.sees(o.Get(k), depth+1)
	}
}

// explainEmpty names what the script read in vain, if its value says that there
// is nothing.
func (r *run) explainEmpty(value []byte) {
	if len(r.fields) == 0 || len(r.fields) >= mostKeys || !saysNothing(value) {
		return
	}
	var vain []string
	for name := range r.reads {
		if !r.fields[name] && r.names.servers[name] == nil && r.names.find(name) == nil {
			vain = append(vain, "."+clip(name, 60))
		}
	}
	if len(vain) == 0 || len(vain) > 6 {
		return
	}
	slices.Sort(vain)
	r.note("the value is empty, and the code reads %s, which no result here has%s", strings.Join(vain, ", "), r.lastFields())
}

// saysNothing tells whether a value is empty all through: [], 0, {"count":0}.
func saysNothing(value []byte) bool {
	if len(value) > 500 {
		return false
	}
	var v any
	return json.Unmarshal(value, &v) == nil && nothing(v)
}

func nothing(v any) bool {
	switch x := v.(type) {
	case nil:
		return true
	case bool:
		return !x
	case float64:
		return x == 0
	case string:
		return x == ""
	case []any:
		return !slices.ContainsFunc(x, func(i any) bool { return !nothing(i) })
	case map[string]any:
		for _, f := range x {
			if !nothing(f) {
				return false
			}
		}
		return true
	}
	return false
}
