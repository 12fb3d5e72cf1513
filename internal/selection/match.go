package selection

import (
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
// fails, "" if it fails none. With the same pools it agrees with the candidate
// lists of [NewClass]. All arguments must be valid.
func (p *Profile) Match(pools Pools, service string, r *freeslot.Requirement) Reason {
	f := newFilter(pools, service, r)
	_, why := f.match(p)
	return why
}

// filter is a class prepared for being compared with many profiles. It is the
// only place that decides whether a node fits.
type filter struct {
	services       []string
	source, target string // folded; "" is not stated
	labels         map[string]string
	// tiers are the pools to which the job is restricted, in order. Empty means
	// that every node is in tier 0.
	tiers []*rule
}

func newFilter(pools Pools, service string, r *freeslot.Requirement) *filter {
	f := &filter{
		services: append(slices.Clone(r.Services), service),
		source:   fold(r.SourceLanguage),
		target:   fold(r.TargetLanguage),
		labels:   r.Labels,
	}
	if r.Pool != "" {
		f.tiers = []*rule{pools.named(r.Pool)}
	} else {
		f.tiers = pools.covering(f.source, f.target)
	}
	return f
}

// match returns the first part that p fails, or "" and p's tier.
func (f *filter) match(p *Profile) (tier int, why Reason) {
	if !p.hasServices(f.services) {
		return 0, ReasonService
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
	case !p.hasLabels(f.labels):
		return 0, ReasonLabels
	}
	return tier, ""
}

// tier returns the first tier whose pool p is in, -1 if it is in none.
func (f *filter) tier(p *Profile) int {
	if len(f.tiers) == 0 {
		return 0
	}
	return slices.IndexFunc(f.tiers, func(r *rule) bool { return r.admits(p) })
}
