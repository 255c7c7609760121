package writeguard

import (
	"encoding/json"
	"fmt"

	"github.com/mcp-portal/mcp-portal/config"
	"github.com/mcp-portal/mcp-portal/wire"
)

// Classify says what a tool does to the world and who says so. Sources in
// order:
//
//  1. the class in the configuration (servers.<id>.tools.<name>.class);
//  2. the annotations of a server marked trust_annotations, read as the MCP
//     specification defines them: readOnlyHint is false and destructiveHint is
//     true unless the server says otherwise;
//  3. for an HTTP API (servers.<id>.openapi) the method and the document's
//     x-mcp hints, which the portal itself has written as annotations: GET only
//     reads, DELETE destroys, all others write; a destructive verb in the name
//     makes any of them destructive;
//  4. for every other server a write, made destructive by destructiveHint:
//     true, by a verb in the name, or by one in the description. Nothing such
//     a server says makes it a read.
//
// A server that the configuration does not know is not trusted. Labels come
// along: see labelled.
func Classify(c Call, cfg *config.Config) Classification {
	k := classify(c, cfg)
	k.Labels, k.ExternalWhy = labelled(&c, cfg)
	return k
}

func classify(c Call, cfg *config.Config) Classification {
	var s config.Server
	if cfg != nil {
		s = cfg.Servers[c.Server]
	}
	if class := s.Tools[c.Tool].Class; class != "" {
		if k, ok := parseClass(class); ok {
			return says(k, "config", "the configuration says so")
		}
		return says(Destructive, "config", fmt.Sprintf("the configuration says %q, which is no class", class))
	}
	h := readHints(c.Annotations)
	if s.OpenAPI != "" {
		return described(c, h)
	}
	if s.TrustAnnotations {
		return trusted(h)
	}
	switch {
	case h.broken:
		return says(Destructive, "annotations", "the annotations cannot be read")
	case h.destructive == yes:
		return says(Destructive, "annotations", "the server says destructiveHint: true")
	}
	if v := nameVerb(c.Tool); v != "" {
		return says(Destructive, "name", fmt.Sprintf("the name says %q", v))
	}
	if v := descriptionVerb(c.Description); v != "" {
		return says(Destructive, "description", fmt.Sprintf("the description says %q", v))
	}
	if h.readOnly == yes {
		return says(Write, "default", "the server says readOnlyHint: true, but is not marked trust_annotations")
	}
	return says(Write, "default", "nothing trusted says that it only reads")
}

func says(k Class, source, why string) Classification {
	return Classification{Class: k, Source: source, Why: why}
}

// described is the class of an operation of an HTTP API.
func described(c Call, h hints) Classification {
	name := c.Tool
	if h.readOnly == yes {
		name = "get " + name // words that are nouns as often are nouns then
	}
	switch v := nameVerb(name); {
	case h.broken || h.destructive == yes:
		return says(Destructive, "openapi", "its method, or x-mcp in the document, says that it destroys")
	case v != "":
		return says(Destructive, "name", fmt.Sprintf("the name says %q", v))
	case h.readOnly == yes:
		return says(Read, "openapi", "its method only reads")
	}
	if v := descriptionVerb(c.Description); v != "" {
		return says(Destructive, "description", fmt.Sprintf("the description says %q", v))
	}
	return says(Write, "openapi", "its method writes")
}

func trusted(h hints) Classification {
	switch {
	case h.broken:
		return says(Destructive, "annotations", "the annotations cannot be read")
	case h.readOnly == yes && h.destructive == yes:
		return says(Destructive, "annotations", "the server says readOnlyHint: true and destructiveHint: true, which contradict")
	case h.readOnly == yes:
		return says(Read, "annotations", "the trusted server says readOnlyHint: true")
	case h.destructive == yes:
		return says(Destructive, "annotations", "the trusted server says destructiveHint: true")
	case h.destructive == no:
		return says(Write, "annotations", "the trusted server says destructiveHint: false")
	}
	return says(Destructive, "annotations", "the trusted server does not say destructiveHint: false, and the protocol's default is true")
}

// hint is a boolean hint that may be absent.
type hint int

const (
	absent hint = iota
	no
	yes
)

type hints struct {
	readOnly, destructive hint
	broken                bool
}

// readHints reads annotations so that doubt tightens: names are exact, of
// repeated members the stricter value counts, and a value that is not a
// boolean is the stricter one.
func readHints(raw json.RawMessage) (h hints) {
	if len(raw) == 0 || string(raw) == "null" {
		return h
	}
	o, err := wire.ParseObject(raw)
	if err != nil {
		return hints{broken: true}
	}
	for _, f := range o {
		v := string(f.Value)
		switch f.Key {
		case "readOnlyHint":
			if v == "true" && h.readOnly != no {
				h.readOnly = yes
			} else if v != "null" {
				h.readOnly = no
			}
		case "destructiveHint":
			if v == "false" && h.destructive != yes {
				h.destructive = no
			} else if v != "null" {
				h.destructive = yes
			}
		}
	}
	return h
}

func parseClass(s string) (Class, bool) {
	switch c := Class(s); c {
	case Read, Write, Destructive:
		return c, true
	case classExternal:
		return Write, true
	}
	return "", false
}
