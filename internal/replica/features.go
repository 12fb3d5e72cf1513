package replica

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/freeslot/freeslot/internal/cell"
	"github.com/freeslot/freeslot/internal/dispatch"
	"github.com/freeslot/freeslot/internal/feature"
	"github.com/freeslot/freeslot/internal/lock"
	"github.com/freeslot/freeslot/internal/lock/server"
	"github.com/freeslot/freeslot/internal/namelist"
	namelistoperator "github.com/freeslot/freeslot/internal/namelist/server"
	"github.com/freeslot/freeslot/internal/namelist/version"
	"github.com/freeslot/freeslot/internal/pool"
	"github.com/freeslot/freeslot/internal/presence"
	"github.com/freeslot/freeslot/internal/registry"
	registryoperator "github.com/freeslot/freeslot/internal/registry/server"
	v1 "github.com/freeslot/freeslot/internal/registry/v1"
	"github.com/freeslot/freeslot/internal/schedule"
	"github.com/freeslot/freeslot/internal/script"
)

// Features returns all features of a replica. A new one takes one line here.
func Features() []feature.Feature {
	return []feature.Feature{
		pool.Feature,
		schedule.Feature,
		server.Feature,
		registryoperator.Feature,
		v1.Feature,
		namelistoperator.Feature,
	}
}

// Access returns what all parts of a system need in Redis, by role.
func Access() []script.Access {
	all := []script.Access{cell.Access, presence.Access, lock.Access, registry.Access, namelist.Access, version.Access}
	for _, f := range Features() {
		all = append(all, f.Access)
	}
	return all
}

func (r *Replica) parts(f *fleet, d *dispatch.Dispatcher, conn *connections, reg prometheus.Registerer) (parts []feature.Part) {
	env := &feature.Env{
		Config: r.cfg, Cells: f.cells, Runners: f.cells.Runners(), Subscriber: conn.events.For, Commands: conn.commands.For,
		Nodes: f.cache, Jobs: d, Log: r.log, Metrics: reg, Probes: r.probes,
	}
	for _, one := range Features() {
		if r.served != nil || !one.Schedulers {
			parts = append(parts, one.New(env))
		}
	}
	return parts
}
