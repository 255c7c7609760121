package store_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/mcp-portal/mcp-portal/config"
	"github.com/mcp-portal/mcp-portal/internal/testlog"
	"github.com/mcp-portal/mcp-portal/store"
	"github.com/mcp-portal/mcp-portal/store/storetest"
)

func openRedis(t *testing.T, url string) (*store.Redis, *testlog.Buffer) {
	t.Helper()
	log, buf := testlog.New()
	s, err := store.OpenRedis(context.Background(), config.Secret(url), "t:", log)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s, buf
}

// TestRedisTroubleIsNamed covers B157: what is wrong with a configured Redis
// is said in the status and the log, is an error of every call, and never
// becomes memory that pretends to be Redis.
func TestRedisTroubleIsNamed(t *testing.T) {
	plain := storetest.StartRedis(t)
	locked := storetest.StartRedis(t, "--requirepass", "right-password")
	replica := storetest.StartRedis(t, "--replicaof", strings.Replace(plain.Addr, ":", " ", 1))
	certDir := certificates(t)
	tlsServer := storetest.StartRedis(t, "--tls-port", "0", "--tls-cert-file", filepath.Join(certDir, "cert.pem"),
		"--tls-key-file", filepath.Join(certDir, "key.pem"), "--tls-ca-cert-file", filepath.Join(certDir, "cert.pem"), "--tls-auth-clients", "no")
	noScripts := storetest.StartRedis(t, "--user", "default", "on", "nopass", "~*", "&*", "+@all", "-eval", "-evalsha")
	full := storetest.StartRedis(t, "--maxmemory", "1")
	sentinel := startSentinel(t, plain.Addr)
	web := httptest.NewServer(http.NotFoundHandler())
	t.Cleanup(web.Close)

	for _, c := range []struct{ name, url, want string }{
		{"nothing listens", "redis://" + storetest.FreeAddr(t), "refuses the connection"},
		{"unknown host", "redis://redis.invalid:6379", "not known"},
		{"no password", locked.URL(), "wants a password"},
		{"wrong password", "redis://:wrong-password@" + locked.Addr, "refuses the user or password"},
		{"password where none is set", "redis://someone:wrong-password@" + plain.Addr, "refuses the user or password"},
		{"read-only replica", replica.URL(), "read-only replica"},
		{"TLS to a plain port", "rediss://" + plain.Addr, "does not speak TLS on this port"},
		{"plain to a TLS port", tlsServer.URL(), "may expect TLS"},
		{"unknown authority", "rediss://" + tlsServer.Addr, "not trusted"},
		{"sentinel port", "redis://" + sentinel, "maybe a Sentinel"},
		{"not Redis at all", "redis://" + strings.TrimPrefix(web.URL, "http://"), "does not speak the Redis protocol"},
		{"no permission for scripts", noScripts.URL(), "lacks a permission"},
		{"out of memory", full.URL(), "out of memory"},
		{"no such database", "redis://" + plain.Addr + "/9999", "no database of that number"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s, log := openRedis(t, c.url)
			if st := s.Status(); st.Backend != "redis" || !st.Degraded {
				t.Fatalf("status %+v right after opening; want degraded", st)
			}
			// On a machine that stalls, the first reason can be the time.
			storetest.Eventually(t, "the status says: "+c.want, func() bool { return strings.Contains(s.Status().Error, c.want) })
			st := s.Status()
			if !strings.Contains(log.String(), "store degraded") {
				t.Errorf("the log does not say it: %s", log)
			}
			// "nothing promised that was not stored"
			ctx := context.Background()
			// Only the user without scripts may write plain values, and then
			// they are there.
			won, err := s.Create(ctx, "k", []byte("v"), time.Minute)
			if c.name == "no permission for scripts" {
				if _, found, _ := s.Get(ctx, "k"); !won || err != nil || !found {
					t.Errorf("Create = %v, %v, found %v", won, err, found)
				}
				if _, err := s.Swap(ctx, "k", []byte("v"), nil, 0); !errors.Is(err, store.ErrUnavailable) {
					t.Errorf("Swap: %v; want ErrUnavailable", err)
				}
				return
			}
			if won || !errors.Is(err, store.ErrUnavailable) {
				t.Errorf("Create = %v, %v; want ErrUnavailable", won, err)
			} else if strings.Contains(err.Error(), "-password") {
				t.Errorf("the error shows the password: %v", err)
			}
			if v, found, _ := s.Get(ctx, "k"); found {
				t.Errorf("Get found %q, which was never stored", v)
			}
			if out := log.String() + st.Error; strings.Contains(out, "-password") {
				t.Errorf("a password was shown: %s", out)
			}
			if n := strings.Count(log.String(), "store degraded"); n != 1 {
				t.Errorf("the state was logged %d times: %s", n, log)
			}
		})
	}
}

