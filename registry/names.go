package registry

import (
	"crypto/sha256"
	"encoding/binary"
	"strings"
)

// nameMaxDefault and nameMaxLeast bound the length of outward names: model
// APIs refuse more than 64 characters, and some clients put a prefix of their
// own before the name.
const (
	nameMaxDefault = 64
	nameMaxLeast   = 40
)

// The hash at the end of a name that could not keep its own letters: eight
// characters, a consonant first, then consonants or digits. There are no
// vowels so that no word, and no digit at the front so that no date, looks
// like one: the rule that hashes every name ending like a hash costs nothing
// in practice.
const (
	hashLen   = 8
	hashFirst = "bcdfghjklmnpqrstvwxz"
	hashRest  = "0123456789" + hashFirst
)

// outwardName is the name under which clients see a tool or prompt: server id,
// underscore, the server's own name for it. It consists of [A-Za-z0-9_-], is
// at most nameMax characters long (clamped to 40..64, 0 means 64) and depends on
// nothing but its arguments.
//
// A name keeps its own letters if it has no others than those above, is not
// empty, is short enough and does not end like a hash. Every other name becomes
// a readable beginning, an underscore and a hash of server id and name.
//
// Two different (server, name) never share an outward name, but for a collision
// of the 38-bit hash inside one server, which the snapshot detects:
//
//  1. The part before the first underscore is serverPart(server), which has no
//     underscore and is different for every server. So servers cannot meet.
//  2. Kept names never end in underscore + hash, hashed names always do. So the
//     two kinds cannot meet.
//  3. Kept names of one server differ where the original names differ; hashed
//     ones differ in their hash.
func outwardName(server, name string, nameMax int) string {
	nameMax = clampNameMax(nameMax)
	if plain := serverPart(server, nameMax) + "_" + name; name != "" && isKept(plain, nameMax) {
		return plain
	}
	return hashed(server, name, nameMax)
}

// isKept reports whether an outward name may be what it is made of.
func isKept(plain string, nameMax int) bool {
	return plain != "" && len(plain) <= nameMax && isNameText(plain) && !endsInHash(plain, '_')
}

// hashed is the outward name of what cannot keep its own letters.
func hashed(server, name string, nameMax int) string {
	part := serverPart(server, nameMax)
	room := nameMax - len(part) - 1 - 1 - hashLen
	readable := readablePrefix(name, room)
	if readable == "" {
		return part + "_" + hashOf(server, name)
	}
	return part + "_" + readable + "_" + hashOf(server, name)
}

// bareName is the outward name of a tool or prompt of a server that is
// configured without prefix: the server's own name for it, if that would be
// kept by outwardName's rule and does not begin like the portal's own tools.
// Every other name is what outwardName makes of it, hash included.
//
// It is for a portal with one server. Two names of it never meet, but for the
// same collision of the hash: kept names differ where the original names do and
// do not end in underscore + hash; all others end so, see hashed.
func bareName(server, name string, nameMax int) string {
	if isKept(name, clampNameMax(nameMax)) && !strings.HasPrefix(name, ownPrefix) {
		return name
	}
	return hashed(server, name, clampNameMax(nameMax))
}

// ownPrefix begins the names of the portal's own tools.
const ownPrefix = "portal_"

// naming is how the names of one server are made.
type naming struct {
	max  int  // of outward names
	bare bool // without the server's id before them
}

func (n naming) outward(server, name string) string {
	if n.bare {
		return bareName(server, name, n.max)
	}
	return outwardName(server, name, n.max)
}

// code is how scripts know a tool. It does not depend on bare: scripts go on
// when the prefix is switched off, and a tool named call or search does not
// hide a function of the sandbox.
func (n naming) code(server, name string) (identifier, member string) {
	o := outwardName(server, name, n.max)
	return Identifier(o), memberName(o)
}

func clampNameMax(n int) int {
	if n == 0 {
		return nameMaxDefault
	}
	return min(nameMaxDefault, max(nameMaxLeast, n))
}

