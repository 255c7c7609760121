package gateway

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/mcp-portal/mcp-portal/upstreams"
	"github.com/mcp-portal/mcp-portal/wire"
)

// A 2025 server asks while a call is under way; a 2026-07-28 client answers
// with a retry of the call. So the call at the server is parked: its questions
// end the client's round as input_required under a random requestState, and
// the retry with that state brings the answers and waits for what the server
// does next. The call is sent once, however many rounds there are.
//
// A state is good for one retry, of the same user, for the same call, within
// guard.ask_timeout. After that the call is cancelled at its server.

const (
	parkPrefix = ourPrefix + "call:"
	// parkedPerUser bounds the calls of one user that wait for answers.
	parkedPerUser = 32
	// heldNotes bounds the notifications kept for a client that is away.
	heldNotes = 200
)

func isParked(state string) bool { return strings.HasPrefix(state, parkPrefix) }

// inputNeeded ends a round: result asks the client for input.
type inputNeeded struct{ result json.RawMessage }

func (n *inputNeeded) Error() string { return "the server waits for the client's answers" }

// asked turns the end of a round into its result.
func asked(result json.RawMessage, err error) (json.RawMessage, error) {
	var n *inputNeeded
	if errors.As(err, &n) {
		return n.result, nil
	}
	return result, err
}

// parkedRecord says which call a state belongs to. The store keeps one for
// each, so that any replica knows whether to look for its holder.
type parkedRecord struct {
	User     string `json:"user"`
	Method   string `json:"method"`
	Server   string `json:"server"`
	Name     string `json:"name"`
	Hash     string `json:"hash"`
	Approval string `json:"approval,omitempty"`
}

// fits reports whether a retry is of the call that the record is about.
func (r parkedRecord) fits(x crossing) bool {
	return r.Method == x.method && r.Server == x.server && r.Name == x.name && r.Hash == x.hash()
}

// parking holds the calls that wait, by the state that goes on with each.
type parking struct {
	g *Gateway

	mu     sync.Mutex
	calls  map[string]*parkedCall
	users  map[string]int
	closed bool
}

// parkedCall is a call at a 2025 server on behalf of a 2026-07-28 client. It is
// one from its beginning, though most never have to wait.
type parkedCall struct {
	rec    parkedRecord
	may    func(method string, params json.RawMessage) bool
	ctx    context.Context
	cancel context.CancelCauseFunc
	timer  *time.Timer // of the state under which it waits

	done   chan struct{} // closed when the server has answered
	result json.RawMessage
	err    error

	news chan struct{} // a question nobody was shown yet

	mu    sync.Mutex
	open  []*openQuestion
	asked int
	to    func(method string, params json.RawMessage) // nil: the client is away
	token json.RawMessage                             // progress token of the present round
	held  []wire.Message
}

type openQuestion struct {
	key, method string
	params      json.RawMessage
	got         chan json.RawMessage
}

// begin makes a call that may be parked. do is the exchange.
func (pk *parking) begin(ctx context.Context, p *passage, x crossing,
	do func(ctx context.Context, notify func(string, json.RawMessage), ask asker) (json.RawMessage, error)) (json.RawMessage, error) {
	k := &parkedCall{done: make(chan struct{}), news: make(chan struct{}, 1), may: p.req.mayBeAsked,
		rec: parkedRecord{User: p.req.who.ID, Method: x.method, Server: x.server, Name: x.name, Approval: x.approval}}
	k.ctx, k.cancel = context.WithCancelCause(context.WithoutCancel(ctx))
	k.attach(p)
	go func() {
		defer close(k.done)
		defer k.cancel(nil)
		defer pk.g.contain(x.server, x.name, &k.err)
		k.result, k.err = do(k.ctx, k.notify, k.ask)
	}()
	return pk.attend(ctx, k, x, p.req.set.cfg.Guard.AskTimeout)
}

// ask takes a question of the server and waits for the retry that answers it.
func (k *parkedCall) ask(ctx context.Context, method string, params json.RawMessage) (json.RawMessage, *wire.Error) {
	if !k.may(method, params) {
		return nil, notAnswered(method)
	}
	k.mu.Lock()
	k.asked++
	q := &openQuestion{key: fmt.Sprintf("ask-%d", k.asked), method: method, params: params, got: make(chan json.RawMessage, 1)}
	k.open = append(k.open, q)
	k.mu.Unlock()
	k.tell()
	select {
	case res := <-q.got:
		return res, nil
	case <-ctx.Done(): // withdrawn by the server, or the call is over
		k.answer(q.key, nil)
		return nil, wire.Errorf(wire.CodeInternal, "the client did not answer: %v", context.Cause(ctx))
	}
}

// tell makes whoever attends the call look at its questions.
func (k *parkedCall) tell() {
	select {
	case k.news <- struct{}{}:
	default:
	}
}

// answer closes a question, with an answer if there is one.
func (k *parkedCall) answer(key string, res json.RawMessage) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for i, q := range k.open {
		if q.key == key {
			k.open = append(k.open[:i:i], k.open[i+1:]...)
			if res != nil {
				q.got <- res
			}
			return
		}
	}
}

