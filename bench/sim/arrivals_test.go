package main

import (
	"math"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func requestsOf(tokens ...int) []request {
	all := make([]request, len(tokens))
	for i, n := range tokens {
		all[i] = request{time.Duration(i*i) * time.Second, n}
	}
	return all
}

// TestArrivalsRepeat: 3 requests at 0, 1 and 4 s make a turn of 6 s, with the average gap of 2 s at
// the seam.
func TestArrivalsRepeat(t *testing.T) {
	t.Parallel()
	a, err := newArrivals(requestsOf(1, 2, 3), 5) // ten times as fast
	if err != nil {
		t.Fatal(err)
	}
	var got []time.Duration
	for i := range 7 {
		at, r := a.next()
		if r.tokens != i%3+1 {
			t.Errorf("arrival %d is of the request with %d tokens", i, r.tokens)
		}
		got = append(got, time.Duration(at).Round(time.Microsecond))
	}
	ms := time.Millisecond
	if diff := cmp.Diff([]time.Duration{0, 100 * ms, 400 * ms, 600 * ms, 700 * ms, 1000 * ms, 1200 * ms}, got); diff != "" {
		t.Error(diff)
	}
}

func TestArrivalsRate(t *testing.T) {
	t.Parallel()
	a, err := newArrivals(requestsOf(make([]int, 1000)...), 12345)
	if err != nil {
		t.Fatal(err)
	}
	last := int64(-1)
	for range 100_000 {
		at, _ := a.next()
		if at < last {
			t.Fatalf("%d comes after %d", at, last)
		}
		last = at
	}
	at, _ := a.next()
	if rate := 100_000 / time.Duration(at).Seconds(); math.Abs(rate-12345) > 0.1 {
		t.Errorf("%v arrivals a second", rate)
	}
	for _, requests := range [][]request{nil, requestsOf(1), {{}, {}}} {
		if _, err := newArrivals(requests, 1); err == nil {
			t.Errorf("%v was replayed", requests)
		}
	}
}

// TestDurations are in proportion to the tokens, and have the mean that was asked for.
func TestDurations(t *testing.T) {
	t.Parallel()
	requests := requestsOf(1, 10, 29)
	perToken := 400e6 / meanTokens(requests)
	total := int64(0)
	for i := range requests {
		total += requests[i].held(perToken)
	}
	near(t, "mean", float64(total)/3, 400e6, 1e-6)
	near(t, "ratio", float64(requests[2].held(perToken))/float64(requests[0].held(perToken)), 29, 1e-6)
}

func TestFleetOf(t *testing.T) {
	t.Parallel()
	for count, want := range map[int][]int{0: {1, 2, 3, 4}, 2: {1, 3}, 4: {1, 2, 3, 4}, 9: {1, 2, 3, 4, 1, 2, 3, 4, 1}} {
		if got := fleetOf([]int{1, 2, 3, 4}, count); !slices.Equal(got, want) {
			t.Errorf("%d nodes: %v, want %v", count, got, want)
		}
	}
}
