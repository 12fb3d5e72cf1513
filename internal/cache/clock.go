package cache

import (
	"sync/atomic"
	"time"
)

// tick is how late the coarse clock may be: nothing beside the heartbeat limit,
// which is seconds.
const tick = 20 * time.Millisecond

// clock is a monotonic clock in nanoseconds since the cache was made. Reading the
// system's costs about as much as the choice of a node, so choices read a copy.
type clock struct {
	origin time.Time
	copied atomic.Int64
}

func newClock() *clock { return &clock{origin: time.Now()} }

// now is exact.
func (c *clock) now() int64 { return int64(time.Since(c.origin)) }

// coarse is up to one tick late; it stands still before run.
func (c *clock) coarse() int64 { return c.copied.Load() }

func (c *clock) run(stopping <-chan struct{}) {
	ticker := time.NewTicker(tick)
	defer ticker.Stop()
	for {
		c.copied.Store(c.now())
		select {
		case <-ticker.C:
		case <-stopping:
			return
		}
	}
}
