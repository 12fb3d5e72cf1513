package check

// change is what one more outcome makes of a service.
type change uint8

const (
	unchanged change = iota
	// rose: the service is healthy from now on.
	rose
	// fell: the service is unhealthy from now on. Of an unknown one it says that it has failed
	// for the first time.
	fell
)

// state makes of the outcomes of checks whether a service is healthy. It is pure: no clock
// and no I/O.
type state struct {
	rise, fall int
	healthy    bool
	// unknown is that no check has succeeded yet: the first success is enough then.
	unknown bool
	// told is that the last change, or the first failure of an unknown service, was returned.
	told bool
	// streak counts the last outcomes that speak against healthy. Invariant: it is below
	// what the change needs.
	streak int
}

// newState begins with a service that is healthy, or unknown.
func newState(rise, fall int, healthy bool) state {
	return state{rise: rise, fall: fall, healthy: healthy, unknown: !healthy, told: healthy}
}

func (s *state) observe(ok bool) change {
	if ok == s.healthy {
		s.streak = 0
		if s.told {
			return unchanged
		}
		s.told = true
		return fell
	}
	s.streak++
	needed := s.fall
	if ok {
		needed = s.rise
	}
	if s.streak < needed && !s.unknown {
		return unchanged
	}
	s.healthy, s.unknown, s.told, s.streak = ok, false, true, 0
	if ok {
		return rose
	}
	return fell
}
