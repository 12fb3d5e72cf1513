package dispatch

import (
	"context"
	"sync"
	"sync/atomic"
	"time"
)

// fencePause is how often a fence looks whether all have left.
const fencePause = time.Millisecond

// fence waits until everything is over that began before a moment, without delaying what begins
// after it. Everything between enter and leave counts in the age in which it entered. pass begins
// another age, and waits until the one before is empty. The zero value is ready.
type fence struct {
	age   atomic.Uint32
	count [2]atomic.Int64 // by the last bit of the age
	// passing is held by pass: only two ages can be kept apart.
	passing sync.Mutex
}

// enter returns the age for leave, which is called once for it and once for each hold.
func (f *fence) enter() (age uint32) {
	for {
		age = f.age.Load()
		f.count[age&1].Add(1)
		// pass may already have found an age empty that ended in between.
		if f.age.Load() == age {
			return age
		}
		f.count[age&1].Add(-1)
	}
}

// hold adds holders of an age that the caller holds.
func (f *fence) hold(age uint32, more int) { f.count[age&1].Add(int64(more)) }

func (f *fence) leave(age uint32) { f.count[age&1].Add(-1) }

// pass returns when everything that had entered before the call is over, or ctx ends.
func (f *fence) pass(ctx context.Context) error {
	f.passing.Lock()
	defer f.passing.Unlock()
	age := f.age.Load()
	// A pass that was given up can have left some in the age that comes next.
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
