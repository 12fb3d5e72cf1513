package selection

import "testing"

func TestBinpackTakesTheMostLoaded(t *testing.T) {
	t.Parallel()
	nodes := testFleet(5, 4)
	for i, n := range nodes {
		n.SetUsed(i) // n4 is full
	}
	class, rnd := NewClass(nodes, &Config{Policy: PolicyBinpack}, "tts", nothing), NewSource(1)
	for slots, want := range map[int]string{1: "n3", 2: "n2", 4: "n0"} {
		for range 50 {
			if got := class.Choose(make([]*Node, 0, 1), &Query{Slots: slots}, rnd)[0].ID(); got != want {
				t.Fatalf("%d slots: got %s, want %s", slots, got, want)
			}
		}
	}
}

// Packed, a third of the slots takes little more than a third of the nodes; spread,
// it takes all of them.
func TestBinpackLeavesNodesEmpty(t *testing.T) {
	t.Parallel()
	idle := func(policy Policy) int {
		nodes := testFleet(60, 10)
		class, rnd := NewClass(nodes, &Config{Policy: policy}, "tts", nothing), NewSource(1)
		for range 200 {
			class.Choose(make([]*Node, 0, 1), &Query{}, rnd)[0].TryTake(1)
		}
		count := 0
		for _, n := range nodes {
			if _, pending := n.Load(); pending == 0 {
				count++
			}
		}
		return count
	}
	if got := idle(PolicyBinpack); got < 20 {
		t.Errorf("packed: %d of 60 nodes are idle, want at least 20", got)
	}
	if got := idle(PolicyLeastLoaded); got > 0 {
		t.Errorf("spread: %d of 60 nodes are idle, want none", got)
	}
}

func TestBinpackBreaksTiesAtRandom(t *testing.T) {
	t.Parallel()
	nodes, counts := testFleet(4, 4), map[string]int{}
	class, rnd := NewClass(nodes, &Config{Policy: PolicyBinpack}, "tts", nothing), NewSource(1)
	for range 4000 {
		counts[class.Choose(make([]*Node, 0, 1), &Query{}, rnd)[0].ID()]++
	}
	for id, got := range counts {
		if got < 850 || got > 1150 {
			t.Errorf("%s is chosen %d times of 4000, want about 1000", id, got)
		}
	}
}
