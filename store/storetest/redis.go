package storetest

import (
	"bufio"
	"bytes"
	"fmt"
	"net"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"
)

// patience is how long a test waits for what must happen; it ends early when
// it does, so a slow machine costs time and not a verdict.
const patience = 30 * time.Second

// Redis is a real redis-server of one test.
type Redis struct {
	Addr string // host:port

	t    testing.TB
	args []string
	mu   sync.Mutex
	cmd  *exec.Cmd
	out  bytes.Buffer
	done chan struct{}
}

// StartRedis starts a redis-server without persistence on a free port of the
// loopback and stops it when the test ends. More arguments are passed on, such
// as "--requirepass", "secret"; with "--tls-port", "0" the server speaks TLS at
// Addr. The test fails if redis-server is not
// installed; `make test` installs it.
func StartRedis(t testing.TB, args ...string) *Redis {
	t.Helper()
	if _, err := exec.LookPath("redis-server"); err != nil {
		t.Fatal("redis-server is not installed; run make test, which installs it, or apt-get install redis-server")
	}
	r := &Redis{t: t, args: args}
	t.Cleanup(r.Stop)
	// The free port can be taken by someone else before Redis binds it.
	for range 5 {
		r.Addr = FreeAddr(t)
		if r.start() {
			return r
		}
	}
	t.Fatalf("redis-server does not start: %s", r.out.String())
	return nil
}

// FreeAddr returns a loopback address at which nothing listens.
func FreeAddr(t testing.TB) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// URL returns the redis:// URL without credentials.
func (r *Redis) URL() string { return "redis://" + r.Addr + "/0" }

// Stop kills the server without a farewell, as a crash would. It returns when
// the process is gone; stopping twice is harmless.
func (r *Redis) Stop() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.cmd == nil {
		return
	}
	_ = r.cmd.Process.Kill()
	<-r.done
	r.cmd = nil
}

// Restart stops the server, if it runs, and starts an empty one at the same
// address.
func (r *Redis) Restart() {
	r.t.Helper()
	r.Stop()
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); time.Sleep(50 * time.Millisecond) {
		if r.start() {
			return
		}
	}
	r.t.Fatalf("redis-server does not start again at %s: %s", r.Addr, r.out.String())
}

// start runs the server and reports whether it answers.
func (r *Redis) start() bool {
	_, port, _ := net.SplitHostPort(r.Addr)
	args := append([]string{"--port", port, "--bind", "127.0.0.1", "--save", "", "--appendonly", "no", "--daemonize", "no"}, r.args...)
	if r.has("--tls-port") {
		args = append(args, "--port", "0", "--tls-port", port)
	}
	cmd := exec.Command("redis-server", args...)
	cmd.Dir = r.t.TempDir()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.out.Reset()
	cmd.Stdout, cmd.Stderr = &r.out, &r.out
	if err := cmd.Start(); err != nil {
		r.t.Fatalf("starting redis-server: %v", err)
	}
	done := make(chan struct{})
	go func() { _ = cmd.Wait(); close(done) }()
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
		select {
		case <-done:
			return false
		default:
		}
		if answers(r.Addr, r.has("--tls-port")) {
			r.cmd, r.done = cmd, done
			return true
		}
	}
	_ = cmd.Process.Kill()
	<-done
	return false
}

func (r *Redis) has(arg string) bool {
	for _, a := range r.args {
		if a == arg {
			return true
		}
	}
	return false
}

// answers reports whether a Redis replies at addr; with TLS, whether anything
// listens.
func answers(addr string, tls bool) bool {
	conn, err := net.DialTimeout("tcp", addr, time.Second)
	if err != nil {
		return false
	}
	defer conn.Close()
	if tls {
		return true
	}
	_ = conn.SetDeadline(time.Now().Add(time.Second))
	fmt.Fprint(conn, "PING\r\n")
	line, err := bufio.NewReader(conn).ReadString('\n')
	return err == nil && (strings.HasPrefix(line, "+PONG") || strings.HasPrefix(line, "-NOAUTH"))
}
