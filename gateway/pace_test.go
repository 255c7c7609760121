package gateway_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/mcp-portal/mcp-portal/upstreams/upstreamtest"
)

// slowClient sends one request over a connection with small buffers and leaves
// the reading to the test.
func (p *portal) slowClient(method, query, body string, header map[string]string) (net.Conn, *bufio.Reader) {
	p.t.Helper()
	conn, err := net.Dial("tcp", strings.TrimPrefix(p.url, "http://"))
	p.must(err)
	p.t.Cleanup(func() { _ = conn.Close() })
	req, err := http.NewRequest(method, p.url+"/mcp"+query, strings.NewReader(body))
	p.must(err)
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "application/json, text/event-stream")
	for k, v := range header {
		req.Header.Set(k, v)
	}
	p.must(req.Write(conn))
	return conn, bufio.NewReader(conn)
}

// flood is a server whose tool says 150 MB before its result.
func flood(t *testing.T) (v *victim, sent *atomic.Int64, cancelled chan struct{}) {
	sent, cancelled = &atomic.Int64{}, make(chan struct{})
	v = serve(t, upstreamtest.Legacy, func(c *upstreamtest.Call) bool {
		if c.Method != "tools/call" {
			return false
		}
		long := strings.Repeat("x", 100_000)
		for i := range flooded {
			if c.Context().Err() != nil {
				close(cancelled)
				return true
			}
			c.Notify("notifications/progress", fmt.Sprintf(`{"progressToken":%s,"progress":%d,"message":"%s"}`, c.Token(), i, long))
			sent.Add(1)
		}
		c.Text("said it all")
		return true
	})
	return v, sent, cancelled
}

// flooded is how many notifications of 100 kB: more than the buffers between
// take, 500 at most.
const flooded = 600

const floodCall = `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"s_look","arguments":{},"_meta":{"progressToken":7}}}`

// A client that reads slowly holds its server back: the portal keeps nothing
// for it, and it gets everything.
func TestSlowReaderHoldsItsServerBack(t *testing.T) {
	v, sent, _ := flood(t)
	p := start(t, trusted(v), nil)
	_, r := p.slowClient("POST", "", floodCall, nil)
	p.until("the server has said something", func() bool { return sent.Load() > 0 })
	still, since := int64(-1), time.Now()
	p.until("the server is held back", func() bool {
		if n := sent.Load(); n != still {
			still, since = n, time.Now()
		}
		return still == flooded || time.Since(since) > 2*time.Second
	})
	t.Logf("%d of %d notifications are on the way", still, flooded)
	if still > 500 {
		t.Errorf("%d notifications of 100 kB wait for a client that does not read", still)
	}
	resp, err := http.ReadResponse(r, nil)
	p.must(err)
	sc := bufio.NewScanner(resp.Body)
	sc.Buffer(nil, 1<<20)
	got, end := 0, ""
	for sc.Scan() {
		switch {
		case strings.Contains(sc.Text(), `"notifications/progress"`):
			if !strings.Contains(sc.Text(), fmt.Sprintf(`"progress":%d,`, got)) {
				t.Fatalf("number %d is %.200s", got, sc.Text())
			}
			got++
		case strings.HasPrefix(sc.Text(), "data: "):
			end = sc.Text()
		}
	}
	if got != flooded || !strings.Contains(end, "said it all") {
		t.Errorf("%d notifications, then %q, %v", got, end, sc.Err())
	}
}

// A client that takes nothing for limits.stall is gone: its call ends, at the
// server too, and its stream.
func TestStalledClientIsGivenUp(t *testing.T) {
	v, _, cancelled := flood(t)
	p := start(t, "limits: {stall: 1s}\n"+trusted(v), nil)
	p.slowClient("POST", "", floodCall, nil)
	select {
	case <-cancelled:
	case <-time.After(patience):
		t.Fatal("the call of a client that does not read goes on for ever")
	}
}

