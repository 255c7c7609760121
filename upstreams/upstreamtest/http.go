package upstreamtest

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/mcp-portal/mcp-portal/wire"
)

// Era is the protocol era that a fake server speaks.
type Era int

// Eras.
const (
	Legacy Era = iota // 2025-11-25, initialize and sessions
	Modern            // 2026-07-28, stateless
)

func (e Era) String() string { return [...]string{"2025", "2026"}[e] }

// Options configure a fake server.
type Options struct {
	Era       Era
	Path      string            // default /mcp
	Tools     []json.RawMessage // default: one tool, "echo"
	Prompts   []json.RawMessage
	Resources []json.RawMessage
	Templates []json.RawMessage
	PageSize  int    // items per page; 0: all
	NoSession bool   // Legacy: no Mcp-Session-Id
	NoGET     bool   // Legacy: 405 on GET
	Stream    bool   // answers are event streams
	Caps      string // capabilities, default: all lists with listChanged

	// Handle may answer any request before the server does; false leaves it.
	Handle func(c *Call) bool
}

// Server is a fake MCP server on a real listener.
type Server struct {
	URL string

	opts  Options
	offer offer
	addr  string
	t     testing.TB

	mu        sync.Mutex
	http      *http.Server
	sessions  map[string]*session
	nextID    int
	counts    map[string]int
	tools     map[string]func(*Call)
	asked     map[string]chan wire.Message
	cancelled []string
	seen      []Seen
	listeners map[chan string]string // modern listen streams
	onStream  func(session string)
	says      string
}

// Seen is one request that arrived.
type Seen struct {
	HTTPMethod, Method, Session string
	Header                      http.Header
	Params                      json.RawMessage
}

type session struct {
	out  chan string // standalone stream
	caps json.RawMessage
}

// New starts a server that ends with the test.
func New(t testing.TB, o Options) *Server {
	t.Helper()
	if o.Path == "" {
		o.Path = "/mcp"
	}
	if o.Tools == nil {
		o.Tools = []json.RawMessage{Tool("echo")}
	}
	if o.Caps == "" {
		o.Caps = capabilities
	}
	s := &Server{opts: o, t: t, sessions: map[string]*session{}, counts: map[string]int{},
		tools: map[string]func(*Call){}, asked: map[string]chan wire.Message{}, listeners: map[chan string]string{}, says: "test"}
	s.offer.page = o.PageSize
	s.offer.set("tools/list", o.Tools)
	s.offer.set("prompts/list", o.Prompts)
	s.offer.set("resources/list", o.Resources)
	s.offer.set("resources/templates/list", o.Templates)
	s.addr = "127.0.0.1:0"
	s.Up()
	s.URL = "http://" + s.addr + o.Path
	t.Cleanup(s.Down)
	return s
}

// Up listens again on the address of before.
func (s *Server) Up() {
	s.t.Helper()
	var l net.Listener
	var err error
	for range 100 {
		if l, err = net.Listen("tcp", s.addr); err == nil {
			break
		}
		time.Sleep(20 * time.Millisecond)
	}
	if err != nil {
		s.t.Fatalf("fake upstream: %v", err)
	}
	s.addr = l.Addr().String()
	srv := &http.Server{Handler: s}
	s.mu.Lock()
	s.http = srv
	s.mu.Unlock()
	go func() { _ = srv.Serve(l) }()
}

// Down closes the listener and every connection.
func (s *Server) Down() {
	s.mu.Lock()
	srv := s.http
	s.mu.Unlock()
	_ = srv.Close()
}

// Say sets the instructions that clients get from now on; "test" at first.
func (s *Server) Say(instructions string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.says = instructions
}

func (s *Server) instructions() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return string(wire.Quote(s.says))
}

// ForgetSessions makes every session id unknown, as a restart does.
func (s *Server) ForgetSessions() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for id, ss := range s.sessions {
		close(ss.out)
		delete(s.sessions, id)
	}
}

// On sets what a tool does. The handler runs in the request's goroutine.
func (s *Server) On(tool string, f func(*Call)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tools[tool] = f
}

// AddTool adds a definition, without telling anybody.
func (s *Server) AddTool(def json.RawMessage) { s.offer.add("tools/list", def) }

// RemoveTool removes a definition, without telling anybody.
func (s *Server) RemoveTool(name string) { s.offer.remove("tools/list", name) }

