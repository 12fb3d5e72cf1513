package registry

// Match is the list with the instances alone that a filter takes; nil takes all.
func (l *List) Match(filter *Filter) *List {
	out := *l
	out.healthy, out.Instances = nil, nil
	for _, i := range l.Instances {
		if filter.Takes(i) {
			out.Instances = append(out.Instances, i)
		}
	}
	return &out
}