func TestRedisURLErrorsHideThePassword(t *testing.T) {
	log, _ := testlog.New()
	for _, url := range []string{"redis://:hunter2@host:notaport", "http://:hunter2@host", "redis://:hun%ter2@host", "redis://:hunter2@host/notanumber"} {
		s, err := store.OpenRedis(context.Background(), config.Secret(url), "t:", log)
		if err == nil {
			_ = s.Close()
			t.Errorf("%s was accepted", url)
		} else if strings.Contains(err.Error(), "hun") {
			t.Errorf("the error shows the password: %v", err)
		}
	}
}

// TestRedisSilentAddress opens a store at an address that takes connections
// and never answers: opening must not wait long, and later calls not at all.
func TestRedisSilentAddress(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	s, _ := openRedis(t, "redis://"+l.Addr().String())
	storetest.Eventually(t, "silence is noticed", func() bool { return strings.Contains(s.Status().Error, "in time") })
	// A known-dead Redis fails calls at once: a hundred would otherwise wait
	// for two seconds each.
	begin := time.Now()
	for range 100 {
		if _, _, err := s.Get(context.Background(), "k"); !errors.Is(err, store.ErrUnavailable) {
			t.Fatal(err)
		}
	}
	if d := time.Since(begin); d > 60*time.Second {
		t.Fatalf("a hundred calls to a dead Redis took %s", d)
	}
}

// TestRedisDownAtStart covers B158.
func TestRedisDownAtStart(t *testing.T) {
	server := storetest.StartRedis(t)
	server.Stop()
	s, log := openRedis(t, server.URL())
	ctx := t.Context()
	ch, err := s.Subscribe(ctx, "ch")
	if err != nil {
		t.Fatalf("Subscribe while Redis is down: %v", err)
	}
	if st := s.Status(); !st.Degraded {
		t.Fatalf("status %+v while Redis is down", st)
	}
	if err := s.Set(ctx, "k", []byte("lost"), 0); !errors.Is(err, store.ErrUnavailable) {
		t.Fatalf("Set while Redis is down: %v", err)
	}
	server.Restart()
	storetest.Eventually(t, "the store heals by itself", func() bool { return !s.Status().Degraded })
	if err := s.Set(ctx, "k", []byte("v"), 0); err != nil {
		t.Fatal(err)
	}
	heard(t, s, ch)
	if !strings.Contains(log.String(), "store healthy again") {
		t.Errorf("the log does not say that it healed: %s", log)
	}
}

// heard publishes until the subscription delivers, which it must.
func heard(t *testing.T, s store.Store, ch <-chan []byte) {
	t.Helper()
	storetest.Eventually(t, "the subscription goes on", func() bool {
		_ = s.Publish(context.Background(), "ch", []byte("hello"))
		select {
		case m, open := <-ch:
			if !open {
				t.Fatal("the subscription was ended")
			}
			return string(m) == "hello"
		case <-time.After(50 * time.Millisecond):
			return false
		}
	})
}

// TestRedisRestartUnderLoad covers B163: kill and restart while many calls
// run. Each call ends with an answer or ErrUnavailable, none hangs, counters
// are never wrong, and all of it shows in status and log.
func TestRedisRestartUnderLoad(t *testing.T) {
	server := storetest.StartRedis(t)
	s, log := openRedis(t, server.URL())
	ctx, cancel := context.WithCancel(t.Context())
	ch, err := s.Subscribe(ctx, "ch")
	if err != nil {
		t.Fatal(err)
	}
	heard(t, s, ch)

	var good, bad atomic.Int64
	var load sync.WaitGroup
	for i := range 16 {
		load.Go(func() {
			key := fmt.Sprintf("load:%d", i)
			for n := 0; ctx.Err() == nil; n++ {
				callCtx, done := context.WithTimeout(context.Background(), 10*time.Second)
				err := s.Set(callCtx, key, fmt.Appendf(nil, "%d", n), time.Minute)
				if err == nil {
					_, _, err = s.Get(callCtx, key)
				}
				done()
				switch {
				case err == nil:
					good.Add(1)
				case errors.Is(err, store.ErrUnavailable):
					bad.Add(1)
					time.Sleep(time.Millisecond)
				default:
					t.Errorf("a call failed with %v", err)
					return
				}
			}
		})
	}
	stopped := func() { cancel(); load.Wait() }
	defer stopped()
	for round := 1; round <= 2; round++ {
		was := good.Load()
		storetest.Eventually(t, "calls work", func() bool { return good.Load() > was+50 })
		server.Stop()
		storetest.Eventually(t, "the loss is in the status", func() bool { return s.Status().Degraded })
		failed := bad.Load()
		storetest.Eventually(t, "calls fail visibly", func() bool { return bad.Load() > failed+50 })
		server.Restart()
		storetest.Eventually(t, "the status is healthy again", func() bool { return !s.Status().Degraded })
		heard(t, s, ch)
		if a, b := strings.Count(log.String(), "store degraded"), strings.Count(log.String(), "store healthy again"); a < round || a != b {
			t.Fatalf("after %d restarts the log says %d times degraded and %d times healthy:\n%s", round, a, b, log)
		}
	}
	was := good.Load()
	storetest.Eventually(t, "calls work to the end", func() bool { return good.Load() > was+50 })
	failed, degradations := bad.Load(), strings.Count(log.String(), "store degraded")
	was = good.Load()
	storetest.Eventually(t, "no call fails after healing", func() bool { return good.Load() > was+200 })
	if bad.Load() != failed && strings.Count(log.String(), "store degraded") == degradations {
		t.Errorf("%d calls failed after the store was healthy again", bad.Load()-failed)
	}
}

