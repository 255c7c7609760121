package store

import (
	"context"
	"errors"
	"net"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	subscribeWait = 500 * time.Millisecond // how long Subscribe waits for Redis to confirm
	listenIdle    = 5 * time.Second        // silence after which the connection is tested
	resubscribe   = 200 * time.Millisecond // between attempts while Redis is away
)

// Subscribe implements Store. It succeeds also while Redis is away, and goes
// on by itself after every loss; what was published meanwhile is lost, as the
// interface says, so readers must not rely on seeing every message.
func (r *Redis) Subscribe(ctx context.Context, channel string) (<-chan []byte, error) {
	if err := check(ctx, "subscribe", channel, 0); err != nil {
		return nil, err
	}
	o := newOutlet(channel, r.log)
	confirmed := make(chan struct{})
	r.mu.Lock()
	closing, away := r.closing, r.away
	if !closing {
		r.done.Go(func() { r.listen(ctx, o, confirmed) })
	}
	r.mu.Unlock()
	if closing {
		return nil, r.fail(ctx, "subscribe", channel, redis.ErrClosed)
	}
	// A caller that publishes right after must reach this subscription.
	if !away {
		wait := time.NewTimer(subscribeWait)
		defer wait.Stop()
		select {
		case <-confirmed:
		case <-wait.C:
		case <-ctx.Done():
		}
	}
	return o.out, nil
}

// listen keeps one subscription until the caller or the store ends it.
func (r *Redis) listen(ctx context.Context, o *outlet, confirmed chan struct{}) {
	defer close(o.out)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(r.ctx, cancel)()
	once, lost := confirmed, ""
	for ctx.Err() == nil {
		sub := r.client.Subscribe(ctx, r.key(o.channel))
		// Closing is what interrupts a blocked read.
		stop := context.AfterFunc(ctx, func() { _ = sub.Close() })
		err := receive(ctx, sub, o, func() {
			if once != nil {
				close(once)
				once = nil
			}
			if lost != "" {
				r.log.Info("store: subscription resumed", "channel", o.channel)
				lost = ""
			}
		})
		if stop() {
			_ = sub.Close()
		}
		if ctx.Err() != nil {
			return
		}
		r.nudge()
		if reason := r.classify(err).reason; lost == "" {
			lost = reason
			r.log.Warn("store: subscription lost, trying again", "channel", o.channel, "error", reason)
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(resubscribe):
		}
	}
}

// errSilent means that a connection gives no answer to a ping.
var errSilent = &net.OpError{Op: "read", Net: "tcp", Err: context.DeadlineExceeded}

// receive passes messages on until the connection fails.
func receive(ctx context.Context, sub *redis.PubSub, o *outlet, subscribed func()) error {
	pinged := false
	for {
		msg, err := sub.ReceiveTimeout(ctx, listenIdle)
		if err != nil {
			var netErr net.Error
			if !errors.As(err, &netErr) || !netErr.Timeout() {
				return err
			}
			if pinged {
				return errSilent
			}
			if err := sub.Ping(ctx); err != nil {
				return err
			}
			pinged = true
			continue
		}
		pinged = false
		switch m := msg.(type) {
		case *redis.Subscription:
			subscribed()
		case *redis.Message:
			o.send([]byte(m.Payload))
		}
	}
}
