package worker

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/dop251/goja"
)

// toolError is a result that is an error, or one that cannot be read.
type toolError struct {
	code string
	text string
	data goja.Value // structured content beside the text, if any
}

func (e *toolError) Error() string { return e.text }

func asToolError(err error) *toolError {
	var t *toolError
	if errors.As(err, &t) {
		return t
	}
	return &toolError{code: "bad_result", text: "the result of the tool cannot be read: " + err.Error()}
}

// envelope is what matters of a CallToolResult (2025 and 2026 revisions of the
// protocol, and the toolResult of 2024).
type envelope struct {
	structured, content, legacy []byte
	isError                     bool
}

// unwrap turns a CallToolResult into the value a script works with:
// structuredContent, else the JSON objects or arrays in its text, else the text,
// else its content blocks. A result marked as error is a *toolError. Blocks that
// cannot be read are left out; fault is told which.
func unwrap(vm *goja.Runtime, raw []byte, fault func(string)) (goja.Value, error) {
	var e envelope
	err := eachMember(raw, func(name string, value []byte) {
		switch name {
		case "structuredContent":
			e.structured = value
		case "content":
			e.content = value
		case "toolResult":
			e.legacy = value
		case "isError":
			e.isError = string(value) == "true"
		}
	})
	if err != nil {
		return nil, err
	}
	if e.isError {
		return nil, e.failure(vm)
	}
	if present(e.structured) {
		return parseJSON(vm, e.structured)
	}
	if present(e.legacy) {
		return parseJSON(vm, e.legacy)
	}
	if !present(e.content) {
		return goja.Null(), nil
	}
	return contentValue(vm, e.content, fault)
}

func present(raw []byte) bool { return len(raw) > 0 && string(raw) != "null" }

func contentValue(vm *goja.Runtime, content []byte, fault func(string)) (goja.Value, error) {
	texts, others, bad, err := blocks(content)
	if err != nil {
		return nil, err
	}
	if len(bad) > 0 {
		if len(texts) == 0 && len(others) == 0 {
			return nil, errors.New(bad[0])
		}
		fault(bad[0] + more(len(bad)-1))
	}
	if len(texts) == 0 && len(others) == 0 {
		return goja.Null(), nil
	}
	if len(others) == 0 {
		return textValue(vm, strings.Join(texts, "\n")), nil
	}
	var items []any
	if len(texts) > 0 {
		items = append(items, textValue(vm, strings.Join(texts, "\n")))
	}
	for _, o := range others {
		v, err := parseJSON(vm, o)
		if err != nil {
			return nil, err
		}
		items = append(items, v)
	}
	if len(items) == 1 {
		return items[0].(goja.Value), nil
	}
	return vm.NewArray(items...), nil
}

// textValue parses text that is a JSON object or array. Numbers and words stay
// text: an account number must not lose its zeros.
func textValue(vm *goja.Runtime, text string) goja.Value {
	t := strings.TrimSpace(text)
	if strings.HasPrefix(t, "{") || strings.HasPrefix(t, "[") {
		if v, err := parseJSON(vm, []byte(t)); err == nil {
			return v
		}
	}
	return vm.ToValue(text)
}

func more(n int) string {
	if n == 0 {
		return ""
	}
	return fmt.Sprintf(", and %d more are malformed", n)
}

// blocks splits content into the texts, the raw other blocks, and what is wrong
// with those that are neither.
func blocks(content []byte) (texts []string, others [][]byte, bad []string, err error) {
	n := 0
	err = eachItem(content, func(item []byte) error {
		n++
		if len(item) == 0 || item[0] != '{' {
			bad = append(bad, fmt.Sprintf("content block %d is no object", n))
			return nil
		}
		var kind, text []byte
		if err := eachMember(item, func(name string, value []byte) {
			switch name {
			case "type":
				kind = value
			case "text":
				text = value
			}
		}); err != nil {
			return err
		}
		if string(kind) != `"text"` {
			others = append(others, item)
			return nil
		}
		var s string
		if len(text) == 0 || text[0] != '"' || json.Unmarshal(text, &s) != nil {
			bad = append(bad, fmt.Sprintf("content block %d is a text block without a text", n))
			return nil
		}
		texts = append(texts, s)
		return nil
	})
	return texts, others, bad, err
}

func (e *envelope) failure(vm *goja.Runtime) *toolError {
	t := &toolError{code: "tool_error"}
	if present(e.content) {
		if texts, _, _, err := blocks(e.content); err == nil {
			t.text = strings.TrimSpace(strings.Join(texts, "\n"))
		}
	}
	if present(e.structured) {
		if v, err := parseJSON(vm, e.structured); err == nil {
			t.data = v
		}
		if t.text == "" {
			t.text = clip(string(e.structured), 2000)
		}
	}
	if t.text == "" {
		t.text = "the tool reported an error without saying which"
	}
	return t
}
