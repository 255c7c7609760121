package store

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"os"
	"strings"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	probeHealthy  = 2 * time.Second        // between probes while all is well
	probeDegraded = 250 * time.Millisecond // between probes at first while not
	probeSlowest  = 2 * time.Second        // and after a while
)

// monitor probes Redis until the store is closed.
func (r *Redis) monitor() {
	wait := probeHealthy
	if r.health.degraded() {
		wait = probeDegraded
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	for {
		was := r.health.degraded()
		wake := r.wake
		if was {
			wake = nil // failing calls must not turn probing into a storm
		}
		timer.Reset(wait)
		select {
		case <-r.ctx.Done():
			return
		case <-wake:
		case <-timer.C:
		}
		ctx, cancel := context.WithTimeout(r.ctx, networkTimeout)
		r.probe(ctx)
		cancel()
		switch now := r.health.degraded(); {
		case !now:
			wait = probeHealthy
			select { // calls that failed before this probe asked for it
			case <-r.wake:
			default:
			}
		case !was:
			wait = probeDegraded
		default:
			wait = min(2*wait, probeSlowest)
		}
	}
}

// nudge asks for a probe now.
func (r *Redis) nudge() {
	select {
	case r.wake <- struct{}{}:
	default:
	}
}

// probeScript writes a key that expires, as the calls of the store do.
const probeScript = `redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2]) return 1`

// probe does what the store needs: a script that writes, and a message. A PING
// would be answered by a replica that takes no writes, by a Redis that cannot
// save, and by a Sentinel.
func (r *Redis) probe(ctx context.Context) {
	err := r.client.Eval(ctx, probeScript, []string{r.key("probe")},
		time.Now().UTC().Format(time.RFC3339), time.Minute.Milliseconds()).Err()
	if err == nil {
		err = r.client.Publish(ctx, r.key("probe"), "").Err()
	}
	if r.ctx.Err() != nil {
		return
	}
	if err == nil {
		r.setAway(false)
		r.health.work()
		return
	}
	if t := r.classify(err); t.lasting {
		r.setAway(t.away)
		r.health.fail(t.reason)
	}
}

func (r *Redis) setAway(away bool) {
	r.mu.Lock()
	r.away = away
	r.mu.Unlock()
}

// trouble is what an error of Redis means.
type trouble struct {
	reason  string // for people, with what to do, without credentials
	away    bool   // nothing answers, so calls need not try
	lasting bool   // the store as a whole does not work, not only this call
}

// replies maps the first words of an error reply to its meaning.
var replies = []struct{ prefix, reason string }{
	{"NOAUTH", "Redis wants a password; put it into store.redis: redis://:password@host:6379"},
	{"WRONGPASS", "Redis refuses the user or password of store.redis; correct it"},
	{"ERR invalid password", "Redis refuses the password of store.redis; correct it"},
	{"ERR AUTH", "Redis refuses the sign-in of store.redis; it may have no password set, or need a user"},
	{"NOPERM", "the Redis user of store.redis lacks a permission; allow it all keys under store.prefix, its channels, and scripts"},
	{"READONLY", "Redis is a read-only replica; point store.redis at the primary"},
	{"MISCONF", "Redis cannot save to disk and refuses writes; look at its log and disk"},
	{"OOM", "Redis is out of memory and refuses writes; raise its maxmemory"},
	{"LOADING", "Redis is loading its data; wait"},
	{"MASTERDOWN", "Redis is a replica that has lost its primary; point store.redis at the primary"},
	{"NOREPLICAS", "Redis has too few replicas and refuses writes; look at its replication"},
	{"CLUSTERDOWN", "the Redis cluster is down; look at its nodes"},
	{"MOVED", "Redis is a cluster, and store.redis names a single node; use a proxy or a single Redis"},
	{"DENIED", "Redis is in protected mode and refuses remote clients; set a password or bind address there"},
	{"ERR max number of clients", "Redis has no connection left (maxclients); raise it"},
	{"ERR unknown command", "what answers is not a Redis for data, maybe a Sentinel; correct the port in store.redis"},
	{"ERR DB index is out of range", "Redis has no database of that number; correct it in store.redis"},
	{"ERR SELECT is not allowed", "Redis is a cluster and has only database 0; correct it in store.redis"},
}

// classify says what an error means. Its texts hold no part of the error that
// could contain a value or a credential.
func (r *Redis) classify(err error) trouble {
	broken := func(reason string) trouble { return trouble{reason: reason, lasting: true} }
	away := func(reason string) trouble { return trouble{reason: reason, lasting: true, away: true} }

	var (
		header  tls.RecordHeaderError
		unknown x509.UnknownAuthorityError
		name    x509.HostnameError
		invalid x509.CertificateInvalidError
		verify  *tls.CertificateVerificationError
		alert   tls.AlertError
		dns     *net.DNSError
		reply   redis.Error
		netErr  net.Error
	)
	text := err.Error()
	if errors.As(err, &reply) {
		text = reply.Error()
	}
	for _, known := range replies {
		if strings.HasPrefix(text, known.prefix) {
			return broken(known.reason)
		}
	}
	switch {
	case errors.As(err, &header):
		return away("Redis does not speak TLS on this port; write redis:// instead of rediss://, or correct the port")
	case errors.As(err, &name):
		return away("the certificate of Redis is for another host name; correct the host in store.redis")
	case errors.As(err, &unknown), errors.As(err, &invalid), errors.As(err, &verify):
		return away("the certificate of Redis is not trusted; install its authority on this machine")
	case errors.As(err, &alert):
		return away("Redis refuses the TLS connection; it may want a client certificate")
	case errors.As(err, &dns):
		return away("the host of store.redis is not known; correct it or the name service")
	case errors.Is(err, syscall.ECONNREFUSED):
		return away("Redis refuses the connection; is it running at the address of store.redis?")
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE):
		return away("Redis closed the connection; if this stays, it may expect TLS (rediss://) or stand at another port")
	case errors.Is(err, redis.ErrClosed):
		return trouble{reason: "the store is closed"}
	case errors.Is(err, redis.ErrPoolTimeout):
		return trouble{reason: "all connections to Redis are busy; try again"}
	case errors.Is(err, os.ErrDeadlineExceeded), errors.Is(err, context.DeadlineExceeded), errors.As(err, &netErr) && netErr.Timeout():
		if r.tls {
			// A Redis without TLS takes the handshake for a command that has
			// not ended yet.
			return away("Redis does not answer in time; if it does not speak TLS on this port, write redis:// instead of rediss://, else look whether the address of store.redis is right and reachable")
		}
		return away("Redis does not answer in time; is the address of store.redis right and reachable?")
	case errors.As(err, &netErr):
		return away("Redis cannot be reached; is the address of store.redis right and reachable?")
	case errors.As(err, &reply):
		return trouble{reason: "Redis refuses the command (" + firstWord(text) + ")"}
	case strings.Contains(text, "can't parse"), strings.Contains(text, "unexpected"):
		return away("what answers does not speak the Redis protocol; correct the host and port of store.redis")
	}
	return broken("Redis cannot be used; look at its log")
}

// firstWord returns the code of an error reply, like WRONGTYPE.
func firstWord(s string) string {
	w, _, _ := strings.Cut(s, " ")
	if len(w) > 20 {
		w = w[:20]
	}
	return w
}