// EmitListChanged tells every open stream that the tools changed. It reports
// how many streams there were.
func (s *Server) EmitListChanged() int {
	return s.push("", `{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}`)
}

// push sends a message on the standalone stream of a session, or on all.
func (s *Server) push(session, msg string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := 0
	for id, ss := range s.sessions {
		if session == "" || session == id {
			select {
			case ss.out <- msg:
				n++
			default:
			}
		}
	}
	for ch := range s.listeners {
		select {
		case ch <- msg:
			n++
		default:
		}
	}
	return n
}

// OnStream is called whenever a session opens its standalone stream.
func (s *Server) OnStream(f func(session string)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.onStream = f
}

// AskSession puts a question on the standalone stream of a session, outside any
// call, and waits for the answer.
func (s *Server) AskSession(session, method, params string) (wire.Message, error) {
	id, ch := s.question()
	s.push(session, `{"jsonrpc":"2.0","id":`+string(wire.Quote(id))+`,"method":"`+method+`","params":`+params+`}`)
	select {
	case m := <-ch:
		return m, nil
	case <-time.After(20 * time.Second):
		return wire.Message{}, fmt.Errorf("%s was not answered", method)
	}
}

// Count is how many requests with the method arrived; for a tool's calls give
// "tools/call <name>", for HTTP methods "GET" and "DELETE".
func (s *Server) Count(what string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.counts[what]
}

// Sessions is the number of live sessions.
func (s *Server) Sessions() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.sessions)
}

// Listeners is the number of open streams for notices.
func (s *Server) Listeners() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.listeners)
}

// Cancelled lists the request ids of notifications/cancelled.
func (s *Server) Cancelled() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.cancelled)
}

// Requests lists what arrived, in order.
func (s *Server) Requests() []Seen {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.seen)
}

func (s *Server) question() (string, chan wire.Message) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.nextID++
	id := "q" + strconv.Itoa(s.nextID)
	ch := make(chan wire.Message, 1)
	s.asked[id] = ch
	return id, ch
}

func (s *Server) count(what ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, w := range what {
		s.counts[w]++
	}
}

// ServeHTTP answers like an MCP server of the era.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path != s.opts.Path {
		http.NotFound(w, r)
		return
	}
	sid := r.Header.Get(wire.HeaderSessionID)
	switch r.Method {
	case http.MethodGet:
		s.count("GET")
		s.note(Seen{HTTPMethod: "GET", Session: sid, Header: r.Header.Clone()})
		s.get(w, r, sid)
		return
	case http.MethodDelete:
		s.count("DELETE")
		s.mu.Lock()
		if ss := s.sessions[sid]; ss != nil {
			close(ss.out)
			delete(s.sessions, sid)
		}
		s.mu.Unlock()
		w.WriteHeader(http.StatusNoContent)
		return
	case http.MethodPost:
	default:
		w.WriteHeader(http.StatusMethodNotAllowed)
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
	s.post(w, r, sid, m)
}

func (s *Server) note(n Seen) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.seen = append(s.seen, n)
}

func (s *Server) post(w http.ResponseWriter, r *http.Request, sid string, m wire.Message) {
	if m.Method != "" {
		s.count(m.Method)
		s.note(Seen{HTTPMethod: "POST", Method: m.Method, Session: sid, Header: r.Header.Clone(), Params: slices.Clone(m.Params)})
	}
	c := &Call{ID: m.ID, Method: m.Method, Params: m.Params, Header: r.Header, Session: sid, ctx: r.Context(), s: s, w: w}
	if m.Method == "tools/call" {
		s.count("tools/call " + c.Name())
	}
	if m.IsRequest() && s.opts.Handle != nil && s.opts.Handle(c) {
		return
	}
	if s.opts.Era == Legacy && m.Method != "initialize" && m.Method != "server/discover" && !s.opts.NoSession {
		s.mu.Lock()
		known := s.sessions[sid] != nil
		s.mu.Unlock()
		if !known {
			w.Header().Set("Content-Type", wire.TypeJSON)
			w.WriteHeader(http.StatusNotFound)
			_, _ = io.WriteString(w, `{"jsonrpc":"2.0","error":{"code":-32001,"message":"Session not found"},"id":null}`)
			return
		}
	}
	switch {
	case m.IsResponse():
		s.answer(m)
		w.WriteHeader(http.StatusAccepted)
	case m.IsNotification():
		if m.Method == "notifications/cancelled" {
			o, _ := wire.ParseObject(m.Params)
			s.mu.Lock()
			s.cancelled = append(s.cancelled, string(o.Get("requestId")))
			s.mu.Unlock()
		}
		w.WriteHeader(http.StatusAccepted)
	default:
		if why := s.badRequest(c); why != "" {
			c.Raw(http.StatusBadRequest, wire.TypeJSON, `{"jsonrpc":"2.0","id":`+string(c.ID)+`,"error":{"code":-32020,"message":`+string(wire.Quote(why))+`}}`)
			return
		}
		s.request(c)
	}
}

