package gateway

import (
	"encoding/hex"
	"encoding/json"
	"strings"

	"github.com/mcp-portal/mcp-portal/wire"
)

// mark says what the listener's client was told last, as an event id: a client
// whose stream broke sends it along when it comes back, to whatever replica,
// and is told what changed while nobody could tell it.
func (x *listener) mark() string {
	parts := make([]string, 0, len(kinds))
	for _, kind := range kinds {
		sum := x.seen[kind]
		parts = append(parts, hex.EncodeToString(sum[:8]))
	}
	return strings.Join(parts, "-")
}

// missed returns the kinds that changed since the client had that mark. An id
// that is none of ours says nothing.
func (x *listener) missed(mark string) []string {
	had, now := strings.Split(mark, "-"), strings.Split(x.mark(), "-")
	if len(had) != len(now) {
		return nil
	}
	var changed []string
	for i := range now {
		switch {
		case len(had[i]) != len(now[i]):
			return nil
		case had[i] != now[i]:
			changed = append(changed, kinds[i])
		}
	}
	return changed
}

// changed is the event that tells of one kind.
func (x *listener) changed(kind string) []byte {
	m := wire.Message{Method: "notifications/" + kind + "/list_changed"}
	ev := wire.Event{Name: "message"}
	if x.session != "" {
		ev.ID = x.mark()
	}
	if x.stamp != nil {
		m.Params = wire.Object{{Key: "_meta", Value: stamped(x.stamp)}}.Bytes()
	}
	ev.Data = m.Bytes()
	return wire.AppendEvent(nil, ev)
}

func stamped(id json.RawMessage) json.RawMessage {
	return wire.Object{{Key: wire.MetaSubscriptionID, Value: id}}.Bytes()
}
