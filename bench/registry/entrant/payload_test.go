package entrant

import (
	"testing"
	"time"

	"github.com/freeslot/freeslot/bench/measure"
)

// TestTracker: a change that was overtaken counts from when it was due, and none counts twice.
func TestTracker(t *testing.T) {
	t.Parallel()
	tr, times := &tracker{times: measure.NewHistogram()}, measure.NewHistogram()
	p := payload{from: time.Now().Add(-time.Second).UnixNano(), every: int64(100 * time.Millisecond)}
	tr.see("registered")
	for _, p.number = range []int64{0, 2, 2, 1} {
		tr.see(p.String())
	}
	if n := tr.take(times); n != 3 || times.TotalCount() != 3 {
		t.Errorf("%d changes, %d times, expected 3", n, times.TotalCount())
	}
	if least := times.Min(); least < 790_000 || least > 900_000 {
		t.Errorf("the last change took %d us, expected 0.8 s", least)
	}
	p.from, p.number = p.from+1, 0
	tr.see(p.String())
	if n := tr.take(times); n != 1 {
		t.Errorf("%d changes of the next run, expected 1", n)
	}
}
