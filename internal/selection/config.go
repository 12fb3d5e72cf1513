package selection

import "github.com/freeslot/freeslot"

// Mode is how pools restrict the jobs that name none.
type Mode string

// The modes.
const (
	// ModeTwoLevel: the job's languages give the pools, the pools give the nodes.
	ModeTwoLevel Mode = "two_level"
	// ModeFlat: pools restrict only the jobs that name one.
	ModeFlat Mode = "flat"
)

// Policy is which of the sampled nodes is taken. Jobs with an affinity key are
// placed by their key under every policy.
type Policy string

// The policies.
const (
	// PolicyLeastLoaded takes the less loaded of the sampled nodes.
	PolicyLeastLoaded Policy = "least_loaded"
	// PolicyBinpack takes the most loaded one that has room, so that others stay
	// empty for jobs of many slots.
	PolicyBinpack Policy = "binpack"
)

// Defaults and limits of Config.AffinityLoadFactor.
const (
	DefaultAffinityLoadFactor = 1.25
	MinAffinityLoadFactor     = 1.01
	MaxAffinityLoadFactor     = 100
)

// Config is how nodes are chosen, for all replicas alike. The zero value has no
// pools and is disabled. It must not change while it is in use: what is prepared
// from it is kept with it.
type Config struct {
	// Enabled false makes the configured pools count for nothing: a job that names
	// a pool finds the nodes that name it themselves, and no other job is restricted.
	Enabled bool `json:"enabled" koanf:"enabled"`
	// Mode empty means ModeTwoLevel.
	Mode Mode `json:"mode,omitempty" koanf:"mode"`
	// Policy empty means PolicyLeastLoaded.
	Policy Policy `json:"policy,omitempty" koanf:"policy"`
	// AffinityLoadFactor is how many times as loaded as the average a node may be
	// and still take further jobs for their affinity key. The nearer to 1, the more
	// even the load and the more often a key leaves its node. 0 means
	// DefaultAffinityLoadFactor.
	AffinityLoadFactor float64 `json:"affinity_load_factor,omitempty" koanf:"affinity_load_factor"`
	Pools              Pools   `json:"pools" koanf:"pools"`
	// Paused counts whatever Enabled says; nil is nothing, or in a change: what it was.
	Paused *Paused `json:"paused,omitempty" koanf:"paused"`
	// Version is the number under which the configuration is kept; 0 is none. It is no
	// part of the document and makes no difference to a choice.
	Version uint64 `json:"-" koanf:"-"`
	// Generation tells versions of one counter from those of another; it is kept as Version is.
	Generation string `json:"-" koanf:"-"`
}

// WithDefaults returns a copy in which nothing is left to a default. Nil is the
// zero Config. The copy shares the pools and what is paused.
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

// Members returns the pools that n is in: the configured ones in their order, then
// those that only n's profile names. A job that names one of these, and no other,
// finds n in its pool. Nil is the zero Config.
func (c *Config) Members(n *freeslot.Node) []string {
	return compile(c).members(Compile(n))
}

// LanguagePairs maps "source:target" to the ids of the pools that list both, in
// their order. Tags are in lower case, with '-'. It is empty unless languages give
// pools (Enabled and ModeTwoLevel).
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
