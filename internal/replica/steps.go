package replica

import (
	"context"
	"slices"

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
	below, above := newFeatures(cfg, fleet, dispatcher, conn, log, reg)
	features := slices.Concat(below, above)
	presence := newPresence(cfg, fleet, dispatcher, features, log)
	front, err := newFront(cfg, fleet, dispatcher, features, conn, log, reg)
	if err != nil {
		return nil, err
	}
	r.server = front.server
	return slices.Concat(
		[]feature.Step{
			{Name: "connections", Stop: conn.close},
			{Name: "check of Redis", Start: fleet.check},
			{Name: "cells", Start: fleet.cells.Start, Stop: fleet.cells.Stop},
			{Name: "tracker", Start: fleet.tracker.Start, Stop: fleet.tracker.Stop},
			{Name: "cache", Start: fleet.cache.Start, Stop: fleet.cache.Stop},
		},
		stepsOf(below),
		[]feature.Step{
			fleet.verify(),
			{Name: "presence", Start: func(context.Context) error { presence.Start(); return nil }, Stop: presence.Stop},
			{Name: "dispatcher", Start: dispatcher.Start, Stop: dispatcher.Stop},
		},
		stepsOf(above),
		[]feature.Step{
			{Name: "front", Start: front.Start, Stop: front.Stop},
		},
	), nil
}

func stepsOf(features []feature.Feature) (steps []feature.Step) {
	for _, f := range features {
		steps = append(steps, f.Step)
	}
	return steps
}
