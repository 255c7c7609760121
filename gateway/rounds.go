package gateway

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/mcp-portal/mcp-portal/wire"
	"github.com/mcp-portal/mcp-portal/writeguard"
)

// round is an approved call that its server answered with input_required: the
// client's retry goes on with the same approval. It is kept in the store, so
// that any replica can serve the retry, and taken once.
type round struct {
	User     string          `json:"user"`
	Method   string          `json:"method"`
	Server   string          `json:"server"`
	Name     string          `json:"name"`
	Hash     string          `json:"hash"` // of what the call is about
	Approval string          `json:"approval"`
	State    json.RawMessage `json:"state,omitempty"` // the server's own requestState; nil if it sent none
}

// params are those of the retry for the server: with its own state, and when a
// person approved the call only what that person saw and the answers. tasks says
// that the tool may become a task.
func (r *round) params(out wire.Object, tasks bool) wire.Object {
	if r.Approval != "" {
		answers := out.Get("inputResponses")
		if out = approvedParams(out, tasks); answers != nil {
			out = out.Set("inputResponses", answers)
		}
	}
	if r.State == nil {
		return out.Without("requestState")
	}
	return out.Set("requestState", r.State)
}

const (
	roundPrefix = "portal-round:"
	roundFor    = 15 * time.Minute
)

// ourPrefix is what every requestState of a portal begins with. An upstream's
// own state that begins so (another portal) is wrapped like that of an approved
// call, so that the two are never confused.
const ourPrefix = "portal-"

// isOurState reports whether a requestState was made by the portal.
func isOurState(s string) bool {
	return strings.HasPrefix(s, ourPrefix)
}

// continuation takes the round that a retry names. Nil without an error: there
// is none, the call begins anew.
func (g *Gateway) continuation(ctx context.Context, p *passage, x crossing) (*round, error) {
	id, ok := strings.CutPrefix(p.state, roundPrefix)
	if !ok {
		return nil, nil
	}
	raw, found, err := g.opt.Store.Take(ctx, "round:"+id)
	if err != nil {
		return nil, fmt.Errorf("read the earlier round of %s on server %s: %w", x.name, x.server, err)
	}
	var r round
	if !found || json.Unmarshal(raw, &r) != nil {
		return nil, nil
	}
	if r.User != p.req.who.ID || r.Method != x.method || r.Server != x.server || r.Name != x.name || r.Hash != x.hash() {
		return nil, nil
	}
	return &r, nil
}

// keepContinuation stores the round and puts its id in place of the server's
// requestState.
func (g *Gateway) keepContinuation(ctx context.Context, p *passage, x crossing, result, state json.RawMessage) (json.RawMessage, error) {
	r := round{User: p.req.who.ID, Method: x.method, Server: x.server, Name: x.name, Hash: x.hash(), Approval: x.approval, State: state}
	id := randomID()
	if err := g.opt.Store.Set(ctx, "round:"+id, wire.Encode(r), roundFor); err != nil {
		return nil, fmt.Errorf("keep the round of %s on server %s: %w", x.name, x.server, err)
	}
	o, err := wire.ParseObject(result)
	if err != nil {
		return nil, err
	}
	return o.SetString("requestState", roundPrefix+id).Bytes(), nil
}

// hash tells one call from another with the same name: by its arguments, or by
// all that is asked for where there are none.
func (x crossing) hash() string {
	subject := x.params.Get("arguments")
	if x.method != "tools/call" {
		subject = x.params.Without("_meta", "requestState", "inputResponses").Bytes()
	} else if subject == nil {
		subject = json.RawMessage("{}")
	}
	canon, err := writeguard.Canonical(subject)
	if err != nil {
		canon = bytes.TrimSpace(subject)
	}
	h := sha256.Sum256(canon)
	return hex.EncodeToString(h[:])
}

// inRounds reports whether a server may answer a method with input_required
// (2026-07-28, basic/patterns/mrtr, "Supported requests").
func inRounds(method string) bool {
	return method == "tools/call" || method == "prompts/get" || method == "resources/read"
}
