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
	// some is false while no cell rests, which is nearly always.
	some atomic.Bool
}

// CellRefused says that the cell's Redis refused a write: it is read-only, short of
// replicas, loading. Its nodes are not chosen for a second, and then again if it goes
// on refusing.
func (c *Cache) CellRefused(index int) {
	c.refusals.until[index].Store(c.clock.now() + int64(refusalRest))
	c.refusals.some.Store(true)
}

func (c *Cache) resting() (cells selection.CellMask) {
	if !c.refusals.some.Load() {
		return 0
	}
	now := c.clock.now()
	later := false
	for i := range c.followers {
		if now < c.refusals.until[i].Load() {
			cells, later = cells.With(i), true
		}
	}
	if !later {
		c.refusals.some.Store(false)
	}
	return cells
}