// notify passes a notification on to the present round, under the progress
// token of that, or keeps it for the next.
func (k *parkedCall) notify(method string, params json.RawMessage) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.to != nil {
		k.passLocked(method, params)
		return
	}
	if len(k.held) == heldNotes {
		k.held = k.held[1:]
	}
	k.held = append(k.held, wire.Message{Method: method, Params: params})
}

func (k *parkedCall) passLocked(method string, params json.RawMessage) {
	if method == "notifications/progress" {
		if k.token == nil {
			return
		}
		if p, err := wire.Splice(params, wire.MetaProgressToken, k.token); err == nil {
			params = p
		}
	}
	k.to(method, params)
}

// attach makes p the round that hears of the call.
func (k *parkedCall) attach(p *passage) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.to, k.token = p.notify, p.req.progress
	for _, m := range k.held {
		k.passLocked(m.Method, m.Params)
	}
	k.held = nil
}

func (k *parkedCall) detach() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.to = nil
}

// attend waits for what the server does next: its result, or questions, under
// which the call is parked.
func (pk *parking) attend(ctx context.Context, k *parkedCall, x crossing, patience time.Duration) (json.RawMessage, error) {
	defer k.detach()
	for {
		select {
		case <-k.done:
			return k.result, k.err
		case <-ctx.Done():
			k.cancel(context.Cause(ctx))
			<-k.done
			return k.result, k.err
		case <-k.news:
			if !k.settled(ctx) {
				continue
			}
			result, err := pk.park(ctx, k, x, patience)
			if err != nil {
				k.cancel(err)
				<-k.done
				return nil, err
			}
			if result != nil {
				return nil, &inputNeeded{result}
			}
		}
	}
}

// Servers that ask several things at once do so in messages of their own, which
// come one after the other.
const (
	questionGap  = 30 * time.Millisecond // after which no other is expected
	questionWait = 10 * questionGap
)

// settled waits until no further question comes, so that those that were put
// together are put to the client together. It reports false when the call ended
// meanwhile.
func (k *parkedCall) settled(ctx context.Context) bool {
	end := time.NewTimer(questionWait)
	defer end.Stop()
	for {
		select {
		case <-k.news:
		case <-time.After(questionGap):
			return true
		case <-end.C:
			return true
		case <-k.done:
			return false
		case <-ctx.Done():
			return false
		}
	}
}

// park makes the call wait for a retry. No result means that it has no question
// any more.
func (pk *parking) park(ctx context.Context, k *parkedCall, x crossing, patience time.Duration) (json.RawMessage, error) {
	var requests wire.Object
	k.mu.Lock()
	for _, q := range k.open {
		params := q.params
		if params == nil {
			// Servers ask for roots without any; clients of this era, the Go
			// SDK's among them, take that for a broken message.
			params = json.RawMessage(`{}`)
		}
		o := wire.Object{{Key: "method", Value: wire.Quote(q.method)}, {Key: "params", Value: params}}
		requests = append(requests, wire.Field{Key: q.key, Value: o.Bytes()})
	}
	k.mu.Unlock()
	if requests == nil {
		return nil, nil
	}
	if k.rec.Hash == "" {
		k.rec.Hash = x.hash()
	}
	state := parkPrefix + randomID()
	pk.mu.Lock()
	switch {
	case pk.closed:
		pk.mu.Unlock()
		return nil, pk.lost(x, "the portal process that held it was shut down")
	case pk.users[k.rec.User] >= parkedPerUser:
		pk.mu.Unlock()
		return nil, pk.lost(x, fmt.Sprintf("%d other calls of yours wait for answers already: answer those first", parkedPerUser))
	}
	pk.users[k.rec.User]++
	pk.calls[state] = k
	k.timer = time.AfterFunc(patience, func() {
		if pk.take(state, k.rec.User) != nil {
			k.cancel(fmt.Errorf("the client did not answer the server's question within %v", patience))
		}
	})
	pk.mu.Unlock()
	if !pk.alone() {
		// Without it only this replica can go on with the call.
		if err := pk.g.opt.Store.Set(ctx, storedCall(state), wire.Encode(k.rec), patience); err != nil {
			pk.g.log.Warn("a call that waits for answers is known to this process only", "server", x.server, "error", err)
		}
	}
	return wire.Object{
		{Key: "resultType", Value: json.RawMessage(`"input_required"`)},
		{Key: "inputRequests", Value: requests.Bytes()},
		{Key: "requestState", Value: wire.Quote(state)},
	}.Bytes(), nil
}

// alone reports that there cannot be another replica.
func (pk *parking) alone() bool { return pk.g.opt.Store.Status().Backend == "file" }

func storedCall(state string) string { return "parked:" + strings.TrimPrefix(state, parkPrefix) }

// find returns the call that waits here under a state of the user.
func (pk *parking) find(state, user string) *parkedCall {
	pk.mu.Lock()
	defer pk.mu.Unlock()
	if k := pk.calls[state]; k != nil && k.rec.User == user {
		return k
	}
	return nil
}

