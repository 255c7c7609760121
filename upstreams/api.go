package upstreams

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/url"
	"strings"

	"github.com/mcp-portal/mcp-portal/upstreams/openapi"
	"github.com/mcp-portal/mcp-portal/wire"
)

// maxRedirects is how many redirects of a read are followed, all within the
// API's own origin.
const maxRedirects = 5

// api is a session with an HTTP API that an OpenAPI document describes. To the
// rest of the house it is an MCP server: it lists the operations as tools and
// makes one HTTP request per call.
type api struct {
	*session
	*endpoint
	source *apiSource
	keys   queryKeys
}

// dialAPI reads the document. The API itself is not asked: nothing that it
// describes is sure to be harmless.
func dialAPI(ctx context.Context, sess *session, source *apiSource) (*api, error) {
	state, err := source.current(ctx)
	if err != nil {
		return nil, err
	}
	info := wire.Object{{Key: "name", Value: wire.Quote(state.doc.Title)}, {Key: "version", Value: wire.Quote(state.doc.APIVersion)}}
	sess.setHello(&hello{version: wire.Version20251125, transport: transportOpenAPI, serverInfo: info.Bytes(),
		capabilities: json.RawMessage(`{"tools":{}}`), instructions: firstParagraph(state.doc.Description)})
	return &api{session: sess, endpoint: source.e, source: source, keys: newQueryKeys(source.cfg)}, nil
}

func firstParagraph(s string) string {
	s, _, _ = strings.Cut(strings.TrimSpace(s), "\n\n")
	return strings.Join(strings.Fields(s), " ")
}

func (c *api) notice(context.Context, wire.Message) error { return nil }

func (c *api) close(context.Context) {
	c.lose(errRetired)
	c.end()
}

// do answers tools/list from the document and makes the request of a tools/call.
func (c *api) do(ctx context.Context, x exchange) (json.RawMessage, error) {
	l, _, err := c.begin(ctx, x, wire.Version20251125, func(*live, wire.Message) {})
	if err != nil {
		return nil, err
	}
	defer c.finish(l)
	switch x.Method {
	case "tools/list":
		state, err := c.source.current(l.watch.ctx)
		if err != nil {
			return nil, err
		}
		return state.tools, nil
	case "tools/call":
		return c.call(l)
	}
	return nil, wire.Errorf(wire.CodeMethodNotFound, "%s is not known to an HTTP API", x.Method)
}

// call makes the request of one operation.
func (c *api) call(l *live) (json.RawMessage, error) {
	state := c.source.known()
	params, err := wire.ParseObject(l.x.Params)
	if state == nil || err != nil {
		return nil, wire.Errorf(wire.CodeInvalidParams, "the params of tools/call are no object")
	}
	args := params.Get("arguments")
	if args == nil || string(args) == "null" {
		args = json.RawMessage("{}")
	}
	op, req, err := state.doc.Call(l.x.Name, args)
	var bad *openapi.ArgumentError
	switch {
	case errors.As(err, &bad) && op != nil:
		return op.Refusal(bad), nil
	case err != nil:
		return nil, wire.Errorf(wire.CodeInvalidParams, "%v", err)
	}
	at := req.URL(state.base)
	for hops := 0; ; hops++ {
		resp, err := c.once(l.watch.ctx, c.auth, c.peer, &l.sent, func() (*http.Request, error) { return c.prepare(l.watch.ctx, req, at) })
		if err != nil {
			return nil, c.peer.network(l.watch.ctx, l.x.Name, l.sent.Load(), err)
		}
		l.watch.touch()
		next := follows(req.Method, resp, at)
		if next == nil || hops == maxRedirects {
			return c.answer(l, op, resp)
		}
		resp.Body.Close()
		at = next
	}
}

// prepare writes a request: what the arguments say first, what the
// administrator says last.
func (c *api) prepare(ctx context.Context, req *openapi.Request, at *url.URL) (*http.Request, error) {
	var body io.Reader
	if req.Body != nil {
		body = onlyReader{bytes.NewReader(req.Body)}
	}
	r, err := http.NewRequestWithContext(ctx, req.Method, at.String(), body)
	if err != nil {
		return nil, c.peer.fail("", KindConfig, false, nil, "the request cannot be written: %v", stripURL(err))
	}
	r.URL = c.keys.sign(at) // as it is: not parsed once more
	r.ContentLength = int64(len(req.Body))
	r.Header.Set("Accept", "application/json, */*;q=0.5")
	r.Header.Set("User-Agent", "mcp-portal")
	for k, v := range req.Header {
		r.Header[k] = v
	}
	for k, v := range c.header {
		r.Header[k] = v
	}
	if err := c.auth.sign(r, c.peer); err != nil {
		if errors.Is(err, errGone) {
			c.lose(err)
		}
		return nil, err
	}
	return r, nil
}

// follows is where a redirect leads, if it is followed: that of a read, within
// the origin. Credentials go to no other.
func follows(method string, resp *http.Response, from *url.URL) *url.URL {
	switch resp.StatusCode {
	case http.StatusMovedPermanently, http.StatusFound, http.StatusSeeOther, http.StatusTemporaryRedirect, http.StatusPermanentRedirect:
	default:
		return nil
	}
	to, err := resp.Location()
	if err != nil || !openapi.Safe(method) || to.Scheme != from.Scheme || to.Host != from.Host || to.User != nil {
		return nil
	}
	return to
}

// answer reads what the API said and makes it the result of the tool.
func (c *api) answer(l *live, op *openapi.Operation, resp *http.Response) (json.RawMessage, error) {
	defer resp.Body.Close()
	a := openapi.Answer{Status: resp.StatusCode, Header: resp.Header}
	if to, err := resp.Location(); err == nil && resp.StatusCode/100 == 3 {
		a.Final = string(c.keys.hide([]byte(to.String())))
	}
	body, err := readBounded(touching{resp.Body, l.watch}, c.max)
	if err != nil {
		return nil, c.peer.network(l.watch.ctx, l.x.Name, true, err)
	}
	a.Body = c.keys.hide(body)
	c.keys.hideHeader(a.Header)
	return op.Result(a), nil
}

var _ conn = (*api)(nil)