// serverPart is the beginning of the outward names of a server: its id, or, if
// that is too long to leave room for a tool, not a valid id, reserved for the
// portal's own tools or itself ends like a hash, a shortened id with a hash.
// The result always is a valid server id and no two ids share one.
func serverPart(id string, nameMax int) string {
	limit := nameMax - 2*hashLen - 1 // leaves "_", six or seven letters, "_" and a hash
	if len(id) <= limit && isServerID(id) && id != "portal" && !endsInHash(id, '-') {
		return id
	}
	var b strings.Builder
	for _, r := range strings.ToLower(id) {
		if r >= 'a' && r <= 'z' || r >= '0' && r <= '9' {
			b.WriteRune(r)
		} else if n := b.Len(); n > 0 && b.String()[n-1] != '-' {
			b.WriteByte('-')
		}
	}
	s := b.String()
	if room := limit - 1 - hashLen; len(s) > room {
		s = s[:room]
	}
	if s = strings.Trim(s, "-"); s == "" {
		s = "server"
	}
	return s + "-" + hashOf(id, "")
}

// isServerID reports whether id matches ^[a-z0-9]+(-[a-z0-9]+)*$.
func isServerID(id string) bool {
	dash := true
	for i := 0; i < len(id); i++ {
		c := id[i]
		switch {
		case c >= 'a' && c <= 'z', c >= '0' && c <= '9':
			dash = false
		case c == '-' && !dash:
			dash = true
		default:
			return false
		}
	}
	return !dash
}

func isNameByte(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '_' || c == '-'
}

func isNameText(s string) bool {
	for i := 0; i < len(s); i++ {
		if !isNameByte(s[i]) {
			return false
		}
	}
	return true
}

// endsInHash reports whether s ends in sep and something that looks like a hash.
func endsInHash(s string, sep byte) bool {
	n := len(s) - hashLen
	if n < 1 || s[n-1] != sep || strings.IndexByte(hashFirst, s[n]) < 0 {
		return false
	}
	for i := n + 1; i < len(s); i++ {
		if strings.IndexByte(hashRest, s[i]) < 0 {
			return false
		}
	}
	return true
}

// hashOf is the hash of a server id and a name, separated by a zero byte.
func hashOf(server, name string) string {
	sum := sha256.Sum256([]byte(server + "\x00" + name))
	n := binary.BigEndian.Uint64(sum[:])
	var out [hashLen]byte
	out[0] = hashFirst[n%uint64(len(hashFirst))]
	n /= uint64(len(hashFirst))
	for i := 1; i < hashLen; i++ {
		out[i] = hashRest[n%uint64(len(hashRest))]
		n /= uint64(len(hashRest))
	}
	return string(out[:])
}

// readablePrefix is what can be shown of a name in at most room characters:
// runs of foreign characters become one underscore.
func readablePrefix(name string, room int) string {
	var b strings.Builder
	gap := false
	for i := 0; i < len(name) && b.Len() < room; i++ {
		if !isNameByte(name[i]) {
			gap = true
			continue
		}
		if gap && b.Len() > 0 {
			if b.WriteByte('_'); b.Len() == room {
				break
			}
		}
		gap = false
		b.WriteByte(name[i])
	}
	return strings.Trim(b.String(), "_-")
}

// Identifier is an outward name as a JavaScript identifier: codemode.<it>().
// It is the server part, an underscore and memberName:
//
//	dns_zones_list        dns_zones_list
//	my-server_get_data    myServer_get_data
//	shop_get-data         shop_get_data$
//
// No two outward names share one. Server parts have no capitals, no underscore
// and no dollar sign, so a dash may become the capital of the letter after it
// (or, before a digit, a dollar sign) and can be told back; the first
// underscore still separates; memberName is injective by itself. What is not
// an outward name gets a leading dollar sign, which no other form has.
func Identifier(outward string) string {
	server, _, ok := strings.Cut(outward, "_")
	if !ok || !isServerID(server) {
		return "$" + strings.ReplaceAll(outward, "-", "$")
	}
	return camel(server) + "_" + memberName(outward)
}