// What is slow but moves goes on, however long it takes.
func TestSlowButMovingClientIsKept(t *testing.T) {
	const size = 20 << 20
	v := serve(t, upstreamtest.Legacy, func(c *upstreamtest.Call) bool {
		if c.Method != "tools/call" {
			return false
		}
		c.Text(strings.Repeat("x", size))
		return true
	})
	p := start(t, "limits: {stall: 2s}\n"+trusted(v), nil)
	_, r := p.slowClient("POST", "", `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"s_look","arguments":{}}}`, nil)
	resp, err := http.ReadResponse(r, nil)
	p.must(err)
	begin, n := time.Now(), 0
	buf := make([]byte, 300<<10)
	for {
		m, err := io.ReadFull(resp.Body, buf)
		n += m
		if err != nil {
			break
		}
		time.Sleep(60 * time.Millisecond)
	}
	if n < size || time.Since(begin) < 3*time.Second {
		t.Errorf("%d bytes in %v: all are wanted, in longer than a stall", n, time.Since(begin))
	}
}

// A client that comes back to its stream of notices, at any replica, is told
// what changed meanwhile, and only that.
func TestReturningStreamIsToldWhatItMissed(t *testing.T) {
	v := serve(t, upstreamtest.Legacy, nil)
	p := start(t, trusted(v), nil)
	c := p.client(legacy, "", noCaps, nil)
	open := func(last string) (next func() string, done func(), more func() string) {
		t.Helper()
		h := c.headers("", "")
		if last != "" {
			h["Last-Event-ID"] = last
		}
		conn, r := p.slowClient("GET", "", "", h)
		resp, err := http.ReadResponse(r, nil)
		p.must(err)
		if resp.StatusCode != 200 {
			t.Fatalf("GET: %s", resp.Status)
		}
		br := bufio.NewReader(resp.Body)
		return func() string { // the next line that is not empty
				p.must(conn.SetReadDeadline(time.Now().Add(patience)))
				for {
					line, err := br.ReadString('\n')
					p.must(err)
					if line = strings.TrimSpace(line); line != "" {
						return line
					}
				}
			}, func() { _ = conn.Close() }, func() string {
				line, _ := br.ReadString('\n')
				return line
			}
	}
	opening := func(next func() string) (id string) {
		t.Helper()
		if got := next(); got != ": open" {
			t.Fatalf("the stream begins with %q", got)
		}
		id, ok := strings.CutPrefix(next(), "id: ")
		if !ok || id == "" {
			t.Fatal("no id to come back with")
		}
		return id
	}
	// told reads one list_changed with its id.
	told := func(next func() string) (id string) {
		t.Helper()
		if got := next(); got != "event: message" {
			t.Fatalf("got %q", got)
		}
		id, _ = strings.CutPrefix(next(), "id: ")
		var m struct{ Method string }
		data, _ := strings.CutPrefix(next(), "data: ")
		if json.Unmarshal([]byte(data), &m) != nil || m.Method != "notifications/tools/list_changed" {
			t.Fatalf("told %q", data)
		}
		return id
	}
	toggle := func(action string) {
		t.Helper()
		if a := c.call("portal_toggle_single_server", `{"server_id":"s","action":"`+action+`"}`, "", nil); a.Err != nil || a.Error != nil {
			t.Fatalf("%+v", a)
		}
	}
	next, done, _ := open("")
	first := opening(next)
	done()
	toggle("untoggle")
	next, done, _ = open(first)
	now := opening(next)
	if now == first {
		t.Error("another list has the same id")
	}
	if id := told(next); id != now {
		t.Errorf("told with the id %q, want %q", id, now)
	}
	done()
	// Nothing is missed, or nothing is known: the first that comes is the change
	// after it.
	for i, last := range []string{now, "of-another-server", "1-2-3", ""} {
		next, done, more := open(last)
		opening(next)
		action := []string{"toggle", "untoggle"}[i%2]
		toggle(action)
		told(next)
		quiet := make(chan string, 1)
		go func() { more(); quiet <- more() }() // the empty line that ends the event, and what is not to come
		select {
		case got := <-quiet:
			t.Errorf("after the id %q the client is told twice: %s", last, got)
		case <-time.After(300 * time.Millisecond):
		}
		done()
	}
}
