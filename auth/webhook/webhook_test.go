package webhook

import (
	"bytes"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/mcp-portal/mcp-portal/config"
	"github.com/mcp-portal/mcp-portal/internal/testlog"
)

const key = config.Secret("a-secret-of-the-receiver")

// until waits for what must come.
func until(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("waited in vain until %s", what)
		}
	}
}

// Messages are signed, tried again where that is of use, and given up where it
// is not, loudly and without the address.
func TestDelivery(t *testing.T) {
	elsewhere := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("a redirect was followed") }))
	defer elsewhere.Close()
	for name, c := range map[string]struct {
		answers  []int // by attempt; the last one again and again
		attempts int
		sent     int64
		says     string
	}{
		"at once":               {[]int{200}, 1, 1, ""},
		"after trouble":         {[]int{503, 429, 204}, 3, 1, ""},
		"never":                 {[]int{500}, attempts, 0, "given up after 5 attempts"},
		"refused":               {[]int{403}, 1, 0, "no further attempt"},
		"gone to another place": {[]int{307}, 1, 0, "no further attempt"},
	} {
		t.Run(name, func(t *testing.T) {
			var mu sync.Mutex
			n, wrong := 0, ""
			srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				body, err := io.ReadAll(r.Body)
				mu.Lock()
				defer mu.Unlock()
				if got := r.Header.Get(HeaderSignature); err != nil || got != Sign(key, r.Header.Get(HeaderTimestamp), body) || got == Sign("another", r.Header.Get(HeaderTimestamp), body) || string(body) != `{"text":"x"}` || r.Header.Get(HeaderID) != "ap-1" {
					wrong = fmt.Sprintf("%v %s", r.Header, body)
				}
				status := c.answers[min(n, len(c.answers)-1)]
				n++
				w.Header().Set("Location", elsewhere.URL)
				w.WriteHeader(status)
			}))
			defer srv.Close()
			var log testlog.Buffer
			s := New(t.Context(), slog.New(slog.NewTextHandler(&log, nil)), time.Millisecond)
			s.Send(config.Webhook{URL: config.Secret(srv.URL + "/hooks/TOKEN"), Secret: key}, "ap-1", []byte(`{"text":"x"}`))
			until(t, "the message has an end", func() bool { st := s.Status(); return st.Sent+st.Lost == 1 })
			mu.Lock()
			defer mu.Unlock()
			if st := s.Status(); st.Sent != c.sent || n != c.attempts || wrong != "" {
				t.Errorf("%+v after %d attempts, wrong: %s", st, n, wrong)
			}
			if l := log.String(); !strings.Contains(l, c.says) || (c.says == "") != (l == "") || strings.Contains(l, "TOKEN") {
				t.Errorf("log: %s", l)
			}
		})
	}
}

// A receiver that does not answer holds nobody up.
func TestSendNeverWaits(t *testing.T) {
	release := make(chan struct{})
	srv := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-release }))
	defer srv.Close()
	defer close(release)
	var log testlog.Buffer
	s := New(t.Context(), slog.New(slog.NewTextHandler(&log, nil)), time.Millisecond)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for range queueLen + 50 {
			s.Send(config.Webhook{URL: config.Secret(srv.URL), Secret: key}, "ap-1", bytes.Repeat([]byte("x"), 10))
		}
	}()
	select {
	case <-done:
	case <-time.After(time.Minute):
		t.Fatal("Send waits for the receiver")
	}
	if st := s.Status(); st.Lost < 49 || !strings.Contains(log.String(), "not delivered") {
		t.Errorf("%+v", st)
	}
}
