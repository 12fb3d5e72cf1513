package main

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// The nearest falling sequence has a closed form: at each place the least, over what begins at or before it,
// of the greatest mean of what from there ends at or behind it.
func TestFallingIsTheNearest(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		whole := rapid.SliceOfN(rapid.Float64Range(1, 10), 1, 12).Draw(t, "whole")
		part := make([]float64, len(whole))
		for i := range part {
			part[i] = whole[i] * rapid.Float64Range(0, 1).Draw(t, "share")
		}
		mean := func(from, to int) float64 {
			p, w := 0.0, 0.0
			for i := from; i <= to; i++ {
				p, w = p+part[i], w+whole[i]
			}
			return p / w
		}
		got := falling(part, whole)
		for i := range got {
			want := math.Inf(1)
			for from := 0; from <= i; from++ {
				greatest := 0.0
				for to := i; to < len(whole); to++ {
					greatest = max(greatest, mean(from, to))
				}
				want = min(want, greatest)
			}
			if math.Abs(got[i]-want) > 1e-9 {
				t.Fatalf("group %d of %v/%v: %v, expected %v", i, part, whole, got[i], want)
			}
		}
	})
}

func TestFallingWithoutChoices(t *testing.T) {
	t.Parallel()
	if got := falling(make([]float64, 3), make([]float64, 3)); got != nil {
		t.Errorf("shares of nothing: %v", got)
	}
	if got := falling([]float64{0, 3, 0}, []float64{0, 4, 0}); got[0] != 0.75 || got[2] != 0.75 {
		t.Errorf("groups without choices do not have their neighbour's share: %v", got)
	}
}

// What choices meet is the delay where they come at any time, and none where nobody chooses before he knows.
func TestUnseen(t *testing.T) {
	t.Parallel()
	rnd := rand.New(rand.NewPCG(1, 2))
	var seen []sighted
	var anytime, informed []int64
	for i := range 4000 {
		at := int64(i) * int64(time.Second)
		delay := time.Duration(rnd.ExpFloat64() * float64(2*time.Millisecond))
		seen = append(seen, sighted{change: change{atNS: at}, atNS: at + int64(delay)})
		for range 5 {
			after := rnd.Int64N(int64(20 * time.Millisecond))
			anytime = append(anytime, at+after)
			informed = append(informed, at+int64(delay)+after)
		}
	}
	u := new(unseen)
	u.add(seen, anytime)
	q := u.delays()
	for _, p := range q {
		want := -math.Log(1-p.At) * 2000
		if p.At > 0.3 && p.At < 0.95 && math.Abs(p.US-want) > 0.25*want {
			t.Errorf("quantile %.3f is %.0f us, expected about %.0f", p.At, p.US, want)
		}
	}
	if got := q.Mean(); math.Abs(got-2000) > 300 {
		t.Errorf("mean %.0f us, expected about 2000", got)
	}
	u = new(unseen)
	u.add(seen, informed)
	if got := u.delays().Mean(); got > 20 {
		t.Errorf("choices that know everything meet a delay of %.0f us", got)
	}
	if got := new(unseen).delays(); got != nil {
		t.Errorf("delays that nobody met: %v", got)
	}
}

func TestAgeGroup(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		age  time.Duration
		want int
	}{{0, 0}, {youngest - 1, 0}, {youngest, 1}, {youngest * 5 / 4, 2}, {ageLimit, ageGroups - 1}, {time.Hour, ageGroups - 1}} {
		if got := ageGroup(int64(tc.age)); got != tc.want {
			t.Errorf("%v is in group %d, expected %d", tc.age, got, tc.want)
		}
	}
}
