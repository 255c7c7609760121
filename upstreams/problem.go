package upstreams

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"sort"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/mcp-portal/mcp-portal/config"
	"github.com/mcp-portal/mcp-portal/wire"
)

// maxReason bounds what is quoted from the other side, in bytes.
const maxReason = 300

var (
	// errGone means that the server does not know the session and therefore
	// did not look at the request.
	errGone = errors.New("the session is not known to the server any more")
	// errRetired means that this generation of the server takes no new work.
	errRetired = errors.New("the server's configuration changed")
)

// peer names the other side in errors and keeps its secrets out of them.
type peer struct {
	server  string
	secrets []string
	live    func() []string // tokens that come and go; nil: none
}

func newPeer(id string, cfg config.Server) *peer {
	p := &peer{server: id}
	add := func(s config.Secret) {
		v := s.Reveal()
		p.secrets = append(p.secrets, config.Secret(v).Forms()...)
		if _, token, ok := strings.Cut(v, " "); ok { // "Bearer x"
			p.secrets = append(p.secrets, config.Secret(token).Forms()...)
		}
	}
	// Keys are also given in the address. Short values are no keys.
	if u, err := url.Parse(cfg.URL); err == nil {
		for _, values := range u.Query() {
			for _, v := range values {
				if len(v) >= 8 {
					add(config.Secret(v))
				}
			}
		}
	}
	add(cfg.Bearer)
	add(cfg.Auth.ClientSecret)
	add(cfg.Auth.PrivateKey)
	for _, s := range cfg.Query {
		add(s)
	}
	for _, s := range cfg.Headers {
		add(s)
	}
	for _, s := range cfg.Env {
		add(s)
	}
	sort.Slice(p.secrets, func(i, j int) bool { return len(p.secrets[i]) > len(p.secrets[j]) })
	return p
}

// clean makes text of the other side fit for errors and logs: one line,
// bounded, without control characters and configured secrets.
func (p *peer) clean(s string) string {
	const look = 8 * maxReason
	secrets := p.secrets
	if p.live != nil {
		for _, token := range p.live() {
			secrets = append(secrets[:len(secrets):len(secrets)], config.Secret(token).Forms()...)
		}
	}
	if len(s) > look {
		s = s[:look]
	}
	for _, secret := range secrets {
		s = strings.ReplaceAll(s, secret, "[redacted]")
		for n := min(len(secret)-1, len(s)); n >= 4; n-- { // what was cut in the middle, here or before
			if strings.HasSuffix(s, secret[:n]) {
				s = s[:len(s)-n]
				break
			}
		}
	}
	s = strings.Join(strings.FieldsFunc(s, func(r rune) bool {
		return unicode.IsSpace(r) || unicode.IsControl(r) || r == utf8.RuneError || unicode.Is(unicode.Cf, r)
	}), " ")
	if len(s) > maxReason {
		cut := maxReason
		for !utf8.RuneStart(s[cut]) {
			cut--
		}
		s = s[:cut] + "…"
	}
	return s
}

// fail makes the error of one call.
func (p *peer) fail(tool, kind string, sent bool, err error, format string, args ...any) *CallError {
	return &CallError{
		Server: p.server, Tool: p.clean(tool), Sent: sent, Err: err,
		Problem: Problem{Kind: kind, Message: p.clean(fmt.Sprintf(format, args...))},
	}
}

// network makes the error of one call from a failed read or write. ctx is that
// of the call: its cause explains more than the error it led to.
func (p *peer) network(ctx context.Context, tool string, sent bool, err error) *CallError {
	if cause := context.Cause(ctx); cause != nil {
		var ce *CallError
		if errors.As(cause, &ce) {
			out := *ce
			out.Sent, out.Tool = sent, p.clean(tool)
			return &out
		}
		var late *lateError
		switch {
		case errors.As(cause, &late):
			return p.fail(tool, KindTimeout, sent, late, "%s", late.Error())
		case errors.Is(cause, context.DeadlineExceeded):
			return p.fail(tool, KindTimeout, sent, cause, "no answer before the caller's deadline")
		default:
			return p.fail(tool, KindCancelled, sent, cause, "the call was cancelled")
		}
	}
	var ce *CallError
	if errors.As(err, &ce) {
		out := *ce
		out.Tool = p.clean(tool)
		return &out
	}
	var dns *net.DNSError
	var op *net.OpError
	switch {
	case errors.Is(err, wire.ErrTooLarge):
		return p.fail(tool, KindProtocol, sent, err, "the answer is too large: %v (limits.message)", err)
	case errors.As(err, &dns):
		return p.fail(tool, KindConnect, sent, err, "cannot find the host %s: check the url", dns.Name)
	case errors.As(err, &op) && op.Op == "dial":
		return p.fail(tool, KindConnect, sent, err, "cannot connect to %s: %v. Is the server running?", op.Addr, op.Err)
	case errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, io.EOF):
		doubt := ""
		if tool == "" { // nothing was called yet: it is being connected
			doubt = ". Is this the address of an MCP server?"
		}
		return p.fail(tool, KindConnect, sent, err, "the connection ended before the answer was complete%s", doubt)
	}
	return p.fail(tool, KindConnect, sent, err, "the connection failed: %v", stripURL(err))
}

// stripURL drops the URL that net/http puts before every error: it may hold
// credentials, and the server is named anyway.
func stripURL(err error) error {
	var u *url.Error
	if errors.As(err, &u) {
		return u.Err
	}
	return err
}

// problemOf turns any error of this package into what a status shows.
func (p *peer) problemOf(err error, kind string) *Problem {
	var ce *CallError
	if errors.As(err, &ce) {
		out := ce.Problem
		if we, ok := wire.AsError(ce.Err); ok && out.Code == 0 {
			out.Code = we.Code
		}
		out.Message = p.clean("server " + p.server + ": " + out.Message)
		return &out
	}
	if we, ok := wire.AsError(err); ok {
		return &Problem{Kind: kind, Code: we.Code, Message: p.clean("server " + p.server + ": " + err.Error())}
	}
	return &Problem{Kind: kind, Message: p.clean("server " + p.server + ": " + err.Error())}
}
