package selection

import "github.com/freeslot/freeslot"

// Class holds the candidates for one class of jobs: the nodes whose profiles fit,
// by tier, and the reasons why the others do not. It is immutable and safe for
// concurrent use; the figures inside its nodes change under it. It is to be built
// again when a profile or the configuration changes.
type Class struct {
	// pairs is the first tier if it is of one cell, else without nodes; paired says that
	// there is one and the less loaded of two wins in it, unless a query says otherwise.
	pairs  pairs
	paired bool
	// tiers are disjoint and not empty, best first.
	tiers      []*tier
	binpack    bool
	factor     float64
	mismatches map[Reason]int
	fits       int
	paused     int
	maxSlots   int
	identity   *Identity
	config     uint64
	filter     *filter // for Has
}

// pairs is the list of one cell out of which two are drawn.
type pairs struct {
	nodes []*Node
	own   int // of nodes, those in front that are this replica's share
}

// NewClass builds the candidate lists of "service with requirement r", which must
// be valid. cfg nil is the zero Config; what is prepared from cfg is kept for as long
// as it lives. nodes must be distinct; the slice is not kept, the nodes are. Cost:
// one match per node.
func NewClass(nodes []*Node, cfg *Config, service string, r *freeslot.Requirement) *Class {
	return newClass(nil, nodes, cfg, NewIdentity(service, r))
}

func newClass(share *Share, nodes []*Node, cfg *Config, identity *Identity) *Class {
	prepared := compile(cfg)
	f := newFilter(prepared, identity.service, &identity.requirement)
	c := &Class{binpack: prepared.binpack, factor: prepared.factor, mismatches: make(map[Reason]int), identity: identity}
	if cfg != nil {
		c.config = cfg.Version
	}
	sorter := newSorter(nodes, f.tierCount())
	for i, n := range nodes {
		tier, why := f.match(n.Profile())
		if why != "" {
			c.mismatches[why]++
			continue
		}
		c.fits++
		c.maxSlots = max(c.maxSlots, n.Max())
		tier, halt := f.running(n.Profile(), tier)
		if halt != "" {
			c.paused++
			continue
		}
		sorter.put(i, tier, share.Has(n.ID()))
	}
	if c.paused > 0 {
		c.mismatches[ReasonPaused] = c.paused
	}
	c.tiers = sorter.tiers(c.fits - c.paused)
	for _, t := range c.tiers {
		t.pool = f.tierPool(t.place)
	}
	c.paired = len(c.tiers) > 0 && !c.binpack
	if c.paired && len(c.tiers[0].spans) == 1 {
		c.pairs = c.tiers[0].pairs(&c.tiers[0].spans[0])
	}
	c.filter = f.shared()
	return c
}

// ID is that of the class's [Identity]. Calls after the first cost nothing.
func (c *Class) ID() string { return c.identity.ID() }

// Definition is that of the class's [Identity]. Calls after the first cost nothing.
func (c *Class) Definition() string { return c.identity.Definition() }

// ConfigVersion is Config.Version of the configuration that the lists were built with.
// What [Class.Has] says holds under that one.
func (c *Class) ConfigVersion() uint64 { return c.config }

// Has reports whether n's profile, as it is now, fits the class under the configuration
// that the lists were built with, whatever n's figures and what is paused. It is about profiles, not about
// the lists: it is right for a node too that came or changed after they were built, and
// it takes no memory. Cost: one match.
func (c *Class) Has(n *Node) bool {
	_, why := c.filter.match(n.Profile())
	return why == ""
}

// Takes reports whether n may be given jobs of the class: [Class.Has], and nothing that
// concerns it is paused. As for Has, the configuration is the one of the lists.
func (c *Class) Takes(n *Node) bool {
	tier, why := c.filter.match(n.Profile())
	if why != "" {
		return false
	}
	_, halt := c.filter.running(n.Profile(), tier)
	return halt == ""
}

// PausedNodes is how many of the nodes that fit get no jobs of the class because
// something is paused.
func (c *Class) PausedNodes() int { return c.paused }

// Paused says what pauses the class as a whole, as [Config.PausedBy] does.
func (c *Class) Paused() string { return c.filter.halted }

// Fits is the number of nodes whose profiles fit, whatever their state. 0 means
// that no node can run the job (no_matching_node); if there are some and Choose
// finds none, they are busy, draining, silent, paused or out of reach.
func (c *Class) Fits() int { return c.fits }

// MaxSlots is the largest max_concurrency among the nodes that fit; 0 without
// any. A job that asks for more slots fits no node, however long it waits.
func (c *Class) MaxSlots() int { return c.maxSlots }

// Breakdown counts the nodes against which something speaks, by the first
// [Reason]. Together with the nodes that qualify they are all the nodes of the
// class's construction. q.Want, q.Samples and q.AffinityKey make no difference. The
// map is the caller's. Cost: one check per node that fits.
func (c *Class) Breakdown(q *Query) map[string]int {
	counts := make(map[string]int, len(c.mismatches))
	for why, count := range c.mismatches {
		counts[string(why)] = count
	}
	for _, t := range c.tiers {
		for _, n := range t.nodes {
			if why := q.check(n); why != "" {
				counts[string(why)]++
			}
		}
	}
	return counts
}
