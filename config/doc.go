// Package config reads portal.yaml, the one file that says what a portal is.
//
// It is the lowest room of the house and imports no other. Everything here
// turns bytes into one immutable *Config, or into the complete list of what is
// wrong with the bytes:
//
//	bytes ─▶ syntax.go      YAML to a tree with positions; tabs, documents
//	           │
//	           ▼
//	         decode.go      defaults.go first, then strictly into the types of
//	           │            config.go: unknown and duplicate keys, wrong types
//	           │              ├─ substitute.go  ${NAME} and file:/path values
//	           │              ├─ limits.go      enums, bounds, patterns per key
//	           │              └─ suggest.go     the nearest valid key
//	           ▼
//	         validate*.go   what one key cannot know: references, contradictions
//	           │
//	           ▼
//	         *Config        or Errors, each file:line:column: key: what; fix
//
// Around it: watch.go notices a changed file and keeps the old configuration
// if the new one is bad, diff.go says what a change touches, schema.go writes
// the JSON Schema and the key table of docs/configuration.md from the same
// types and limits, glob.go is the one pattern language of all rules, and
// secret.go is the string that never prints itself.
package config
