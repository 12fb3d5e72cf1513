package selection

import (
	"maps"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/freeslot/freeslot/internal/class"
)

// Batch against the twin of Choose: some job is placed if a node qualifies, the nodes are of the
// first tier and of one cell, and each gets at most half of what is free there, or one job.
func TestBatchAgreesWithTwin(t *testing.T) { //nolint:paralleltest // shares generators
	rapid.Check(t, func(t *rapid.T) {
		nodes, models := genFleet(t)
		cfg, r, q, jobs := genConfig(t), genRequirement(t), genQuery(t), rapid.IntRange(1, 2*MaxBatch).Draw(t, "jobs")
		q.AffinityKey = ""
		cfg.Paused = genPaused(t, class.ID("tts", r))
		qualifying := map[string]int{}
		for id, m := range models {
			why, _ := slowMatch(cfg, m.profile, "tts", r)
			paused, tier := slowPaused(cfg, m.profile, "tts", r)
			if why == "" && !paused && slowCheck(m, q) == "" {
				qualifying[id] = tier
			}
		}
		list := NewIdentity("tts", r).NewClass(genShare(t), nodes, cfg)
		groups := list.Batch(nil, jobs, &q, NewSource(rapid.Uint64().Draw(t, "seed")))
		if (len(groups) > 0) != (len(qualifying) > 0) {
			t.Fatalf("%d groups of %v", len(groups), qualifying)
		}
		best := slices.Min(append(slices.Collect(maps.Values(qualifying)), 1<<30))
		var names []string
		placed, spare, full := 0, 0, true
		for _, g := range groups {
			m, tier := models[g.Node.ID()], qualifying[g.Node.ID()]
			half := max((m.profile.MaxConcurrency-m.used-m.pending)/2/q.Slots, 1)
			switch _, ok := qualifying[g.Node.ID()]; {
			case !ok || tier != best || m.cell != models[groups[0].Node.ID()].cell:
				t.Fatalf("%s of tier %d in cell %d is chosen of %v", g.Node.ID(), tier, m.cell, qualifying)
			case slices.Contains(names, g.Node.ID()):
				t.Fatalf("%s is chosen twice", g.Node.ID())
			case g.Jobs < 0 || g.Jobs > half:
				t.Fatalf("%s gets %d jobs, half of what is free is %d", g.Node.ID(), g.Jobs, half)
			case g.Jobs > 0 && (spare > 0 || !full):
				t.Fatalf("%s gets jobs although a node before has room: %v", g.Node.ID(), groups)
			case g.Jobs == 0:
				spare++
			}
			placed, full = placed+g.Jobs, g.Jobs == half
			names = append(names, g.Node.ID())
		}
		if placed > min(jobs, MaxBatch) || spare > max(q.Want-1, 0) || len(groups) > 0 && groups[0].Jobs == 0 {
			t.Fatalf("%d of %d jobs in %v", placed, jobs, groups)
		}
		for i := range groups {
			got := ids(AppendCandidates(make([]*Node, 0, 8), groups, i, q.Want))
			if len(got) != min(q.Want, len(groups)) || got[0] != names[i] || len(slices.Compact(slices.Sorted(slices.Values(got)))) != len(got) {
				t.Fatalf("candidates of group %d of %q are %q", i, names, got)
			}
		}
	})
}

// placeAll places jobs as a dispatcher does: in batches, and one by one what they leave. It returns
// how many found a slot.
func placeAll(t interface{ Fatalf(string, ...any) }, c *Class, jobs int, q *Query, rnd *Source) (placed int) {
	room := make([]*Node, 0, 1)
	for left := jobs; left > 0; {
		batch := min(left, MaxBatch)
		left -= batch
		for _, g := range c.Batch(nil, batch, q, rnd) {
			for range g.Jobs {
				if !g.Node.TryTake(max(q.Slots, 1)) {
					t.Fatalf("%s has no slot for its group of %d", g.Node.ID(), g.Jobs)
				}
			}
			placed, batch = placed+g.Jobs, batch-g.Jobs
		}
		for range batch {
			if one := c.Choose(room, q, rnd); len(one) > 0 && one[0].TryTake(max(q.Slots, 1)) {
				placed++
			}
		}
	}
	return placed
}

