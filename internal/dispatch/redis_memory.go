package dispatch

import (
	"context"
	"time"

	"go.uber.org/zap"

	"github.com/freeslot/freeslot"
)

// memoryLimit is the share of Redis' maxmemory from which on submits are refused:
// what is left is for the results of the jobs that run.
const memoryLimit = 0.8

// watchMemory is called by the keeper, once a second. When Redis does not tell,
// what was known last holds.
func (c *client) watchMemory() {
	ctx, cancel := context.WithTimeout(c.d.ctx, ioTimeout)
	defer cancel()
	use, err := c.cell.MemoryUse(ctx)
	if err != nil {
		return // the keeper's next call says so
	}
	c.setOutOfMemory(use >= memoryLimit, zap.Float64("use", use))
}

// setShort says whether the cell's Redis takes no new jobs for lack of memory.
func (c *client) setOutOfMemory(short bool, why zap.Field) {
	if c.d.outOfMemory.set(c.cell.Index(), short) {
		c.log.Warn("redis.memory", why, zap.Bool("submits_refused", short))
	}
}

func outOfMemoryError() *freeslot.Error {
	return &freeslot.Error{
		Code: freeslot.CodeOverloaded, RetryAfter: time.Second,
		Message: "Redis is almost out of memory, at 80 % of its maxmemory or more: no new jobs until results have expired or the limit is raised",
	}
}
