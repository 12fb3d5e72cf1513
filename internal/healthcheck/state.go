package healthcheck

// change tells how one more outcome changes a service.
type change uint8

const (
	unchanged change = iota
	// rose: the service is healthy from now on.
	rose
	// fell: the service is unhealthy from now on, or an unknown one has failed for the first time.
	fell
)

// state decides from the outcomes of checks whether a service is healthy. It is pure: no clock and
// no I/O.
type state struct {
	rise, fall int
	healthy    bool
	// unknown is true if no check has succeeded yet. Then the first success is enough.
	unknown bool
	// reported is true if the last change, or the first failure of an unknown service, was
	// returned.
	reported bool
	// streak counts the last outcomes that contradict healthy. Invariant: it is below the number
	// that changes it.
	streak int
}

// newState begins with a service that is healthy, or unknown.
func newState(rise, fall int, healthy bool) state {
	return state{rise: rise, fall: fall, healthy: healthy, unknown: !healthy, reported: healthy}
}

func (s *state) observe(ok bool) change {
	if ok == s.healthy {
		s.streak = 0
		if s.reported {
			return unchanged
		}
		s.reported = true
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
	s.healthy, s.unknown, s.reported, s.streak = ok, false, true, 0
	if ok {
		return rose
	}
	return fell
}
