package storetest

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/mcp-portal/mcp-portal/store"
)

// next reads one message.
func next(t *testing.T, ch <-chan []byte) string {
	t.Helper()
	select {
	case m, open := <-ch:
		if !open {
			t.Fatal("the subscription ended")
		}
		return string(m)
	case <-time.After(patience):
		t.Fatal("no message came")
	}
	return ""
}

func publishOrder(t *testing.T, s store.Store) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	ok(t, s.Publish(ctx, "ch", []byte("before anyone listens")))
	ch := must[<-chan []byte](t)(s.Subscribe(ctx, "ch"))
	for i := range 200 {
		ok(t, s.Publish(ctx, "ch", fmt.Appendf(nil, "%d", i)))
	}
	for i := range 200 {
		if m := next(t, ch); m != fmt.Sprint(i) {
			t.Fatalf("message %d is %q", i, m)
		}
	}
}

func publishFanOut(t *testing.T, s store.Store) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	a := must[<-chan []byte](t)(s.Subscribe(ctx, "one"))
	b := must[<-chan []byte](t)(s.Subscribe(ctx, "one"))
	c := must[<-chan []byte](t)(s.Subscribe(ctx, "two"))
	ok(t, s.Publish(ctx, "one", []byte("\x00binary\xff")))
	ok(t, s.Publish(ctx, "two", []byte("other")))
	ok(t, s.Publish(ctx, "one", nil))
	for _, ch := range []<-chan []byte{a, b} {
		if m := next(t, ch); m != "\x00binary\xff" {
			t.Fatalf("got %q", m)
		}
		if m := next(t, ch); m != "" {
			t.Fatalf("got %q for the empty message", m)
		}
	}
	if m := next(t, c); m != "other" {
		t.Fatalf("got %q of another channel", m)
	}
}

func subscriptionEnds(t *testing.T, s store.Store) {
	ctx, cancel := context.WithCancel(context.Background())
	ch := must[<-chan []byte](t)(s.Subscribe(ctx, "ch"))
	cancel()
	select {
	case _, open := <-ch:
		if open {
			t.Fatal("a message came from nowhere")
		}
	case <-time.After(patience):
		t.Fatal("the channel was not closed after its context ended")
	}
	ok(t, s.Publish(context.Background(), "ch", []byte("x")))
}

// slowSubscriber floods a reader that does not read; others must not suffer.
func slowSubscriber(t *testing.T, s store.Store) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	slow := must[<-chan []byte](t)(s.Subscribe(ctx, "ch"))
	last := must[<-chan []byte](t)(s.Subscribe(ctx, "last"))
	const flood = 2000
	for i := range flood {
		ok(t, s.Publish(ctx, "ch", fmt.Appendf(nil, "%d", i)))
	}
	ok(t, s.Publish(ctx, "last", []byte("done")))
	if m := next(t, last); m != "done" {
		t.Fatalf("got %q", m)
	}
	// What arrives is in order, with gaps, and the subscription goes on: a
	// message sent once there is room again arrives.
	const marker = flood + 1
	got, prev := 0, -1
	Eventually(t, "the slow reader catches up", func() bool {
		ok(t, s.Publish(ctx, "ch", fmt.Appendf(nil, "%d", marker)))
		for {
			select {
			case m, open := <-slow:
				if !open {
					t.Fatal("the slow subscription was ended")
				}
				var n int
				fmt.Sscan(string(m), &n)
				if n <= prev {
					t.Fatalf("message %d after %d", n, prev)
				}
				if n == marker {
					return true
				}
				prev = n
				got++
			case <-time.After(50 * time.Millisecond):
				return false
			}
		}
	})
	if got == 0 || got > flood {
		t.Fatalf("the slow reader got %d messages of %d", got, flood)
	}
}
