package selection

import (
	"math"

	"github.com/freeslot/freeslot/internal/ring"
)

// affinityTries is how many nodes a key is offered to before its job is placed like a job without a
// key. With the default factor 1.25 and equal nodes, at most four of five are over the bound, so at
// worst all tries fail for one key in 35.
const affinityTries = 16

// averageSamples is the number of nodes from which the average load is estimated. The standard
// error is the standard deviation of the nodes' loads, divided by the square root of this number:
// below 0.09 for any fleet, 0.035 if loads deviate by 0.2.
const averageSamples = 32

// byKey fills dst with the nodes of the query's key, in its order: bounded-load consistent hashing
// (Mirrokni, Thorup and Zadimoghaddam 2016). A node takes the job if it qualifies and its load is
// below c times the average, the job included. Otherwise the job goes to the node of the key's next
// try.
//
// The first node decides the cell. After it only nodes of that cell are taken.
func (s *choice) byKey(t *tier, dst []*Node) []*Node {
	nodes, bound := t.ringOf(), s.bound(t)
	hash := ring.Hash(s.q.AffinityKey)
	for try := range uint64(affinityTries) {
		n := t.nodes[nodes.Find(hash, try)]
		if s.cell >= 0 && n.Cell() != s.cell {
			continue
		}
		taken, limit, ok := s.q.qualifies(n, s.w, dst)
		if !ok || !s.q.IgnoreFull && float64(taken) >= bound*float64(limit) {
			continue
		}
		s.cell = n.Cell()
		if dst = append(dst, n); len(dst) == s.limit {
			break
		}
	}
	return dst
}

// bound returns the share of its slots from which on a node takes no more jobs for a key. It is
// infinite if no node of the sample takes jobs, because the sample then has no average.
func (s *choice) bound(t *tier) float64 {
	var taken, capacity int
	add := func(n *Node) {
		// Jobs cannot be spread over a node that takes no jobs, so its load does not count.
		if n.seenAt.Load() < s.w.earliest || n.rests(s.w.now) || n.Draining() || s.q.Skip.Has(n.Cell()) {
			return
		}
		used, pending := n.Load()
		taken += used + pending
		capacity += n.Max()
	}
	if len(t.nodes) <= averageSamples {
		for _, n := range t.nodes {
			add(n)
		}
	} else {
		for range averageSamples {
			add(t.nodes[s.rnd.intn(len(t.nodes))])
		}
	}
	if capacity == 0 {
		return math.Inf(1)
	}
	own := float64(s.w.slots) / float64(max(t.capacity, 1))
	return s.factor * (float64(taken)/float64(capacity) + own)
}