func (s *Server) answer(m wire.Message) {
	var id string
	_ = json.Unmarshal(m.ID, &id)
	s.mu.Lock()
	ch := s.asked[id]
	delete(s.asked, id)
	s.mu.Unlock()
	if ch != nil {
		ch <- m
	}
}

// badRequest checks what 2026-07-28 asks of every request.
func (s *Server) badRequest(c *Call) string {
	if s.opts.Era != Modern || c.Method == "initialize" {
		return ""
	}
	var v string
	_ = json.Unmarshal(wire.Meta(c.Params, wire.MetaProtocolVersion), &v)
	switch {
	case v != wire.Version20260728 || c.Header.Get(wire.HeaderProtocolVersion) != v:
		return "protocol version of header and _meta"
	case c.Header.Get(wire.HeaderMethod) != c.Method:
		return "Mcp-Method is not the method"
	case wire.Meta(c.Params, wire.MetaClientCapabilities) == nil || wire.Meta(c.Params, wire.MetaClientInfo) == nil:
		return "_meta lacks the client"
	}
	want := map[string]string{"tools/call": c.Name(), "prompts/get": c.Name(), "resources/read": c.param("uri")}[c.Method]
	if got, err := wire.DecodeHeaderValue(c.Header.Get(wire.HeaderName)); err != nil || got != want {
		return fmt.Sprintf("Mcp-Name %q is not %q", got, want)
	}
	return ""
}

func (s *Server) request(c *Call) {
	modern := s.opts.Era == Modern
	switch c.Method {
	case "server/discover":
		if !modern {
			c.Error(wire.CodeMethodNotFound, "unknown method", "")
			return
		}
		c.Result(`{"resultType":"complete","supportedVersions":["2026-07-28"],"capabilities":` + s.opts.Caps +
			`,"instructions":` + s.instructions() + `,"ttlMs":0,"cacheScope":"public","_meta":{"io.modelcontextprotocol/serverInfo":{"name":"fake","version":"1.0"}}}`)
		return
	case "initialize":
		if modern {
			c.Error(wire.CodeUnsupportedVersion, "use 2026-07-28", `{"supported":["2026-07-28"]}`)
			return
		}
		s.initialize(c)
		return
	case "subscriptions/listen":
		if modern {
			s.listen(c)
			return
		}
	case "ping":
		c.Result(`{}`)
		return
	case "tools/call":
		s.mu.Lock()
		f := s.tools[c.Name()]
		s.mu.Unlock()
		if f != nil {
			f(c)
			return
		}
		c.Result(`{"content":[{"type":"text","text":"ok"}],"structuredContent":{"params":` + string(c.Params) + `}}`)
		return
	}
	if res, ok := s.offer.result(c.Method, c.Params, modern); ok {
		c.Result(string(res))
		return
	}
	c.Error(wire.CodeMethodNotFound, "unknown method "+c.Method, "")
}

// begin makes a session, if there are any.
func (s *Server) begin(c *Call) {
	if s.opts.NoSession {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.nextID++
	id := "session-" + strconv.Itoa(s.nextID)
	o, _ := wire.ParseObject(c.Params)
	s.sessions[id] = &session{out: make(chan string, 1000), caps: o.Get("capabilities")}
	c.w.Header().Set(wire.HeaderSessionID, id)
}

func (s *Server) initialize(c *Call) {
	s.begin(c)
	c.Result(`{"protocolVersion":"2025-11-25","capabilities":` + s.opts.Caps + `,"serverInfo":{"name":"fake","version":"1.0"},"instructions":` + s.instructions() + `}`)
}
