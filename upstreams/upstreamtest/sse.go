package upstreamtest

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"sync"
	"testing"

	"github.com/mcp-portal/mcp-portal/config"
	"github.com/mcp-portal/mcp-portal/wire"
)

// NewChildSSE serves the tools of a Child over the HTTP+SSE transport of
// 2024-11-05, one state for each stream, and two more: status {code, type, body}
// answers the POST with that, and frames {text} writes the text on the stream
// as it is. Their calls are not answered.
func NewChildSSE(t testing.TB) config.Server {
	t.Helper()
	var mu sync.Mutex
	sessions := map[string]*childState{}
	frames := map[string]chan string{}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /sse", func(w http.ResponseWriter, r *http.Request) {
		out := make(chan string, 10000)
		s := newChildState(Child{}, func(line string) { out <- "data: " + line + "\n\n" })
		s.tools = append(s.tools, Tool("status"), Tool("frames"))
		mu.Lock()
		id := strconv.Itoa(len(sessions) + 1)
		sessions[id], frames[id] = s, out
		mu.Unlock()
		w.Header().Set("Content-Type", wire.TypeEventStream)
		write := func(text string) {
			_, _ = io.WriteString(w, text)
			_ = http.NewResponseController(w).Flush()
		}
		write("event: endpoint\ndata: /messages?s=" + id + "\n\n")
		for {
			select {
			case text := <-out:
				write(text)
			case <-r.Context().Done():
				return
			}
		}
	})
	mux.HandleFunc("POST /messages", func(w http.ResponseWriter, r *http.Request) {
		id := r.URL.Query().Get("s")
		mu.Lock()
		s, out := sessions[id], frames[id]
		mu.Unlock()
		body, _ := io.ReadAll(r.Body)
		m, err := wire.ParseMessage(body)
		if s == nil || err != nil {
			http.NotFound(w, r)
			return
		}
		c := &Call{Params: m.Params}
		switch args := c.Arguments(); {
		case m.Method == "tools/call" && c.Name() == "status":
			s.raws.Add(1)
			code, _ := strconv.Atoi(string(args.Get("code")))
			w.Header().Set("Content-Type", args.String("type"))
			w.Header().Set("Location", "https://evil.example/mcp?token=1")
			w.WriteHeader(code)
			_, _ = io.WriteString(w, args.String("body"))
			return
		case m.Method == "tools/call" && c.Name() == "frames":
			s.raws.Add(1)
			out <- args.String("text")
		case m.IsRequest():
			go s.handle(m)
		}
		w.WriteHeader(http.StatusAccepted)
	})
	srv := httptest.NewServer(mux)
	t.Cleanup(func() { srv.CloseClientConnections(); srv.Close() })
	return config.Server{URL: srv.URL + "/sse", Transport: "sse"}
}
