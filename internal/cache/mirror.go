package cache

import (
	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/cell"
	"github.com/freeslot/freeslot/internal/selection"
)

// Mirror is another copy of the fleet, which the cache keeps current. Several goroutines call
// the methods; for one node it is always the same goroutine.
type Mirror interface {
	// Put gets the whole state of a node that is new or whose profile changed.
	Put(state *cell.NodeState)
	// Heartbeat gets a sign of life, or only new figures. seenAt is by the cache's clock. resources
	// are the last ones of the node, from this heartbeat or an earlier one.
	Heartbeat(id string, used int, status freeslot.Status, seenAt int64, resources string)
	Remove(id string)
	SetConfig(cfg *selection.Config)
}
