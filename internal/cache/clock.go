package cache

import (
	"context"
	"sync/atomic"
	"time"
)

const (
	// tick is the most that the coarse clock can be late. That is little compared with the heartbeat
	// limit, which is seconds.
	tick = 20 * time.Millisecond
	// burst is how many reads within a tick are worth a copy of the clock. The loops of an idle
	// replica read less often, and a ticker for them would cost more than all their reads.
	burst = 16
	// resting in place of a copy means that readers read the system's clock.
	resting = 0
)

// clock is a monotonic clock in nanoseconds since the cache was made. Reading the system's clock
// costs a quarter as much as choosing a node, so under load choices read a copy.
type clock struct {
	origin time.Time
	copied atomic.Int64
	// read is true if the copy was read since the last tick.
	read atomic.Bool

	exact   atomic.Int64 // counts the reads of the system's clock while the copy rests
	burstAt atomic.Int64 // when exact was last a multiple of burst
	bursts  chan struct{}
}

func newClock() *clock { return &clock{origin: time.Now(), bursts: make(chan struct{}, 1)} }

// now returns the exact time.
func (c *clock) now() int64 { return int64(time.Since(c.origin)) }

// coarse returns a time that is up to one tick late. A read of the copy may follow an exact one, so
// coarse can step back by a tick.
func (c *clock) coarse() int64 {
	copied := c.copied.Load()
	if copied == resting {
		return c.readExactly()
	}
	if !c.read.Load() { // most reads write nothing, so processors share the cache line
		c.read.Store(true)
	}
	return copied
}

// readExactly wakes run if it is called often.
func (c *clock) readExactly() int64 {
	now := c.now()
	if c.exact.Add(1)%burst == 0 && now-c.burstAt.Swap(now) < int64(tick) {
		select {
		case c.bursts <- struct{}{}:
		default:
		}
	}
	return now
}

// run keeps a copy of the time from each burst of reads until a tick without a read.
func (c *clock) run(ctx context.Context) {
	for {
		select {
		case <-c.bursts:
			c.copy(ctx)
		case <-ctx.Done():
			return
		}
	}
}

func (c *clock) copy(ctx context.Context) {
	ticker := time.NewTicker(tick)
	defer ticker.Stop()
	defer c.copied.Store(resting)
	c.read.Store(true)
	for c.read.Swap(false) {
		c.copied.Store(c.now())
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return
		}
	}
}
