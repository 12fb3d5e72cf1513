package registry

// Match is the list with the instances alone that a filter takes; nil takes all. Where it takes none
// of those that there are, the state is empty with the reason "none matches".
func (l *List) Match(filter *Filter) *List {
	out := *l
	out.healthy, out.Instances = nil, nil
	for _, i := range l.Instances {
		if filter.Takes(i) {
			out.Instances = append(out.Instances, i)
		}
	}
	if len(out.Instances) == 0 && len(l.Instances) > 0 {
		out.State, out.Why = StateEmpty, WhyNoneMatches
	}
	return &out
}
