package upstreamtest

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/mcp-portal/mcp-portal/config"
	"github.com/mcp-portal/mcp-portal/wire"
)

const childVar = "UPSTREAMTEST_CHILD"

// Child configures a stdio server, which is the test binary started again:
// the tests' TestMain must call RunChild first.
//
// Its tools: echo; pid; env (the environment's names); stderr {bytes}; sleep
// {ms}; exit; progress {n}; big {bytes}; idfirst {bytes}; garbage; ask; add
// (one more tool, announced); deaf {ms} (reads nothing for so long); raw {lines}
// (writes the lines, in which $ID is the call's id, and nothing else); lively
// (reports progress until the tool release is called); count (of raw calls).
type Child struct {
	Modern       bool   // 2026-07-28; else 2025-11-25
	Mute         bool   // never answers methods it does not know
	DelayStart   int    // ms before anything is read
	DieAtStart   bool   // ends before the handshake, with words on stderr
	Starts       string // file that gets one line per start, with the pid
	NoSuchTools  bool   // tools/list fails
	SpawnSleeper bool   // starts a grandchild that holds the pipes open
	Full         bool   // is a Full server instead, whose tools replace these
	Extra        string // file with Full.Extra, a JSON array
	Mark         bool   // a byte order mark comes first, as some runtimes write one
}

// Server is the configuration of the child.
func (c Child) Server(extra map[string]config.Secret) config.Server {
	self, err := os.Executable()
	if err != nil {
		self = os.Args[0]
	}
	env := map[string]config.Secret{
		childVar: config.Secret(wire.Encode(c)),
		"GORACE": "atexit_sleep_ms=0", // a child with the race detector would end a second late
	}
	for k, v := range extra {
		env[k] = v
	}
	return config.Server{Command: []string{self, "-test.run=^$"}, Env: env, Transport: "stdio"}
}

// RunChild speaks stdio and exits, if this process is such a child.
func RunChild() {
	spec := os.Getenv(childVar)
	if spec == "" {
		return
	}
	var c Child
	if err := json.Unmarshal([]byte(spec), &c); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(3)
	}
	os.Exit(c.run())
}

type childState struct {
	Child
	write    func(line string)
	raws     atomic.Int64
	lively   atomic.Int64 // calls of lively, so far
	released chan struct{}

	mu    sync.Mutex
	tools []json.RawMessage
	asked chan wire.Message
}

func (c Child) run() int {
	if c.Starts != "" {
		f, err := os.OpenFile(c.Starts, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 3
		}
		fmt.Fprintln(f, os.Getpid())
		f.Close()
	}
	if c.DieAtStart {
		fmt.Fprintln(os.Stderr, "the database is not reachable")
		return 7
	}
	if c.SpawnSleeper {
		if err := spawnSleeper(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 3
		}
	}
	time.Sleep(time.Duration(c.DelayStart) * time.Millisecond)
	if c.Mark {
		fmt.Print("\ufeff")
	}
	if c.Full {
		return c.runFull()
	}
	s := newChildState(c, func(line string) { _, _ = io.WriteString(os.Stdout, line+"\n") })
	r := bufio.NewReader(os.Stdin)
	for {
		line, err := r.ReadBytes('\n')
		if err != nil {
			return 0
		}
		m, err := wire.ParseMessage(line)
		if err != nil {
			fmt.Fprintln(os.Stderr, "bad line", err)
			continue
		}
		switch {
		case m.IsResponse():
			select {
			case s.asked <- m:
			default: // of a question that nobody asked
			}
		case m.IsRequest() && m.Method == "tools/call" && (&Call{Params: m.Params}).Name() == "deaf":
			s.handle(m)
			ms, _ := strconv.Atoi(string((&Call{Params: m.Params}).Arguments().Get("ms")))
			time.Sleep(time.Duration(ms) * time.Millisecond)
		case m.IsRequest():
			go s.handle(m)
		}
	}
}

func newChildState(c Child, write func(string)) *childState {
	s := &childState{Child: c, write: write, asked: make(chan wire.Message, 1), released: make(chan struct{}, 1000)}
	for _, n := range []string{"echo", "pid", "env", "stderr", "sleep", "exit", "progress", "big", "idfirst", "garbage", "ask", "add", "deaf", "raw", "lively", "release", "count"} {
		s.tools = append(s.tools, Tool(n))
	}
	return s
}

func (s *childState) out(line string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.write(line)
}

func (s *childState) result(m wire.Message, raw string) {
	s.out(`{"result":` + raw + `,"jsonrpc":"2.0","id":` + string(m.ID) + `}`)
}

func (s *childState) fail(m wire.Message, code int, text string) {
	s.out(string(wire.Message{ID: m.ID, Error: wire.Errorf(code, "%s", text)}.Bytes()))
}

