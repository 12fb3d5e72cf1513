package centre

import (
	"context"
	"slices"
	"sync"
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
		timer.Reset(jitter(c.clean()))
	}
}

// leastPause is the shortest pause between two rounds.
const leastPause = time.Second

// cleanAtOnce is how many services are cleaned up side by side. If a round took more than half of a
// service's limit, it would put off what is due there each time.
const cleanAtOnce = 16

// clean makes one round. What fails now is tried again in the next round. That comes when the most
// urgent service asks for it, and begins where this one ran out of time. Services that cannot be
// listed do not keep the others from being cleaned.
func (c *Centre) clean() (pause time.Duration) {
	pause = c.cfg.Cleanup
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
	var mu sync.Mutex // guards pause
	var running sync.WaitGroup
	room := make(chan struct{}, cleanAtOnce)
	for _, service := range slices.Concat(services[from:], services[:from]) {
		select {
		case room <- struct{}{}:
		case <-ctx.Done():
		}
		if ctx.Err() != nil {
			break
		}
		c.cleanedTo = service
		running.Go(func() {
			defer func() { <-room }()
			if every := c.cleanOne(ctx, service); every > 0 {
				mu.Lock()
				defer mu.Unlock()
				pause = min(pause, max(every, leastPause))
			}
		})
	}
	running.Wait()
	if ctx.Err() == nil {
		c.cleanedTo = ""
	}
	return pause
}

// cleanOne cleans up a service until nothing is due, and returns when the service asks for the next
// time.
func (c *Centre) cleanOne(ctx context.Context, service string) (every time.Duration) {
	for more := true; more && ctx.Err() == nil; {
		one, cancel := context.WithTimeout(ctx, callTimeout)
		got, err := c.store.Cleanup(one, service)
		cancel()
		if err != nil {
			c.failed("clean up "+service, err)
			return every
		}
		c.metrics.removed.Add(float64(got.Removed))
		if got.Removed > 0 || got.Guard != "" {
			c.log.Info(
				"registry.cleanup", zap.String("service", service), zap.Int("removed", got.Removed), zap.String("guard", got.Guard),
			)
		}
		more, every = got.More, got.Every
	}
	return every
}

func (c *Centre) failed(what string, err error) {
	if c.ctx.Err() != nil {
		return
	}
	c.metrics.errors.Inc()
	c.failures.Warn(what, zap.String("what", what), zap.Error(err))
}
