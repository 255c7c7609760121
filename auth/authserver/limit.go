package authserver

import (
	"net"
	"net/http"
	"net/netip"
	"sync"
	"time"
)

// Limiter bounds how often one network address may ask (token bucket). It
// knows this process only: replicas each allow as much.
type Limiter struct {
	every time.Duration // one more request per
	burst float64
	now   func() time.Time

	mu      sync.Mutex
	buckets map[string]bucket
}

type bucket struct {
	level float64
	at    time.Time
}

// maxBuckets bounds memory; beyond it full buckets go first.
const maxBuckets = 10000

// NewLimiter allows burst requests at once and one more per interval.
func NewLimiter(every time.Duration, burst int, now func() time.Time) *Limiter {
	return &Limiter{every: every, burst: float64(burst), now: now, buckets: map[string]bucket{}}
}

// Allow takes one request of the address; wait says how long to wait if not.
func (l *Limiter) Allow(caller netip.Addr) (wait time.Duration, ok bool) {
	key, now := counted(caller), l.now()
	l.mu.Lock()
	defer l.mu.Unlock()
	b, known := l.buckets[key]
	if !known {
		if len(l.buckets) >= maxBuckets {
			l.sweep(now)
		}
		b = bucket{level: l.burst, at: now}
	}
	b.level = min(l.burst, b.level+float64(now.Sub(b.at))/float64(l.every))
	b.at = now
	if b.level < 1 {
		l.buckets[key] = b
		return time.Duration((1 - b.level) * float64(l.every)), false
	}
	b.level--
	l.buckets[key] = b
	return 0, true
}

// sweep forgets who could ask at full speed again, or everyone if nobody can:
// memory is bounded even while it is attacked.
func (l *Limiter) sweep(now time.Time) {
	for k, b := range l.buckets {
		if b.level+float64(now.Sub(b.at))/float64(l.every) >= l.burst {
			delete(l.buckets, k)
		}
	}
	if len(l.buckets) >= maxBuckets {
		clear(l.buckets)
	}
}

// Peer is the network address that a request was sent from; invalid if it is
// not known.
func Peer(r *http.Request) netip.Addr {
	host, _, err := net.SplitHostPort(r.RemoteAddr)
	if err != nil {
		host = r.RemoteAddr
	}
	ip, err := netip.ParseAddr(host)
	if err != nil {
		return netip.Addr{}
	}
	return ip.Unmap().WithZone("")
}

// counted is what an address is counted as: IPv6 networks count as one, and all
// whose address is not known as one.
func counted(ip netip.Addr) string {
	if !ip.IsValid() {
		return "unknown"
	}
	if ip.Is6() {
		if p, err := ip.Prefix(64); err == nil {
			return p.String()
		}
	}
	return ip.String()
}
