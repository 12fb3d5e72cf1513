// Package feature says what a feature of a replica consists of, and what a replica gives to it.
//
// A feature is a folder of its own: keys, scripts, Go functions, routes, metrics and its needs in
// Redis. It exports one Module, which is in the list of internal/replica.
package feature

import (
	"context"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/rueidis"
	"go.uber.org/zap"

	"github.com/freeslot/freeslot/internal/api"
	"github.com/freeslot/freeslot/internal/audit"
	"github.com/freeslot/freeslot/internal/cache"
	"github.com/freeslot/freeslot/internal/cell"
	"github.com/freeslot/freeslot/internal/dispatch"
	"github.com/freeslot/freeslot/internal/finding"
	"github.com/freeslot/freeslot/internal/namelist/own"
	"github.com/freeslot/freeslot/internal/registry/centre"
	"github.com/freeslot/freeslot/internal/replica/config"
	"github.com/freeslot/freeslot/internal/script"
)

// Module is what a feature's folder exports.
type Module struct {
	// Name names the feature in the wiring of a replica.
	Name string
	// Access states what the feature needs in Redis, by role.
	Access script.Access
	// Schedulers is true for a feature that needs routes and a disk, so that an embedded replica
	// leaves it out.
	Schedulers bool
	// BeforeJobs is true for a feature that must work before the dispatcher places jobs. Other
	// features start after the dispatcher.
	BeforeJobs bool
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
	// Audit records changes that no caller makes. It may be nil.
	Audit *audit.Log
	Nodes *cache.Cache
	Jobs  *dispatch.Dispatcher
	// Lists has the replica's own client of lists.
	Lists *own.Lists
	Log   *zap.Logger
	// Metrics registers the feature's metrics.
	Metrics prometheus.Registerer
	// Probes holds further kinds of the registry's checks, by name.
	Probes map[string]centre.Probe
}

// Part is a feature in one replica.
type Part struct {
	Step
	Routes []api.Routes
	// Checks lists conditions of readiness.
	Checks []api.Check
	// Findings tells what is wrong with what the feature keeps.
	Findings []finding.Source
	// SetReplicas gets the names of all replicas, this one among them, at the start and whenever
	// they change. It may be nil. It must not block, and must not change what it gets.
	SetReplicas func(names []string)

	place int // among the modules of the replica
}

// Step is how a part of a replica starts and stops. Start and Stop may be nil.
type Step struct {
	// Start returns once the part works. Its context bounds only the start.
	Start func(ctx context.Context) error
	// Stop waits until the part does nothing any more, or its context ends.
	Stop func(ctx context.Context) error
}
