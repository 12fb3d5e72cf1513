package selection

import "testing"

const (
	spreadNodes = 1000
	spreadMean  = 10 // jobs a node on average
)

// fullest places jobs one after the other, each seeing those before it, and
// returns the number of jobs on the fullest node.
func fullest(t *testing.T, samples int, rnd *Source) int {
	t.Helper()
	nodes := testFleet(spreadNodes, 1000)
	class, dst := ttsClass(nodes), make([]*Node, 0, 1)
	for range spreadNodes * spreadMean {
		dst = class.Choose(dst[:0], &Query{Samples: samples}, rnd)
		if !dst[0].TryTake(1) {
			t.Fatalf("%s has no slot although it was chosen", dst[0].ID())
		}
	}
	return mostPending(nodes)
}

func mostPending(nodes []*Node) int {
	most := 0
	for _, n := range nodes {
		_, pending := n.Load()
		most = max(most, pending)
	}
	return most
}

// With two samples the fullest node is, with high probability, about log2(ln n) =
// 2.8 above the mean, for any number of jobs; with one it is far above.
func TestSpreadOfTwoSamples(t *testing.T) {
	t.Parallel()
	for seed := range uint64(10) {
		if got := fullest(t, 2, NewSource(seed)); got > spreadMean+4 {
			t.Errorf("seed %d: %d jobs on the fullest node, want at most %d", seed, got, spreadMean+4)
		}
		if got := fullest(t, 1, NewSource(seed)); got <= spreadMean+6 {
			t.Errorf("seed %d: plain random choice left only %d on the fullest node; the comparison means nothing", seed, got)
		}
	}
}

// Nodes of different size are filled to about the same share.
func TestSpreadOverUnequalNodes(t *testing.T) {
	t.Parallel()
	nodes := testFleet(100, 10)
	for i := range nodes[:50] {
		nodes[i] = newTestNode(nodes[i].ID(), 30)
	}
	class, rnd, dst := ttsClass(nodes), NewSource(1), make([]*Node, 0, 1)
	for range 1000 { // half of the 2000 slots
		dst = class.Choose(dst[:0], &Query{}, rnd)
		dst[0].TryTake(1)
	}
	for _, n := range nodes {
		if used, pending := n.Load(); used+pending < n.Max()/4 || used+pending > n.Max()*3/4 {
			t.Errorf("%s has %d of %d slots taken, want about half", n.ID(), used+pending, n.Max())
		}
	}
}

// Replicas with the same stale view that do not hear of each other's choices must not meet on the
// same few nodes, as they would if each took the least loaded node of all.
func TestSpreadOfStaleReplicas(t *testing.T) {
	t.Parallel()
	const replicas, jobs = 20, 50
	truth := make(map[string]int)
	for replica := range uint64(replicas) {
		view := testFleet(spreadNodes, 1000)
		for i, n := range view {
			n.SetUsed(i % 20) // a twentieth of the fleet looks idle
		}
		class, rnd, dst := ttsClass(view), NewSource(replica), make([]*Node, 0, 1)
		for range jobs {
			dst = class.Choose(dst[:0], &Query{}, rnd)
			dst[0].TryTake(1)
			truth[dst[0].ID()]++
		}
	}
	most := 0
	for _, count := range truth {
		most = max(most, count)
	}
	// The least loaded of all would put the 1000 jobs onto 50 nodes, 20 on each.
	if most > 8 || len(truth) < 450 {
		t.Errorf("%d jobs on the fullest of %d nodes, want at most 8 of at least 450", most, len(truth))
	}
}