func (s *childState) handle(m wire.Message) {
	switch {
	case m.Method == "server/discover" && s.Modern:
		s.result(m, `{"resultType":"complete","supportedVersions":["2026-07-28"],"capabilities":`+capabilities+`,"ttlMs":0,"cacheScope":"public"}`)
	case m.Method == "initialize" && !s.Modern:
		s.result(m, `{"protocolVersion":"2025-11-25","capabilities":`+capabilities+`,"serverInfo":{"name":"child","version":"1"}}`)
	case m.Method == "tools/list":
		if s.NoSuchTools {
			s.fail(m, wire.CodeInternal, "not today")
			return
		}
		s.mu.Lock()
		tools := wire.Encode(s.tools)
		s.mu.Unlock()
		s.result(m, `{"tools":`+string(tools)+`}`)
	case members[m.Method] != "":
		s.result(m, `{"`+members[m.Method]+`":[]}`)
	case m.Method == "tools/call":
		s.call(m)
	case s.Mute:
	default:
		s.fail(m, wire.CodeMethodNotFound, "unknown method")
	}
}

func (s *childState) call(m wire.Message) {
	c := &Call{Params: m.Params}
	args := c.Arguments()
	num := func(key string) int { n, _ := strconv.Atoi(string(args.Get(key))); return n }
	text := func(t string) string { return `{"content":[{"type":"text","text":` + string(wire.Quote(t)) + `}]}` }
	switch c.Name() {
	case "pid":
		s.result(m, text(strconv.Itoa(os.Getpid())))
	case "env":
		var names []string
		for _, kv := range os.Environ() {
			names = append(names, strings.SplitN(kv, "=", 2)[0])
		}
		s.result(m, text(strings.Join(names, " ")))
	case "stderr":
		line := strings.Repeat("x", 99) + "\n"
		for n := 0; n < num("bytes"); n += len(line) {
			_, _ = io.WriteString(os.Stderr, line)
		}
		s.result(m, text("done"))
	case "sleep":
		time.Sleep(time.Duration(num("ms")) * time.Millisecond)
		s.result(m, text("slept"))
	case "exit":
		fmt.Fprintln(os.Stderr, "leaving")
		os.Exit(9)
	case "progress":
		for i := range num("n") {
			s.out(`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":` + string(c.Token()) + `,"progress":` + strconv.Itoa(i) + `}}`)
		}
		s.result(m, text("done"))
	case "big":
		s.result(m, text(strings.Repeat("y", num("bytes"))))
	case "idfirst":
		s.out(`{"jsonrpc":"2.0","id":` + string(m.ID) + `,"result":` + text(strings.Repeat("y", num("bytes"))) + `}`)
	case "garbage":
		s.out("this is not JSON")
		s.out(`{"level":"info","msg":"a log line"}`)
		s.out("")
		s.result(m, text("done"))
	case "ask":
		s.out(`{"jsonrpc":"2.0","id":"child-1","method":"elicitation/create","params":{"message":"sure?"}}`)
		a := <-s.asked
		s.result(m, text(string(a.Bytes())))
	case "add":
		s.mu.Lock()
		s.tools = append(s.tools, Tool("added"))
		s.mu.Unlock()
		s.out(`{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}`)
		s.result(m, text("added"))
	case "raw":
		s.raws.Add(1)
		var lines []string
		_ = json.Unmarshal(args.Get("lines"), &lines)
		for _, l := range lines {
			s.out(strings.NewReplacer("$ID", string(m.ID), "$LONG", strings.Repeat("z", 300_000)).Replace(l))
		}
	case "lively":
		s.lively.Add(1)
		for n := 0; ; n++ {
			s.out(`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":` + string(c.Token()) + `,"progress":` + strconv.Itoa(n) + `}}`)
			select {
			case <-s.released:
				s.result(m, text("lived"))
				return
			case <-time.After(50 * time.Millisecond):
			}
		}
	case "release":
		s.released <- struct{}{}
		s.result(m, text("released"))
	case "count":
		s.result(m, text(fmt.Sprint(s.raws.Load(), s.lively.Load())))
	default:
		s.result(m, `{"content":[],"structuredContent":{"params":`+string(m.Params)+`}}`)
	}
}

// runFull is a Full server on stdin and stdout.
func (c Child) runFull() int {
	full := NewFull(c.Modern)
	if c.Extra != "" {
		b, err := os.ReadFile(c.Extra)
		if err == nil {
			err = json.Unmarshal(b, &full.Extra)
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 3
		}
	}
	var mu sync.Mutex
	out := func(msg string) {
		mu.Lock()
		defer mu.Unlock()
		_, _ = io.WriteString(os.Stdout, msg+"\n")
	}
	s := full.Session(out)
	r := bufio.NewReader(os.Stdin)
	for {
		line, err := r.ReadBytes('\n')
		if err != nil {
			return 0
		}
		m, err := wire.ParseMessage(line)
		if err != nil {
			fmt.Fprintln(os.Stderr, "bad line", err)
			continue
		}
		pass(s, m, out, nil)
	}
}
