package dev

import (
	"testing"
	"time"
)

// TestService: the figures of the instances change and differ, and the last instance alone is
// unhealthy for a while, once in each round.
func TestService(t *testing.T) {
	t.Parallel()
	begin := time.UnixMilli(0)
	for i := range serviceInstances {
		least, most, sick := 1.0, 0.0, 0
		for n := range sickEvery {
			w := wave(i, begin.Add(tide*time.Duration(n)/sickEvery))
			least, most = min(least, w), max(most, w)
			r := instance(i, n).WithDefaults()
			if err := r.Validate(); err != nil {
				t.Fatal(err)
			}
			if r.Unhealthy {
				sick++
			}
		}
		if least < 0 || least > 0.05 || most > 1 || most < 0.95 {
			t.Errorf("the figures of instance %d go from %g to %g; want 0 to 1", i, least, most)
		}
		if want := map[int]int{serviceInstances - 1: sickFor}[i]; sick != want {
			t.Errorf("instance %d is unhealthy in %d intervals; want %d", i, sick, want)
		}
	}
	if wave(0, begin) == wave(1, begin) {
		t.Error("two instances have the same figures; want them out of step")
	}
}
