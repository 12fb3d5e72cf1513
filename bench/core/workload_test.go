package main

import (
	"math"
	"testing"
	"time"
)

// TestRamp counts arrivals: they grow in proportion to the time, and then come at the full rate.
func TestRamp(t *testing.T) {
	const rate, ramp = 20_000.0, 2.0
	w := &workload{Rate: rate, Share: 0.8, RampS: ramp}
	if err := w.load(); err != nil {
		t.Fatal(err)
	}
	due := map[string]float64{"first half": rate * ramp / 8, "second half": 3 * rate * ramp / 8, "full rate": rate * ramp / 2}
	came := make(map[string]float64)
	all, last := w.arrivals(), time.Duration(0)
	for {
		at, _, _ := all.arrive()
		if at < last {
			t.Fatalf("an arrival at %s after one at %s", at, last)
		}
		last = at
		switch s := at.Seconds(); {
		case s < ramp/2:
			came["first half"]++
		case s < ramp:
			came["second half"]++
		case s < 1.5*ramp:
			came["full rate"]++
		default:
			for part, n := range due {
				if six := 6 * math.Sqrt(n); math.Abs(came[part]-n) > six { // standard deviations of a Poisson count
					t.Errorf("%s: %.0f arrivals, expected %.0f ± %.0f", part, came[part], n, six)
				}
			}
			return
		}
	}
}
