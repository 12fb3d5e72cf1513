package replica

import (
	"context"

	"github.com/freeslot/freeslot/internal/api"
	"github.com/freeslot/freeslot/internal/poolconfig"
	"github.com/freeslot/freeslot/internal/replica/feature"
)

// steps builds a replica and returns its parts in the order of their start. Stop goes the other way
// round:
//
//   - The front stops first: readiness turns red, submits that wait are answered, clients are asked to
//     go elsewhere, and the port closes once the sessions have drained.
//   - Runs of schedules stop; other replicas go on with them.
//   - The dispatcher stops. Results that come later stay in their records, where clients that attach at
//     other replicas find them.
//   - What knows the fleet stops, and the connections to Redis close last.
func (r *Replica) steps(conn *connections) ([]feature.Step, error) {
	cfg, log, reg := r.cfg, r.log, r.reg
	fleet, err := newFleet(cfg, conn, log, reg)
	if err != nil {
		return nil, err
	}
	dispatcher, err := newDispatcher(cfg, fleet, log, reg)
	if err != nil {
		return nil, err
	}
	pools := newPools(cfg, fleet, dispatcher, conn, log, reg)
	schedules := newSchedules(cfg, fleet, dispatcher, log, reg)
	features := []feature.Feature{schedules}
	presence := newPresence(cfg, fleet, dispatcher, features, log)
	auth := newAuthenticator(cfg)
	sessions, err := newSessions(cfg, dispatcher, auth, conn, log, reg)
	if err != nil {
		return nil, err
	}
	var routes []api.Routes
	for _, f := range features {
		routes = append(routes, f.Routes...)
	}
	r.server = api.New(apiConfig(cfg), api.Deps{
		Jobs: dispatcher, Specs: fleet.cells, Control: fleet.cells, Nodes: fleet.cache, Auth: auth, Sessions: sessions,
		Checks: append(append(fleet.checks(), api.Check{Name: "pools", Ready: pools.Ready}), durability(cfg, dispatcher)...),
		Config: poolconfig.NewStore(fleet.cells.At(0)), Pools: pools, Queues: dispatcher, Pauses: poolconfig.NewStore(fleet.cells.At(0)),
		Routes:   routes,
		Gatherer: reg, Registerer: reg, TracerProvider: conn.tracing.Provider(), Logger: log.Named("api"),
	})
	front := &front{server: r.server, sessions: sessions, log: log}
	return []feature.Step{
		{Name: "connections", Stop: conn.close},
		{Name: "check of Redis", Start: fleet.check},
		{Name: "cells", Start: fleet.cells.Start, Stop: fleet.cells.Stop},
		{Name: "tracker", Start: fleet.tracker.Start, Stop: fleet.tracker.Stop},
		{Name: "cache", Start: fleet.cache.Start, Stop: fleet.cache.Stop},
		{Name: "pools", Start: pools.Start, Stop: pools.Stop}, // before any job begins by pools that are not in force
		fleet.verify(),
		{Name: "presence", Start: func(context.Context) error { presence.Start(); return nil }, Stop: presence.Stop},
		{Name: "dispatcher", Start: dispatcher.Start, Stop: dispatcher.Stop},
		schedules.Step,
		{Name: "front", Start: front.Start, Stop: front.Stop},
	}, nil
}
