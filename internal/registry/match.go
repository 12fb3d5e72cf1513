package registry

// Match returns the list with only the instances that a filter selects; nil means all. If it
// selects none although there are some, the state is empty, with the reason "none matches".
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
