package cache

import (
	"cmp"
	"slices"
	"time"

	"github.com/freeslot/freeslot/internal/cell"
)

// SilentNode is a node that was not heard for some time.
type SilentNode struct {
	ID string
	// Epoch is the one that fell silent.
	Epoch cell.Epoch
	Cell  int
}

// Silent returns the nodes that were not heard for longer than limit, by the cache's
// own clock, and those that Redis called silent or gone when a job was to be put on
// them; ordered by id. Nodes that no agent has registered (cell.ImportEpoch) are left
// out: they never spoke. It is a hint: while a cell does not answer, or events are
// missed, all its nodes fall silent here. Cost: a look at every node.
func (c *Cache) Silent(limit time.Duration) []SilentNode {
	earliest := c.clock.now() - int64(limit)
	var out []SilentNode
	c.nodes.Range(func(id string, e *entry) bool {
		// The epoch first: one that registers in between is heard by then.
		epoch := e.incarnation.Load().epoch
		if at, ok := e.node.SeenAt(); (!ok || at < earliest) && epoch != cell.ImportEpoch {
			out = append(out, SilentNode{ID: id, Epoch: epoch, Cell: e.node.Cell()})
		}
		return true
	})
	slices.SortFunc(out, func(a, b SilentNode) int { return cmp.Compare(a.ID, b.ID) })
	return out
}
