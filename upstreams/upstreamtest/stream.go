package upstreamtest

import (
	"context"
	"io"
	"net/http"
	"strings"

	"github.com/mcp-portal/mcp-portal/wire"
)

// get is the standalone stream of a session.
func (s *Server) get(w http.ResponseWriter, r *http.Request, sid string) {
	if last := r.Header.Get(wire.HeaderLastEventID); strings.HasPrefix(last, "resume-") {
		c := &Call{Method: "GET", Params: wire.Quote(last), Header: r.Header, Session: sid, ctx: r.Context(), s: s, w: w}
		if s.opts.Handle != nil && s.opts.Handle(c) {
			return
		}
	}
	s.mu.Lock()
	ss := s.sessions[sid]
	s.mu.Unlock()
	switch {
	case s.opts.Era == Modern || s.opts.NoGET || s.opts.NoSession:
		w.WriteHeader(http.StatusMethodNotAllowed)
		return
	case ss == nil:
		w.WriteHeader(http.StatusNotFound)
		return
	}
	ch := make(chan string)
	s.mu.Lock()
	s.listeners[ch] = sid // counted only; messages come through the session
	opened := s.onStream
	s.mu.Unlock()
	if opened != nil {
		opened(sid)
	}
	defer func() { s.mu.Lock(); delete(s.listeners, ch); s.mu.Unlock() }()
	w.Header().Set("Content-Type", wire.TypeEventStream)
	w.WriteHeader(http.StatusOK)
	_ = http.NewResponseController(w).Flush()
	pump(r.Context(), w, ss.out)
}

// listen is subscriptions/listen.
func (s *Server) listen(c *Call) {
	ch := make(chan string, 100)
	c.Notify("notifications/subscriptions/acknowledged", `{"notifications":{"toolsListChanged":true}}`)
	s.mu.Lock()
	s.listeners[ch] = ""
	s.mu.Unlock()
	defer func() { s.mu.Lock(); delete(s.listeners, ch); s.mu.Unlock() }()
	pump(c.ctx, c.w, ch)
}

func pump(ctx context.Context, w http.ResponseWriter, ch <-chan string) {
	for {
		select {
		case msg, ok := <-ch:
			if !ok {
				return
			}
			_, _ = io.WriteString(w, "data: "+msg+"\n\n")
			_ = http.NewResponseController(w).Flush()
		case <-ctx.Done():
			return
		}
	}
}
