package selection

import "github.com/freeslot/freeslot"

// Mode says how pools restrict jobs that name no pool.
type Mode string

// The modes.
const (
	// ModeTwoLevel: the job's languages give the pools, the pools give the nodes.
	ModeTwoLevel Mode = "two_level"
	// ModeFlat: pools restrict only the jobs that name one.
	ModeFlat Mode = "flat"
)

// Policy says which of the sampled nodes is taken. A job with an affinity key is placed by the key
// under every policy.
type Policy string

// The policies.
const (
	// PolicyLeastLoaded takes the less loaded of the sampled nodes.
	PolicyLeastLoaded Policy = "least_loaded"
	// PolicyBinpack takes the most loaded one with room, so that others stay empty for jobs of many
	// slots.
	PolicyBinpack Policy = "binpack"
)

// Defaults and limits of Config.AffinityLoadFactor.
const (
	DefaultAffinityLoadFactor = 1.25
	MinAffinityLoadFactor     = 1.01
	MaxAffinityLoadFactor     = 100
)

// Config says how nodes are chosen. It is the same for all replicas. The zero value has no pools
// and is disabled. It must not change while it is in use, because its prepared form is kept with
// it.
type Config struct {
	// If Enabled is false, the configured pools are disabled: a job that names a pool finds the
	// nodes that name it themselves, and no other job is restricted.
	Enabled bool `json:"enabled" koanf:"enabled"`
	// An empty Mode means ModeTwoLevel.
	Mode Mode `json:"mode,omitempty" koanf:"mode"`
	// An empty Policy means PolicyLeastLoaded.
	Policy Policy `json:"policy,omitempty" koanf:"policy"`
	// AffinityLoadFactor bounds the load up to which a node takes jobs for their affinity key, as a
	// multiple of the average load. The nearer to 1, the more even the load and the more often a
	// key leaves its node. 0 means DefaultAffinityLoadFactor.
	AffinityLoadFactor float64 `json:"affinity_load_factor,omitempty" koanf:"affinity_load_factor"`
	Pools              Pools   `json:"pools" koanf:"pools"`
	// Paused applies even if Enabled is false. Nil pauses nothing; in a change nil leaves it as it
	// was.
	Paused *Paused `json:"paused,omitempty" koanf:"paused"`
	// Version is the number under which Redis keeps the configuration; 0 means none. It is not part
	// of the document and does not affect a choice.
	Version uint64 `json:"-" koanf:"-"`
	// Generation identifies the counter that Version comes from. Redis keeps it beside Version.
	Generation string `json:"-" koanf:"-"`
}

// WithDefaults returns a copy with every default filled in. Nil means the zero Config. The copy
// shares Pools and Paused.
func (c *Config) WithDefaults() Config {
	out := Config{Pools: Pools{}}
	if c != nil {
		out = *c
	}
	if out.Mode == "" {
		out.Mode = ModeTwoLevel
	}
	if out.Policy == "" {
		out.Policy = PolicyLeastLoaded
	}
	if out.AffinityLoadFactor == 0 {
		out.AffinityLoadFactor = DefaultAffinityLoadFactor
	}
	return out
}

// Members returns the pools that n is in: the configured ones in their order, then the ones that
// only n's profile names. A job that names a pool finds n there if and only if Members has the
// pool. Nil means the zero Config.
func (c *Config) Members(n *freeslot.Node) []string {
	return compile(c).members(Compile(n))
}

// EachPool calls f with each configured pool that the profile is in, in their order.
func (c *Config) EachPool(p *Profile, f func(id string)) {
	of := compile(c)
	in := of.memberships(p)
	for _, r := range of.rules {
		if in.has(r.index) {
			f(r.id)
		}
	}
}

// LanguagePairs maps "source:target" to the ids of the pools that list both, in their order. Tags
// are in lower case, with '-'. It is empty unless languages give pools (Enabled and ModeTwoLevel).
func (c *Config) LanguagePairs() map[string][]string {
	pairs := make(map[string][]string)
	compiled := compile(c)
	if !compiled.twoLevel {
		return pairs
	}
	for _, r := range compiled.rules {
		for _, source := range r.source.tags {
			for _, target := range r.target.tags {
				pairs[source+":"+target] = append(pairs[source+":"+target], r.id)
			}
		}
	}
	return pairs
}
