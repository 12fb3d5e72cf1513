package dispatch

import (
	"context"
	"time"

	"github.com/cenkalti/backoff/v5"

	"github.com/freeslot/freeslot/internal/cell"
)

// submit is one call of Submit. Its caller's goroutine chooses, decides and calls the sink. Calls
// to cells run in other goroutines, so that a cell that does not answer delays only its own jobs.
type submit struct {
	d        *Dispatcher
	ctx      context.Context
	begin    time.Time
	accepted func(i int, a Accepted, err error)
	all      []placement

	// underWay counts the calls that run in other goroutines and end in ended. ended has room for
	// all of them, so that none waits for this goroutine.
	underWay int
	ended    chan *call
	// pauses is nil until a call has failed.
	pauses *backoff.ExponentialBackOff
}

// decide reports the outcome of a job.
func (s *submit) decide(p *placement, placed cell.Placement, err error) {
	if err != nil {
		err = p.clientError(err)
	}
	s.d.metrics.submitted(&p.request, err, placed.Assigned, time.Since(s.begin))
	s.d.cfg.Submitted(p.request.Tenant, err != nil)
	if err != nil {
		p.abandon()
		s.accepted(p.index, Accepted{}, err)
		return
	}
	kind := s.d.kindOf(p)
	if placed.Owner == "" && p.request.Job.RunAtMS == 0 {
		s.d.cfg.Came(kind, p.request.Job.SlotCount())
	}
	accepted := Accepted{JobID: p.id}
	if placed.Waiting {
		accepted.Position = placed.Position
	}
	s.accepted(p.index, accepted, nil)
	if w := p.waiter; w != nil {
		w.kind = kind
		if w.opened(p.id, placed) {
			p.at.drop(p.id, w)
		}
		p.waiter = nil
	}
}

// kindOf returns the kind of an accepted job.
func (d *Dispatcher) kindOf(p *placement) Kind {
	k := Kind{Pool: p.request.Job.Requirement.Pool, Service: p.request.Job.Service}
	if k.Pool == "" && p.class != nil {
		k.Pool = p.class.Pool()
	}
	return k
}

// cleanUp waits for the calls under way, and gives up the jobs that are undecided.
func (s *submit) cleanUp() {
	for ; s.underWay > 0; s.underWay-- {
		<-s.ended
	}
	for i := range s.all {
		s.all[i].giveBack()
		s.all[i].abandon()
	}
}
