package gateway

import (
	"net/http"
	"time"
)

// paceBytes must move within limits.stall. Streams have no other limit on time:
// what is slow but moves goes on.
const paceBytes = 64 << 10

// paced gives up clients that do not read: a connection that takes nothing for
// stall fails, and with it whatever it holds. Nothing is kept for a slow
// reader, whoever writes waits for it.
type paced struct {
	http.ResponseWriter
	control *http.ResponseController
	stall   time.Duration
}

func (g *Gateway) pace(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		next.ServeHTTP(&paced{w, http.NewResponseController(w), g.settings().cfg.Limits.Stall}, r)
	})
}

func (p *paced) Write(b []byte) (n int, err error) {
	for first := true; first || len(b) > 0; first = false {
		part := b[:min(len(b), paceBytes)]
		// Not every connection has deadlines; then it has none.
		_ = p.control.SetWriteDeadline(time.Now().Add(p.stall))
		m, err := p.ResponseWriter.Write(part)
		n += m
		if err != nil {
			return n, err
		}
		b = b[len(part):]
	}
	return n, nil
}

// FlushError sends what is buffered, under the same limit.
func (p *paced) FlushError() error {
	_ = p.control.SetWriteDeadline(time.Now().Add(p.stall))
	return p.control.Flush()
}

// Unwrap is for http.ResponseController.
func (p *paced) Unwrap() http.ResponseWriter { return p.ResponseWriter }
