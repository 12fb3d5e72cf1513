package replica

import (
	"context"
	"slices"

	"github.com/freeslot/freeslot/internal/dispatch"
	"github.com/freeslot/freeslot/internal/feature"
	"github.com/freeslot/freeslot/internal/presence"
)

// steps builds a replica and returns its parts in the order in which they start. Stop goes the
// other way round:
//
//   - The front, if there is one, stops first: readiness turns red, waiting submits are answered,
//     clients and agents are asked to go elsewhere, and the ports close once the sessions have
//     drained.
//   - Runs of schedules stop; other replicas continue them.
//   - The dispatcher stops. Later results stay in their records. Clients that attach at other
//     replicas find them there.
//   - The parts that know the fleet stop, and the connections to Redis close last.
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
	parts := r.parts(fleet, dispatcher, conn, reg)
	present := newPresence(cfg, fleet, dispatcher, parts, log)
	door, err := newDoor(cfg, conn, log, reg)
	if err != nil {
		return nil, err
	}
	front, err := r.front(fleet, dispatcher, parts, door, conn)
	if err != nil {
		return nil, err
	}
	r.jobs, r.door = dispatcher, door
	return slices.Concat(
		[]feature.Step{
			{Name: "connections", Stop: conn.close},
			{Name: "check of Redis", Start: fleet.check},
			{Name: "cells", Start: fleet.cells.Start, Stop: fleet.cells.Stop},
			{Name: "tracker", Start: fleet.tracker.Start, Stop: fleet.tracker.Stop},
			{Name: "cache", Start: fleet.cache.Start, Stop: fleet.cache.Stop},
		},
		stepsOf(parts, true),
		[]feature.Step{
			fleet.verify(),
			{Name: "presence", Start: r.join(present), Stop: present.Stop},
			{Name: "dispatcher", Start: dispatcher.Start, Stop: dispatcher.Stop},
		},
		stepsOf(parts, false),
		door.steps(),
		[]feature.Step{front},
	), nil
}

// join starts presence. An embedded replica may have no log, and its default limits could take jobs
// from healthy nodes of a fleet with more patient ones. So it does not start if limits differ.
func (r *Replica) join(p *presence.Presence) func(context.Context) error {
	if r.served == nil {
		return p.Join
	}
	return func(context.Context) error { p.Start(); return nil }
}

// front makes the step of the listeners. It does nothing in a replica without listeners.
func (r *Replica) front(fleet *fleet, jobs *dispatch.Dispatcher, parts []feature.Part, door *door, conn *connections) (feature.Step, error) {
	if r.served == nil {
		return feature.Step{Name: "front"}, nil
	}
	front, err := newFront(r.cfg, fleet, jobs, parts, door, conn, r.log, r.reg, r.served)
	if err != nil {
		return feature.Step{}, err
	}
	r.server = front.server
	return feature.Step{Name: "front", Start: front.Start, Stop: front.Stop}, nil
}

// stepsOf returns the parts of features that start before the dispatcher, or those that start after
// it.
func stepsOf(parts []feature.Part, beforeJobs bool) (steps []feature.Step) {
	for _, p := range parts {
		if p.BeforeJobs == beforeJobs {
			steps = append(steps, p.Step)
		}
	}
	return steps
}
