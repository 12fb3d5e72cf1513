package replica

import (
	"context"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/fx"
	"go.uber.org/zap"

	"github.com/freeslot/freeslot/internal/admission"
	"github.com/freeslot/freeslot/internal/audit"
	"github.com/freeslot/freeslot/internal/autoscale"
	"github.com/freeslot/freeslot/internal/demand"
	"github.com/freeslot/freeslot/internal/dispatch"
	"github.com/freeslot/freeslot/internal/feature"
	"github.com/freeslot/freeslot/internal/history"
	"github.com/freeslot/freeslot/internal/namelist/own"
	"github.com/freeslot/freeslot/internal/presence"
	"github.com/freeslot/freeslot/internal/replica/config"
	"github.com/freeslot/freeslot/internal/tenant"
)

// modules returns the parts of a replica in the order in which they start. Stop goes the other way
// round:
//
//   - The front, if there is one, stops first: readiness turns red, waiting submits are answered,
//     clients and agents are asked to go elsewhere, and the ports close once the sessions have
//     drained.
//   - Runs of schedules stop; other replicas continue them.
//   - The dispatcher stops. Later results stay in their records. Clients that attach at other
//     replicas find them there.
//   - The parts that know the fleet stop, and the connections to Redis close last.
func (r *Replica) modules(conn *connections) fx.Option {
	return fx.Options(
		fx.Supply(conn, r.cfg, r.log),
		fx.Provide(func() prometheus.Registerer { return r.reg }),
		fx.Module(
			"connections", fx.Invoke(func(hook feature.Hook, conn *connections) { hook(feature.Step{Stop: conn.close}) }),
		),
		fx.Module("fleet", fx.Provide(newFleet, newAudit, newEnv(r)), fx.Invoke(func(hook feature.Hook, f *fleet) {
			hook(feature.Step{Start: f.check})
			hook(feature.Step{Start: f.cells.Start, Stop: f.cells.Stop})
			hook(feature.Step{Start: f.tracker.Start, Stop: f.tracker.Stop})
			hook(feature.Step{Start: f.cache.Start, Stop: f.cache.Stop})
		})),
		r.features(true),
		fx.Module("verifier", fx.Invoke(func(hook feature.Hook, f *fleet) {
			if f.verifier != nil {
				hook(feature.Step{Start: f.verifier.Start, Stop: f.verifier.Stop})
			}
		})),
		fx.Module("history", fx.Provide(r.newHistory), fx.Invoke(func(hook feature.Hook, k *history.Keeper) {
			if k != nil {
				hook(feature.Step{Start: k.Start, Stop: k.Stop})
			}
		})),
		fx.Module("presence", fx.Provide(newPresence, newPresenceStore, newSelfStatus, tenant.NewMeter, demand.NewMeter),
			fx.Invoke(func(hook feature.Hook, p *presence.Presence) {
				hook(feature.Step{Start: r.join(p), Stop: p.Stop})
			})),
		fx.Module("own lists", fx.Provide(newLists), fx.Invoke(func(hook feature.Hook, l *own.Lists) {
			hook(feature.Step{Stop: l.Stop})
		})),
		fx.Module("admission", fx.Provide(newGate), fx.Invoke(func(hook feature.Hook, g *admission.Gate) {
			if g != nil {
				hook(feature.Step{Start: g.Start})
			}
		})),
		fx.Module("dispatcher", fx.Provide(newDispatcher), fx.Invoke(func(hook feature.Hook, d *dispatch.Dispatcher) {
			r.jobs = d
			hook(feature.Step{Start: d.Start, Stop: d.Stop})
		})),
		r.features(false),
		r.frontModules(),
	)
}

// newEnv returns what gives features their environment.
func newEnv(r *Replica) func(
	cfg config.Replica, f *fleet, d *dispatch.Dispatcher, l *own.Lists, changes *audit.Log, conn *connections,
	log *zap.Logger, reg prometheus.Registerer,
) *feature.Env {
	return func(
		cfg config.Replica, f *fleet, d *dispatch.Dispatcher, l *own.Lists, changes *audit.Log, conn *connections,
		log *zap.Logger,
		reg prometheus.Registerer,
	) *feature.Env {
		return &feature.Env{
			Config: cfg, Cells: f.cells, Runners: f.cells.Runners(), Subscriber: conn.events.For, Commands: conn.commands.For,
			Audit: changes, Nodes: f.cache, Jobs: d, Lists: l, Log: log, Metrics: reg, Probes: r.probes,
		}
	}
}

// newLists makes the holder of the replica's own client of lists.
func newLists(cfg config.Replica, log *zap.Logger, reg prometheus.Registerer) *own.Lists {
	return own.New(cfg, log.Named("own_lists"), reg)
}

// newGate makes what decides about jobs before they are placed; nil if no tenant is configured so.
func newGate(cfg config.Replica, l *own.Lists, log *zap.Logger, reg prometheus.Registerer) *admission.Gate {
	return admission.New(cfg, l, log.Named("admission"), reg)
}

// frontModules returns the listeners; none for a replica without them.
func (r *Replica) frontModules() fx.Option {
	if r.served == nil {
		return fx.Options()
	}
	return fx.Options(
		fx.Provide(func() prometheus.Gatherer { return r.served }),
		tokensModule(),
		gatewayModule(),
		fx.Module("demand", fx.Provide(newDemand), fx.Invoke(func(hook feature.Hook, w *demand.Watch) {
			hook(feature.Step{Start: w.Start, Stop: w.Stop})
		})),
		fx.Module("autoscale", fx.Provide(newScaler), fx.Invoke(func(hook feature.Hook, s *autoscale.Scaler) {
			if s != nil {
				hook(feature.Step{Start: s.Start, Stop: s.Stop})
			}
		})),
		fx.Module("front", fx.Provide(newFront), fx.Invoke(func(hook feature.Hook, f *front) {
			r.server, r.door = f.server, f.door
			hook(feature.Step{Start: f.findings.Start, Stop: f.findings.Stop})
			hook(feature.Step{Start: f.Start, Stop: f.Stop})
		})),
	)
}

// join starts presence. An embedded replica may have no log, and its default limits could take jobs
// from healthy nodes of a fleet with more patient ones. So it does not start if limits differ.
func (r *Replica) join(p *presence.Presence) func(context.Context) error {
	if r.served == nil {
		return p.Join
	}
	return func(context.Context) error { p.Start(); return nil }
}
