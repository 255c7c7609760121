package upstreamtest

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/mcp-portal/mcp-portal/config"
	"github.com/mcp-portal/mcp-portal/wire"
)

// FullHTTP serves a Full server over Streamable HTTP; Seen has every request
// that arrived.
type FullHTTP struct {
	*Full
	URL string

	mu       sync.Mutex
	sessions map[string]*httpSession
	requests []Seen
}

type httpSession struct {
	*FullSession
	out chan string
}

// Server is the configuration of the server.
func (h *FullHTTP) Server() config.Server { return config.Server{URL: h.URL} }

// NewFullHTTP starts a server that ends with the test.
func NewFullHTTP(t testing.TB, modern bool) *FullHTTP {
	t.Helper()
	h := &FullHTTP{Full: NewFull(modern), sessions: map[string]*httpSession{}}
	srv := httptest.NewServer(h)
	h.URL = srv.URL + "/mcp"
	t.Cleanup(func() { srv.CloseClientConnections(); srv.Close() })
	return h
}

// Requests lists what arrived, in order.
func (h *FullHTTP) Requests() []Seen {
	h.mu.Lock()
	defer h.mu.Unlock()
	return append([]Seen(nil), h.requests...)
}

// Forget makes every session unknown and cuts its streams, as a restart does.
func (h *FullHTTP) Forget() {
	h.mu.Lock()
	defer h.mu.Unlock()
	for id, s := range h.sessions {
		close(s.out)
		h.End(s.FullSession)
		delete(h.sessions, id)
	}
}

// ServeHTTP speaks Streamable HTTP of the server's era.
func (h *FullHTTP) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	sid := r.Header.Get(wire.HeaderSessionID)
	h.mu.Lock()
	s := h.sessions[sid]
	h.mu.Unlock()
	switch {
	case r.URL.Path != "/mcp":
		http.NotFound(w, r)
		return
	case r.Method != http.MethodPost && h.Modern:
		w.WriteHeader(http.StatusMethodNotAllowed)
		return
	case r.Method == http.MethodGet && s != nil:
		w.Header().Set("Content-Type", wire.TypeEventStream)
		w.WriteHeader(http.StatusOK)
		_ = http.NewResponseController(w).Flush()
		pump(r.Context(), w, s.out)
		return
	case r.Method == http.MethodDelete && s != nil:
		h.mu.Lock()
		delete(h.sessions, sid)
		h.mu.Unlock()
		h.End(s.FullSession)
		return
	case r.Method != http.MethodPost:
		http.NotFound(w, r)
		return
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	m, err := wire.ParseMessage(body)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	h.mu.Lock()
	h.requests = append(h.requests, Seen{HTTPMethod: r.Method, Method: m.Method, Session: sid, Header: r.Header.Clone(), Params: m.Params})
	h.mu.Unlock()
	if h.Modern && m.IsRequest() && m.Method != "initialize" && (r.Header.Get(wire.HeaderMethod) != m.Method || wire.Meta(m.Params, wire.MetaClientCapabilities) == nil) {
		http.Error(w, "headers and _meta of 2026-07-28", http.StatusBadRequest)
		return
	}
	fs := (*FullSession)(nil)
	switch {
	case h.Modern:
		fs = h.Session(nil)
		defer h.End(fs)
	case m.Method == "initialize":
		out := make(chan string, 1000)
		fs = h.Session(func(msg string) { out <- msg })
		h.mu.Lock()
		h.sessions[fs.name] = &httpSession{fs, out}
		h.mu.Unlock()
		w.Header().Set(wire.HeaderSessionID, fs.name)
	case s == nil && m.Method == "server/discover":
		w.Header().Set("Content-Type", wire.TypeJSON)
		_, _ = w.Write(wire.Message{ID: m.ID, Error: wire.Errorf(wire.CodeMethodNotFound, "unknown method")}.Bytes())
		return
	case s == nil:
		w.Header().Set("Content-Type", wire.TypeJSON)
		w.WriteHeader(http.StatusNotFound)
		_, _ = io.WriteString(w, `{"jsonrpc":"2.0","error":{"code":-32001,"message":"Session not found"},"id":null}`)
		return
	default:
		fs = s.FullSession
	}
	switch {
	case m.IsResponse():
		fs.Answer(m)
		w.WriteHeader(http.StatusAccepted)
	case m.IsNotification():
		fs.Notification(m)
		w.WriteHeader(http.StatusAccepted)
	default:
		var mu sync.Mutex
		streaming := false
		event := func(msg string) {
			mu.Lock()
			defer mu.Unlock()
			if !streaming {
				streaming = true
				w.Header().Set("Content-Type", wire.TypeEventStream)
			}
			_, _ = io.WriteString(w, "data: "+msg+"\n\n")
			_ = http.NewResponseController(w).Flush()
		}
		answer := reply(fs, m, event, r.Context().Done())
		mu.Lock()
		defer mu.Unlock()
		if streaming {
			_, _ = io.WriteString(w, "data: "+answer+"\n\n")
			return
		}
		w.Header().Set("Content-Type", wire.TypeJSON)
		_, _ = io.WriteString(w, answer)
	}
}

// reply is the response to a request. The result keeps its bytes.
func reply(s *FullSession, m wire.Message, out func(string), ended <-chan struct{}) string {
	result, e := s.Request(m, out, ended)
	if e != nil {
		return string(wire.Message{ID: m.ID, Error: e}.Bytes())
	}
	return `{"jsonrpc":"2.0","id":` + string(m.ID) + `,"result":` + result + `}`
}

// NewFullSSE starts a 2025 server over the HTTP+SSE transport of 2024-11-05.
func NewFullSSE(t testing.TB) (*Full, config.Server) {
	t.Helper()
	f := NewFull(false)
	var mu sync.Mutex
	sessions, next := map[string]*FullSession{}, 0
	mux := http.NewServeMux()
	mux.HandleFunc("GET /sse", func(w http.ResponseWriter, r *http.Request) {
		out := make(chan string, 10000)
		s := f.Session(func(msg string) { out <- msg })
		defer f.End(s)
		mu.Lock()
		next++
		id := strconv.Itoa(next)
		sessions[id] = s
		mu.Unlock()
		w.Header().Set("Content-Type", wire.TypeEventStream)
		_, _ = io.WriteString(w, "event: endpoint\ndata: /messages?s="+id+"\n\n")
		_ = http.NewResponseController(w).Flush()
		pump(r.Context(), w, out)
	})
	gone, stop := context.WithCancel(context.Background())
	mux.HandleFunc("POST /messages", func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		s := sessions[r.URL.Query().Get("s")]
		mu.Unlock()
		body, _ := io.ReadAll(r.Body)
		m, err := wire.ParseMessage(body)
		if s == nil || err != nil {
			http.NotFound(w, r)
			return
		}
		pass(s, m, s.out, gone.Done())
		w.WriteHeader(http.StatusAccepted)
	})
	srv := httptest.NewServer(mux)
	t.Cleanup(func() { stop(); srv.CloseClientConnections(); srv.Close() })
	return f, config.Server{URL: srv.URL + "/sse", Transport: "sse"}
}

// pass handles one message on a connection that carries them all.
func pass(s *FullSession, m wire.Message, out func(string), gone <-chan struct{}) {
	switch {
	case m.IsResponse():
		s.Answer(m)
	case m.IsNotification():
		s.Notification(m)
	case m.Method == "initialize": // before anything else
		out(reply(s, m, out, gone))
	default:
		go func() {
			answer := reply(s, m, out, gone)
			if !strings.HasPrefix(m.Method, "subscriptions/") {
				out(answer)
			}
		}()
	}
}
