package cache

import (
	"cmp"
	"slices"
	"time"

	"github.com/freeslot/freeslot/internal/cell"
)

// SilentNode is a node that gave no sign of life for some time.
type SilentNode struct {
	ID string
	// Epoch is the incarnation that fell silent.
	Epoch cell.Epoch
	Cell  int
}

// Silent returns two kinds of nodes, ordered by id: those that gave no sign of life for longer than
// limit by the cache's own clock, and those that Redis reported as silent or gone when it refused a
// job for them. It leaves out nodes that no agent has registered (cell.ImportEpoch), because they
// give no signs of life. It is a hint: while a cell does not answer, or events are missed, all its
// nodes fall silent here. Cost: one check of every node.
func (c *Cache) Silent(limit time.Duration) []SilentNode {
	earliest := c.clock.now() - int64(limit)
	var out []SilentNode
	for id, e := range c.nodes.Range {
		// The epoch is read first: a node that registers in between has been seen by then.
		epoch := e.incarnation.Load().epoch
		if at, ok := e.node.SeenAt(); (!ok || at < earliest) && epoch != cell.ImportEpoch {
			out = append(out, SilentNode{ID: id, Epoch: epoch, Cell: e.node.Cell()})
		}
	}
	slices.SortFunc(out, func(a, b SilentNode) int { return cmp.Compare(a.ID, b.ID) })
	return out
}
