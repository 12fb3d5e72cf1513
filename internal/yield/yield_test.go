package yield

import (
	"testing"
	"testing/synctest"
	"time"
)

// yielded reports whether y yields now. The yield then takes that long and brings that much.
func yielded(y *Yielder, took time.Duration, came int) bool {
	calls := 0
	y.Yield(func() int {
		if calls++; calls == 1 {
			return 5
		}
		time.Sleep(took)
		return 5 + came
	})
	return calls > 0
}

// TestRests: it yields while that pays, and ever less often while goroutines that compute make it slow.
func TestRests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var y Yielder
		for _, paid := range []struct {
			took time.Duration
			came int
		}{{0, 0}, {time.Millisecond, 0}, {300 * time.Millisecond, 3}} {
			if !yielded(&y, paid.took, paid.came) {
				t.Fatalf("a yield before %+v did not pay", paid)
			}
		}
		for _, rest := range []time.Duration{1, 4, 16, 60, 60} {
			if !yielded(&y, time.Second, 9) {
				t.Fatalf("no yield after the rest before %v s", rest)
			}
			time.Sleep(rest*time.Second - 1)
			if yielded(&y, 0, 0) {
				t.Fatalf("it rests less than %v s", rest)
			}
			time.Sleep(time.Nanosecond)
		}
		if !yielded(&y, 0, 0) || !yielded(&y, time.Second, 0) {
			t.Error("no yield after one that paid")
		}
		if time.Sleep(time.Second); !yielded(&y, 0, 0) {
			t.Error("a yield that paid did not end the long rests")
		}
	})
}