// Batches and single choices find the last slot of all cells and tiers.
func TestBatchesFindEveryFreeSlot(t *testing.T) { //nolint:paralleltest // shares generators
	rapid.Check(t, func(t *rapid.T) {
		nodes, models := genFleet(t)
		cfg, r, q, jobs := genConfig(t), genRequirement(t), genQuery(t), rapid.IntRange(1, 2*MaxBatch).Draw(t, "jobs")
		q.AffinityKey, q.IgnoreFull = "", false
		list, free := NewIdentity("tts", r).NewClass(genShare(t), nodes, cfg), 0
		for _, n := range nodes {
			if m := models[n.ID()]; list.Has(n) && slowCheck(m, q) == "" {
				free += (m.profile.MaxConcurrency - m.used - m.pending) / q.Slots
			}
		}
		if got := placeAll(t, list, jobs, &q, NewSource(rapid.Uint64().Draw(t, "seed"))); got != min(jobs, free) {
			t.Fatalf("%d of %d jobs found one of %d places", got, jobs, free)
		}
	})
}

func TestBatchAllocatesNothing(t *testing.T) { //nolint:paralleltest // counts allocations
	class, rnd, room := ttsClass(testFleet(100, 16)), NewSource(1), make([]Group, 0, MaxBatch+1)
	q := &Query{Want: 2}
	if got := testing.AllocsPerRun(100, func() { class.Batch(room, MaxBatch, q, rnd) }); got != 0 {
		t.Errorf("%v allocations a batch", got)
	}
}

// A batch meets few nodes, and batch after batch fills all nodes to about the same share.
func TestSpreadOfBatches(t *testing.T) {
	t.Parallel()
	const count, slots = 100, 16
	nodes := testFleet(count, slots)
	class, rnd := ttsClass(nodes), NewSource(1)
	if got := len(class.Batch(nil, MaxBatch, &Query{}, rnd)); got != 2*MaxBatch/slots {
		t.Errorf("a batch for an idle fleet meets %d nodes, want %d", got, 2*MaxBatch/slots)
	}
	placeAll(t, class, count*slots/2, &Query{}, rnd)
	idle := 0
	for _, n := range nodes {
		_, taken := n.Load()
		if taken == 0 {
			idle++
		}
		if taken > slots*3/4 {
			t.Errorf("%s has %d of %d slots taken, want about half", n.ID(), taken, slots)
		}
	}
	if idle > count/10 {
		t.Errorf("%d nodes are idle in a fleet that is half full", idle)
	}
}

// Replicas with the same stale view that do not hear of each other's batches: few of their jobs
// find the node full that was chosen for them. Batches for the least loaded nodes of all would fill
// the same nodes.
func TestBatchesOfStaleReplicasDoNotHerd(t *testing.T) {
	t.Parallel()
	const replicas, count, slots = 8, 400, 16
	refused := func(place func(view []*Node, rnd *Source)) (refused int) {
		truth := make(map[string]int)
		for replica := range uint64(replicas) {
			view := testFleet(count, slots)
			for i, n := range view {
				n.SetUsed(4 + i%12)
			}
			place(view, NewSource(replica))
			for _, n := range view {
				used, pending := n.Load()
				truth[n.ID()] += pending
				if used+truth[n.ID()] > slots {
					refused += min(pending, used+truth[n.ID()]-slots)
				}
			}
		}
		return refused
	}
	batches := refused(func(view []*Node, rnd *Source) { placeAll(t, ttsClass(view), MaxBatch, &Query{}, rnd) })
	singly := refused(func(view []*Node, rnd *Source) {
		for range MaxBatch {
			ttsClass(view).Choose(make([]*Node, 0, 1), &Query{}, rnd)[0].TryTake(1)
		}
	})
	least := refused(func(view []*Node, _ *Source) {
		for left := MaxBatch; left > 0; {
			idlest := slices.MinFunc(view, func(a, b *Node) int { usedA, a1 := a.Load(); usedB, b1 := b.Load(); return usedA + a1 - usedB - b1 })
			used, pending := idlest.Load()
			for range min((slots-used-pending)/2, left) {
				idlest.TryTake(1)
				left--
			}
		}
	})
	t.Logf("refused of %d jobs: %d in batches, %d one by one, %d on the least loaded nodes", replicas*MaxBatch, batches, singly, least)
	if batches > replicas*MaxBatch/10 || least < 5*batches {
		t.Errorf("%d jobs of batches are refused, %d of those for the least loaded nodes", batches, least)
	}
}

// Without a share of the fleet, or with one whose nodes are as idle, no two replicas meet.
func TestBatchesKeepToTheShare(t *testing.T) {
	t.Parallel()
	names := replicaNames(4)
	nodes, share := testFleet(400, 16), NewShare("r0", names)
	class := NewIdentity("tts", nothing).NewClass(share, nodes, nil)
	for seed := range uint64(50) {
		for _, g := range class.Batch(nil, MaxBatch, &Query{}, NewSource(seed)) {
			if g.Jobs > 0 && !share.Has(g.Node.ID()) {
				t.Fatalf("%s is not of the share, which is idle", g.Node.ID())
			}
		}
	}
}
