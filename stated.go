package freeslot

import (
	"maps"
	"slices"
	"strings"
)

// Stated is what a requirement states besides its labels, kept for being compared
// with others. It is immutable. The zero value is that of the zero Requirement.
type Stated struct {
	pool, preferred, source, target string
	services                        []string
	rules                           []LabelRule
}

// NewStated keeps a copy of what r states that shares nothing with it but the strings
// of its label rules.
func NewStated(r *Requirement) Stated {
	// The names lie beside each other: to compare them touches one cache line or two.
	all := r.Pool + r.PreferredPool + r.SourceLanguage + r.TargetLanguage + strings.Join(r.Services, "")
	next := func(s string) (own string) {
		own, all = all[:len(s)], all[len(s):]
		return own
	}
	s := Stated{pool: next(r.Pool), preferred: next(r.PreferredPool), source: next(r.SourceLanguage), target: next(r.TargetLanguage)}
	for _, service := range r.Services {
		s.services = append(s.services, next(service))
	}
	s.rules = cloneRules(r.LabelRules)
	return s
}

// Same reports whether r states this in the same words and order, whatever its
// Labels: [SameRequirement] but for those. It allocates nothing.
func (s *Stated) Same(r *Requirement) bool {
	// Lengths first: most of what differs does in one, and most names are absent.
	if len(s.pool) != len(r.Pool) || len(s.preferred) != len(r.PreferredPool) ||
		len(s.source) != len(r.SourceLanguage) || len(s.target) != len(r.TargetLanguage) ||
		len(s.services) != len(r.Services) || len(s.rules) != len(r.LabelRules) {
		return false
	}
	return same(s.pool, r.Pool) && same(s.preferred, r.PreferredPool) &&
		same(s.source, r.SourceLanguage) && same(s.target, r.TargetLanguage) &&
		(len(s.services) == 0 || slices.Equal(s.services, r.Services)) &&
		(len(s.rules) == 0 || sameRules(s.rules, r.LabelRules))
}

// same compares strings of one length, and calls nothing for empty ones.
func same(a, b string) bool { return a == "" || a == b }

// Clone returns a copy that shares nothing with r but strings.
func (r *Requirement) Clone() Requirement {
	out := *r
	out.Services, out.Labels, out.LabelRules = slices.Clone(r.Services), maps.Clone(r.Labels), cloneRules(r.LabelRules)
	return out
}

func cloneRules(rules []LabelRule) []LabelRule {
	out := slices.Clone(rules)
	for i := range out {
		out[i].Values = slices.Clone(out[i].Values)
	}
	return out
}
