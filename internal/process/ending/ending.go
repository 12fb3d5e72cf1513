// Package ending waits, at a stop, for goroutines that were told to end.
package ending

import (
	"context"
	"fmt"
)

// Await calls wait, which blocks until everything has ended, and returns nil after it. If ctx ends
// first, it returns the cause after what, and wait goes on in a goroutine of its own.
func Await(ctx context.Context, what string, wait func()) error {
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		wait()
	}()
	select {
	case <-ended:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("%s: %w", what, context.Cause(ctx))
	}
}
