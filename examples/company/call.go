package company

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/google/jsonschema-go/jsonschema"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// operation carries out a tool whose arguments fit its schema. Its value
// becomes the result, as structured content and as JSON text; a plainText only
// as text. Its error becomes a result with isError.
type operation func(ctx context.Context, r *run, args json.RawMessage) (any, error)

// plainText is a result without structured content.
type plainText string

// locked makes an operation of a function that runs under the lock of the run.
func locked[A any](f func(r *run, args A) (any, error)) operation {
	return func(_ context.Context, r *run, raw json.RawMessage) (any, error) {
		args, err := decode[A](raw)
		if err != nil {
			return nil, err
		}
		r.mu.Lock()
		defer r.mu.Unlock()
		return f(r, args)
	}
}

// decode reads checked arguments into their Go type. What the schema allows and
// Go does not, such as 1.0 for an int, is refused here.
func decode[A any](raw json.RawMessage) (A, error) {
	var args A
	if err := json.Unmarshal(raw, &args); err != nil {
		return args, fmt.Errorf("invalid arguments: %w; write whole numbers without point or exponent", err)
	}
	return args, nil
}

// toolHandler returns what the SDK calls for a tool.
func (c *Company) toolHandler(t Tool, schema *jsonschema.Resolved, op operation) mcp.ToolHandler {
	return func(ctx context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		r := c.run.Load()
		call := r.begin(t, req.Params.Arguments)
		res, text := answer(ctx, r, schema, op, req.Params.Arguments)
		outcome := OutcomeOK
		if res.IsError {
			outcome = OutcomeError
		} else {
			text = ""
		}
		r.end(call, outcome, text)
		c.log.DebugContext(ctx, "call", "server", t.Server, "tool", t.Name, "outcome", outcome, "error", text)
		return res, nil
	}
}

// answer runs op and shapes its result; text is the text block of the result.
func answer(ctx context.Context, r *run, schema *jsonschema.Resolved, op operation, raw json.RawMessage) (res *mcp.CallToolResult, text string) {
	args, err := checkArguments(schema, raw)
	var value any
	if err == nil {
		value, err = op(ctx, r, args)
	}
	if err != nil {
		return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: err.Error()}}, IsError: true}, err.Error()
	}
	if plain, ok := value.(plainText); ok {
		return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: string(plain)}}}, string(plain)
	}
	encoded, err := encode(value)
	if err != nil {
		err = fmt.Errorf("encoding the result: %w", err)
		return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: err.Error()}}, IsError: true}, err.Error()
	}
	return &mcp.CallToolResult{
		Content:           []mcp.Content{&mcp.TextContent{Text: string(encoded)}},
		StructuredContent: encoded,
	}, string(encoded)
}

// checkArguments holds the arguments against the schema of the tool and against
// the names it knows, since a misspelt filter that is ignored would widen a
// query without a word.
func checkArguments(schema *jsonschema.Resolved, raw json.RawMessage) (json.RawMessage, error) {
	if trimmed := bytes.TrimSpace(raw); len(trimmed) == 0 || bytes.Equal(trimmed, []byte("null")) {
		raw = json.RawMessage("{}")
	}
	var args map[string]any
	if err := json.Unmarshal(raw, &args); err != nil {
		return nil, fmt.Errorf("invalid arguments: they must be a JSON object: %w", err)
	}
	known := slices.Sorted(maps.Keys(schema.Schema().Properties))
	for _, name := range slices.Sorted(maps.Keys(args)) {
		if !slices.Contains(known, name) {
			if len(known) == 0 {
				return nil, fmt.Errorf("invalid arguments: unknown argument %q; this tool takes none", name)
			}
			return nil, fmt.Errorf("invalid arguments: unknown argument %q; known are %s", name, strings.Join(known, ", "))
		}
	}
	if err := schema.Validate(args); err != nil {
		return nil, fmt.Errorf("invalid arguments: %w", err)
	}
	return raw, nil
}

// encode is json.Marshal without escaping <, > and &, so that text reads as it
// was written.
func encode(v any) (json.RawMessage, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return nil, err
	}
	return bytes.TrimRight(b.Bytes(), "\n"), nil
}

// oneOf refuses a filter value that cannot match anything.
func oneOf(name, value string, allowed ...string) error {
	if value == "" || slices.Contains(allowed, value) {
		return nil
	}
	return fmt.Errorf("%s %q is unknown; use one of %s", name, value, strings.Join(allowed, ", "))
}
