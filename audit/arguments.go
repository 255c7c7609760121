package audit

import (
	"bytes"
	"encoding/json"
	"regexp"
)

// secretName matches the whole name of a member whose value is a credential.
var secretName = regexp.MustCompile(`(?i)^(?:authorization|cookie|` + secretWord + `)$`)

// redactJSON masks credentials in the arguments of a call: strings that look
// like one, and every value under a name like password. Numbers keep their
// digits.
func redactJSON(raw json.RawMessage) json.RawMessage {
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.UseNumber()
	var v any
	if err := dec.Decode(&v); err != nil {
		return note("not readable, %d bytes", len(raw))
	}
	var out bytes.Buffer
	enc := json.NewEncoder(&out)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(redactValue(v)); err != nil {
		return note("not readable, %d bytes", len(raw))
	}
	return bytes.TrimSpace(out.Bytes())
}

func redactValue(v any) any {
	switch x := v.(type) {
	case string:
		return Redact(x)
	case []any:
		for i := range x {
			x[i] = redactValue(x[i])
		}
	case map[string]any:
		for k, item := range x {
			if secretName.MatchString(k) && item != nil {
				x[k] = Mask
				continue
			}
			x[k] = redactValue(item)
		}
	}
	return v
}
