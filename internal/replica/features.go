package replica

import (
	"go.uber.org/fx"

	"github.com/freeslot/freeslot/internal/audit"
	"github.com/freeslot/freeslot/internal/autoscale"
	"github.com/freeslot/freeslot/internal/bulk"
	"github.com/freeslot/freeslot/internal/cell"
	"github.com/freeslot/freeslot/internal/console"
	"github.com/freeslot/freeslot/internal/doctor"
	"github.com/freeslot/freeslot/internal/feature"
	"github.com/freeslot/freeslot/internal/history"
	"github.com/freeslot/freeslot/internal/lock"
	lockserver "github.com/freeslot/freeslot/internal/lock/server"
	"github.com/freeslot/freeslot/internal/namelist"
	listserver "github.com/freeslot/freeslot/internal/namelist/server"
	"github.com/freeslot/freeslot/internal/namelist/source"
	"github.com/freeslot/freeslot/internal/namelist/version"
	"github.com/freeslot/freeslot/internal/pool"
	"github.com/freeslot/freeslot/internal/presence"
	"github.com/freeslot/freeslot/internal/registry"
	registryserver "github.com/freeslot/freeslot/internal/registry/server"
	v1 "github.com/freeslot/freeslot/internal/registry/v1"
	"github.com/freeslot/freeslot/internal/schedule"
	"github.com/freeslot/freeslot/internal/script"
)

// Features returns all features of a replica. A new one takes one line here.
func Features() []feature.Module {
	return []feature.Module{
		pool.Module,
		schedule.Module,
		bulk.Module,
		lockserver.Module,
		registryserver.Module,
		v1.Module,
		listserver.Module,
	}
}

// Access returns what all parts of a system need in Redis, by role.
func Access() []script.Access {
	all := []script.Access{
		cell.Access, presence.Access, history.Access, audit.Access, lock.Access, registry.Access, namelist.Access,
		version.Access, source.Access, console.Access, doctor.Access,
		autoscale.Access,
	}
	for _, f := range Features() {
		all = append(all, f.Access)
	}
	return all
}

// features returns the modules of features that start before the dispatcher, or those that start
// after it.
func (r *Replica) features(beforeJobs bool) fx.Option {
	var all []fx.Option
	for i, m := range Features() {
		if m.BeforeJobs == beforeJobs && (r.served != nil || !m.Schedulers) {
			all = append(all, m.Option(i))
		}
	}
	return fx.Options(all...)
}
