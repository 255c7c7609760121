package codemode

import "context"

// A call that waits for a person takes no place among those that run at once:
// whoever decides on many sees them together.

// MostAside is how many calls of a run wait so; further ones keep their places,
// and with all places taken no other begins.
const MostAside = 64

// aside gives up the place of a call; back takes one again. With enough aside
// already both do nothing.
func (c *callList) aside() (back func(context.Context) error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.away >= MostAside {
		return func(context.Context) error { return nil }
	}
	c.away++
	c.startLocked()
	return c.back
}

// back waits for a place. Those that come back go before those that have not
// begun.
func (c *callList) back(ctx context.Context) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.returning++
	for c.running-c.away >= c.e.lim.Parallel && ctx.Err() == nil {
		freed := c.freed
		c.mu.Unlock()
		select {
		case <-freed:
		case <-ctx.Done():
		}
		c.mu.Lock()
	}
	// Also one that gives up has its place again, since it ends now.
	c.returning--
	c.away--
	return context.Cause(ctx)
}

// freedLocked wakes those that want a place again.
func (c *callList) freedLocked() {
	close(c.freed)
	c.freed = make(chan struct{})
}
