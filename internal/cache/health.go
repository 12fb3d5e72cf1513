package cache

import (
	"time"

	"github.com/freeslot/freeslot/internal/cell"
	"github.com/freeslot/freeslot/internal/selection"
)

// Health is what is known of the cache itself.
type Health struct {
	// Synced is true after the first load of at least one cell.
	Synced bool
	// Stale is true when no comparison of some cell has succeeded for three intervals.
	Stale bool
	// Age is the longest time since a cell's last successful comparison; cells that
	// were never compared do not count.
	Age   time.Duration
	Nodes int
	// Cells are in the order of their indexes.
	Cells []CellHealth
}

// CellHealth is what is known of one cell's part of the cache.
type CellHealth struct {
	Synced, Stale bool
	// Unreachable is true when the cell did not answer the last time it was asked.
	Unreachable bool
	// Refusal is the word with which Redis refused what it was asked last, such as WRONGPASS; empty where it answered,
	// or did not answer at all.
	Refusal string
	// Untracked is true while the connection that tells of changes behind the scripts'
	// back is lost. Such changes are then seen when it is back.
	Untracked bool
	// Untrackable is true where the server cannot tell of such changes: they are seen within a minute.
	Untrackable bool
	// Unsubscribed is true while Redis refuses the subscription to the cell's events: changes are then seen by comparisons.
	Unsubscribed bool
	// Age is the time since the last successful comparison.
	Age      time.Duration
	Revision cell.Revision
}

// Health reports the state of the cache.
func (c *Cache) Health() Health {
	h := Health{Nodes: c.nodes.Size(), Cells: make([]CellHealth, len(c.followers))}
	for i, f := range c.followers {
		part := f.health()
		h.Cells[i] = part
		h.Synced = h.Synced || part.Synced
		h.Stale = h.Stale || part.Stale
		h.Age = max(h.Age, part.Age)
	}
	return h
}

// Stale is Health().Stale.
func (c *Cache) Stale() bool {
	for _, f := range c.followers {
		if f.health().Stale {
			return true
		}
	}
	return false
}

func (f *follower) health() CellHealth {
	at := f.syncedAt.Load()
	h := CellHealth{
		Synced: at != unsynced, Revision: f.revision.Load(),
		Unreachable:  selection.CellMask(f.cache.failing.Load()).Has(f.index),
		Untracked:    f.watch != nil && !f.watch.Connected(),
		Untrackable:  f.watch != nil && !f.watch.Supported(),
		Unsubscribed: f.events != nil && !f.events.Subscribed(),
	}
	if word := f.refusal.Load(); word != nil {
		h.Refusal = *word
	}
	if h.Synced {
		h.Age = max(0, time.Duration(f.cache.clock.now()-at))
	}
	h.Stale = !h.Synced || h.Age > staleAfter*f.cache.cfg.RefreshInterval
	return h
}

// Skip are the cells that choices should leave out because they do not answer or
// refuse writes. It never covers all: where nothing else is left they are tried all
// the same.
func (c *Cache) Skip() selection.CellMask {
	failing := selection.CellMask(c.failing.Load()) | c.resting()
	if failing == 0 || failing == ^selection.CellMask(0)>>(selection.MaxCells-len(c.followers)) {
		return 0
	}
	return failing
}

// CellFailed says that a call of the cell failed. Its nodes are not chosen until it
// has answered a comparison, the next of which is soon.
func (c *Cache) CellFailed(index int) {
	c.failing.Or(1 << uint(index))
	select {
	case c.followers[index].nudge <- struct{}{}:
	default: // one is under way
	}
}
