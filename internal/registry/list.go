package registry

import (
	"fmt"
	"sync"
)

// onceList makes a list the first time it is asked for.
type onceList struct {
	once sync.Once
	list *List
}

// Healthy returns the list of the instances that should get traffic. If all willing instances are
// late, it has these, and Last is set. If there is none, its state is empty, with why. It is made
// once; if all instances are healthy, it is l itself.
func (l *List) Healthy() *List {
	if l.healthy == nil {
		return l.onlyHealthy() // somebody made this list by hand
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

// EmptyError is returned to callers that need an instance of a service which has none to use.
type EmptyError struct {
	Service string
	// State and Why are the list's; empty if there is no list yet.
	State State
	Why   string
}

// EmptyError returns the error for a list that has no usable instance. nil means that there is no
// list yet.
func (l *List) EmptyError() *EmptyError {
	if l == nil {
		return &EmptyError{}
	}
	healthy := l.Healthy()
	return &EmptyError{Service: healthy.Service, State: healthy.State, Why: healthy.Why}
}

func (e *EmptyError) Error() string {
	if e.State == "" {
		return "registry: there is no list of the service yet"
	}
	return fmt.Sprintf("registry: service %s has no instance to use; its list is %s: %s", e.Service, e.State, e.Why)
}
