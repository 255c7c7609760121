// Package webhook tells an address of the administrator's choice, such as that
// of a chat, what happens: signed, in the background, with bounded retries. A
// message that cannot be delivered holds nothing up and is logged as lost.
package webhook

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/mcp-portal/mcp-portal/config"
)

// Headers of a message. The signature is "v1=" and the HMAC-SHA-256, in hex, of
// "v1:<timestamp>:<body>" under guard.webhook.secret; the timestamp is in Unix
// seconds. A receiver refuses timestamps that are minutes old.
const (
	HeaderTimestamp = "X-Portal-Timestamp"
	HeaderSignature = "X-Portal-Signature"
	HeaderID        = "X-Portal-Delivery" // the same for every attempt
)

const (
	queueLen = 256
	attempts = 5
	timeout  = 10 * time.Second
)

// Sender delivers messages one after another.
type Sender struct {
	log    *slog.Logger
	wait   time.Duration // before the second attempt; doubled for each further one
	client *http.Client
	queue  chan message
	sent   atomic.Int64
	lost   atomic.Int64
}

type message struct {
	to   config.Webhook
	id   string
	body []byte
}

// Status is what became of the messages so far.
type Status struct {
	Sent    int64 `json:"sent"`
	Lost    int64 `json:"lost"` // given up after retries, or no room in the queue
	Waiting int   `json:"waiting"`
}

// New returns a sender that works until ctx ends. wait is how long it waits
// before it tries a message again; zero means a second.
func New(ctx context.Context, log *slog.Logger, wait time.Duration) *Sender {
	if wait <= 0 {
		wait = time.Second
	}
	s := &Sender{log: log, wait: wait, queue: make(chan message, queueLen), client: &http.Client{
		Timeout: timeout,
		// A redirect would take the message where the administrator did not send it.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
	go s.run(ctx)
	return s
}

// Send puts a JSON message into the queue. It never waits: with no room the
// message is lost, which is counted and logged.
func (s *Sender) Send(to config.Webhook, id string, body []byte) {
	select {
	case s.queue <- message{to, id, body}:
	default:
		s.lose(id, fmt.Errorf("%d messages wait already", queueLen))
	}
}

// Status tells what became of the messages.
func (s *Sender) Status() Status {
	return Status{Sent: s.sent.Load(), Lost: s.lost.Load(), Waiting: len(s.queue)}
}

func (s *Sender) lose(id string, err error) {
	s.lost.Add(1)
	s.log.Error("a message to guard.webhook was not delivered: nobody was told there; the approval is on the portal's page", "approval", id, "error", err)
}

func (s *Sender) run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case m := <-s.queue:
			if err := s.deliver(ctx, m); err != nil {
				s.lose(m.id, err)
				continue
			}
			s.sent.Add(1)
		}
	}
}

func (s *Sender) deliver(ctx context.Context, m message) (err error) {
	wait := s.wait
	for i := range attempts {
		if i > 0 {
			select {
			case <-ctx.Done():
				return err
			case <-time.After(wait):
				wait *= 2
			}
		}
		again := false
		if again, err = s.post(ctx, m); err == nil || !again {
			return err
		}
	}
	return fmt.Errorf("given up after %d attempts: %w", attempts, err)
}

// post makes one attempt and says whether another one is of use. Errors do not
// name the address: it is a secret.
func (s *Sender) post(ctx context.Context, m message) (again bool, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, m.to.URL.Reveal(), bytes.NewReader(m.body))
	if err != nil {
		return false, fmt.Errorf("guard.webhook.url is no address")
	}
	now := strconv.FormatInt(time.Now().Unix(), 10)
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set(HeaderTimestamp, now)
	req.Header.Set(HeaderSignature, Sign(m.to.Secret, now, m.body))
	req.Header.Set(HeaderID, m.id)
	resp, err := s.client.Do(req)
	if err != nil {
		return true, fmt.Errorf("the address could not be reached")
	}
	defer resp.Body.Close()
	_, _ = io.Copy(io.Discard, io.LimitReader(resp.Body, 64<<10)) // so that the connection can be used again
	switch {
	case resp.StatusCode/100 == 2:
		return false, nil
	case resp.StatusCode/100 == 5, resp.StatusCode == http.StatusTooManyRequests, resp.StatusCode == http.StatusRequestTimeout:
		return true, fmt.Errorf("the address answered %d", resp.StatusCode)
	}
	return false, fmt.Errorf("the address answered %d, which no further attempt changes", resp.StatusCode)
}

// Sign is the signature of a message at a time in Unix seconds.
func Sign(secret config.Secret, timestamp string, body []byte) string {
	h := hmac.New(sha256.New, []byte(secret.Reveal()))
	_, _ = io.WriteString(h, "v1:"+timestamp+":") // a hash takes everything
	_, _ = h.Write(body)
	return "v1=" + hex.EncodeToString(h.Sum(nil))
}
