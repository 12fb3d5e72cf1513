package cache

import (
	"context"
	"sync/atomic"
	"time"
)

// tick is the most that the coarse clock can be late. That is little compared with the heartbeat
// limit, which is seconds.
const tick = 20 * time.Millisecond

// clock is a monotonic clock in nanoseconds since the cache was made. Reading the system's clock
// costs about as much as choosing a node, so choices read a copy.
type clock struct {
	origin time.Time
	copied atomic.Int64
}

func newClock() *clock { return &clock{origin: time.Now()} }

// now returns the exact time.
func (c *clock) now() int64 { return int64(time.Since(c.origin)) }

// coarse returns a time that is up to one tick late. It stands still before run.
func (c *clock) coarse() int64 { return c.copied.Load() }

func (c *clock) run(ctx context.Context) {
	ticker := time.NewTicker(tick)
	defer ticker.Stop()
	for {
		c.copied.Store(c.now())
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return
		}
	}
}
