package writeguard

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/mcp-portal/mcp-portal/wire"
)

// depthMax bounds nesting of arguments that a person is asked to read.
const depthMax = 256

// Canonical writes arguments in one form, so that two calls are the same call
// exactly if their canonical arguments are the same bytes: members sorted by
// name, no white space, one way of escaping. It follows RFC 8785 except that
// numbers keep the digits they were sent with: 1 and 1.0 and 1e0 are different
// calls, and no large integer is rounded. Absent arguments and null are {}.
//
// What different programs read differently is an error: repeated members, text
// that is no UTF-8, half of a surrogate pair. The server could see another
// value than the person did.
func Canonical(args json.RawMessage) (json.RawMessage, error) {
	args = bytes.Trim(args, " \t\r\n") // JSON's white space, no more
	if len(args) == 0 || string(args) == "null" {
		return json.RawMessage("{}"), nil
	}
	if args[0] != '{' {
		return nil, errors.New("read arguments: not a JSON object")
	}
	if !json.Valid(args) {
		return nil, errors.New("read arguments: not valid JSON")
	}
	if err := wellFormedText(args); err != nil {
		return nil, fmt.Errorf("read arguments: %w", err)
	}
	var out bytes.Buffer
	dec := json.NewDecoder(bytes.NewReader(args))
	dec.UseNumber()
	if err := canonicalValue(dec, &out, 0); err != nil {
		return nil, fmt.Errorf("read arguments: %w", err)
	}
	return out.Bytes(), nil
}

// HashArguments is the sha256 of canonical arguments in hex.
func HashArguments(canonical json.RawMessage) string {
	sum := sha256.Sum256(canonical)
	return hex.EncodeToString(sum[:])
}

func canonicalValue(dec *json.Decoder, out *bytes.Buffer, depth int) error {
	if depth > depthMax {
		return fmt.Errorf("nested deeper than %d levels", depthMax)
	}
	t, err := dec.Token()
	if err != nil {
		return err
	}
	switch v := t.(type) {
	case json.Delim:
		if v == '[' {
			return canonicalArray(dec, out, depth)
		}
		return canonicalObject(dec, out, depth)
	case json.Number:
		out.WriteString(v.String())
	case string:
		out.Write(wire.Quote(v))
	case bool:
		fmt.Fprint(out, v)
	case nil:
		out.WriteString("null")
	}
	return nil
}

func canonicalArray(dec *json.Decoder, out *bytes.Buffer, depth int) error {
	out.WriteByte('[')
	for n := 0; dec.More(); n++ {
		if n > 0 {
			out.WriteByte(',')
		}
		if err := canonicalValue(dec, out, depth+1); err != nil {
			return err
		}
	}
	out.WriteByte(']')
	_, err := dec.Token()
	return err
}

func canonicalObject(dec *json.Decoder, out *bytes.Buffer, depth int) error {
	type member struct {
		key   string
		value []byte
	}
	var members []member
	for dec.More() {
		t, err := dec.Token()
		if err != nil {
			return err
		}
		key, ok := t.(string)
		if !ok {
			return errors.New("a member name is not a string")
		}
		var value bytes.Buffer
		if err := canonicalValue(dec, &value, depth+1); err != nil {
			return err
		}
		members = append(members, member{key, value.Bytes()})
	}
	slices.SortFunc(members, func(a, b member) int { return strings.Compare(a.key, b.key) })
	out.WriteByte('{')
	for i, m := range members {
		if i > 0 {
			if members[i-1].key == m.key {
				return fmt.Errorf("member %q is there twice", Visible(m.key))
			}
			out.WriteByte(',')
		}
		out.Write(wire.Quote(m.key))
		out.WriteByte(':')
		out.Write(m.value)
	}
	out.WriteByte('}')
	_, err := dec.Token()
	return err
}

// wellFormedText finds what the decoder would silently replace by U+FFFD. The
// input is valid JSON, so escapes are complete and stand only in strings.
func wellFormedText(b []byte) error {
	if !utf8.Valid(b) {
		return errors.New("a text is not UTF-8")
	}
	for i := 0; i < len(b); i++ {
		if b[i] != '\\' {
			continue
		}
		i++
		if b[i] != 'u' {
			continue
		}
		unit := string(bytes.ToLower(b[i+1 : i+5]))
		i += 4
		switch {
		case unit >= "dc00" && unit <= "dfff":
			return fmt.Errorf("the escape \\u%s is half of a character", unit)
		case unit >= "d800" && unit <= "dbff":
			if i+6 >= len(b) || b[i+1] != '\\' || b[i+2] != 'u' {
				return fmt.Errorf("the escape \\u%s is half of a character", unit)
			}
			low := string(bytes.ToLower(b[i+3 : i+7]))
			if low < "dc00" || low > "dfff" {
				return fmt.Errorf("the escape \\u%s is half of a character", unit)
			}
			i += 6
		}
	}
	return nil
}
