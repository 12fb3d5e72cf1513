package freeslot

import (
	"maps"
	"slices"
)

// Stated is a requirement kept for being compared with others. It is immutable.
type Stated struct {
	requirement Requirement // without Labels
	// names and values are the labels, beside each other: a map is looked up faster
	// than gone through.
	names, values []string
}

// NewStated keeps a copy of r that shares nothing with it but strings.
func NewStated(r *Requirement) *Stated {
	s := &Stated{requirement: r.Clone()}
	for name, value := range s.requirement.Labels {
		s.names, s.values = append(s.names, name), append(s.values, value)
	}
	s.requirement.Labels = nil
	return s
}

// Same is [SameRequirement]. It allocates nothing.
func (s *Stated) Same(r *Requirement) bool {
	a := &s.requirement
	if a.Pool != r.Pool || a.PreferredPool != r.PreferredPool ||
		a.SourceLanguage != r.SourceLanguage || a.TargetLanguage != r.TargetLanguage ||
		len(a.Services) != len(r.Services) || len(s.names) != len(r.Labels) || len(a.LabelRules) != len(r.LabelRules) {
		return false
	}
	for i, name := range s.names {
		if value, ok := r.Labels[name]; !ok || value != s.values[i] {
			return false
		}
	}
	return len(a.Services)+len(a.LabelRules) == 0 || slices.Equal(a.Services, r.Services) && sameRules(a, r)
}

// Clone returns a copy that shares nothing with r but strings.
func (r *Requirement) Clone() Requirement {
	out := *r
	out.Services, out.Labels, out.LabelRules = slices.Clone(r.Services), maps.Clone(r.Labels), slices.Clone(r.LabelRules)
	for i := range out.LabelRules {
		out.LabelRules[i].Values = slices.Clone(out.LabelRules[i].Values)
	}
	return out
}
