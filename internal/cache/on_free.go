package cache

import "github.com/freeslot/freeslot/internal/selection"

// OnFree has f called when a node has become able to take a job: when an event says
// that slots became free or that the node is back from draining or silence, when it
// registers, and when it is read anew, which may follow missed events, if it has free
// slots then. f may be called for a node that was able all along, and is called for
// every such node by the first load. It is called by the goroutines that follow the
// cells, several at once and for one node mostly by the same, and by callers of
// [Cache.Refused]; it must not block, nor call the cache's Sync or Stop. What a Confirm
// or Release of the caller's own frees is not told. f takes the place of the one before;
// who wants to miss nothing calls OnFree before Start.
func (c *Cache) OnFree(f func(node *selection.Node)) { c.onFree.Store(&f) }

// takes reports whether the node can take a job by what is known of it in Redis. This
// replica's reservations under way, and its quarantine, do not count.
func (c *Cache) takes(n *selection.Node) bool {
	if c.onFree.Load() == nil {
		return false
	}
	used, _ := n.Load()
	at, seen := n.SeenAt()
	return used < n.Max() && !n.Draining() && seen && at >= c.clock.now()-int64(c.SilenceLimit())
}

// freed tells that the node takes jobs if it did not before.
func (c *Cache) freed(n *selection.Node, before bool) {
	if f := c.onFree.Load(); f != nil && !before && c.takes(n) {
		(*f)(n)
	}
}
