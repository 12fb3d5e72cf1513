package dispatch

import (
	"time"

	"go.uber.org/zap"

	"github.com/freeslot/freeslot"
)

// memoryLimit is the share of Redis' maxmemory above which submits are refused. The rest is for the
// results of running jobs.
const memoryLimit = 0.8

// watchMemory is called by the replyKeeper, once a second. If Redis does not answer, the last known
// state stays.
func (c *cellClient) watchMemory() {
	ctx, cancel := c.d.timeout()
	defer cancel()
	use, err := c.cell.MemoryUse(ctx)
	if err != nil {
		return // renew logs a failing cell
	}
	c.setOutOfMemory(use >= memoryLimit, zap.Float64("use", use))
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
