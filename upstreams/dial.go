package upstreams

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/mcp-portal/mcp-portal/wire"
)

// Transports, as in the configuration.
const (
	transportAuto       = "auto"
	transportStreamable = "streamable-http"
	transportSSE        = "sse"
	transportStdio      = "stdio"
	transportOpenAPI    = "openapi"
)

// target is one way to reach a server, and the era it was found to speak.
type target struct {
	transport string
	url       string
	legacy    bool // known to speak 2025-xx: do not ask again
}

// targets lists what to try, in order.
func targets(transport, rawURL string) ([]target, error) {
	if transport == transportStdio || transport == transportOpenAPI {
		return []target{{transport: transport}}, nil
	}
	u, err := url.Parse(rawURL)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return nil, errors.New("the url is not an http or https URL")
	}
	path := strings.TrimRight(u.Path, "/")
	switch {
	case transport == transportStreamable, transport == transportSSE:
		return []target{{transport: transport, url: rawURL}}, nil
	case strings.HasSuffix(path, "/mcp"):
		return []target{{transport: transportStreamable, url: rawURL}}, nil
	case strings.HasSuffix(path, "/sse"):
		return []target{{transport: transportSSE, url: rawURL}}, nil
	}
	return []target{
		{transport: transportStreamable, url: rawURL},
		{transport: transportSSE, url: rawURL},
		{transport: transportStreamable, url: u.JoinPath("mcp").String()},
		{transport: transportSSE, url: u.JoinPath("sse").String()},
	}, nil
}

// elsewhere reports whether a failed attempt means that the server may be
// reached in the next way: 404, 405 and 406 do.
func elsewhere(err error) bool {
	var ce *CallError
	if !errors.As(err, &ce) {
		return false
	}
	switch ce.Problem.HTTPStatus {
	case http.StatusNotFound, http.StatusMethodNotAllowed, http.StatusNotAcceptable:
		return true
	}
	return false
}

// negotiator is a connection before its handshake is done.
type negotiator interface {
	do(ctx context.Context, x exchange) (json.RawMessage, error)
	setVersion(v string)
	initialized(ctx context.Context) error
}

// handshake finds the era and greets the server: server/discover first, then
// initialize. patience bounds the wait for an answer to server/discover, since
// servers exist that never answer what they do not know. retry asks once more
// when initialize is refused, which is done anyway when the refusal offers
// 2026-07-28: a slow starter may have missed the first time.
func handshake(ctx context.Context, c negotiator, t target, patience time.Duration, retry bool, info, caps json.RawMessage) (*hello, error) {
	if !t.legacy {
		h, err := discover(ctx, c, patience)
		if h != nil || err != nil {
			return h, err
		}
	}
	h, err := initialize(ctx, c, wire.Version20251125, info, caps)
	if we, ok := wire.AsError(err); ok {
		if v := commonLegacy(we); v != "" {
			return initialize(ctx, c, v, info, caps)
		}
		if (retry || slices.Contains(supportedOf(we), wire.Version20260728)) && !t.legacy {
			if h, derr := discover(ctx, c, patience); h != nil || derr != nil {
				return h, derr
			}
		}
	}
	return h, err
}

// discover asks a server of the stateless era. Neither a hello nor an error
// means that it is not one.
func discover(ctx context.Context, c negotiator, patience time.Duration) (*hello, error) {
	c.setVersion(wire.Version20260728)
	var raw json.RawMessage
	var err error
	for range 2 {
		raw, err = c.do(ctx, internal("server/discover", json.RawMessage(`{}`), timing{idle: patience, ceiling: patience}))
		we, ok := wire.AsError(err)
		if !ok || we.Code != wire.CodeUnsupportedVersion || !slices.Contains(supportedOf(we), wire.Version20260728) {
			break // one that does support it may have been asked too early
		}
	}
	if err != nil {
		var ce *CallError
		if !errors.As(err, &ce) {
			return nil, nil // a JSON-RPC error: it is of the other era
		}
		switch {
		case ctx.Err() != nil, ce.Problem.Kind == KindAuth, ce.Problem.Kind == KindLogin, ce.Problem.Kind == KindProcess, ce.Problem.Kind == KindConnect,
			ce.Problem.HTTPStatus >= 500, ce.Problem.HTTPStatus == http.StatusTooManyRequests, ce.Problem.HTTPStatus/100 == 3:
			return nil, ce // not a question of eras
		}
		return nil, nil
	}
	var d struct {
		Supported    []string        `json:"supportedVersions"`
		Capabilities json.RawMessage `json:"capabilities"`
		Instructions string          `json:"instructions"`
	}
	if json.Unmarshal(raw, &d) != nil || !slices.Contains(d.Supported, wire.Version20260728) {
		return nil, nil
	}
	return &hello{
		version:      wire.Version20260728,
		capabilities: d.Capabilities,
		instructions: d.Instructions,
		serverInfo:   wire.Meta(raw, wire.MetaServerInfo),
	}, nil
}

// initialize greets a server of the session era.
func initialize(ctx context.Context, c negotiator, version string, info, caps json.RawMessage) (*hello, error) {
	c.setVersion("")
	if caps == nil {
		caps = json.RawMessage(`{}`)
	}
	params := wire.Object{
		{Key: "protocolVersion", Value: wire.Quote(version)},
		{Key: "capabilities", Value: caps},
		{Key: "clientInfo", Value: info},
	}.Bytes()
	raw, err := c.do(ctx, internal("initialize", params, timing{}))
	if err != nil {
		return nil, err
	}
	var r struct {
		ProtocolVersion string          `json:"protocolVersion"`
		Capabilities    json.RawMessage `json:"capabilities"`
		ServerInfo      json.RawMessage `json:"serverInfo"`
		Instructions    string          `json:"instructions"`
	}
	if err := json.Unmarshal(raw, &r); err != nil {
		return nil, fmt.Errorf("the answer to initialize cannot be understood: %w", err)
	}
	if !slices.Contains(wire.LegacyVersions(), r.ProtocolVersion) {
		return nil, fmt.Errorf("the server answered initialize with protocol version %q, which this portal does not speak (it speaks %s)",
			r.ProtocolVersion, strings.Join(wire.SupportedVersions(), ", "))
	}
	c.setVersion(r.ProtocolVersion)
	if err := c.initialized(ctx); err != nil {
		return nil, fmt.Errorf("the server did not take notifications/initialized: %w", err)
	}
	return &hello{
		version:      r.ProtocolVersion,
		capabilities: r.Capabilities,
		serverInfo:   r.ServerInfo,
		instructions: r.Instructions,
	}, nil
}

// supportedOf lists the versions that an "unsupported version" error offers.
func supportedOf(e *wire.Error) []string {
	var d struct {
		Supported []string `json:"supported"`
	}
	if json.Unmarshal(e.Data, &d) != nil {
		return nil
	}
	return d.Supported
}

// commonLegacy is the newest other version of the session era that a refusal
// of initialize offers and this portal speaks.
func commonLegacy(e *wire.Error) string {
	offered := supportedOf(e)
	for _, v := range wire.LegacyVersions() {
		if v != wire.Version20251125 && slices.Contains(offered, v) {
			return v
		}
	}
	return ""
}
