package selection

import (
	"fmt"
	"slices"
	"sync"
	"testing"

	"github.com/freeslot/freeslot"
)

// testFleet returns nodes n0, n1, ... of the given capacity, idle, seen at 0.
func testFleet(count, slots int) []*Node {
	nodes := make([]*Node, count)
	for i := range nodes {
		nodes[i] = newTestNode(fmt.Sprintf("n%d", i), slots)
	}
	return nodes
}

// nothing asks for nothing.
var nothing = new(freeslot.Requirement)

func ttsClass(nodes []*Node) *Class { return NewClass(nodes, nil, "tts", nothing) }

func ids(nodes []*Node) []string {
	list := make([]string, len(nodes))
	for i, n := range nodes {
		list[i] = n.ID()
	}
	return list
}

func TestChooseTakesTheLessLoaded(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct{ maxA, usedA, maxB, usedB int }{
		"fewer used":            {4, 1, 4, 2},
		"lower share, more use": {100, 10, 2, 1},
		"idle":                  {1, 0, 100, 1},
	} {
		a, b := newTestNode("a", tc.maxA), newTestNode("b", tc.maxB)
		a.SetUsed(tc.usedA)
		b.SetUsed(tc.usedB)
		class, rnd := ttsClass([]*Node{b, a}), NewSource(1)
		for range 100 {
			if got := ids(class.Choose(make([]*Node, 0, 2), &Query{Want: 2}, rnd)); !slices.Equal(got, []string{"a", "b"}) {
				t.Fatalf("%s: got %q, want a before b", name, got)
			}
		}
	}
}

func TestChooseCountsPending(t *testing.T) {
	t.Parallel()
	nodes := testFleet(2, 4)
	nodes[0].SetUsed(1)
	nodes[1].TryTake(2)
	if got := ttsClass(nodes).Choose(make([]*Node, 0, 1), &Query{}, NewSource(1)); got[0] != nodes[0] {
		t.Errorf("got %s, which has more used and pending together", got[0].ID())
	}
}

func TestChooseBreaksTiesAtRandom(t *testing.T) {
	t.Parallel()
	for _, samples := range []int{1, 2, 3, 5, MaxSamples} {
		nodes := testFleet(5, 4)
		class, rnd, counts := ttsClass(nodes), NewSource(7), map[string]int{}
		for range 10000 {
			counts[class.Choose(make([]*Node, 0, 1), &Query{Samples: samples}, rnd)[0].ID()]++
		}
		for _, n := range nodes {
			if got := counts[n.ID()]; got < 1800 || got > 2200 {
				t.Errorf("samples=%d: %s was chosen %d times of 10000, want about 2000", samples, n.ID(), got)
			}
		}
	}
}

// The most loaded node of three never wins a pair, the middle one wins one of
// three pairs: two samples, not the least loaded of all.
func TestChooseIsNotTheLeastLoadedOfAll(t *testing.T) {
	t.Parallel()
	nodes := testFleet(3, 4)
	for i, n := range nodes {
		n.SetUsed(i)
	}
	class, rnd, counts := ttsClass(nodes), NewSource(3), map[string]int{}
	for range 9000 {
		counts[class.Choose(make([]*Node, 0, 1), &Query{}, rnd)[0].ID()]++
	}
	if counts["n0"] < 5800 || counts["n0"] > 6200 || counts["n2"] != 0 {
		t.Errorf("got %v, want about 6000, 3000 and 0", counts)
	}
}

func TestChooseSameSeedSameChoice(t *testing.T) {
	t.Parallel()
	nodes := testFleet(50, 4)
	for i, n := range nodes {
		n.SetUsed(i % 5)
	}
	class := ttsClass(nodes)
	run := func(seed uint64) []string {
		rnd, all := NewSource(seed), []*Node(nil)
		for range 100 {
			all = append(all, class.Choose(make([]*Node, 0, 3), &Query{Want: 3}, rnd)...)
		}
		return ids(all)
	}
	if !slices.Equal(run(42), run(42)) {
		t.Error("one seed gave two series of choices")
	}
	if slices.Equal(run(42), run(43)) {
		t.Error("two seeds gave one series of choices")
	}
}

