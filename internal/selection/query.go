package selection

import (
	"slices"
	"time"
)

// Defaults and limits of a Query.
const (
	// DefaultSamples is how many nodes are compared for one choice.
	DefaultSamples = 2
	// MaxSamples bounds Query.Samples: more would come close to picking the least
	// loaded node of all, which every other replica picks too.
	MaxSamples = 8
	// DefaultSilenceLimit is the heartbeat limit of a cell unless configured.
	DefaultSilenceLimit = 8 * time.Second
)

// Query is what one choice asks for besides the class.
type Query struct {
	// Want is how many candidates to return at most. 0 or less means 1.
	Want int
	// Slots is how many free slots a node must have. 0 or less means 1.
	Slots int
	// Samples is how many nodes are compared for one choice, at most MaxSamples.
	// 0 or less means DefaultSamples; 1 is plain random choice.
	Samples int
	// Now is the present in nanoseconds, on the monotonic clock of [Node.Seen].
	Now int64
	// SilenceLimit is how long a node may have been silent and still qualify. 0
	// or less means DefaultSilenceLimit.
	SilenceLimit time.Duration
	// IgnoreFull makes nodes qualify that seem to have too few free slots. The
	// figures are hints and lag behind: before a fleet is called full, Redis is asked.
	IgnoreFull bool
	// Exclude are the ids of nodes that must not be chosen. It is compared entry
	// by entry, so it should be short.
	Exclude []string
}

func (q Query) withDefaults() Query {
	q.Want = max(q.Want, 1)
	q.Slots = max(q.Slots, 1)
	if q.Samples <= 0 {
		q.Samples = DefaultSamples
	}
	q.Samples = min(q.Samples, MaxSamples)
	if q.SilenceLimit <= 0 {
		q.SilenceLimit = DefaultSilenceLimit
	}
	return q
}

// check returns the first reason against n, or "" if n qualifies, and how many of
// its slots were taken at the instant of the check. q must have its defaults. It
// is the only place that decides whether a node qualifies, so that a choice and
// its breakdown cannot disagree.
func (q *Query) check(n *Node) (taken int, why Reason) {
	used, pending := n.Load()
	taken = used + pending
	switch {
	case q.Slots > n.max:
		return taken, ReasonSlots
	case n.Draining():
		return taken, ReasonDraining
	case n.silent(q.Now, q.SilenceLimit):
		return taken, ReasonSilent
	case q.Slots > n.max-taken && !q.IgnoreFull:
		return taken, ReasonFull
	case slices.Contains(q.Exclude, n.ID()):
		return taken, ReasonExcluded
	}
	return taken, ""
}
