package selection

import "slices"

// MaxBatch is the most jobs for one [Class.Batch]: as many as one call of the submit script takes.
const MaxBatch = 64

// maxSample bounds the nodes that are drawn for a batch from all nodes. Up to MaxBatch more come
// from the share.
const maxSample = MaxBatch * DefaultSamples

// Group is a node with the number of jobs of a batch that are for it.
type Group struct {
	Node *Node
	Jobs int
}

// Batch chooses nodes for this many jobs (at most MaxBatch) with the same query q. It appends the
// nodes to dst in groups; see the package comment. The groups can be for fewer jobs, or none: use
// [Class.Choose] for the others. After the groups come nodes without jobs, which [AppendCandidates]
// uses. All nodes are distinct, are in one cell, and qualify.
//
// q is only read; its AffinityKey is ignored. Batch allocates nothing if dst has room for jobs and
// q.Want more. Cost: a few checks for each job, and one choice.
func (c *Class) Batch(dst []Group, jobs int, q *Query, rnd *Source) []Group {
	s := choice{Class: c, q: q, w: q.need(), rnd: rnd, samples: c.samples(q), cell: -1, limit: 1}
	var room [1]*Node
	for _, t := range c.tiers {
		// The first node decides the tier and the cell.
		if first := s.fromTier(t, room[:0]); len(first) > 0 {
			return s.fillGroups(dst, min(jobs, MaxBatch), t.part(s.cell), first[0])
		}
	}
	return dst
}

// AppendCandidates appends to dst the nodes that a job of the group at index at is offered to: the
// node of the group, and the nodes of the next groups, up to want in all. So a call of the submit
// script names few nodes. The next group leaves half of its node's free slots, which a refused
// group can have.
func AppendCandidates(dst []*Node, groups []Group, at, want int) []*Node {
	for i := range min(max(want, 1), len(groups), cap(dst)-len(dst)) {
		dst = append(dst, groups[(at+i)%len(groups)].Node)
	}
	return dst
}

// sampled is a node that was drawn for a batch.
type sampled struct {
	node *Node
	// taken and limit count slots. Nodes are compared by them: a node outside the share counts with
	// one more slot, as in next.
	taken, limit int
	jobs         int // the most jobs that its group is for
}

// fillGroups fills groups from the best nodes of a sample of the part.
func (s *choice) fillGroups(dst []Group, jobs int, part *cellPart, first *Node) []Group {
	var room [maxSample + MaxBatch]sampled
	sample, others := room[:0], 0
	if s.shares(part) {
		sample, others = s.draw(sample, part.nodes[:part.own], jobs, 1, 0), 1
	}
	sample = s.draw(sample, part.nodes, jobs, s.samples, others)
	if len(sample) == 0 {
		sample = s.draw(sample, []*Node{first}, 1, 1, 0)
	}
	slices.SortFunc(sample, func(a, b sampled) int {
		switch {
		case s.better(a.taken, a.limit, b.taken, b.limit):
			return -1
		case s.better(b.taken, b.limit, a.taken, a.limit):
			return 1
		}
		return 0 // they stay in the random order in which they were drawn
	})
	for spare := s.q.Want - 1; len(sample) > 0 && (jobs > 0 || spare > 0); sample = sample[1:] {
		group := min(sample[0].jobs, jobs)
		dst = append(dst, Group{sample[0].node, group})
		if jobs -= group; group == 0 {
			spare--
		}
	}
	return dst
}

// draw adds qualifying nodes to the sample, until it has added times nodes with room for times the
// jobs; it gives up after a number of draws. Nodes are compared with this many further slots taken.
func (s *choice) draw(sample []sampled, nodes []*Node, jobs, times, further int) []sampled {
	before, found := len(sample), 0
	for range min(jobs*times, maxSample) {
		if len(sample) == before+len(nodes) || len(sample) >= before+times && found >= jobs*times {
			break
		}
		n := nodes[s.rnd.intn(len(nodes))]
		taken, limit, ok := s.q.qualifies(n, s.w, nil)
		if !ok || slices.ContainsFunc(sample, func(other sampled) bool { return other.node == n }) {
			continue
		}
		// Half of the free slots, so that other replicas with the same view find room.
		group := max((limit-taken)/(2*s.w.slots), 1)
		found += group
		sample = append(sample, sampled{node: n, taken: taken + further, limit: limit, jobs: group})
	}
	return sample
}
