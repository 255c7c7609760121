package company

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// firstModern is the first protocol version without sessions.
const firstModern = "2026-07-28"

const (
	maxBody        = 64 << 20
	sessionTimeout = 30 * time.Minute
	outageCalls    = 3
)

// Handler serves all eight servers, each at [Path], the API of the warehouse
// with its document at [WarehouseDocument], and for graders
//
//	POST /reset               begins a new run; ?outage=true or false switches the scenario
//	GET  /state               a [Report] as JSON
//
// It is the same handler at every call. In the outage scenario it aborts
// connections with http.ErrAbortHandler, so it belongs under an http.Server.
func (c *Company) Handler() http.Handler { return c.handler }

// routes builds the handler. Browsers on other origins may read and write
// nothing: a page a developer visits must not reset or operate the company.
func (c *Company) routes() http.Handler {
	mux := http.NewServeMux()
	for id, server := range c.servers {
		mux.Handle(Path(id), c.endpoint(id, server))
	}
	c.warehouse(mux)
	mux.HandleFunc("POST /reset", func(w http.ResponseWriter, req *http.Request) {
		if text := req.URL.Query().Get("outage"); text != "" {
			on, err := strconv.ParseBool(text)
			if err != nil {
				http.Error(w, fmt.Sprintf("outage %.80q is neither true nor false", text), http.StatusBadRequest)
				return
			}
			c.ResetOutage(on)
		} else {
			c.Reset()
		}
		w.WriteHeader(http.StatusNoContent)
	})
	mux.HandleFunc("GET /state", func(w http.ResponseWriter, req *http.Request) {
		body, err := encode(c.Report())
		if err != nil {
			c.log.ErrorContext(req.Context(), "encoding the report", "error", err)
			http.Error(w, "encoding the report: "+err.Error(), http.StatusInternalServerError)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		w.Write(body)
	})
	return http.NewCrossOriginProtection().Handler(mux)
}

// endpoint serves one server in both eras on one URL. The SDK has a handler for
// each; the header says which one a request is for, or the body of a client that
// forgot the header and has to be told so.
func (c *Company) endpoint(id string, server *mcp.Server) http.Handler {
	get := func(*http.Request) *mcp.Server { return server }
	stateful := mcp.NewStreamableHTTPHandler(get, &mcp.StreamableHTTPOptions{
		MaxRequestBodyBytes: maxBody, SessionTimeout: sessionTimeout, Logger: c.log,
	})
	stateless := mcp.NewStreamableHTTPHandler(get, &mcp.StreamableHTTPOptions{
		Stateless: true, PropagateRequestCancellation: true, MaxRequestBodyBytes: maxBody, Logger: c.log,
	})
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		modern := req.Header.Get("Mcp-Protocol-Version") >= firstModern
		if req.Method == http.MethodPost {
			body, err := io.ReadAll(http.MaxBytesReader(w, req.Body, maxBody))
			if err != nil {
				status := http.StatusBadRequest
				if tooLarge := (*http.MaxBytesError)(nil); errors.As(err, &tooLarge) {
					status = http.StatusRequestEntityTooLarge
				}
				http.Error(w, fmt.Sprintf("reading the request for server %s: %v", id, err), status)
				return
			}
			req.Body = io.NopCloser(bytes.NewReader(body))
			for _, m := range peek(body) {
				modern = modern || m.Params.Meta.Version >= firstModern
				if id == "crm" && m.Method == "tools/call" && c.inOutage(m) {
					panic(http.ErrAbortHandler)
				}
			}
		}
		if modern {
			stateless.ServeHTTP(w, req)
		} else {
			stateful.ServeHTTP(w, req)
		}
	})
}

// message is what must be known of a JSON-RPC message before an SDK handler
// gets it.
type message struct {
	Method string `json:"method"`
	Params struct {
		Name      string          `json:"name"`
		Arguments json.RawMessage `json:"arguments"`
		Meta      struct {
			Version string `json:"io.modelcontextprotocol/protocolVersion"`
		} `json:"_meta"`
	} `json:"params"`
}

// peek reads a body, one message or a batch. What is neither is left to the
// SDK to refuse.
func peek(body []byte) []message {
	var one message
	if json.Unmarshal(body, &one) == nil {
		return []message{one}
	}
	var batch []message
	if json.Unmarshal(body, &batch) == nil {
		return batch
	}
	return nil
}

// inOutage counts a tool call to crm and tells whether its connection is to
// fail, which it records.
func (c *Company) inOutage(m message) bool {
	r := c.run.Load()
	r.mu.Lock()
	r.faults.crmCalls++
	failing := r.outage && r.faults.crmCalls <= outageCalls
	r.mu.Unlock()
	if failing {
		r.end(r.begin(Tool{"crm", m.Params.Name}, m.Params.Arguments), OutcomeDisconnected, "")
		c.log.Debug("call", "server", "crm", "tool", m.Params.Name, "outcome", OutcomeDisconnected)
	}
	return failing
}

// Serve answers on l until ctx ends, then closes l, gives calls under way two
// seconds, and returns nil; it returns an error if it cannot go on serving.
func (c *Company) Serve(ctx context.Context, l net.Listener) error {
	server := &http.Server{Handler: c.handler, ReadHeaderTimeout: 10 * time.Second}
	failed := make(chan error, 1)
	go func() { failed <- server.Serve(l) }()
	select {
	case err := <-failed:
		return fmt.Errorf("serving the example company on %s: %w", l.Addr(), err)
	case <-ctx.Done():
	}
	// Shutdown would wait for the streams that sessions keep open.
	go func() {
		for _, s := range c.servers {
			for session := range s.Sessions() {
				session.Close()
			}
		}
	}()
	grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*time.Second)
	defer cancel()
	if err := server.Shutdown(grace); err != nil {
		server.Close()
	}
	<-failed
	return nil
}
