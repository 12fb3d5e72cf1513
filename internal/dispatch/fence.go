package dispatch

import (
	"context"
	"sync"
	"sync/atomic"
	"time"
)

// fencePause is the pause between two checks of a fence that all have left.
const fencePause = time.Millisecond

// fence waits until everything that began before a moment is over, without delaying what begins
// after it. Everything between enter and leave counts in the age in which it entered. pass starts
// another age, and waits until the one before is empty. The zero value is ready.
type fence struct {
	age   atomic.Uint32
	count [2]atomic.Int64 // indexed by the last bit of the age
	// passing is held by pass, because only two ages can be told apart.
	passing sync.Mutex
}

// enter returns the age. leave must be called once for it and once for each hold.
func (f *fence) enter() (age uint32) {
	for {
		age = f.age.Load()
		f.count[age&1].Add(1)
		// The age may have ended in between, and pass may have found it empty already.
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
	// A pass that was given up can have left some in the next age.
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
