package registry

import "sync"

// onceList makes a list when it is first asked for.
type onceList struct {
	once sync.Once
	list *List
}

// Healthy is the list of those instances that should get traffic. Where all that are willing are
// late, it has these, and Last is set. Its state is empty, with why, where there is none. It is made
// once, and is l itself where all instances are healthy.
func (l *List) Healthy() *List {
	if l.healthy == nil {
		return l.onlyHealthy() // a list that somebody made by hand
	}
	l.healthy.once.Do(func() { l.healthy.list = l.onlyHealthy() })
	return l.healthy.list
}

func (l *List) onlyHealthy() *List {
	healthy, late := 0, 0
	for _, in := range l.Instances {
		if in.willing() {
			if in.Late {
				late++
			} else {
				healthy++
			}
		}
	}
	if healthy == len(l.Instances) {
		return l
	}
	out := *l
	out.healthy, out.Last = nil, healthy == 0 && late > 0
	size := healthy
	if out.Last {
		size = late
	}
	out.Instances = make([]*Instance, 0, size)
	for _, in := range l.Instances {
		if in.willing() && in.Late == out.Last {
			out.Instances = append(out.Instances, in)
		}
	}
	if len(out.Instances) == 0 {
		out.State, out.Why = StateEmpty, WhyNoneHealthy
	}
	return &out
}
