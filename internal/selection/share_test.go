package selection

import (
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// replicaNames are r0, r1, ...
func replicaNames(count int) []string {
	names := make([]string, count)
	for i := range names {
		names[i] = fmt.Sprintf("r%d", i)
	}
	return names
}

func TestNoShare(t *testing.T) {
	t.Parallel()
	for name, s := range map[string]*Share{
		"alone":      NewShare("r0", replicaNames(1)),
		"nobody":     NewShare("r0", nil),
		"not listed": NewShare("x", replicaNames(3)),
	} {
		if s != nil || s.Has("n") {
			t.Errorf("%s: there is a share", name)
		}
	}
}

// Every node is in one share; when a replica goes only its nodes move. The order in which the
// replicas are named makes no difference.
func TestSharesDivideTheFleet(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		names := replicaNames(rapid.IntRange(2, 8).Draw(t, "replicas"))
		gone := rapid.SampledFrom(names).Draw(t, "gone")
		shuffled := rapid.Permutation(names).Draw(t, "shuffled")
		left := slices.DeleteFunc(slices.Clone(shuffled), func(n string) bool { return n == gone })
		owner := func(node string, all []string) string {
			found := ""
			for _, name := range all {
				if len(all) == 1 || NewShare(name, all).Has(node) {
					if found != "" {
						t.Fatalf("%s is in the shares of %s and %s", node, found, name)
					}
					found = name
				}
			}
			if found == "" {
				t.Fatalf("%s is in no share", node)
			}
			return found
		}
		for i := range 100 {
			node := fmt.Sprintf("n%d", i)
			before := owner(node, names)
			if same := owner(node, shuffled); same != before {
				t.Fatalf("%s is %s's or %s's, by the order of the names", node, before, same)
			}
			if after := owner(node, left); before != gone && after != before {
				t.Fatalf("%s moved from %s to %s when %s went", node, before, after, gone)
			}
		}
	})
}

func TestSharesAreEven(t *testing.T) {
	t.Parallel()
	const nodes, replicas = 10_000, 4
	for _, name := range replicaNames(replicas) {
		s, has := NewShare(name, replicaNames(replicas)), 0
		for i := range nodes {
			if s.Has(fmt.Sprintf("node-%d", i)) {
				has++
			}
		}
		// The standard deviation is 43.
		if has < nodes/replicas-200 || has > nodes/replicas+200 {
			t.Errorf("%s has %d of %d nodes", name, has, nodes)
		}
	}
}

// collisions lets each of four replicas place some jobs on a fleet without knowledge of the others,
// and counts the jobs on nodes that an earlier replica had filled.
func collisions(t *testing.T, shares bool, seed uint64) int {
	t.Helper()
	const nodes, replicas, jobs = 400, 4, 20
	filled, count := map[string]int{}, 0
	for replica := range replicas {
		var share *Share
		if names := replicaNames(replicas); shares {
			share = NewShare(names[replica], names)
		}
		class, rnd, dst := NewIdentity("tts", nothing).NewClass(share, testFleet(nodes, 1), nil), NewSource(seed+uint64(replica)<<32), make([]*Node, 0, 1)
		for range jobs {
			dst = class.Choose(dst[:0], &Query{}, rnd)
			if !dst[0].TryTake(1) {
				t.Fatalf("%s has no slot although it was chosen", dst[0].ID())
			}
			if other, ok := filled[dst[0].ID()]; ok && other != replica {
				count++
			}
			filled[dst[0].ID()] = replica
		}
	}
	return count
}

func TestReplicasWithSharesDoNotCollide(t *testing.T) {
	t.Parallel()
	with, without := 0, 0
	for seed := range uint64(50) {
		with += collisions(t, true, seed)
		without += collisions(t, false, seed)
	}
	if with > 0 {
		t.Errorf("%d collisions while every share had room", with)
	}
	if without < 100 {
		t.Errorf("%d collisions without shares; the comparison means nothing", without)
	}
}

// A replica to which all clients came uses the whole fleet: its share is some two
// slots fuller than the rest. When the share is full, jobs go elsewhere to the last slot.
func TestBusyReplicaUsesTheWholeFleet(t *testing.T) {
	t.Parallel()
	const count, slots = 100, 20
	nodes := testFleet(count, slots)
	share := NewShare("r0", replicaNames(4))
	class, rnd, dst := NewIdentity("tts", nothing).NewClass(share, nodes, nil), NewSource(1), make([]*Node, 0, 1)
	place := func(jobs int) {
		t.Helper()
		for range jobs {
			dst = class.Choose(dst[:0], &Query{}, rnd)
			if len(dst) == 0 || !dst[0].TryTake(1) {
				t.Fatal("no slot was found in a fleet that has some")
			}
		}
	}
	place(count * slots / 2)
	own, others, ownNodes := 0, 0, 0
	for _, n := range nodes {
		_, pending := n.Load()
		if share.Has(n.ID()) {
			own, ownNodes = own+pending, ownNodes+1
		} else {
			others += pending
		}
	}
	if mean, rest := float64(own)/float64(ownNodes), float64(others)/float64(count-ownNodes); mean < rest || mean > rest+3 {
		t.Errorf("%.1f jobs a node of the share, %.1f on the others", mean, rest)
	}
	place(count * slots / 2)
	if got := class.Choose(dst[:0], &Query{}, rnd); len(got) != 0 {
		t.Errorf("%s was chosen of a full fleet", got[0].ID())
	}
}

// With several cells each has its own part of the share, and it is tried first there too.
func TestShareOfEveryCell(t *testing.T) {
	t.Parallel()
	const cells, count = 4, 200
	nodes := make([]*Node, count)
	for i := range nodes {
		nodes[i] = newTestNode(fmt.Sprintf("n%d", i), 1)
		nodes[i] = NewNode(nodes[i].Profile(), i%cells)
		nodes[i].Seen(0)
	}
	share := NewShare("r0", replicaNames(4))
	class, rnd, dst := NewIdentity("tts", nothing).NewClass(share, nodes, nil), NewSource(1), make([]*Node, 0, 2)
	for range 200 {
		for _, n := range class.Choose(dst[:0], &Query{Want: 2}, rnd) {
			if !share.Has(n.ID()) {
				t.Fatalf("%s is not of the share, which is idle", n.ID())
			}
		}
	}
}
