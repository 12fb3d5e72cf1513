package dispatch

import (
	"context"
	"sync"
	"sync/atomic"
	"time"
)

// fencePause is how often a fence looks whether those before it are through.
const fencePause = time.Millisecond

// fence tells when everything that was begun before a moment is over, without holding up
// what begins after it. Whoever is between enter and leave counts in the age in which it
// entered; pass begins another age and waits until the one before is empty. The zero value is
// ready.
type fence struct {
	age   atomic.Uint32
	count [2]atomic.Int64 // by the last bit of the age
	// passing is held by pass: two ages are told apart, and no more.
	passing sync.Mutex
}

// enter returns what leave is to be called with, once for each hold.
func (f *fence) enter() (age uint32) {
	for {
		age = f.age.Load()
		f.count[age&1].Add(1)
		// An age that ended in between may already have been found empty.
		if f.age.Load() == age {
			return age
		}
		f.count[age&1].Add(-1)
	}
}

// hold adds holders of an age that the caller holds.
func (f *fence) hold(age uint32, more int) { f.count[age&1].Add(int64(more)) }

func (f *fence) leave(age uint32) { f.count[age&1].Add(-1) }

// pass returns when everything is over that had entered before it was called, or ctx ends.
func (f *fence) pass(ctx context.Context) error {
	f.passing.Lock()
	defer f.passing.Unlock()
	age := f.age.Load()
	// Of a pass that was given up there may be some left in the age that comes next.
	if err := f.empty(ctx, age+1); err != nil {
		return err
	}
	f.age.Store(age + 1)
	return f.empty(ctx, age)
}

func (f *fence) empty(ctx context.Context, age uint32) error {
	if f.count[age&1].Load() == 0 {
		return nil
	}
	tick := time.NewTicker(fencePause)
	defer tick.Stop()
	for f.count[age&1].Load() != 0 {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}
