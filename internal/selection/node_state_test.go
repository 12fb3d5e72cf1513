package selection

import (
	"sync"
	"testing"

	"pgregory.net/rapid"
)

// The word against what was last said of each thing in it.
func TestState(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		cell := rapid.IntRange(0, MaxCells-1).Draw(t, "cell")
		var s state
		s.word.Store(uint64(cell) << stateCell)
		slots, flags := 0, map[uint64]bool{}
		for range rapid.IntRange(1, 20).Draw(t, "steps") {
			if rapid.Bool().Draw(t, "capacity") {
				slots = rapid.IntRange(1, 1<<31-1).Draw(t, "slots")
				s.setMax(slots)
			} else {
				flag := rapid.SampledFrom([]uint64{stateDraining, stateRefused}).Draw(t, "flag")
				flags[flag] = rapid.Bool().Draw(t, "on")
				s.set(flag, flags[flag])
			}
			open := !flags[stateDraining] && !flags[stateRefused]
			if s.max() != slots || s.cell() != cell || open && s.limit() != slots || !open && s.limit() >= 0 ||
				s.has(stateDraining) != flags[stateDraining] || s.has(stateRefused) != flags[stateRefused] {
				t.Fatalf("%x is capacity %d of cell %d, limit %d; want %d of %d, open: %t", s.word.Load(), s.max(), s.cell(), s.limit(), slots, cell, open)
			}
		}
	})
}

// Those who write different things at once lose nothing of each other's.
func TestStateRaces(t *testing.T) {
	t.Parallel()
	n := newTestNode("a", 1)
	var wg sync.WaitGroup
	for i := range 1000 {
		wg.Go(func() { n.SetDraining(i%2 == 0) })
		wg.Go(func() { n.state.setMax(i + 1) })
		wg.Go(func() { n.Refused(0) })
		wg.Wait()
		if n.Draining() != (i%2 == 0) || n.Max() != i+1 || !n.state.has(stateRefused) {
			t.Fatalf("%x after turn %d", n.state.word.Load(), i)
		}
	}
}

// A node that was refused once, or whose quarantine is over, is drawn and compared
// like any other; one that drains is not.
func TestRefusedNodeIsComparedAsAnyOther(t *testing.T) {
	t.Parallel()
	a, b := newTestNode("a", 4), newTestNode("b", 4)
	b.SetUsed(1)
	a.Refused(0)
	class, rnd := ttsClass([]*Node{a, b}), NewSource(1)
	chosen := func(now int64) *Node {
		return class.Choose(make([]*Node, 0, 1), &Query{Now: now}, rnd)[0]
	}
	for range 20 {
		if chosen(0) != a {
			t.Fatal("one refusal counts as a quarantine")
		}
	}
	a.Refused(0)
	a.Refused(0)
	for range 20 {
		if chosen(int64(QuarantineFirst)/2) != b || chosen(2*int64(QuarantineFirst)) != a {
			t.Fatal("the quarantine is longer or shorter for a choice")
		}
	}
	a.Accepted()
	a.SetDraining(true)
	if chosen(2*int64(QuarantineFirst)) != b {
		t.Error("a node that drains is chosen")
	}
}
