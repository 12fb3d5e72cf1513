// Package feature is what a feature of a replica consists of, and what a replica gives to it.
//
// A feature is a folder of its own: keys, scripts, Go functions, routes, metrics and its needs in
// Redis. It exports one Feature, which internal/replica has in its list.
package feature

import (
	"context"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/rueidis"
	"go.uber.org/zap"

	"github.com/freeslot/freeslot/internal/api"
	"github.com/freeslot/freeslot/internal/cache"
	"github.com/freeslot/freeslot/internal/cell"
	"github.com/freeslot/freeslot/internal/dispatch"
	"github.com/freeslot/freeslot/internal/process/config"
	"github.com/freeslot/freeslot/internal/registry/centre"
	"github.com/freeslot/freeslot/internal/script"
)

// Feature is what a folder exports.
type Feature struct {
	// Access is what the feature needs in Redis, by role.
	Access script.Access
	// Schedulers is true for a feature that an embedded replica leaves out, because it needs routes
	// and a disk.
	Schedulers bool
	// New makes the feature's part of a replica. It does no I/O.
	New func(env *Env) Part
}

// Env is what a replica gives to its features. They must not change it.
type Env struct {
	Config config.Replica
	// Cells are all cells, and Runners run scripts in them, by cell.
	Cells   *cell.Set
	Runners []*script.Runner
	// Subscriber is the client for subscriptions to a cell's server.
	Subscriber func(cell int) rueidis.Client
	// Commands is the client for commands to a cell's server.
	Commands func(cell int) rueidis.Client
	Nodes    *cache.Cache
	Jobs     *dispatch.Dispatcher
	Log      *zap.Logger
	// Metrics gets the feature's metrics.
	Metrics prometheus.Registerer
	// Probes are further kinds of the registry's checks, by name.
	Probes map[string]centre.Probe
}

// Part is a feature in one replica.
type Part struct {
	Step
	// BeforeJobs is true for a part that must work before the dispatcher places jobs. Others start
	// after it.
	BeforeJobs bool
	Routes     []api.Routes
	// Checks are conditions of readiness.
	Checks []api.Check
	// SetReplicas gets the names of all replicas, this one among them, whenever they change. nil
	// means that the part need not know. It must not block, nor change what it gets.
	SetReplicas func(names []string)
}

// Step is a part of a replica as it starts and stops. A nil Start or Stop is left out.
type Step struct {
	// Name says which part it is, for readers of the code.
	Name string
	// Start returns once the part works. Its context bounds the start only.
	Start func(ctx context.Context) error
	// Stop waits until the part does nothing any more, or its context ends.
	Stop func(ctx context.Context) error
}
