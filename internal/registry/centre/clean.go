package centre

import (
	"context"
	"slices"
	"time"

	"go.uber.org/zap"
)

// cleanLoop asks for the cleanup of all services, round after round.
func (c *Centre) cleanLoop() {
	timer := time.NewTimer(jitter(c.cfg.Cleanup))
	defer timer.Stop()
	for {
		select {
		case <-c.ctx.Done():
			return
		case <-timer.C:
		}
		c.clean()
		timer.Reset(jitter(c.cfg.Cleanup))
	}
}

// clean is one round. What fails now is tried again in the next one, which begins where this one had
// no more time. Services that cannot be listed keep none of the others from being cleaned.
func (c *Centre) clean() {
	ctx, cancel := context.WithTimeout(c.ctx, c.cfg.Cleanup)
	defer cancel()
	services, err := c.store.Services(ctx)
	if err != nil {
		c.failed("list services", err)
	}
	from, found := slices.BinarySearch(services, c.cleanedTo)
	if found {
		from++
	}
	for _, service := range slices.Concat(services[from:], services[:from]) {
		if ctx.Err() != nil {
			return
		}
		c.cleanOne(ctx, service)
		c.cleanedTo = service
	}
	c.cleanedTo = ""
}

// cleanOne cleans up a service until nothing is due.
func (c *Centre) cleanOne(ctx context.Context, service string) {
	for more := true; more && ctx.Err() == nil; {
		one, cancel := context.WithTimeout(ctx, callTimeout)
		got, err := c.store.Cleanup(one, service)
		cancel()
		if err != nil {
			c.failed("clean up "+service, err)
			return
		}
		c.metrics.removed.Add(float64(got.Removed))
		if got.Removed > 0 || got.Guard != "" {
			c.log.Info("registry.cleanup", zap.String("service", service), zap.Int("removed", got.Removed), zap.String("guard", got.Guard))
		}
		more = got.More
	}
}

func (c *Centre) failed(what string, err error) {
	if c.ctx.Err() != nil {
		return
	}
	c.metrics.errors.Inc()
	c.log.Warn("registry.centre_failed", zap.String("what", what), zap.Error(err))
}
