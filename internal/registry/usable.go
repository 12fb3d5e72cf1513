package registry

import "fmt"

// EmptyError is returned when a service has no instance to use. It says how far that can be
// trusted, and why it is so.
type EmptyError struct {
	Service string
	// State is that of the list; empty where there is no list yet.
	State State
	Why   string
}

func (e *EmptyError) Error() string {
	switch {
	case e.State == "":
		return "registry: there is no list of the service yet"
	case e.Why == "":
		return fmt.Sprintf("registry: service %s has no instance to use; its list is %s", e.Service, e.State)
	default:
		return fmt.Sprintf("registry: service %s has no instance to use; its list is %s: %s", e.Service, e.State, e.Why)
	}
}

// Usable reports whether an instance of the list should get traffic: a healthy one, or a late one
// where late ones are the last resort.
func (l *List) Usable(i *Instance) bool { return i.willing() && (!i.Late || l.Last) }

// EmptyError is the error for callers that found no usable instance. l may be nil.
func (l *List) EmptyError() *EmptyError {
	if l == nil {
		return &EmptyError{}
	}
	why := l.Why
	if why == "" && len(l.Instances) > 0 {
		why = WhyNoneHealthy
	}
	return &EmptyError{Service: l.Service, State: l.State, Why: why}
}
