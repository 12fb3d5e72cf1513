package selection

import "github.com/freeslot/freeslot"

// Class holds the candidates for one class of jobs: the nodes whose profiles fit,
// by tier, and the reasons why the others do not. It is immutable and safe for
// concurrent use; the figures inside its nodes change under it. It is to be built
// again when a profile or the pools change.
type Class struct {
	// tiers are disjoint and not empty, best first.
	tiers      [][]*Node
	mismatches map[Reason]int
	fits       int
	maxSlots   int
}

// NewClass builds the candidate lists of "service with requirement r", which must
// be valid. nodes must be distinct; the slice is not kept, the nodes are. Cost:
// one match per node.
func NewClass(nodes []*Node, pools Pools, service string, r *freeslot.Requirement) *Class {
	f := newFilter(pools, service, r)
	c := &Class{mismatches: make(map[Reason]int)}
	tiers := make([][]*Node, max(len(f.tiers), 1))
	for _, n := range nodes {
		tier, why := f.match(n.profile)
		if why != "" {
			c.mismatches[why]++
			continue
		}
		tiers[tier] = append(tiers[tier], n)
		c.fits++
		c.maxSlots = max(c.maxSlots, n.max)
	}
	for _, tier := range tiers {
		if len(tier) > 0 {
			c.tiers = append(c.tiers, tier)
		}
	}
	return c
}

// Fits is the number of nodes whose profiles fit, whatever their state. 0 means
// that no node can run the job (no_matching_node); if there are some and Choose
// finds none, they are busy, draining or silent.
func (c *Class) Fits() int { return c.fits }

// MaxSlots is the largest max_concurrency among the nodes that fit; 0 without
// any. A job that asks for more slots fits no node, however long it waits.
func (c *Class) MaxSlots() int { return c.maxSlots }

// Breakdown counts the nodes against which something speaks, by the first
// [Reason]. Together with the nodes that qualify they are all the nodes of the
// class's construction. q.Want and q.Samples make no difference. The map is the
// caller's. Cost: one check per node that fits.
func (c *Class) Breakdown(q Query) map[string]int {
	q = q.withDefaults()
	counts := make(map[string]int, len(c.mismatches))
	for why, count := range c.mismatches {
		counts[string(why)] = count
	}
	for _, tier := range c.tiers {
		for _, n := range tier {
			if _, why := q.check(n); why != "" {
				counts[string(why)]++
			}
		}
	}
	return counts
}
