package pool

import (
	"context"

	"github.com/freeslot/freeslot/internal/api"
	"github.com/freeslot/freeslot/internal/cell"
	"github.com/freeslot/freeslot/internal/replica/feature"
)

// Nodes is what a replica knows of the fleet; *cache.Cache is it.
type Nodes interface {
	// States are all nodes, ordered by id; the slice is the caller's.
	States() []cell.NodeState
}

// Fence knows by which version each replica begins jobs; *dispatch.Dispatcher is it.
type Fence interface {
	// Confirm waits until all replicas go by a version, or ctx ends, and returns those that do not.
	Confirm(ctx context.Context, version uint64, generation string) (behind []string, err error)
}

// NewFeature is what a replica has of the configuration of pools: the follower of it, and the routes of
// the configuration, of pools and of pauses.
func NewFeature(pools *Follower, store *Store, nodes Nodes, fence Fence) feature.Feature {
	return feature.Feature{
		Step:   feature.Step{Name: "pools", Start: pools.Start, Stop: pools.Stop},
		Routes: []api.Routes{routes{store: store, pools: pools, nodes: nodes, fence: fence}.register},
		Checks: []api.Check{{Name: "pools", Ready: pools.Ready}},
	}
}
