package tool

import (
	"errors"

	"github.com/freeslot/freeslot/bench/measure"
)

// failure carries an error from Check to Try.
type failure struct{ err error }

// Check ends the part with err unless that is nil, as Fatal ends a test: what the part has deferred
// still runs. Other goroutines than the part's run in Try or Together.
func Check(err error) {
	if err != nil {
		panic(failure{err})
	}
}

// Must returns the value of a call, or is as Check where that has failed.
func Must[T any](value T, err error) T {
	Check(err)
	return value
}

// Try returns the error with which Check or Must has ended do.
func Try(do func()) (err error) {
	defer func() {
		switch r := recover().(type) {
		case nil:
		case failure:
			err = r.err
		default:
			panic(r)
		}
	}()
	do()
	return nil
}

// End is deferred itself (defer End(x.Stop)). An error of stop fails the part; it joins the one
// that the part ends with.
func End(stop func() error) {
	r := recover()
	err := stop()
	switch f := r.(type) {
	case nil:
		Check(err)
	case failure:
		Check(errors.Join(f.err, err))
	default:
		panic(r)
	}
}

// Together calls do for 0 to count-1 from as many goroutines as callers, and fails with all errors.
func Together(callers, count int, do func(i int)) {
	Check(measure.InParallel(callers, count, func(i int) error { return Try(func() { do(i) }) }))
}
