package gateway

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/mcp-portal/mcp-portal/upstreams/logins"
	"github.com/mcp-portal/mcp-portal/wire"
	"github.com/mcp-portal/mcp-portal/writeguard"
)

// A server may want its user to sign in before, or in the middle of, what they
// do. The call is not lost for that: the person is asked where they are, and
// when they have signed in the call is sent.

const (
	// signInKey is the key of the question in inputRequests.
	signInKey = "portal-sign-in"
	// signInWait is how long a retry waits for a sign-in that its client says
	// was begun: "accept" means that the page was opened, not that it is done.
	signInWait = 50 * time.Second
)

// sendSignedIn is send, with the user's sign-in before it where one is needed.
func (g *Gateway) sendSignedIn(ctx context.Context, p *passage, x crossing) (json.RawMessage, error) {
	x.params = withoutSignIn(x.params)
	for try := 0; ; try++ {
		result, err := g.send(ctx, p, x)
		var need *logins.Needed
		if err == nil || !errors.As(err, &need) || need.User == "" || try == 3 {
			return result, err
		}
		if err := g.signIn(ctx, p, x, need); err != nil {
			return nil, err
		}
	}
}

// withoutSignIn drops the answer that is for the portal.
func withoutSignIn(params wire.Object) wire.Object {
	answers, err := wire.ParseObject(params.Get("inputResponses"))
	if err != nil || answers.Get(signInKey) == nil {
		return params
	}
	if answers = answers.Without(signInKey); len(answers) == 0 {
		return params.Without("inputResponses")
	}
	return params.Set("inputResponses", answers.Bytes())
}

// invitation is a sign-in that a person is asked for.
type invitation struct {
	id     string // of the address, secret
	url    string
	need   *logins.Needed
	before string // id of the login that is not enough
}

func (g *Gateway) invite(ctx context.Context, need *logins.Needed) (*invitation, error) {
	id, url, err := g.opt.Logins.NewHandle(ctx, need)
	if err != nil {
		return nil, err
	}
	v := &invitation{id: id, url: url, need: need}
	if len(need.Scopes) > 0 { // there is a login, with too few rights
		if c, err := g.opt.Logins.Current(ctx, need.Server, need.User); err == nil {
			v.before = c.Login
		}
	}
	return v, nil
}

func (v *invitation) message() string {
	return fmt.Sprintf("Server %s needs you to sign in: %s. Open the page, sign in there, and what you asked for goes on.", v.need.Server, v.need.Reason)
}

// params are those of the question by URL (2025-11-25, client/elicitation).
func (v *invitation) params(legacy bool) json.RawMessage {
	o := wire.Object{
		{Key: "mode", Value: json.RawMessage(`"url"`)},
		{Key: "message", Value: wire.Quote(v.message())},
		{Key: "url", Value: wire.Quote(v.url)},
	}
	if legacy {
		o = append(o, wire.Field{Key: "elicitationId", Value: wire.Quote(v.public())})
	}
	return o.Bytes()
}

// public names the question without giving the address away.
func (v *invitation) public() string { return "sign-in-" + shortHash(v.id) }

// wait waits for the login.
func (v *invitation) wait(ctx context.Context, g *Gateway) error {
	return g.opt.Logins.Wait(ctx, v.need.Server, v.need.User, v.before)
}

// signIn has the person sign in, or says why that has not happened. Without an
// error the call can be sent again.
func (g *Gateway) signIn(ctx context.Context, p *passage, x crossing, need *logins.Needed) error {
	_, byURL := p.req.elicits()
	switch {
	case p.mode == writeguard.Code && p.waitLogin != nil:
		v, err := g.invite(ctx, need)
		if err != nil {
			return err
		}
		return p.waitLogin(ctx, v)
	case p.req.modern && byURL && inRounds(x.method) && p.mode == writeguard.Direct:
		return g.signInModern(ctx, p, x, need)
	case p.ask != nil && byURL:
		return g.signInLegacy(ctx, p, x, need)
	}
	v, err := g.invite(ctx, need)
	if err != nil {
		return err
	}
	return v.pending(x)
}

// pending tells the agent what its user has to do.
func (v *invitation) pending(x crossing) error {
	return &refusal{status: "pending", message: fmt.Sprintf(
		"Sign-in needed: server %s wants its user signed in (%s), so %s was not sent. Ask the user to open %s and sign in there. Then make the same call again.",
		v.need.Server, v.need.Reason, x.what(), v.url)}
}

func (v *invitation) declined(x crossing) error {
	return &refusal{status: "denied", message: fmt.Sprintf(
		"The user did not sign in at server %s, so %s was not sent. Do not try it again unless the user asks for it; they can sign in at any time on the portal's page of servers.", v.need.Server, x.what())}
}

// what names a call for people.
func (x crossing) what() string {
	if x.name == "" {
		return x.method
	}
	return x.name
}

// signInModern asks by ending the round, and goes on with the answer.
func (g *Gateway) signInModern(ctx context.Context, p *passage, x crossing, need *logins.Needed) error {
	responses, err := wire.ParseObject(p.responses)
	answer := json.RawMessage(nil)
	if err == nil {
		answer = responses.Get(signInKey)
	}
	v, err := g.invite(ctx, need)
	if err != nil {
		return err
	}
	if answer != nil {
		o, _ := wire.ParseObject(answer)
		if o.String("action") != "accept" {
			return v.declined(x)
		}
		wait, cancel := context.WithTimeout(ctx, signInWait)
		defer cancel()
		if v.wait(wait, g) == nil {
			return nil
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		return v.pending(x)
	}
	question := wire.Object{{Key: "method", Value: json.RawMessage(`"elicitation/create"`)}, {Key: "params", Value: v.params(false)}}
	result := wire.Object{
		{Key: "resultType", Value: json.RawMessage(`"input_required"`)},
		{Key: "inputRequests", Value: wire.Object{{Key: signInKey, Value: question.Bytes()}}.Bytes()},
	}.Bytes()
	kept, err := g.keepContinuation(ctx, p, x, result, x.params.Get("requestState"))
	if err != nil {
		return err
	}
	return &inputNeeded{kept}
}

// signInLegacy asks in the middle of the call.
func (g *Gateway) signInLegacy(ctx context.Context, p *passage, x crossing, need *logins.Needed) error {
	v, err := g.invite(ctx, need)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, p.req.set.cfg.Guard.AskTimeout, errNotSignedIn)
	defer cancel()
	return g.askSignIn(ctx, v, x, p.ask, p.notify)
}

var errNotSignedIn = errors.New("the person did not sign in in time")

// askSignIn puts the question to a 2025 client and waits for the sign-in,
// whatever comes first: people may open the page and be done before they
// answer their client.
func (g *Gateway) askSignIn(ctx context.Context, v *invitation, x crossing, ask asker, notify func(string, json.RawMessage)) error {
	asking, answered := context.WithCancel(ctx)
	defer answered()
	signed := make(chan error, 1)
	go func() {
		err := v.wait(ctx, g)
		signed <- err
		answered() // the question is void
	}()
	res, e := ask(asking, "elicitation/create", v.params(true))
	if e == nil {
		o, err := wire.ParseObject(res)
		if err != nil || o.String("action") != "accept" {
			return v.declined(x)
		}
	} else if asking.Err() == nil {
		return v.pending(x) // the client could not ask after all
	}
	if err := <-signed; err != nil {
		if errors.Is(err, errNotSignedIn) {
			return v.pending(x)
		}
		return err
	}
	if notify != nil {
		notify("notifications/elicitation/complete", wire.Encode(map[string]string{"elicitationId": v.public()}))
	}
	return nil
}
