package cache

import (
	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/cell"
	"github.com/freeslot/freeslot/internal/selection"
)

// Mirror is another picture of the fleet that is kept like this one. The methods
// are called by several goroutines, for one node always by the same.
type Mirror interface {
	// Put is a node that is new or whose profile changed, as a whole.
	Put(state *cell.NodeState)
	// Heartbeat is a sign of life, or other figures alone. seenAt is on the cache's
	// clock, resources what the node said last of its machine, in this heartbeat or before.
	Heartbeat(id string, used int, status freeslot.Status, seenAt int64, resources string)
	Remove(id string)
	SetConfig(cfg *selection.Config)
}
