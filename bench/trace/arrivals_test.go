package trace

import (
	"math"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func made(tokens ...int) []Request {
	all := make([]Request, len(tokens))
	for i, n := range tokens {
		all[i] = Request{At: time.Duration(i*i) * time.Second, GeneratedTokens: n}
	}
	return all
}

// TestArrivalsRepeat: 3 requests at 0, 1 and 4 s make a turn of 6 s, with the average gap of 2 s at
// the seam.
func TestArrivalsRepeat(t *testing.T) {
	t.Parallel()
	a, err := NewArrivals(made(1, 2, 3), 5) // ten times as fast
	if err != nil {
		t.Fatal(err)
	}
	var at []time.Duration
	for i := range 7 {
		next := a.Next()
		if next.Request.GeneratedTokens != i%3+1 {
			t.Errorf("arrival %d is of the request with %d tokens", i, next.Request.GeneratedTokens)
		}
		at = append(at, next.At.Round(time.Microsecond))
	}
	ms := time.Millisecond
	if diff := cmp.Diff([]time.Duration{0, 100 * ms, 400 * ms, 600 * ms, 700 * ms, 1000 * ms, 1200 * ms}, at); diff != "" {
		t.Error(diff)
	}
}

func TestArrivalsRate(t *testing.T) {
	t.Parallel()
	a, err := NewArrivals(made(make([]int, 1000)...), 12345)
	if err != nil {
		t.Fatal(err)
	}
	last := time.Duration(-1)
	for range 100_000 {
		next := a.Next()
		if next.At < last {
			t.Fatalf("%s comes after %s", next.At, last)
		}
		last = next.At
	}
	if rate := 100_000 / a.Next().At.Seconds(); math.Abs(rate-12345) > 0.1 {
		t.Errorf("%v arrivals a second", rate)
	}
}

func TestArrivalsRefuse(t *testing.T) {
	t.Parallel()
	for _, rate := range []float64{0, -1, math.NaN(), math.Inf(1)} {
		if _, err := NewArrivals(made(1, 2), rate); err == nil {
			t.Errorf("%v arrivals a second", rate)
		}
	}
	for _, requests := range [][]Request{nil, made(1), {{}, {}}} {
		if _, err := NewArrivals(requests, 1); err == nil {
			t.Errorf("%v was replayed", requests)
		}
	}
}

// TestDurations: by Little's law rate * mean duration is the number of busy slots.
func TestDurations(t *testing.T) {
	t.Parallel()
	requests := made(0, 10, 29) // no tokens count as one
	d, err := NewDurations(requests, 1000, 500, 0.8)
	if err != nil {
		t.Fatal(err)
	}
	var sum time.Duration
	for i := range requests {
		sum += d.Of(&requests[i])
	}
	if busy := sum.Seconds() / 3 * 1000; math.Abs(busy-400) > 1e-3 {
		t.Errorf("%v slots are busy, want 400", busy)
	}
	if ratio := float64(d.Of(&requests[2])) / float64(d.Of(&requests[0])); math.Abs(ratio-29) > 1e-3 {
		t.Errorf("29 tokens take %v times as long as none", ratio)
	}
	if _, err := NewDurations(nil, 1, 1, 1); err == nil {
		t.Error("durations of no requests")
	}
}

func TestFleet(t *testing.T) {
	t.Parallel()
	list := []Node{{ID: "a", GPU: 1}, {ID: "x"}, {ID: "b", GPU: 2}, {ID: "b.1", GPU: 3}, {ID: "c", GPU: 4}}
	for count, want := range map[int][]string{
		0: {"a", "b", "b.1", "c"},
		2: {"a", "b.1"},
		4: {"a", "b", "b.1", "c"},
		9: {"a", "b", "b.1", "c", "a.1", "b.2", "b.1.1", "c.1", "a.2"},
	} {
		var got []string
		for _, n := range Fleet(list, count) {
			got = append(got, n.ID)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%d nodes: %s", count, diff)
		}
	}
	if got := TotalSlots(Fleet(list, 9)); got != 21 {
		t.Errorf("%d slots, want 21", got)
	}
	if Fleet(list[1:2], 3) != nil {
		t.Error("a fleet of nodes without slots")
	}
}

func TestProfile(t *testing.T) {
	t.Parallel()
	n := Node{ID: "a", GPU: 8, Model: "T4"}
	p := n.Profile("llm")
	if p.ID != "a" || p.MaxConcurrency != 8 || p.Services[0].Name != "llm" || p.Labels[LabelModel] != "T4" {
		t.Errorf("%+v", p)
	}
	if err := p.Validate("node"); err != nil {
		t.Error(err)
	}
}
