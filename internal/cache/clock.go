package cache

import (
	"context"
	"sync/atomic"
	"time"
)

// tick is how late the coarse clock can be. The heartbeat limit is seconds, so this is little.
const tick = 20 * time.Millisecond

// clock is a monotonic clock in nanoseconds since the cache was made. Reading the system's clock
// costs about as much as the choice of a node, so choices read a copy.
type clock struct {
	origin time.Time
	copied atomic.Int64
}

func newClock() *clock { return &clock{origin: time.Now()} }

// now is exact.
func (c *clock) now() int64 { return int64(time.Since(c.origin)) }

// coarse is up to one tick late; it stands still before run.
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
