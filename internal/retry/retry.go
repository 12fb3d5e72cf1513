// Package retry paces a node's repeated attempts at a call.
package retry

import (
	"context"
	"time"

	"github.com/cenkalti/backoff/v5"
)

// Bounds of the pauses between attempts at one call.
const (
	shortest = 50 * time.Millisecond
	Longest  = 2 * time.Second
)

// Pauses are exponential with jitter, so that a fleet does not come back in step.
func Pauses() *backoff.ExponentialBackOff {
	b := backoff.NewExponentialBackOff()
	b.InitialInterval = shortest
	b.MaxInterval = Longest
	return b
}

// Wait waits for d. It returns false if ctx ended before.
func Wait(ctx context.Context, d time.Duration) bool {
	select {
	case <-time.After(d):
		return true
	case <-ctx.Done():
		return false
	}
}
