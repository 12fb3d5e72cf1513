// Package yield lets goroutines that are ready go first, so that what they bring is sent together.
package yield

import (
	"runtime"
	"sync/atomic"
	"time"
)

const (
	// short is the time that a yield may always take, and worth is the time that it may take for
	// each thing that it brings.
	short = time.Millisecond
	worth = 100 * time.Millisecond
	// longestRest bounds the time without a yield.
	longestRest = time.Minute
)

// Yielder lets other goroutines go first as long as that pays. runtime.Gosched alone waits for every
// ready goroutine that computes, 10 ms each: in a worker with busy handlers that is seconds. The
// zero value is ready to use, also by several goroutines at once.
type Yielder struct {
	next atomic.Int64 // the time of the next yield, in nanoseconds since 1970
	rest atomic.Int64 // the last rest, in nanoseconds; 0 if the last yield paid
}

// Yield lets the goroutines that are ready run first. They are expected to bring something: come
// counts what has come. After a yield that did not pay, Yield does nothing for as long as it took, and
// four times longer after each further one.
func (y *Yielder) Yield(come func() int) {
	begin := time.Now()
	if left := y.next.Load() - begin.UnixNano(); left > 0 && left <= int64(longestRest) { // the clock may step
		return
	}
	before := come()
	runtime.Gosched()
	came := come() - before
	took := time.Since(begin)
	if took <= max(short, time.Duration(came)*worth) {
		y.rest.Store(0)
		return
	}
	rest := min(max(took, 4*time.Duration(y.rest.Load())), longestRest)
	y.rest.Store(int64(rest))
	y.next.Store(begin.Add(took + rest).UnixNano())
}
