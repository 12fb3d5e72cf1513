package cache

import (
	"time"

	"github.com/freeslot/freeslot/internal/selection"
)

// refusalRest is how long choices skip a cell that refuses writes. Reads still work there, so a
// comparison does not show when the cell takes writes again.
const refusalRest = time.Second

// Skip returns the cells that choices should leave out because they do not answer or refuse writes.
// It never holds all cells: if no other cell is left, choices try them all.
func (c *Cache) Skip() selection.CellMask {
	skip := selection.CellMask(c.failing.Load())
	now := c.clock.now()
	for i := range c.followers {
		if now < c.refusedUntil[i].Load() {
			skip = skip.With(i)
		}
	}
	if skip == ^selection.CellMask(0)>>(selection.MaxCells-len(c.followers)) {
		return 0
	}
	return skip
}

// CellFailed records that a call of the cell failed. Choices skip its nodes until it has answered a
// comparison, and the next comparison is soon.
func (c *Cache) CellFailed(index int) {
	c.failing.Or(1 << uint(index))
	select {
	case c.followers[index].nudge <- struct{}{}:
	default: // one is pending
	}
}

// CellRefused records that the cell's Redis refused a write: it is read-only, short of replicas, or
// loading. Choices skip its nodes for a second, and for another second after each further refusal.
func (c *Cache) CellRefused(index int) {
	c.refusedUntil[index].Store(c.clock.now() + int64(refusalRest))
}
