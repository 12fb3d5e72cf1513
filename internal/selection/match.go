package selection

import (
	"slices"

	"github.com/freeslot/freeslot"
)

// fewPools is the most pools that are compared with a profile one by one. If there are more, a
// profile is compared with all pools once, and the answer is kept with it.
const fewPools = 4

// filter is a class prepared for comparing it with many profiles. It alone decides whether a node
// fits. It is immutable and safe for concurrent use.
type filter struct {
	cfg            *compiled
	services       serviceList
	source, target string // folded; "" means not stated
	labels         map[string]string
	rules          []freeslot.LabelRule
	features       []string
	// pools holds the pools to which the job is restricted, in order. Empty means no restriction.
	pools []*rule
	// preferred comes first; nil if there is none.
	preferred *rule
	// halted names the pause of the class as a whole; "" if there is none.
	halted string
}

// newFilter prepares "service with requirement r". If service is "", the job has no service of its
// own.
func newFilter(cfg *compiled, service string, r *freeslot.Requirement) *filter {
	services := slices.Clone(r.Services)
	if service != "" {
		services = append(services, service)
	}
	f := &filter{
		cfg:      cfg,
		services: newServiceList(services),
		source:   fold(r.SourceLanguage),
		target:   fold(r.TargetLanguage),
		labels:   r.Labels,
		rules:    r.LabelRules,
		features: r.Features,
	}
	if r.Pool != "" {
		f.pools = []*rule{cfg.named(r.Pool)}
	} else {
		f.pools = cfg.covering(f.source, f.target)
	}
	if cfg.paused.any {
		f.halted = cfg.halted(f.services.names, service, r)
	}
	if r.PreferredPool != "" && r.PreferredPool != r.Pool {
		f.preferred = cfg.named(r.PreferredPool)
	}
	return f
}

// Filter returns a function that reports whether a node with a profile satisfies r, in any state of
// the node. r must be valid.
func (c *Config) Filter(r *freeslot.Requirement) func(*Profile) bool {
	f := newFilter(compile(c), "", r)
	return func(p *Profile) bool {
		_, why := f.match(p)
		return why == ""
	}
}

// match returns the first part that p fails, or "" and p's tier.
func (f *filter) match(p *Profile) (tier int, why Reason) {
	switch {
	case f.services.missing(p) != "":
		return 0, ReasonService
	case f.services.outOfRange(p) != nil:
		return 0, ReasonServiceVersion
	}
	tier = f.tier(p)
	switch {
	case tier < 0:
		return 0, ReasonPool
	case f.source != "" && !p.source.find(f.source):
		return 0, ReasonSourceLanguage
	case f.target != "" && !p.target.find(f.target):
		return 0, ReasonTargetLanguage
	case !p.hasPair(f.source, f.target):
		return 0, ReasonLanguagePair
	case !p.hasLabels(f.labels) || p.failsRule(f.rules) != nil:
		return 0, ReasonLabels
	case p.lacks(f.features) != "":
		return 0, ReasonFeatures
	}
	return tier, ""
}

// tierCount returns how many tiers there can be.
func (f *filter) tierCount() int {
	count := max(len(f.pools), 1)
	if f.preferred != nil {
		count++
	}
	return count
}

// tierPool returns the pool whose members a tier has; "" for all nodes.
func (f *filter) tierPool(tier int) string {
	if f.preferred != nil {
		if tier == 0 {
			return f.preferred.id
		}
		tier--
	}
	if len(f.pools) == 0 {
		return ""
	}
	return f.pools[tier].id
}

// tier returns p's tier; -1 if the pools do not allow it.
func (f *filter) tier(p *Profile) int {
	tier := 0
	if len(f.pools) > 0 {
		tier = slices.IndexFunc(f.pools, func(r *rule) bool { return f.has(r, p) })
	}
	switch {
	case tier < 0 || f.preferred == nil:
		return tier
	case f.preferred.admits(p):
		return 0
	default:
		return tier + 1
	}
}

// has reports whether p is a member of r, one of f.pools.
func (f *filter) has(r *rule, p *Profile) bool {
	if len(f.pools) > fewPools {
		return f.cfg.memberships(p).has(r.index)
	}
	return r.admits(p)
}
