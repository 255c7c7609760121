package wire

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
)

// Members of params._meta and result._meta that belong to one hop.
const (
	MetaProtocolVersion    = "io.modelcontextprotocol/protocolVersion"
	MetaClientInfo         = "io.modelcontextprotocol/clientInfo"
	MetaClientCapabilities = "io.modelcontextprotocol/clientCapabilities"
	MetaServerInfo         = "io.modelcontextprotocol/serverInfo"
	MetaLogLevel           = "io.modelcontextprotocol/logLevel"
	MetaSubscriptionID     = "io.modelcontextprotocol/subscriptionId"
	MetaProgressToken      = "progressToken"
)

// SetMeta sets members of params._meta and leaves every other byte of params
// alone. A nil value removes the member. Nil or empty params are an empty
// object. A _meta that is null counts as absent. Members that are new are
// added in sorted order. It fails when params or _meta is not an object.
func SetMeta(params json.RawMessage, set map[string]json.RawMessage) (json.RawMessage, error) {
	if len(bytes.TrimSpace(params)) == 0 {
		params = json.RawMessage(`{}`)
	}
	if len(set) == 0 {
		return params, nil
	}
	o, err := ParseObject(params)
	if err != nil {
		return nil, fmt.Errorf("set _meta of params: %w", err)
	}
	var meta Object
	if m := o.Get("_meta"); m != nil && !bytes.Equal(m, []byte("null")) {
		if meta, err = SplitObject(m); err != nil {
			return nil, fmt.Errorf("set _meta: _meta: %w", err)
		}
	}
	keys := make([]string, 0, len(set))
	for k := range set {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	changed := false
	for _, k := range keys {
		switch v := set[k]; {
		case v != nil:
			meta, changed = meta.Set(k, v), true
		case meta.Get(k) != nil:
			meta, changed = meta.Without(k), true
		}
	}
	if !changed {
		return params, nil
	}
	return Splice(params, "_meta", meta.Bytes())
}

// Meta returns one member of params._meta (or result._meta), nil if absent.
func Meta(params json.RawMessage, key string) json.RawMessage {
	o, err := ParseObject(params)
	if err != nil {
		return nil
	}
	m, err := ParseObject(o.Get("_meta"))
	if err != nil {
		return nil
	}
	return m.Get(key)
}
