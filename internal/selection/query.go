package selection

import (
	"slices"
	"time"
)

// Defaults and limits of a Query.
const (
	// DefaultSamples is how many nodes are compared for one choice.
	DefaultSamples = 2
	// MaxSamples bounds Query.Samples: with more, a choice comes close to the least loaded node of
	// all, which every other replica picks too.
	MaxSamples = 8
	// DefaultSilenceLimit is the heartbeat limit of a cell, unless another one is configured.
	DefaultSilenceLimit = 8 * time.Second
)

// MaxCells is the most cells that a system can have.
const MaxCells = 64

// CellMask is a set of cells; bit i stands for cell i. The zero value is empty.
type CellMask uint64

// Only returns the set of all cells except cell: skipping this set leaves that one cell.
func Only(cell int) CellMask { return ^(1 << uint(cell)) }

// With returns m with cell added.
func (m CellMask) With(cell int) CellMask { return m | 1<<uint(cell) }

// Has reports whether cell is in m.
func (m CellMask) Has(cell int) bool { return m>>(uint(cell)&63)&1 == 1 }

// Query holds what one choice needs besides the class. It is only read, so a caller can use it
// again.
type Query struct {
	// Want is the most candidates to return. 0 or less means 1.
	Want int
	// Slots is the number of free slots that a node must have. 0 or less means 1.
	Slots int
	// Samples is how many nodes are compared for one choice, at most MaxSamples. 0 or less means
	// DefaultSamples, or MaxSamples under PolicyBinpack. 1 means a plain random choice.
	Samples int
	// Now is the present time in nanoseconds, by the monotonic clock of [Node.Seen].
	Now int64
	// SilenceLimit is how long a node can be silent and still qualify. 0 or less means
	// DefaultSilenceLimit.
	SilenceLimit time.Duration
	// If IgnoreFull is true, nodes also qualify that seem to have too few free slots or are in
	// quarantine. The figures are hints and lag behind, so a replica asks Redis before it treats
	// the fleet as full.
	IgnoreFull bool
	// AffinityKey is the affinity key of the job; empty means none.
	AffinityKey string
	// Skip holds the cells whose nodes must not be chosen.
	Skip CellMask
	// Exclude lists the ids of nodes that must not be chosen. Every check goes through the list, so
	// keep it short.
	Exclude []string
}

// need holds what a query requires of a node's figures, with its defaults.
type need struct {
	slots    int
	now      int64
	earliest int64 // a node last seen before this moment is silent
}

func (q *Query) need() need {
	limit := int64(q.SilenceLimit)
	if limit <= 0 {
		limit = int64(DefaultSilenceLimit)
	}
	return need{slots: max(q.Slots, 1), now: q.Now, earliest: q.Now - limit}
}

// ready reports whether the figures let the node qualify, and returns how many of its slots are
// taken, and how many it has. It ignores the rest of the query.
func (n *Node) ready(w need) (taken, limit int, ok bool) {
	used, pending := n.Load()
	taken, limit = used+pending, n.Max()
	return taken, limit, taken+w.slots <= limit && n.seenAt.Load() >= w.earliest && !n.Draining() && !n.rests(w.now)
}

// check returns the first reason against n, or "" if n qualifies. It agrees with qualifies, which
// gives no reason.
func (q *Query) check(n *Node) Reason {
	w := q.need()
	used, pending := n.Load()
	limit := n.Max()
	switch {
	case w.slots > limit:
		return ReasonSlots
	case q.Skip.Has(n.Cell()):
		return ReasonUnreachable
	case n.Draining():
		return ReasonDraining
	case n.seenAt.Load() < w.earliest:
		return ReasonSilent
	case !q.IgnoreFull && n.rests(w.now):
		return ReasonQuarantined
	case w.slots > limit-used-pending && !q.IgnoreFull:
		return ReasonFull
	case slices.Contains(q.Exclude, n.ID()):
		return ReasonExcluded
	}
	return ""
}

// qualifies is ready for the whole query. The nodes in not do not qualify.
func (q *Query) qualifies(n *Node, w need, not []*Node) (taken, limit int, ok bool) {
	taken, limit, ok = n.ready(w)
	if !ok {
		if !q.IgnoreFull || w.slots > limit || n.Draining() || n.seenAt.Load() < w.earliest {
			return taken, limit, false
		}
	}
	if len(q.Exclude) > 0 && slices.Contains(q.Exclude, n.ID()) {
		return taken, limit, false
	}
	return taken, limit, !q.Skip.Has(n.Cell()) && !slices.Contains(not, n)
}
