package cache

import (
	"sync/atomic"
	"time"

	"github.com/freeslot/freeslot/internal/selection"
)

// refusalRest is how long a cell that refuses writes is left out of choices. Reads
// go on there, so that a comparison says nothing about it.
const refusalRest = time.Second

// refusals are the times until which cells are left out, by cell.
type refusals struct {
	until [selection.MaxCells]atomic.Int64
	// last is the end of the last rest that was begun; 0 while there was none, which is
	// nearly always. It only grows, as the clock does.
	last atomic.Int64
}

// CellRefused says that the cell's Redis refused a write: it is read-only, short of
// replicas, loading. Its nodes are not chosen for a second, and then again if it goes
// on refusing.
func (c *Cache) CellRefused(index int) {
	until := c.clock.now() + int64(refusalRest)
	c.refusals.until[index].Store(until)
	for {
		last := c.refusals.last.Load()
		if until <= last || c.refusals.last.CompareAndSwap(last, until) {
			return
		}
	}
}

func (c *Cache) resting() (cells selection.CellMask) {
	last := c.refusals.last.Load()
	if last == 0 {
		return 0
	}
	now := c.clock.now()
	if now >= last {
		return 0
	}
	for i := range c.followers {
		if now < c.refusals.until[i].Load() {
			cells = cells.With(i)
		}
	}
	return cells
}
