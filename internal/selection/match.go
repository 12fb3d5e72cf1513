package selection

import (
	"math/bits"
	"slices"

	"github.com/freeslot/freeslot"
)

// Match returns the first part of "service with requirement r" that n fails, ""
// if it fails none, where no pools are configured. All arguments must be valid.
// It compiles n each time: to match one node often, use [Compile] and
// [Profile.Match].
func Match(n *freeslot.Node, service string, r *freeslot.Requirement) Reason {
	return Compile(n).Match(nil, service, r)
}

// Match returns the first part of "service with requirement r" that the node
// fails, "" if it fails none. With the same configuration it agrees with the
// candidate lists of [NewClass]. All arguments must be valid; nil is the zero Config.
func (p *Profile) Match(cfg *Config, service string, r *freeslot.Requirement) Reason {
	_, why := newFilter(compile(cfg), service, r).match(p)
	return why
}

// fewPools is up to how many pools are compared with a profile one by one. For more
// of them all pools are, once, and the answer is kept.
const fewPools = 4

// filter is a class prepared for being compared with many profiles. It is the
// only place that decides whether a node fits. It is for one goroutine, but for what
// shared returns.
type filter struct {
	cfg      *compiled
	services serviceList
	// versions is which installed ones are in range, as a fleet has few. Once frozen it
	// takes no more in.
	versions       map[versionOf]bool
	frozen         bool
	source, target string // folded; "" is not stated
	labels         map[string]string
	rules          []freeslot.LabelRule
	// pools are those to which the job is restricted, in order. Empty means none.
	pools []*rule
	mask  membership // of pools; only set for more than fewPools
	// preferred comes first; nil if there is none.
	preferred *rule
	// halted is what pauses the class as a whole, "" if nothing does.
	halted string
}

type versionOf struct {
	entry   int
	version string
}

func newFilter(cfg *compiled, service string, r *freeslot.Requirement) *filter {
	f := &filter{
		cfg:      cfg,
		services: newServiceList(append(slices.Clone(r.Services), service)),
		source:   fold(r.SourceLanguage),
		target:   fold(r.TargetLanguage),
		labels:   r.Labels,
		rules:    r.LabelRules,
	}
	if len(f.services.ranges) > 0 {
		f.versions = make(map[versionOf]bool)
	}
	if r.Pool != "" {
		f.pools = []*rule{cfg.named(r.Pool)}
	} else {
		f.pools = cfg.covering(f.source, f.target)
	}
	if len(f.pools) > fewPools {
		for _, pool := range f.pools {
			f.mask.add(pool.index)
		}
	}
	if cfg.paused.any {
		f.halted = cfg.halted(f.services.names, service, r)
	}
	if r.PreferredPool != "" && r.PreferredPool != r.Pool {
		f.preferred = cfg.named(r.PreferredPool)
	}
	return f
}

// shared is f for any number of goroutines from now on: match writes to versions alone,
// where most are known by then.
func (f *filter) shared() *filter {
	f.frozen = true
	return f
}

// match returns the first part that p fails, or "" and p's tier.
func (f *filter) match(p *Profile) (tier int, why Reason) {
	if f.services.installed(p) != "" {
		return 0, ReasonService
	}
	if len(f.services.ranges) > 0 && !f.inRange(p) {
		return 0, ReasonServiceVersion
	}
	if tier = f.tier(p); tier < 0 {
		return 0, ReasonPool
	}
	switch {
	case f.source != "" && !p.source.find(f.source):
		return 0, ReasonSourceLanguage
	case f.target != "" && !p.target.find(f.target):
		return 0, ReasonTargetLanguage
	case !p.hasPair(f.source, f.target):
		return 0, ReasonLanguagePair
	case len(f.labels) > 0 && !p.hasLabels(f.labels):
		return 0, ReasonLabels
	case p.failsRule(f.rules) != nil:
		return 0, ReasonLabels
	}
	return tier, ""
}

// inRange is serviceList.inRange, with each distinct version parsed once.
func (f *filter) inRange(p *Profile) bool {
	for i := range f.services.ranges {
		if !f.entryInRange(i, p) {
			return false
		}
	}
	return true
}

func (f *filter) entryInRange(i int, p *Profile) bool {
	want := &f.services.ranges[i]
	for _, installed := range p.node.Services {
		if installed.Name != want.name {
			continue
		}
		key := versionOf{i, installed.Version}
		ok, known := f.versions[key]
		if !known {
			ok = want.versions.Contains(installed.Version)
			if !f.frozen {
				f.versions[key] = ok
			}
		}
		if ok {
			return true
		}
	}
	return false
}

// tierCount is how many tiers there can be.
func (f *filter) tierCount() int {
	count := max(len(f.pools), 1)
	if f.preferred != nil {
		count++
	}
	return count
}

// tierPool is the pool whose members a tier has, "" for all nodes.
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

// tier returns p's tier, -1 if the pools do not allow it.
func (f *filter) tier(p *Profile) int {
	tier := 0
	switch {
	case len(f.pools) > fewPools:
		tier = f.firstOfMany(p)
	case len(f.pools) > 0:
		tier = slices.IndexFunc(f.pools, func(r *rule) bool { return r.admits(p) })
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

// firstOfMany finds the first of the job's pools by p's memberships: its place among
// them is the number of the job's pools with a lower index, since both are in order.
func (f *filter) firstOfMany(p *Profile) int {
	in, before := f.cfg.memberships(p), 0
	for word, mask := range f.mask {
		if both := mask & in[word]; both != 0 {
			below := mask & (both&-both - 1)
			return before + bits.OnesCount64(below)
		}
		before += bits.OnesCount64(mask)
	}
	return -1
}
