package gateway

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/mcp-portal/mcp-portal/wire"
)

const (
	// A result that is ready by then goes out as plain JSON; after it the
	// answer becomes a stream, so that proxies see headers and bytes.
	streamAfter = 300 * time.Millisecond
	// Comments on an idle stream, well inside the idle limits of common proxies.
	keepAlive = 15 * time.Second
)

// stream answers one POST: one JSON body when nothing comes before the
// result, server-sent events as soon as something does or the result takes
// longer.
type stream struct {
	w      http.ResponseWriter
	jsonOK bool // the client takes application/json
	sseOK  bool // the client takes text/event-stream

	mu      sync.Mutex
	sse     bool // headers of an event stream are out
	done    bool
	stop    chan struct{}
	started time.Time
}

// newStream reads the Accept header leniently: absent, */* and lists folded by
// proxies mean everything.
func newStream(w http.ResponseWriter, r *http.Request) *stream {
	s := &stream{w: w, stop: make(chan struct{}), started: time.Now()}
	s.jsonOK, s.sseOK = accepts(r.Header.Values("Accept"))
	return s
}

// streamSoon lets a slow answer become a stream. Without it the answer stays
// JSON however long it takes, as that of initialize, whose headers are only
// known with the result.
func (s *stream) streamSoon() {
	if s.sseOK {
		go s.keep()
	}
}

func accepts(values []string) (jsonOK, sseOK bool) {
	all := strings.ToLower(strings.Join(values, ","))
	if strings.TrimSpace(all) == "" {
		return true, false
	}
	for part := range strings.SplitSeq(all, ",") {
		mt, param, _ := strings.Cut(strings.TrimSpace(part), ";")
		if q := strings.ReplaceAll(param, " ", ""); q == "q=0" || strings.HasPrefix(q, "q=0.0") {
			continue // declined
		}
		switch strings.TrimSpace(mt) {
		case "*/*":
			// Such a client did not say that it reads event streams.
			jsonOK = true
		case "application/*", "application/json":
			jsonOK = true
		case "text/*", "text/event-stream":
			sseOK = true
		}
	}
	return jsonOK, sseOK
}

// keep turns a slow answer into a stream and keeps it alive.
func (s *stream) keep() {
	t := time.NewTimer(streamAfter)
	defer t.Stop()
	for {
		select {
		case <-s.stop:
			return
		case <-t.C:
			s.mu.Lock()
			if !s.done {
				if !s.sse {
					s.begin()
				} else {
					_, _ = s.w.Write([]byte(": keepalive\n\n"))
				}
				_ = http.NewResponseController(s.w).Flush()
			}
			s.mu.Unlock()
			t.Reset(keepAlive)
		}
	}
}

// begin writes the headers of an event stream. The caller holds mu.
func (s *stream) begin() {
	h := s.w.Header()
	h.Set("Content-Type", "text/event-stream")
	h.Set("Cache-Control", "no-cache, no-transform")
	h.Set("X-Accel-Buffering", "no")
	s.w.WriteHeader(http.StatusOK)
	s.sse = true
}

var errNoStream = errors.New("the client does not take event streams (Accept: text/event-stream), so it cannot be sent anything before the result")

// send puts one message before the result.
func (s *stream) send(m wire.Message) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.sseOK {
		return errNoStream
	}
	if s.done {
		return errors.New("the answer is already complete")
	}
	if !s.sse {
		s.begin()
	}
	if _, err := s.w.Write(wire.AppendEvent(nil, wire.Event{Name: "message", Data: m.Bytes()})); err != nil {
		return err
	}
	return http.NewResponseController(s.w).Flush()
}

// notify sends a notification before the result. Where the client takes no
// stream it is dropped, as the transport has no place for it.
func (s *stream) notify(method string, params json.RawMessage) {
	_ = s.send(wire.Message{Method: method, Params: params})
}

// finish writes the response. status is used only while no stream has begun.
func (s *stream) finish(m wire.Message, status int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.done {
		return
	}
	s.done = true
	close(s.stop)
	body := m.Bytes()
	if !s.sse && !s.jsonOK && s.sseOK && status == http.StatusOK {
		s.begin()
	}
	if s.sse {
		_, _ = s.w.Write(wire.AppendEvent(nil, wire.Event{Name: "message", Data: body}))
		_ = http.NewResponseController(s.w).Flush()
		return
	}
	writeJSON(s.w, status, body)
}

// end ends the stream without a response. It reports false for a client that
// takes no event streams: its POST must be answered.
func (s *stream) end() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.done || !s.sseOK {
		return s.done
	}
	s.done = true
	close(s.stop)
	if !s.sse {
		s.begin()
	}
	_ = http.NewResponseController(s.w).Flush()
	return true
}

func writeJSON(w http.ResponseWriter, status int, body []byte) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	_, _ = w.Write(body)
}

// asker asks the client on the stream of one POST and waits for the answer.
type asker func(ctx context.Context, method string, params json.RawMessage) (json.RawMessage, *wire.Error)
