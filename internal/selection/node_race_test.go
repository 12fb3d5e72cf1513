package selection

import (
	"sync"
	"testing"
)

// Those who write different things at once lose nothing of each other's.
func TestStateRaces(t *testing.T) {
	t.Parallel()
	n := newTestNode("a", 1)
	var wg sync.WaitGroup
	for i := range 1000 {
		wg.Go(func() { n.SetDraining(i%2 == 0) })
		wg.Go(func() { n.SetProfile(newTestNode("a", i+1).Profile()) })
		wg.Go(func() { n.Refused(0) })
		wg.Wait()
		if n.Draining() != (i%2 == 0) || n.Max() != i+1 || n.refusals() == 0 {
			t.Fatalf("draining: %t, capacity %d, %d refusals after turn %d", n.Draining(), n.Max(), n.refusals(), i)
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
