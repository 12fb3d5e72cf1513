package follow

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

var errDown = errors.New("redis is down")

// TestPoller: comparisons come at each interval, sooner after failures and wakes, and never two at
// once.
func TestPoller(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		var down atomic.Bool
		compared := make(chan time.Time, 1)
		p := NewPoller(time.Second, 100*time.Millisecond, func(context.Context) error {
			compared <- time.Now()
			if down.Load() {
				return errDown
			}
			return nil
		})
		next := func(what string, least, most time.Duration) {
			t.Helper()
			begun := time.Now()
			if got := (<-compared).Sub(begun); got < least || got > most {
				t.Errorf("%s: the comparison came after %s, expected between %s and %s", what, got, least, most)
			}
		}
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			p.Run(ctx)
		}()
		next("the first", 750*time.Millisecond, 1250*time.Millisecond)
		next("the second", 750*time.Millisecond, 1250*time.Millisecond)
		p.Wake()
		next("a wake", 0, 0)
		next("after a wake", 750*time.Millisecond, 1250*time.Millisecond)
		synctest.Wait()
		down.Store(true)
		p.Wake()
		next("a failure", 0, 0)
		for _, wait := range []time.Duration{100, 200, 400, 800, 1000, 1000} {
			next("a retry", wait*time.Millisecond/2, wait*time.Millisecond*3/2)
		}
		synctest.Wait()
		down.Store(false)
		next("the success", 500*time.Millisecond, 1500*time.Millisecond)
		next("after the success", 750*time.Millisecond, 1250*time.Millisecond)

		if err := p.Do(ctx, func(context.Context) error { return errDown }); !errors.Is(err, errDown) {
			t.Errorf("do: %v, expected %v", err, errDown)
		}
		if err := p.Sync(ctx); err != nil || len(compared) != 1 {
			t.Errorf("sync: %v, %d comparisons, expected one without an error", err, len(compared))
		}
		<-compared
		short, end := context.WithTimeout(ctx, time.Millisecond)
		defer end()
		err := p.Do(ctx, func(context.Context) error { // no other function is called meanwhile
			if err := p.Do(short, func(context.Context) error { return nil }); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("do during do: %v, expected %v", err, context.DeadlineExceeded)
			}
			return nil
		})
		if err != nil {
			t.Errorf("do: %v, expected no error", err)
		}
		cancel()
		<-ended
		if err := p.Sync(t.Context()); !errors.Is(err, ErrStopped) {
			t.Errorf("sync after the end: %v, expected %v", err, ErrStopped)
		}
	})
}
