package cache

import "github.com/freeslot/freeslot/internal/selection"

// OnFree sets f as the function that is called when a node becomes able to take a job: when an
// event reports free slots or the end of draining or silence, when the node registers, and when a
// comparison reads it, if it has free slots then. f can be called for a node that was able all
// along, and the first load calls it for every such node. The goroutines that follow the cells call
// f, several at once and for one node mostly the same one, and so do callers of [Cache.Refused]. f
// must not block, nor call the cache's Sync or Stop. A Confirm or Release by the caller does not
// call f. f replaces the former function; call OnFree before Start to miss nothing.
func (c *Cache) OnFree(f func(node *selection.Node)) { c.onFree.Store(&f) }

// takes reports whether the node can take a job by its state in Redis. This replica's reservations
// without an answer, and the quarantine, do not count.
func (c *Cache) takes(n *selection.Node) bool {
	if c.onFree.Load() == nil {
		return false
	}
	used, _ := n.Load()
	at, seen := n.SeenAt()
	return used < n.Max() && !n.Draining() && seen && at >= c.clock.now()-int64(c.SilenceLimit())
}

// freed calls f if the node takes jobs and did not before.
func (c *Cache) freed(n *selection.Node, before bool) {
	if f := c.onFree.Load(); f != nil && !before && c.takes(n) {
		(*f)(n)
	}
}
