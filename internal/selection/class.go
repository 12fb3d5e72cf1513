package selection

import (
	"sync"

	"github.com/freeslot/freeslot"
)

// Class holds the candidates for one class of jobs: the nodes whose profiles fit, by tier, and the
// reasons why the others do not. It is immutable and safe for concurrent use; the figures inside
// its nodes change. The caller builds it again when a profile or the configuration changes.
type Class struct {
	// tiers are disjoint and not empty, best first.
	tiers      []*tier
	binpack    bool
	factor     float64
	mismatches map[Reason]int
	fits       int
	held       []*Node // nodes that fit, and get no jobs of the class because of a pause
	maxSlots   int
	identity   *Identity
	config     uint64
	filter     *filter // used by Has

	poolOnce sync.Once
	pool     string // see Pool
}

// NewClass builds the candidate lists of "service with requirement r". r must be valid. A nil cfg
// means the zero Config. What is prepared from cfg is kept for as long as cfg lives. nodes must be
// distinct; NewClass keeps the nodes but not the slice. Cost: one match for each node.
func NewClass(nodes []*Node, cfg *Config, service string, r *freeslot.Requirement) *Class {
	return NewIdentity(service, r).NewClass(nil, nodes, cfg)
}

// NewClass is [NewClass] for a replica with this share, which may be nil.
func (i *Identity) NewClass(share *Share, nodes []*Node, cfg *Config) *Class {
	prepared := compile(cfg)
	f := newFilter(prepared, i.service, &i.requirement)
	c := &Class{
		binpack: prepared.binpack, factor: prepared.factor, mismatches: make(map[Reason]int), identity: i, filter: f,
	}
	if cfg != nil {
		c.config = cfg.Version
	}
	var list []candidate
	for _, n := range nodes {
		p := n.Profile()
		tier, why := f.match(p)
		if why != "" {
			c.mismatches[why]++
			continue
		}
		c.fits++
		c.maxSlots = max(c.maxSlots, n.Max())
		tier, halt := f.running(p, tier)
		if halt != "" {
			c.held = append(c.held, n)
			c.mismatches[ReasonPaused]++
			continue
		}
		list = append(list, candidate{node: n, tier: tier, own: share.Has(n.ID())})
	}
	c.tiers = newTiers(list)
	return c
}

// ID returns the id of the class's [Identity]. Calls after the first cost nothing.
func (c *Class) ID() string { return c.identity.ID() }

// Definition returns the definition of the class's [Identity]. Calls after the first cost nothing.
func (c *Class) Definition() string { return c.identity.Definition() }

// ConfigVersion returns Config.Version of the configuration that the lists were built with.
// [Class.Has] answers for that configuration.
func (c *Class) ConfigVersion() uint64 { return c.config }

// Has reports whether n's present profile fits the class under the configuration that the lists
// were built with. It ignores n's figures, pauses and the lists, so the answer is right for a node
// that came or changed after they were built. Cost: one match.
func (c *Class) Has(n *Node) bool {
	_, why := c.filter.match(n.Profile())
	return why == ""
}

// Takes reports whether n may get jobs of the class: [Class.Has], and no pause concerns it.
func (c *Class) Takes(n *Node) bool {
	tier, why := c.filter.match(n.Profile())
	if why != "" {
		return false
	}
	_, halt := c.filter.running(n.Profile(), tier)
	return halt == ""
}

// PausedNodes returns how many of the fitting nodes get no jobs of the class because of a pause.
func (c *Class) PausedNodes() int { return len(c.held) }

// Paused names the pause of the class as a whole: "service asr", "class 0123456789abcdef", or "" if
// there is none. Paused pools pause nodes; see [Class.PausedNodes].
func (c *Class) Paused() string { return c.filter.halted }

// Fits returns the number of nodes whose profiles fit, in any state. 0 means that no node can run
// the job (no_matching_node). If there are some and Choose finds none, they are busy, draining,
// silent, paused or unreachable.
func (c *Class) Fits() int { return c.fits }

// MaxSlots returns the largest max_concurrency among the fitting nodes; 0 if there are none. A job
// that asks for more slots fits no node, however long it waits.
func (c *Class) MaxSlots() int { return c.maxSlots }

// Breakdown counts the nodes that do not qualify, by the first [Reason] against each. Together with
// the nodes that qualify these are all nodes that the class was built from. It ignores q.Want,
// q.Samples and q.AffinityKey. The caller owns the map. Cost: one check for each fitting node.
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
