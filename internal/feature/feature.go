// Package feature says what a feature of a replica consists of, and what a replica gives to it.
//
// A feature is a folder of its own: keys, scripts, Go functions, routes, metrics and its needs in
// Redis. It exports one Feature, which is in the list of internal/replica.
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
	"github.com/freeslot/freeslot/internal/registry/centre"
	"github.com/freeslot/freeslot/internal/replica/config"
	"github.com/freeslot/freeslot/internal/script"
)

// Feature is what a feature's folder exports.
type Feature struct {
	// Access states what the feature needs in Redis, by role.
	Access script.Access
	// Schedulers is true for a feature that needs routes and a disk, so that an embedded replica
	// leaves it out.
	Schedulers bool
	// New makes the feature's part of a replica. It does no I/O.
	New func(env *Env) Part
}

// Env is what a replica gives to its features. They must not change it.
type Env struct {
	Config config.Replica
	// Cells holds all cells. Runners run scripts in them, by cell.
	Cells   *cell.Set
	Runners []*script.Runner
	// Subscriber returns the client for subscriptions to a cell's server.
	Subscriber func(cell int) rueidis.Client
	// Commands returns the client for commands to a cell's server.
	Commands func(cell int) rueidis.Client
	Nodes    *cache.Cache
	Jobs     *dispatch.Dispatcher
	Log      *zap.Logger
	// Metrics registers the feature's metrics.
	Metrics prometheus.Registerer
	// Probes holds further kinds of the registry's checks, by name.
	Probes map[string]centre.Probe
}

// Part is a feature in one replica.
type Part struct {
	Step
	// BeforeJobs is true for a part that must work before the dispatcher places jobs. Other parts
	// start after the dispatcher.
	BeforeJobs bool
	Routes     []api.Routes
	// Checks lists conditions of readiness.
	Checks []api.Check
	// SetReplicas gets the names of all replicas, this one among them, at the start and whenever
	// they change. It may be nil. It must not block, and must not change what it gets.
	SetReplicas func(names []string)
}

// Step is a part of a replica that starts and stops. Start and Stop may be nil.
type Step struct {
	// Name names the part, for readers of the code.
	Name string
	// Start returns once the part works. Its context bounds only the start.
	Start func(ctx context.Context) error
	// Stop waits until the part does nothing any more, or its context ends.
	Stop func(ctx context.Context) error
}
