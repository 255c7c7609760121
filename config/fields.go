package config

import (
	_ "embed"
	"go/ast"
	"go/parser"
	"go/token"
	"reflect"
	"strings"
	"sync"
)

// The comments of config.go are the descriptions of the keys. They are read
// from the source itself, so that the schema and the documentation cannot say
// something else than the types.
//
//go:embed config.go
var source string

// Field is one key of portal.yaml.
type Field struct {
	Path        string // generic: servers.*.url, guard.rules[].action
	Type        string // for people: text, list of text, duration, …
	Default     string // as it would be written in the file; empty: none
	Description string // the comment of the field

	goType reflect.Type
}

// Fields lists every key of portal.yaml in the order of the types, sections
// before their keys.
func Fields() []Field { return allFields() }

var allFields = sync.OnceValue(func() []Field {
	docs := fieldDocs(source)
	var out []Field
	walkFields(reflect.ValueOf(*Defaults()), "", docs, &out)
	return out
})

func walkFields(v reflect.Value, prefix string, docs map[string]string, out *[]Field) {
	t := v.Type()
	for i := range t.NumField() {
		name := t.Field(i).Tag.Get("yaml")
		if name == "-" || name == "" {
			continue
		}
		path := name
		if prefix != "" {
			path = prefix + "." + name
		}
		ft := t.Field(i).Type
		text := docs[t.Name()+"."+t.Field(i).Name]
		if text == "" && ft.Kind() == reflect.Struct {
			text = docs[ft.Name()] // a section is described at its type
		}
		*out = append(*out, Field{Path: path, Type: typeName(ft), Default: defaultText(v.Field(i)), Description: text, goType: ft})
		switch {
		case ft == timeType:
		case ft.Kind() == reflect.Struct:
			walkFields(v.Field(i), path, docs, out)
		case ft.Kind() == reflect.Slice && ft.Elem().Kind() == reflect.Struct:
			walkFields(reflect.Zero(ft.Elem()), path+"[]", docs, out)
		case ft.Kind() == reflect.Map && ft.Elem() == serverType:
			walkFields(reflect.ValueOf(defaultServer()), path+".*", docs, out)
		case ft.Kind() == reflect.Map && ft.Elem().Kind() == reflect.Struct:
			walkFields(reflect.Zero(ft.Elem()), path+".*", docs, out)
		}
	}
}

// fieldNames returns the yaml names of a struct in order.
func fieldNames(t reflect.Type) []string {
	var out []string
	for i := range t.NumField() {
		if name := t.Field(i).Tag.Get("yaml"); name != "-" && name != "" {
			out = append(out, name)
		}
	}
	return out
}

// fieldByName returns the field with that yaml name.
func fieldByName(v reflect.Value, name string) reflect.Value {
	for i := range v.NumField() {
		if v.Type().Field(i).Tag.Get("yaml") == name {
			return v.Field(i)
		}
	}
	return reflect.Value{}
}

// typeName names the type of a field for people.
func typeName(t reflect.Type) string {
	switch {
	case t == timeType:
		return "date"
	case t == durationType:
		return "duration"
	case t == secretType:
		return "secret"
	}
	switch t.Kind() {
	case reflect.Pointer:
		return typeName(t.Elem())
	case reflect.Bool:
		return "boolean"
	case reflect.Int, reflect.Int64:
		return "number"
	case reflect.Struct:
		return "section"
	case reflect.Slice:
		return "list of " + plural(typeName(t.Elem()))
	case reflect.Map:
		return "map of " + plural(typeName(t.Elem()))
	}
	return "text"
}

func plural(s string) string {
	if first, of, ok := strings.Cut(s, " of "); ok {
		return plural(first) + " of " + of // lists of texts
	}
	return s + "s"
}

// fieldDocs reads the comments of the struct fields of a Go source text, as
// "Type.Field" to one line of text.
func fieldDocs(src string) map[string]string {
	out := map[string]string{}
	file, err := parser.ParseFile(token.NewFileSet(), "config.go", src, parser.ParseComments)
	if err != nil {
		return out // the source compiled, so this cannot be; a test checks that no key lacks its text
	}
	for _, decl := range file.Decls {
		gen, ok := decl.(*ast.GenDecl)
		if !ok {
			continue
		}
		for _, spec := range gen.Specs {
			ts, ok := spec.(*ast.TypeSpec)
			if !ok {
				continue
			}
			st, ok := ts.Type.(*ast.StructType)
			if !ok {
				continue
			}
			for _, f := range st.Fields.List {
				text := f.Comment.Text()
				if text == "" {
					text = f.Doc.Text()
				}
				for _, n := range f.Names {
					out[ts.Name.Name+"."+n.Name] = strings.Join(strings.Fields(text), " ")
				}
			}
			if gen.Doc != nil {
				out[ts.Name.Name] = strings.Join(strings.Fields(gen.Doc.Text()), " ")
			}
		}
	}
	return out
}
