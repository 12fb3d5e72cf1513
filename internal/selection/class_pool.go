package selection

import "slices"

// Pool returns the pool for which the demand of the class counts, so that every job counts once:
//
//   - the pool that the class asks for
//   - otherwise the pool that it prefers, if that has a fitting node or expects one
//   - otherwise, of the pools that cover its languages, or of all pools without such ones, the
//     first in the configuration that has a fitting node
//   - otherwise the first that expects a fitting node
//   - otherwise the pool that it prefers
//   - otherwise the first pool that covers its languages; "" without one
//
// The first call looks at the fitting nodes until one is in the preferred or the first pool. Later
// ones cost nothing.
func (c *Class) Pool() string {
	c.poolOnce.Do(func() { c.pool = c.findPool() })
	return c.pool
}

func (c *Class) findPool() string {
	f := c.filter
	switch {
	case c.identity.requirement.Pool != "":
		return c.identity.requirement.Pool
	case f.preferred != nil && (f.expects(f.preferred.id) || c.hasNodeIn(f.preferred)):
		return f.preferred.id
	}
	rules := f.pools
	if len(rules) == 0 {
		rules = f.cfg.rules
	}
	if i := c.firstWithNode(rules); i >= 0 {
		return rules[i].id
	}
	if pool := f.expecting(); pool != "" {
		return pool
	}
	switch {
	case f.preferred != nil:
		return f.preferred.id
	case len(f.pools) > 0:
		return f.pools[0].id
	default:
		return ""
	}
}

// expects reports whether the pool expects a node that will fit.
func (f *filter) expects(pool string) bool {
	return slices.ContainsFunc(f.cfg.expected, func(e expectation) bool {
		if e.pool != pool {
			return false
		}
		_, why := f.match(e.profile)
		return why == ""
	})
}

// hasNodeIn reports whether a fitting node, paused or not, is a member of r.
func (c *Class) hasNodeIn(r *rule) bool {
	in := func(n *Node) bool { return r.admits(n.Profile()) }
	return slices.ContainsFunc(c.tiers, func(t *tier) bool { return slices.ContainsFunc(t.nodes, in) }) ||
		slices.ContainsFunc(c.held, in)
}

// expecting returns the first pool, in the order in which the class tries pools, that expects a
// node that will fit; "" without one.
func (f *filter) expecting() (pool string) {
	best := f.tierCount()
	for i := range f.cfg.expected {
		e := &f.cfg.expected[i]
		if tier, why := f.match(e.profile); why == "" && tier < best {
			best, pool = tier, e.pool
		}
	}
	return pool
}

// firstWithNode returns the index of the first of the rules, all configured, that has a fitting
// node, paused or not; -1 if none has.
func (c *Class) firstWithNode(rules []*rule) int {
	first := len(rules)
	look := func(nodes []*Node) {
		for _, n := range nodes {
			if first == 0 {
				return
			}
			in := c.filter.cfg.memberships(n.Profile())
			if i := slices.IndexFunc(rules[:first], func(r *rule) bool { return in.has(r.index) }); i >= 0 {
				first = i
			}
		}
	}
	for _, t := range c.tiers {
		look(t.nodes)
	}
	look(c.held)
	if first == len(rules) {
		return -1
	}
	return first
}