// TestRedisBecomesReplica covers B164: the primary becomes a replica under
// open connections, as in a failover, and is promoted again.
func TestRedisBecomesReplica(t *testing.T) {
	server := storetest.StartRedis(t)
	s, log := openRedis(t, server.URL())
	ctx := t.Context()
	if err := s.Set(ctx, "k", []byte("v"), 0); err != nil {
		t.Fatal(err)
	}
	cli(t, server.Addr, "replicaof", "127.0.0.1", "1")
	storetest.Eventually(t, "writes are known to be refused", func() bool { return strings.Contains(s.Status().Error, "read-only replica") })
	if err := s.Set(ctx, "k", []byte("w"), 0); !errors.Is(err, store.ErrUnavailable) || !strings.Contains(err.Error(), "read-only") {
		t.Fatalf("Set on a replica: %v", err)
	}
	cli(t, server.Addr, "replicaof", "no", "one")
	storetest.Eventually(t, "writes work again", func() bool { return !s.Status().Degraded })
	if err := s.Set(ctx, "k", []byte("w"), 0); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(log.String(), "read-only") {
		t.Errorf("the log does not name the reason: %s", log)
	}
}

// TestRedisOneBrokenConnection kills the connections of a healthy Redis: the
// store must not declare it down.
func TestRedisOneBrokenConnection(t *testing.T) {
	server := storetest.StartRedis(t)
	s, log := openRedis(t, server.URL())
	ch, err := s.Subscribe(t.Context(), "ch")
	if err != nil {
		t.Fatal(err)
	}
	heard(t, s, ch)
	cli(t, server.Addr, "client", "kill", "type", "normal")
	cli(t, server.Addr, "client", "kill", "type", "pubsub")
	heard(t, s, ch)
	if err := s.Set(t.Context(), "k", []byte("v"), 0); err != nil {
		t.Errorf("Set on new connections: %v", err)
	}
	storetest.Eventually(t, "the resumed subscription is logged", func() bool { return strings.Contains(log.String(), "subscription resumed") })
	if strings.Contains(log.String(), "store degraded") {
		t.Errorf("broken connections made a working Redis degraded: %s", log)
	}
}

func TestRedisPrefixSeparatesStores(t *testing.T) {
	server := storetest.StartRedis(t)
	log, _ := testlog.New()
	ctx := t.Context()
	var stores []*store.Redis
	for _, prefix := range []string{"a:", "b:"} {
		s, err := store.OpenRedis(ctx, config.Secret(server.URL()), prefix, log)
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		stores = append(stores, s)
	}
	if err := stores[0].Set(ctx, "k", []byte("v"), 0); err != nil {
		t.Fatal(err)
	}
	if _, found, err := stores[1].Get(ctx, "k"); err != nil || found {
		t.Errorf("a store sees the key of another prefix: %v, %v", found, err)
	}
	if keys, err := stores[1].Keys(ctx, "k"); err != nil || len(keys) != 0 {
		t.Errorf("a store lists keys of another prefix: %q, %v", keys, err)
	}
}

func cli(t *testing.T, addr string, args ...string) {
	t.Helper()
	host, port, _ := net.SplitHostPort(addr)
	out, err := exec.Command("redis-cli", append([]string{"-h", host, "-p", port}, args...)...).CombinedOutput()
	if err != nil || strings.HasPrefix(string(out), "ERR") {
		t.Fatalf("redis-cli %v: %v %s", args, err, out)
	}
}

// startSentinel runs a Redis Sentinel, which answers PING but holds no data.
func startSentinel(t *testing.T, primary string) string {
	t.Helper()
	host, port, _ := net.SplitHostPort(primary)
	addr := storetest.FreeAddr(t)
	_, own, _ := net.SplitHostPort(addr)
	file := filepath.Join(t.TempDir(), "sentinel.conf")
	text := fmt.Sprintf("port %s\nbind 127.0.0.1\nsentinel monitor main %s %s 1\n", own, host, port)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("redis-server", file, "--sentinel")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	storetest.Eventually(t, "the sentinel listens", func() bool {
		c, err := net.Dial("tcp", addr)
		if err == nil {
			c.Close()
		}
		return err == nil
	})
	return addr
}

// certificates writes a self-signed certificate for 127.0.0.1.
func certificates(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	for name, block := range map[string]*pem.Block{"cert.pem": {Type: "CERTIFICATE", Bytes: der}, "key.pem": {Type: "PRIVATE KEY", Bytes: keyDER}} {
		if err := os.WriteFile(filepath.Join(dir, name), pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}
