package cache

import (
	"slices"
	"time"

	"github.com/freeslot/freeslot/internal/cell"
	"github.com/freeslot/freeslot/internal/selection"
)

// Health describes the state of the cache itself.
type Health struct {
	// Synced is true once at least one cell was loaded.
	Synced bool
	// Stale is true if the comparisons of some cell have failed for three intervals.
	Stale bool
	// Age is the longest time since a cell's last successful comparison. Cells that were never
	// compared do not count.
	Age   time.Duration
	Nodes int
	// Cells lists the cells in the order of their indexes.
	Cells []CellHealth
}

// CellHealth describes one cell's part of the cache.
type CellHealth struct {
	Synced, Stale bool
	// Unreachable is true if the last comparison got no answer.
	Unreachable bool
	// Refusal is the first word of the error with which Redis refused the last comparison, such as
	// WRONGPASS. It is empty if Redis did not refuse, or did not answer at all.
	Refusal string
	// Untracked is true while the connection is lost that reports changes made without a script.
	// The cache sees such changes when the connection is back.
	Untracked bool
	// Untrackable is true if the server cannot report such changes. The cache then sees them within
	// a minute.
	Untrackable bool
	// Unsubscribed is true while Redis refuses the subscription to the cell's events. The cache
	// then sees changes by comparisons.
	Unsubscribed bool
	// Age is the time since the last successful comparison.
	Age      time.Duration
	Revision cell.Revision
}

// Health returns the state of the cache.
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

// Stale returns Health().Stale.
func (c *Cache) Stale() bool {
	return slices.ContainsFunc(c.followers, func(f *follower) bool { return f.health().Stale })
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
