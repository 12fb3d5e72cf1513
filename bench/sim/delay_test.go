package main

import (
	"math"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// TestSkewed has the median and the 99th percentile that were asked for.
func TestSkewed(t *testing.T) {
	t.Parallel()
	q := skewed(200, 800)
	if err := q.validate(); err != nil {
		t.Fatal(err)
	}
	near(t, "median", float64(q.value(0.5)), 200_000, 1e-6)
	near(t, "p99", float64(q.value(0.99)), 800_000, 1e-6)
}

func TestQuantileValues(t *testing.T) {
	t.Parallel()
	q := quantiles{{0.2, 10}, {0.4, 30}, {1, 60}}
	for u, want := range map[float64]int64{0: 10_000, 0.2: 10_000, 0.3: 20_000, 0.4: 30_000, 0.7: 45_000, 1: 60_000} {
		if got := q.value(u); got != want {
			t.Errorf("at %v: %d, want %d", u, got, want)
		}
	}
}

// TestChannel: messages keep their order, and their delays are distributed as they should be
// although they do.
func TestChannel(t *testing.T) {
	t.Parallel()
	delay := skewed(300, 1500)
	c := channel{delay: delay, pace: newPace(3, delay)}
	rnd := source(3, 2)
	var delays []int64
	at, last := int64(0), int64(0)
	for range 100_000 {
		at += int64(rnd.ExpFloat64() * 200_000) // 200 us apart: mostly behind a message that is on its way
		arrival := c.arrival(at)
		if arrival < last || arrival < at {
			t.Fatalf("sent at %d, arrived at %d, the one before at %d", at, arrival, last)
		}
		last = arrival
		delays = append(delays, arrival-at)
	}
	slices.Sort(delays)
	for _, p := range []float64{0.1, 0.5, 0.9, 0.99} {
		near(t, "delay", float64(delays[int(p*float64(len(delays)))]), float64(delay.value(p)), 0.12)
	}
}

// TestPace: shares are uniform, neighbours alike, strangers not, and the same whenever they are
// asked for.
func TestPace(t *testing.T) {
	t.Parallel()
	p := newPace(7, fixed(500)) // memory: 5 ms
	const n = 200_000
	step := p.memory / 10
	var shares [n]float64
	for i := range shares {
		shares[i] = p.share(int64(i) * step)
	}
	sum, squares := 0.0, 0.0
	for _, u := range shares {
		sum, squares = sum+u, squares+(u-0.5)*(u-0.5)
	}
	near(t, "mean", sum/n, 0.5, 0.01)
	near(t, "variance", squares/n, 1.0/12, 0.02)
	alike := func(apart int) float64 {
		product := 0.0
		for i := range n - apart {
			product += (shares[i] - 0.5) * (shares[i+apart] - 0.5)
		}
		return product / float64(n-apart) * 12
	}
	if near, far := alike(1), alike(30); near < 0.9 || math.Abs(far) > 0.03 {
		t.Errorf("shares correlate by %.2f a tenth of the memory apart and by %.2f three memories apart", near, far)
	}
	for _, i := range []int{n - 1, 0, n / 2} {
		if again := p.share(int64(i) * step); again != shares[i] {
			t.Errorf("share %d was %v and is %v", i, shares[i], again)
		}
	}
}

// TestAgenda takes entries out by their time, and those of one time in the order in which they
// came.
func TestAgenda(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		var a agenda
		var want []entry
		take := func() {
			slices.SortStableFunc(want, func(x, y entry) int { return int(x.at - y.at) })
			got, ok := a.next()
			if ok != (len(want) > 0) || ok && (got.at != want[0].at || got.node != want[0].node) {
				t.Fatalf("got %+v, %v, want the first of %+v", got, ok, want)
			}
			want = want[min(1, len(want)):]
		}
		for i := range rapid.IntRange(0, 60).Draw(t, "steps") {
			if rapid.IntRange(0, 2).Draw(t, "what") == 0 {
				take()
				continue
			}
			e := entry{at: rapid.Int64Range(0, 9).Draw(t, "at"), node: int32(i)}
			a.add(e)
			want = append(want, e)
		}
		for range len(want) + 1 {
			take()
		}
	})
}
