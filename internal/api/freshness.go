package api

import (
	"github.com/freeslot/freeslot/internal/cache"
	"github.com/freeslot/freeslot/internal/cell"
)

// Freshness marks an answer that comes from memory alone because the store does not answer. Any
// other answer is at most some seconds behind the store.
type Freshness struct {
	Degraded bool  `json:"degraded,omitempty" doc:"The store does not answer: this is the last state known. Absent means false."`
	AgeMS    int64 `json:"age_ms,omitempty" doc:"With degraded: the time since the state was last compared with the store's."`
}

// freshness returns the freshness of a node's cell.
func freshness(h *cache.Health, id string) Freshness {
	if len(h.Cells) == 0 {
		return Freshness{}
	}
	return freshnessOf(&h.Cells[cell.NodeCell(id, len(h.Cells))])
}

// fleetFreshness returns, for a listing, the freshness of the cell that was compared the longest
// ago.
func fleetFreshness(h *cache.Health) (f Freshness) {
	for i := range h.Cells {
		part := freshnessOf(&h.Cells[i])
		f = Freshness{Degraded: f.Degraded || part.Degraded, AgeMS: max(f.AgeMS, part.AgeMS)}
	}
	return f
}

func freshnessOf(c *cache.CellHealth) Freshness {
	if !c.Stale {
		return Freshness{}
	}
	return Freshness{Degraded: true, AgeMS: c.Age.Milliseconds()}
}
