package openapi

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/big"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/mcp-portal/mcp-portal/wire"
)

// Bounds of what the aliases of a YAML document may unfold to.
const (
	maxYAMLDepth = 200
	maxYAMLNodes = 6_000_000
)

// yamlToJSON keeps the order of keys and the digits of numbers. Keys that are
// no text, such as the status 200, become text; dates stay as written.
func yamlToJSON(data []byte) (json.RawMessage, error) {
	var n yaml.Node
	if err := yaml.Unmarshal(data, &n); err != nil {
		return nil, errors.New(oneLine(err.Error(), 200))
	}
	w := yamlWriter{}
	if len(n.Content) != 1 || n.Content[0].Kind != yaml.MappingNode {
		return nil, errors.New("its top is no mapping")
	}
	if err := w.node(n.Content[0], 0); err != nil {
		return nil, err
	}
	return w.b, nil
}

type yamlWriter struct {
	b     []byte
	nodes int
}

// count bounds the work, whatever aliases lead to.
func (w *yamlWriter) count(depth int) error {
	if w.nodes++; w.nodes > maxYAMLNodes || depth > maxYAMLDepth || len(w.b) > MaxDocument {
		return errors.New("its aliases or its depth are more than can be read")
	}
	return nil
}

func (w *yamlWriter) node(n *yaml.Node, depth int) error {
	if err := w.count(depth); err != nil {
		return err
	}
	switch n.Kind {
	case yaml.AliasNode:
		return w.node(n.Alias, depth+1)
	case yaml.SequenceNode:
		w.b = append(w.b, '[')
		for i, c := range n.Content {
			if i > 0 {
				w.b = append(w.b, ',')
			}
			if err := w.node(c, depth+1); err != nil {
				return err
			}
		}
		w.b = append(w.b, ']')
	case yaml.MappingNode:
		pairs, err := w.merged(n, 0)
		if err != nil {
			return err
		}
		w.b = append(w.b, '{')
		for i, p := range pairs {
			if i > 0 {
				w.b = append(w.b, ',')
			}
			w.b = append(append(w.b, wire.Quote(p[0].Value)...), ':')
			if err := w.node(p[1], depth+1); err != nil {
				return err
			}
		}
		w.b = append(w.b, '}')
	case yaml.ScalarNode:
		w.b = append(w.b, scalarJSON(n)...)
	default:
		return fmt.Errorf("line %d cannot be read", n.Line)
	}
	return nil
}

// merged are the pairs of a mapping with those of its merge keys (<<); a key of
// its own counts before a merged one.
func (w *yamlWriter) merged(n *yaml.Node, depth int) ([][2]*yaml.Node, error) {
	if err := w.count(depth); err != nil {
		return nil, err
	}
	var out [][2]*yaml.Node
	seen := map[string]bool{}
	var merges []*yaml.Node
	for i := 0; i+1 < len(n.Content); i += 2 {
		k, v := n.Content[i], n.Content[i+1]
		if k.Kind == yaml.AliasNode {
			k = k.Alias // never one itself: an anchor names a node
		}
		switch {
		case k.Tag == "!!merge":
			merges = append(merges, v)
		case k.Kind != yaml.ScalarNode:
			return nil, fmt.Errorf("line %d has a key that is no text", k.Line)
		case !seen[k.Value]:
			seen[k.Value] = true
			out = append(out, [2]*yaml.Node{k, v})
		}
	}
	for _, m := range merges {
		pairs, err := w.merge(m, depth+1)
		if err != nil {
			return nil, err
		}
		for _, p := range pairs {
			if !seen[p[0].Value] {
				seen[p[0].Value] = true
				out = append(out, p)
			}
		}
	}
	return out, nil
}

// merge are the pairs that the value of a merge key brings: those of a mapping,
// or of several.
func (w *yamlWriter) merge(n *yaml.Node, depth int) ([][2]*yaml.Node, error) {
	if err := w.count(depth); err != nil {
		return nil, err
	}
	switch n.Kind {
	case yaml.AliasNode:
		return w.merge(n.Alias, depth+1)
	case yaml.MappingNode:
		return w.merged(n, depth+1)
	case yaml.SequenceNode:
		var out [][2]*yaml.Node
		for _, c := range n.Content {
			pairs, err := w.merge(c, depth+1)
			if err != nil {
				return nil, err
			}
			out = append(out, pairs...)
		}
		return out, nil
	}
	return nil, nil
}

func scalarJSON(n *yaml.Node) json.RawMessage {
	switch n.ShortTag() {
	case "!!null":
		return json.RawMessage("null")
	case "!!bool":
		return json.RawMessage(strings.ToLower(n.Value))
	case "!!int":
		if json.Valid([]byte(n.Value)) {
			return json.RawMessage(n.Value)
		}
		if i, ok := new(big.Int).SetString(strings.ReplaceAll(n.Value, "_", ""), 0); ok {
			return json.RawMessage(i.String())
		}
	case "!!float":
		if json.Valid([]byte(n.Value)) {
			return json.RawMessage(n.Value)
		}
		var f float64
		if n.Decode(&f) == nil {
			if b, err := json.Marshal(f); err == nil {
				return b
			}
		}
	}
	return wire.Quote(n.Value)
}
