package collector

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// TestReadingsAreShared: the collectors of a process read the machine once for all of them, never get
// a reading older than MinInterval, and a failure is not kept.
func TestReadingsAreShared(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		down := false
		readings := 0
		s := shared[int]{read: func(context.Context) (int, error) {
			readings++
			if down {
				return 0, errors.New("not now")
			}
			return readings, nil
		}}
		all := func(want int, fails bool) {
			t.Helper()
			var collectors sync.WaitGroup
			for range 100 {
				collectors.Go(func() {
					if got, err := s.take(t.Context()); got != want && !fails || (err != nil) != fails {
						t.Errorf("took %d, %v, expected reading %d", got, err, want)
					}
				})
			}
			collectors.Wait()
		}
		all(1, false)
		time.Sleep(MinInterval - time.Millisecond)
		all(1, false)
		time.Sleep(time.Millisecond)
		all(2, false)
		time.Sleep(MinInterval)
		down = true
		all(0, true)
		if readings != 102 {
			t.Errorf("%d readings, expected one for each call that failed", readings)
		}
		down = false
		all(103, false)
	})
}
