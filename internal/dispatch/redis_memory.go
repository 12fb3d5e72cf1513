package dispatch

import (
	"time"

	"go.uber.org/zap"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/cell"
)

// MemoryLimit is the share of Redis' maxmemory above which submits are refused. The rest is for the
// results of running jobs.
const MemoryLimit = 0.8

// watchMemory is called by the replyKeeper, once a second. If Redis does not answer, the last known
// state of its memory stays.
func (c *cellClient) watchMemory() {
	ctx, cancel := c.d.timeout()
	defer cancel()
	begin := time.Now()
	load, err := c.cell.ServerLoad(ctx, c.loadAt)
	if err != nil {
		c.load.Store(nil)
		c.loadAt = 0 // what ends meanwhile would seem to end at once
		return       // renew logs a failing cell
	}
	c.countEnds(&load)
	c.load.Store(&CellLoad{ServerLoad: load, Took: time.Since(begin)})
	use := load.MemoryUse()
	c.setOutOfMemory(use >= MemoryLimit, zap.Float64("use", use))
}

// countEnds adds what has ended, and was retried, since the reading before. Nothing counts where
// that failed: it would seem to happen at once.
func (c *cellClient) countEnds(load *cell.ServerLoad) {
	if c.loadAt != 0 {
		if n := load.Retries - c.retries; n > 0 {
			c.retried.Add(uint64(n))
			c.metrics.retries.Add(float64(n))
		}
		for i, n := range load.Ends {
			c.ended[i].Add(uint64(n))
			c.metrics.ended[i].Add(float64(n))
		}
	}
	c.loadAt, c.retries = load.AtUS, load.Retries
}

func (c *cellClient) setOutOfMemory(out bool, why zap.Field) {
	if c.d.outOfMemory.set(c.cell.Index(), out) {
		c.log.Warn("redis.memory", why, zap.Bool("submits_refused", out))
	}
}

func outOfMemoryError() *freeslot.Error {
	return &freeslot.Error{
		Code: freeslot.CodeOverloaded, RetryAfter: time.Second,
		Message: "Redis is almost out of memory, at 80 % of its maxmemory or more: no new jobs until results have expired " +
			"or the limit is raised",
	}
}