func TestChooseUsesFreeCapacityOnly(t *testing.T) {
	t.Parallel()
	class, rnd := ttsClass(testFleet(5, 1)), NewSource(1)
	for _, tc := range []struct{ length, capacity, want, got int }{
		{0, 0, 3, 0}, {0, 2, 3, 2}, {0, 9, 3, 3}, {0, 9, 9, 5}, {2, 2, 1, 2}, {0, 4, 0, 1}, {0, 4, -1, 1},
	} {
		dst := make([]*Node, tc.length, tc.capacity)
		got := class.Choose(dst, &Query{Want: tc.want}, rnd)
		if len(got) != tc.got || cap(got) != tc.capacity {
			t.Errorf("%+v: got %d of capacity %d", tc, len(got), cap(got))
		}
	}
}

// A caller may top a list up; what is in it is not chosen again.
func TestChooseTopsUp(t *testing.T) {
	t.Parallel()
	class, rnd := ttsClass(testFleet(4, 1)), NewSource(1)
	dst := make([]*Node, 0, 8)
	for want := 1; want <= 4; want++ {
		if dst = class.Choose(dst, &Query{}, rnd); len(dst) != want {
			t.Fatalf("got %q after %d calls", ids(dst), want)
		}
	}
	if dst = class.Choose(dst, &Query{}, rnd); len(dst) != 4 {
		t.Errorf("got %q, want all four once", ids(dst))
	}
}

func TestChooseBoundsSamples(t *testing.T) {
	t.Parallel()
	class := ttsClass(testFleet(5*MaxSamples, 1))
	for _, samples := range []int{-1, 4 * MaxSamples} {
		if got := class.Choose(make([]*Node, 0, 3), &Query{Want: 3, Samples: samples}, NewSource(1)); len(got) != 3 {
			t.Errorf("samples=%d: got %q, want three nodes", samples, ids(got))
		}
	}
}

// Racers that choose and take fill the fleet to the last slot and not further.
func TestChooseConcurrently(t *testing.T) {
	t.Parallel()
	const workers, count, slots = 4, 40, 5
	nodes := testFleet(count, slots)
	class := ttsClass(nodes)
	var taken [workers]int
	var wg sync.WaitGroup
	for w := range workers {
		wg.Go(func() {
			rnd, dst := NewSource(uint64(w)), make([]*Node, 0, 1)
			for {
				if dst = class.Choose(dst[:0], &Query{}, rnd); len(dst) == 0 {
					return
				}
				if dst[0].TryTake(1) {
					taken[w]++
				}
			}
		})
	}
	wg.Wait()
	total := 0
	for _, n := range taken {
		total += n
	}
	if total != count*slots {
		t.Errorf("took %d slots, want %d", total, count*slots)
	}
	checkBreakdown(t, class.Breakdown(&Query{}), map[Reason]int{ReasonFull: count})
}

func TestChooseDoesNotAllocate(t *testing.T) {
	nodes := testFleet(200, 1)
	for _, n := range nodes[:199] {
		n.SetUsed(1)
	}
	class, rnd, dst := ttsClass(nodes), NewSource(1), make([]*Node, 0, 4)
	query := Query{Want: 4, Exclude: []string{"x"}}
	if got := testing.AllocsPerRun(100, func() { dst = class.Choose(dst[:0], &query, rnd) }); got != 0 {
		t.Errorf("got %v allocations a choice, want 0", got)
	}
	if len(dst) != 1 || dst[0] != nodes[199] {
		t.Errorf("got %q, want the only free node", ids(dst))
	}
}

// The reference sequence of SplitMix64 for seed 1234567.
func TestSource(t *testing.T) {
	t.Parallel()
	rnd := NewSource(1234567)
	for _, want := range []uint64{6457827717110365317, 3203168211198807973, 9817491932198370423} {
		if got := rnd.Uint64(); got != want {
			t.Errorf("got %d, want %d", got, want)
		}
	}
	for n := 1; n < 50; n++ {
		if got := rnd.intn(n); got < 0 || got >= n {
			t.Errorf("intn(%d) is %d", n, got)
		}
	}
}
