package cache

import "github.com/freeslot/freeslot/internal/selection"

// OnFree sets the function that is called when a node becomes able to take a job:
//   - when an event reports free slots, or the end of draining or silence
//   - when a quiet heartbeat ends its silence
//   - when the node registers
//   - when a comparison reads it and it has free slots
//
// f may be called for a node that was able all along. The first load calls it for every able node.
// The goroutines that follow the cells call f, several at the same time; for one node it is mostly
// the same one. Callers of [Cache.Refused] call it, too. f must not block, and must not call the
// cache's Sync or Stop. A Confirm or Release by the caller does not call f. f replaces the former
// function. Call OnFree before Start to miss nothing.
func (c *Cache) OnFree(f func(node *selection.Node)) { c.onFree.Store(&f) }

// takes reports whether the node can take a job according to its state in Redis. This replica's
// reservations without an answer, and the quarantine, do not count.
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
