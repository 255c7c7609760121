package codemode

import (
	"bytes"
	"encoding/json"
	"strings"
)

// Plain returns what a script would get for a CallToolResult, as JSON:
// structuredContent, else the JSON object or array in its text, else the text.
// ok is false when the result is marked as an error, cannot be read, or holds
// content that is not text.
func Plain(result json.RawMessage) (value json.RawMessage, ok bool) {
	var r struct {
		IsError    bool            `json:"isError"`
		Structured json.RawMessage `json:"structuredContent"`
		Legacy     json.RawMessage `json:"toolResult"`
		Content    []struct {
			Type string `json:"type"`
			Text string `json:"text"`
		} `json:"content"`
	}
	if json.Unmarshal(result, &r) != nil || r.IsError {
		return nil, false
	}
	for _, v := range []json.RawMessage{r.Structured, r.Legacy} {
		if len(v) > 0 && string(v) != "null" {
			return v, true
		}
	}
	var texts []string
	for _, c := range r.Content {
		if c.Type != "text" {
			return nil, false
		}
		texts = append(texts, c.Text)
	}
	if len(texts) == 0 {
		return nil, false
	}
	text := strings.Join(texts, "\n")
	if t := bytes.TrimSpace([]byte(text)); len(t) > 0 && (t[0] == '{' || t[0] == '[') && json.Valid(t) {
		return t, true
	}
	return appendQuoted(nil, strings.ToValidUTF8(text, "\ufffd")), true
}
