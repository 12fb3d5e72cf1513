package cache

import (
	"sync"
	"time"
)

// outages adds up the time for which a cell did not answer. Its methods may be called at any time.
type outages struct {
	mu    sync.Mutex // guards all fields
	on    bool       // the cell does not answer
	since int64      // by the cache's clock, in nanoseconds
	past  time.Duration
}

func (o *outages) begin(now int64) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.on {
		o.on, o.since = true, now
	}
}

func (o *outages) end(now int64) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.on {
		o.past += time.Duration(now - o.since)
		o.on = false
	}
}

// total returns the time up to now, an outage that goes on included.
func (o *outages) total(now int64) time.Duration {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.on {
		return o.past
	}
	return o.past + time.Duration(now-o.since)
}
