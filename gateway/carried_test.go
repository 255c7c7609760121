package gateway_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/mcp-portal/mcp-portal/config"
	"github.com/mcp-portal/mcp-portal/store"
	"github.com/mcp-portal/mcp-portal/upstreams/upstreamtest"
)

// redisServer starts a Redis of this test and returns its URL.
func redisServer(t *testing.T) string {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	port := ln.Addr().(*net.TCPAddr).Port
	ln.Close()
	cmd := exec.Command("redis-server", "--port", fmt.Sprint(port), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no", "--dir", t.TempDir())
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	for end := time.Now().Add(patience); ; time.Sleep(20 * time.Millisecond) {
		if c, err := net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", port)); err == nil {
			c.Close()
			return fmt.Sprintf("redis://127.0.0.1:%d/0", port)
		}
		if time.Now().After(end) {
			t.Fatal("redis-server does not answer")
		}
	}
}

// channel is one replica's way to the shared store. Cut, nothing that it
// publishes arrives: for the others the replica is gone.
type channel struct {
	store.Store
	mu   sync.Mutex
	cut  bool
	acks int
}

func (c *channel) Publish(ctx context.Context, name string, message []byte) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if strings.Contains(string(message), `"pass-ack"`) {
		c.acks++
	}
	if c.cut {
		return nil
	}
	return c.Store.Publish(ctx, name, message)
}

func (c *channel) acked() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.acks > 0
}

// over puts a replica on a Redis instead of its file.
func over(t *testing.T, url string, c *channel) func(store.Store) store.Store {
	return func(file store.Store) store.Store {
		s, err := store.Open(context.Background(), config.Store{Redis: config.Secret(url)}, "", slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		_ = file.Close()
		c.Store = s
		return c
	}
}

// carrying is two replicas, a run that waits on the first, and a resume of it
// that the second passes on.
type carrying struct {
	a, b     *portal
	v        *victim
	way      *channel // of a
	approval string
	run      string
	answer   chan answer
}

func carry(t *testing.T) *carrying {
	t.Helper()
	url := redisServer(t)
	x := &carrying{v: serve(t, upstreamtest.Legacy, nil), way: &channel{}, answer: make(chan answer, 1)}
	x.a = start(t, trusted(x.v), over(t, url, x.way))
	x.b = start(t, trusted(x.v), over(t, url, &channel{}))
	first := x.a.client(modern, twoTools, noCaps, nil).code("return await s.kill({id:'7'})", "", nil)
	if x.run = runID.FindString(first.Raw); x.run == "" || len(first.approvals()) != 1 {
		t.Fatalf("the code did not wait: %s", first.Raw)
	}
	x.approval = first.approvals()[0]
	go func() { x.answer <- x.b.client(modern, twoTools, noCaps, nil).resume(x.run, "", nil) }()
	x.b.until("the holder of the run says that it is there", x.way.acked)
	return x
}

// A holder that shuts down does not keep those that wait elsewhere: the run
// goes on in another process.
func TestHolderShutsDown(t *testing.T) {
	t.Parallel()
	x := carry(t)
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	x.a.gateway.Close(ctx)
	if got := <-x.answer; !strings.Contains(got.text(), "Paused") {
		t.Errorf("%s", got.text())
	}
	x.b.approve(x.approval)
	if got := x.b.client(modern, twoTools, noCaps, nil).resume(x.run, "", nil); !strings.Contains(got.text(), "ran kill") {
		t.Errorf("%s", got.text())
	}
	if n := len(x.v.calls()); n != 1 {
		t.Errorf("%d calls arrived", n)
	}
}

// A holder that dies while it serves another replica does not leave that
// replica's client waiting: the replica goes on with the run. Should the holder
// only have been cut off, it finds that out before it sends anything.
func TestHolderDies(t *testing.T) {
	t.Parallel()
	x := carry(t)
	x.way.mu.Lock()
	x.way.cut = true
	x.way.mu.Unlock()
	if got := <-x.answer; !strings.Contains(got.text(), "Paused") || strings.Contains(got.text(), "already been sent") {
		t.Errorf("%s", got.text())
	}
	x.b.approve(x.approval)
	if got := x.b.client(modern, twoTools, noCaps, nil).resume(x.run, "", nil); !strings.Contains(got.text(), "ran kill") {
		t.Errorf("%s", got.text())
	}
	x.a.until("the one that was cut off gives up", func() bool {
		_, body := x.a.get("/status")
		return strings.Contains(body, `"runs_paused": 0`)
	})
	if n := len(x.v.calls()); n != 1 {
		t.Errorf("%d calls arrived", n)
	}
}

// A client that leaves at once is noticed, even before its resume is begun.
func TestResumeIsCalledOff(t *testing.T) {
	t.Parallel()
	url := redisServer(t)
	v := serve(t, upstreamtest.Legacy, nil)
	way := &channel{}
	p := start(t, trusted(v), over(t, url, way))
	c := p.client(modern, twoTools, noCaps, nil)
	for i := range 8 {
		run := runID.FindString(c.code(fmt.Sprintf("return await s.kill({id:'q%d'})", i), "", nil).Raw)
		raw, _, err := way.Get(context.Background(), "run:"+run)
		p.must(err)
		var rec struct{ User string }
		p.must(json.Unmarshal(raw, &rec))
		p.must(way.Publish(context.Background(), "gateway", []byte(fmt.Sprintf(`{"kind":"pass-run","key":%q,"body":{"reply":"r%d","body":{"user":%q,"modern":true,"params":{}}}}`, run, i, rec.User))))
		p.must(way.Publish(context.Background(), "gateway", []byte(fmt.Sprintf(`{"kind":"pass-quit","key":"r%d"}`, i))))
		p.until("the run is called off", func() bool {
			raw, _, err := way.Get(context.Background(), "run:"+run)
			return err == nil && strings.Contains(string(raw), "cancelled by its client")
		})
	}
}