// take is find, and uses the state up.
func (pk *parking) take(state, user string) *parkedCall {
	pk.mu.Lock()
	defer pk.mu.Unlock()
	k := pk.calls[state]
	if k == nil || k.rec.User != user {
		return nil
	}
	delete(pk.calls, state)
	if pk.users[user]--; pk.users[user] == 0 {
		delete(pk.users, user)
	}
	k.timer.Stop()
	return k
}

// record finds what the store, or this replica, knows of the state of a retry,
// and checks that it is a retry of that call.
func (pk *parking) record(ctx context.Context, p *passage, x crossing) (parkedRecord, error) {
	var rec parkedRecord
	if k := pk.find(p.state, p.req.who.ID); k != nil {
		rec = k.rec
	} else if !pk.alone() {
		raw, found, err := pk.g.opt.Store.Get(ctx, storedCall(p.state))
		if err != nil {
			return rec, fmt.Errorf("go on with %s on server %s: the store cannot be reached to find the call; send the same retry again in a moment: %w", x.name, x.server, err)
		}
		if !found || json.Unmarshal(raw, &rec) != nil {
			rec = parkedRecord{}
		}
	}
	switch {
	case rec.User != p.req.who.ID:
		return rec, pk.unknown(x)
	case !rec.fits(x):
		return rec, wire.Errorf(wire.CodeInvalidParams, "requestState belongs to another call: retry with exactly the name and arguments of the call that was answered with it. Nothing was sent.")
	}
	return rec, nil
}

// approvalOf is the approval with which the call of a retry was sent, if any.
func (pk *parking) approvalOf(ctx context.Context, p *passage, x crossing) (string, error) {
	rec, err := pk.record(ctx, p, x)
	return rec.Approval, err
}

// goOn brings the answers of a retry to its call, here or on the replica that
// holds it, and waits for what comes next.
func (pk *parking) goOn(ctx context.Context, p *passage, x crossing) (json.RawMessage, error) {
	if _, err := pk.record(ctx, p, x); err != nil {
		return nil, err
	}
	k := pk.take(p.state, p.req.who.ID)
	if k == nil {
		if pk.alone() {
			return nil, pk.unknown(x)
		}
		return pk.goOnElsewhere(ctx, p, x)
	}
	if !pk.alone() {
		if err := pk.g.opt.Store.Delete(ctx, storedCall(p.state)); err != nil {
			pk.g.log.Debug("the note of a call that goes on was not removed", "error", err) // it expires
		}
	}
	return pk.resume(ctx, k, p, x)
}

// resume goes on with a call of this replica.
func (pk *parking) resume(ctx context.Context, k *parkedCall, p *passage, x crossing) (json.RawMessage, error) {
	k.attach(p)
	if responses, err := wire.ParseObject(p.responses); err == nil {
		for _, r := range responses {
			k.answer(r.Key, r.Value)
		}
	}
	k.tell() // what is still open is asked again
	return pk.attend(ctx, k, x, p.req.set.cfg.Guard.AskTimeout)
}

// drop gives up the call of a retry that may not go on.
func (pk *parking) drop(ctx context.Context, p *passage, x crossing, why error) {
	if k := pk.take(p.state, p.req.who.ID); k != nil {
		k.cancel(why)
		<-k.done
		return
	}
	pk.quitElsewhere(ctx, p, x)
}

// unknown is the error of a retry whose state is good for nothing: made up, used
// or over. What the server had done by then nobody knows.
func (pk *parking) unknown(x crossing) error {
	return wire.Errorf(wire.CodeInvalidParams, "requestState is not good for %s on server %s: the server's question was not answered in time, was answered before, or the portal process that held the call has ended, and then the call was cancelled at the server. Nothing was sent now. The outcome of the call is unknown: it may have been carried out. Check before calling it again", bounded(x.name, 100), x.server)
}

// lost is the error of a call that cannot go on.
func (pk *parking) lost(x crossing, why string) error {
	return &upstreams.CallError{Server: x.server, Tool: x.name, Sent: true, Problem: upstreams.Problem{Kind: upstreams.KindCancelled,
		Message: "the server asked something in the middle of this call, which cannot go on (" + why + "): it was cancelled at the server"}}
}

// close gives up all calls that wait and lets no more do so.
func (pk *parking) close() {
	pk.mu.Lock()
	pk.closed = true
	var all []*parkedCall
	states := make([]string, 0, len(pk.calls))
	for state, k := range pk.calls {
		all, states = append(all, k), append(states, state)
		k.timer.Stop()
		k.cancel(errClosing)
	}
	clear(pk.calls)
	clear(pk.users)
	pk.mu.Unlock()
	if !pk.alone() {
		ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
		defer cancel()
		for _, s := range states {
			_ = pk.g.opt.Store.Delete(ctx, storedCall(s)) // so that retries are answered at once
		}
	}
	for _, k := range all {
		<-k.done
	}
}
