package measure

import (
	"context"
	"errors"
	"sync"
	"time"
)

// SleepUntil returns at the time, or when ctx ends with its error.
func SleepUntil(ctx context.Context, at time.Time) error {
	wait := time.Until(at)
	if wait <= 0 {
		return ctx.Err()
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// InParallel calls do for 0 to count-1, from as many goroutines as callers, and returns all errors.
// A caller ends with its first one.
func InParallel(callers, count int, do func(i int) error) error {
	errs := make([]error, callers)
	var all sync.WaitGroup
	for c := range callers {
		all.Go(func() {
			for i := c; i < count && errs[c] == nil; i += callers {
				errs[c] = do(i)
			}
		})
	}
	all.Wait()
	return errors.Join(errs...)
}
