package pool

import (
	"fmt"
	"time"
)

// Health describes the configuration in force and how up to date it is.
type Health struct {
	State
	// Stale is true if no comparison with Redis has succeeded for three intervals.
	Stale bool
	// Age is the time since the last successful comparison; 0 before the first.
	Age time.Duration
}

// Health returns what is in force and how up to date it is.
func (f *Follower) Health() Health {
	h := Health{State: f.Current(), Stale: true}
	if at := f.comparedAt.Load(); at != never {
		h.Age = time.Since(f.origin) - time.Duration(at)
		h.Stale = h.Age > staleAfter*f.cfg.Interval
	}
	return h
}

// Ready returns false only before the first configuration is in force. detail names any other
// problem.
func (f *Follower) Ready() (ok bool, detail string) {
	h := f.Health()
	switch {
	case h.Config == nil:
		return false, "the pools have not been read yet"
	case h.Stale:
		return true, fmt.Sprintf("Redis has not answered for %s, %s stays in force", h.Age.Round(time.Second/10), h.name())
	case h.Problem != nil:
		return true, fmt.Sprintf("%s stays in force, because what is in Redis is not valid: %v", h.name(), h.Problem)
	default:
		return true, ""
	}
}

func (s *State) name() string {
	if s.Source == SourceFile {
		return "the configuration of this replica's own file"
	}
	return fmt.Sprintf("version %d of the configuration", s.Version)
}
