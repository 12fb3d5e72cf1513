package replica

import (
	"context"

	"github.com/freeslot/freeslot/internal/api"
	"github.com/freeslot/freeslot/internal/cron"
	"github.com/freeslot/freeslot/internal/poolconfig"
)

// step is one part of a replica as it starts and stops. A nil Start or Stop is left out.
type step struct {
	Name string
	// Start's context bounds the start only.
	Start func(ctx context.Context) error
	Stop  func(ctx context.Context) error
}

// steps builds a replica and returns its parts in the order of their start. Stop goes the other way
// round:
//
//   - The front stops first: readiness turns red, submits that wait are answered, clients are asked to
//     go elsewhere, and the port closes once the sessions have drained.
//   - Runs of schedules stop; other replicas go on with them.
//   - The dispatcher stops. Results that come later stay in their records, where clients that attach at
//     other replicas find them.
//   - What knows the fleet stops, and the connections to Redis close last.
func (r *Replica) steps(conn *connections) ([]step, error) {
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
	runs := newRuns(cfg, fleet, dispatcher, log, reg)
	presence := newPresence(cfg, fleet, dispatcher, runs, log)
	auth := newAuthenticator(cfg)
	sessions, err := newSessions(cfg, dispatcher, auth, conn, log, reg)
	if err != nil {
		return nil, err
	}
	r.server = api.New(apiConfig(cfg), api.Deps{
		Jobs: dispatcher, Specs: fleet.cells, Control: fleet.cells, Nodes: fleet.cache, Auth: auth, Sessions: sessions,
		Checks: append(append(fleet.checks(), api.Check{Name: "pools", Ready: pools.Ready}), durability(cfg, dispatcher)...),
		Config: poolconfig.NewStore(fleet.cells.At(0)), Pools: pools, Queues: dispatcher, Pauses: poolconfig.NewStore(fleet.cells.At(0)),
		Schedules: cron.NewService(fleet.cells, cfg.Limits.MaxPayloadBytes),
		Gatherer:  reg, Registerer: reg, TracerProvider: conn.tracing.Provider(), Logger: log.Named("api"),
	})
	front := &front{server: r.server, sessions: sessions, log: log}
	return []step{
		{"connections", nil, conn.close},
		{"check of Redis", fleet.check, nil},
		{"cells", fleet.cells.Start, fleet.cells.Stop},
		{"tracker", fleet.tracker.Start, fleet.tracker.Stop},
		{"cache", fleet.cache.Start, fleet.cache.Stop},
		{"pools", pools.Start, pools.Stop}, // before any job begins by pools that are not in force
		fleet.verify(),
		{"presence", func(context.Context) error { presence.Start(); return nil }, presence.Stop},
		{"dispatcher", dispatcher.Start, dispatcher.Stop},
		{"schedules", runs.Start, runs.Stop},
		{"front", front.Start, front.Stop},
	}, nil
}
