package cache

import (
	"iter"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/freeslot/freeslot/internal/cell"
	"github.com/freeslot/freeslot/internal/selection"
)

// NodeCount counts nodes by state, and the slots of those that are not silent.
type NodeCount struct{ Online, Draining, Silent, SlotsUsed, Slots int }

// Count counts the nodes that an agent has registered. A node is silent as for Silent. Cost: one
// look at every node.
func (c *Cache) Count(limit time.Duration) (n NodeCount) {
	earliest := c.clock.now() - int64(limit)
	for _, e := range c.nodes.Range {
		node := e.node
		switch at, ok := node.SeenAt(); {
		case e.incarnation.Load().epoch == cell.ImportEpoch:
			continue
		case !ok || at < earliest:
			n.Silent++
			continue
		case node.Draining():
			n.Draining++
		default:
			n.Online++
		}
		used, _ := node.Load()
		n.SlotsUsed += used
		n.Slots += node.Max()
	}
	return n
}

// FreeSlots returns the free slots of the nodes that may get jobs, and of those the ones in each
// configured pool. Cost: one look at every node.
func (c *Cache) FreeSlots(limit time.Duration) (all int, byPool map[string]int) {
	earliest, cfg := c.clock.now()-int64(limit), c.Config()
	byPool = make(map[string]int)
	for _, e := range c.nodes.Range {
		node := e.node
		imported := e.incarnation.Load().epoch == cell.ImportEpoch
		if at, ok := node.SeenAt(); !ok || at < earliest || imported || node.Draining() {
			continue
		}
		used, _ := node.Load()
		free := max(node.Max()-used, 0)
		all += free
		cfg.EachPool(node.Profile(), func(id string) { byPool[id] += free })
	}
	return all, byPool
}

// Present returns the nodes that an agent has registered and that are not silent, as for Silent, in
// no order. Draining nodes are among them.
func (c *Cache) Present(limit time.Duration) iter.Seq[*selection.Node] {
	return func(yield func(*selection.Node) bool) {
		earliest := c.clock.now() - int64(limit)
		for _, e := range c.nodes.Range {
			at, ok := e.node.SeenAt()
			if !ok || at < earliest || e.incarnation.Load().epoch == cell.ImportEpoch {
				continue
			}
			if !yield(e.node) {
				return
			}
		}
	}
}

// EventDelay returns the histogram of the time from a node's change in Redis to its application.
func (c *Cache) EventDelay() prometheus.Histogram { return c.metrics.eventDelay }