// memberName is the part of an outward name after its server as a JavaScript
// identifier: <server>.<it>(). Within a server no two names share one:
//
//	get_data     get_data       no dash: as it is
//	get-data     get_data$      dashes only: a single $ at the end says so
//	get-all_data $get$all_data  anything else: a $ at the front, and for each dash
//	then         then$          members with a meaning of their own in JavaScript:
//	__proto__    proto$$        a $ and no underscore, which no other form has
func memberName(outward string) string {
	_, name, ok := strings.Cut(outward, "_")
	if !ok {
		name = outward
	}
	if trapMember(name) {
		if bare := strings.Trim(name, "_"); bare != name {
			return bare + "$$"
		}
		return name + "$"
	}
	dash, under := strings.Contains(name, "-"), strings.Contains(name, "_")
	switch {
	case name == "" || name[0] >= '0' && name[0] <= '9' || dash && under:
		return "$" + strings.ReplaceAll(name, "-", "$")
	case dash:
		return strings.ReplaceAll(name, "-", "_") + "$"
	}
	return name
}

// ServerIdentifier is a server id as the name of a global in a script. Ids that
// would hide a word or global of the language or of the sandbox get an
// underscore at the end, which no other id can have.
func ServerIdentifier(id string) string {
	s := camel(serverPart(id, nameMaxDefault))
	if reservedIdentifier(s) {
		return s + "_"
	}
	return s
}

// camel turns a server id into an identifier; see Identifier.
func camel(id string) string {
	b := make([]byte, 0, len(id)+1)
	if id[0] >= '0' && id[0] <= '9' {
		b = append(b, '_')
	}
	for i := 0; i < len(id); i++ {
		if id[i] != '-' {
			b = append(b, id[i])
			continue
		}
		i++
		if id[i] >= 'a' && id[i] <= 'z' {
			b = append(b, id[i]-'a'+'A')
		} else {
			b = append(b, '$', id[i])
		}
	}
	return string(b)
}

// trapMember reports whether a member of that name changes how JavaScript
// treats the object that has it: awaiting, converting, comparing, inheriting.
func trapMember(name string) bool {
	switch name {
	case "then", "catch", "finally", "constructor", "prototype", "toString", "toLocaleString", "valueOf", "toJSON",
		"hasOwnProperty", "isPrototypeOf", "propertyIsEnumerable",
		"__proto__", "__defineGetter__", "__defineSetter__", "__lookupGetter__", "__lookupSetter__":
		return true
	}
	return false
}

// reservedIdentifier reports whether a script could not have a global of that
// name, or would lose one of the language's or the sandbox's by it.
func reservedIdentifier(name string) bool {
	switch name {
	// words of the language, in any mode
	case "arguments", "as", "async", "await", "break", "case", "catch", "class", "const", "continue", "debugger", "default",
		"delete", "do", "else", "enum", "eval", "export", "extends", "false", "finally", "for", "from", "function", "get",
		"if", "implements", "import", "in", "instanceof", "interface", "let", "new", "null", "of", "package", "private",
		"protected", "public", "return", "set", "static", "super", "switch", "this", "throw", "true", "try", "typeof",
		"undefined", "using", "var", "void", "while", "with", "yield":
		return true
	// words of TypeScript's declarations
	case "abstract", "any", "bigint", "boolean", "declare", "infer", "is", "keyof", "module", "namespace", "never",
		"number", "object", "readonly", "require", "string", "symbol", "type", "unique", "unknown":
		return true
	// globals of the language that an id can spell: no capital at the front
	case "decodeURI", "encodeURI", "escape", "unescape", "globalThis", "isFinite", "isNaN", "parseFloat", "parseInt":
		return true
	// globals of the sandbox, and those a model expects of a host
	case "codemode", "console", "sleep", "portal", "exports", "global", "process", "self", "window", "fetch", "atob",
		"btoa", "crypto", "performance", "queueMicrotask", "structuredClone", "setTimeout", "clearTimeout", "setInterval",
		"clearInterval", "setImmediate", "clearImmediate":
		return true
	}
	return false
}
