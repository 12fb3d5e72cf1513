package cache

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// TestClockRests: without readers nothing ticks, and a read is exact. A burst of reads begins the
// copy, single reads do not.
func TestClockRests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newClock()
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() { defer close(ended); c.run(ctx) }()

		for range 10 * burst { // as a loop that reads four times a second
			time.Sleep(250 * time.Millisecond)
			synctest.Wait()
			if got, want := c.coarse(), c.now(); got != want || c.copied.Load() != resting {
				t.Fatalf("at %d a single read was %d, and the copy is %d", want, got, c.copied.Load())
			}
		}

		time.Sleep(time.Hour)
		for range 2 * burst {
			c.coarse()
		}
		synctest.Wait()
		if c.copied.Load() == resting {
			t.Fatal("the copy rests after a burst")
		}
		for range 100 {
			time.Sleep(tick / 3)
			if got, now := c.coarse(), c.now(); got > now || now-got > int64(tick) {
				t.Fatalf("at %d the copy is %d", now, got)
			}
		}
		time.Sleep(3 * tick)
		synctest.Wait()
		if got := c.copied.Load(); got != resting {
			t.Fatalf("the copy is %d after ticks without a read, expected it to rest", got)
		}

		for range 2 * burst {
			c.coarse()
		}
		cancel()
		<-ended
		if got := c.copied.Load(); got != resting {
			t.Errorf("the copy is %d after the end, expected it to rest", got)
		}
	})
}

// TestClockUnderLoad: however many read, no read is early, or later than the copy can be.
func TestClockUnderLoad(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newClock()
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go c.run(ctx)
		var readers sync.WaitGroup
		for i := range 8 {
			readers.Go(func() {
				for round := range 200 {
					before := c.now()
					for range 4 {
						if got, now := c.coarse(), c.now(); got < before-int64(tick) || got > now {
							t.Errorf("between %d and %d a read was %d", before, now, got)
						}
					}
					time.Sleep(time.Duration(i*round+1) * time.Millisecond / 4) // rests and bursts take turns
				}
			})
		}
		readers.Wait()
	})
}
