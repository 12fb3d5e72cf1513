package selection

import (
	"runtime"
	"slices"
	"sync"
	"weak"
)

// compiled is a Config prepared for building classes. It is immutable.
type compiled struct {
	twoLevel bool
	binpack  bool
	factor   float64
	rules    []*rule
	byID     map[string]*rule
	paused   pauses
	expected []expectation
}

// prepared keeps what compile made for as long as its Config lives. No decision depends on it:
// compiling again gives the same result.
var prepared sync.Map // weak.Pointer[Config] -> *compiled

// unconfigured is the compiled form of a nil Config.
var unconfigured = newCompiled(new(Config))

// compile prepares cfg, once for all classes that are built with it.
func compile(cfg *Config) *compiled {
	if cfg == nil {
		return unconfigured
	}
	key := weak.Make(cfg)
	if known, ok := prepared.Load(key); ok {
		return known.(*compiled)
	}
	known, loaded := prepared.LoadOrStore(key, newCompiled(cfg))
	if !loaded {
		runtime.AddCleanup(cfg, func(key weak.Pointer[Config]) { prepared.Delete(key) }, key)
	}
	return known.(*compiled)
}

// newCompiled keeps no reference to cfg, because cfg could then never be freed.
func newCompiled(cfg *Config) *compiled {
	full := cfg.WithDefaults()
	c := &compiled{
		twoLevel: full.Enabled && full.Mode == ModeTwoLevel,
		binpack:  full.Policy == PolicyBinpack,
		factor:   full.AffinityLoadFactor,
		byID:     make(map[string]*rule),
		paused:   newPauses(full.Paused),
	}
	if !full.Enabled {
		return c
	}
	for i := range full.Pools {
		r := newRule(&full.Pools[i])
		r.index = i
		c.rules = append(c.rules, r)
		c.byID[r.id] = r
		if full.Pools[i].Expects != nil {
			c.expected = append(c.expected, newExpectation(&full.Pools[i]))
		}
	}
	return c
}

// named returns the rule of the pool with this id. A pool that is not configured consists of the
// nodes that name it.
func (c *compiled) named(id string) *rule {
	if r, ok := c.byID[id]; ok {
		return r
	}
	return newRule(&Pool{ID: id})
}

// covering returns the rules of the pools that cover the folded languages, in order. "" means that
// the job does not state the language.
func (c *compiled) covering(source, target string) []*rule {
	if !c.twoLevel || source == "" && target == "" {
		return nil
	}
	var rules []*rule
	for _, r := range c.rules {
		if (source == "" || r.source.find(source)) && (target == "" || r.target.find(target)) {
			rules = append(rules, r)
		}
	}
	return rules
}

func (c *compiled) members(p *Profile) []string {
	var ids []string
	for _, r := range c.rules {
		if r.admits(p) {
			ids = append(ids, r.id)
		}
	}
	for _, id := range p.node.Pools {
		if !slices.Contains(ids, id) {
			ids = append(ids, id)
		}
	}
	return ids
}

// memberships holds the pools of one configuration that one profile is in, by their index.
type memberships struct {
	of *compiled
	in [MaxConfiguredPools / 64]uint64
}

func (m *memberships) has(index int) bool { return m.in[index/64]>>(index%64)&1 == 1 }

// memberships returns all pools of c that p is in. The profile keeps the last answer: if many pools
// overlap, they are compared with it once for all classes.
func (c *compiled) memberships(p *Profile) *memberships {
	if known := p.memberships.Load(); known != nil && known.of == c {
		return known
	}
	fresh := &memberships{of: c}
	for _, r := range c.rules {
		if r.admits(p) {
			fresh.in[r.index/64] |= 1 << (r.index % 64)
		}
	}
	p.memberships.Store(fresh)
	return fresh
}
