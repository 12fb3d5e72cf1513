package dispatch

import (
	"context"
	"slices"
	"time"

	"github.com/cenkalti/backoff/v5"

	"github.com/freeslot/freeslot/internal/cell"
)

// The pauses before a cell is asked again whose call failed.
const (
	firstPause = 10 * time.Millisecond
	lastPause  = 500 * time.Millisecond
)

// call is one call to one cell for some of the jobs.
type call struct {
	at      *cellClient
	enqueue bool
	jobs    []*placement
	subs    []cell.Submission
	results []cell.SubmitResult
	// pause precedes the call if one of the jobs was in a failed call to this cell.
	pause time.Duration
	// age is the age of the fence that run leaves.
	age uint32
}

// prepareFenced is prepare within the fence. Each call stays in the fence until it ends, because
// its candidates were chosen by the present configuration.
func (s *submit) prepareFenced(jobs []*placement) (calls []*call) {
	age := s.d.fence.enter()
	defer func() {
		s.d.fence.hold(age, len(calls))
		s.d.fence.leave(age)
	}()
	calls = s.prepare(jobs)
	for _, c := range calls {
		c.age = age
	}
	return calls
}

// prepare chooses nodes or queues for the jobs, and groups them into calls by cell, kind and pause.
// It decides jobs without a choice.
func (s *submit) prepare(jobs []*placement) (calls []*call) {
	s.d.chooseAlike(jobs)
	for _, p := range jobs {
		if err := s.d.chooseNode(p); err != nil {
			s.decide(p, cell.Placement{}, err)
			continue
		}
		p.assignID()
		i := slices.IndexFunc(calls, func(c *call) bool {
			return c.at == p.at && c.enqueue == p.enqueues() && c.pause > 0 == p.afterPause
		})
		if i < 0 {
			i = len(calls)
			calls = append(calls, &call{
				at: p.at, enqueue: p.enqueues(), pause: s.pause(p.afterPause),
				jobs: make([]*placement, 0, len(jobs)), subs: make([]cell.Submission, 0, len(jobs)),
			})
		}
		calls[i].jobs = append(calls[i].jobs, p)
		calls[i].subs = append(calls[i].subs, s.d.submission(p))
	}
	return calls
}

func (s *submit) pause(afterPause bool) time.Duration {
	if !afterPause {
		return 0
	}
	if s.pauses == nil {
		s.pauses = backoff.NewExponentialBackOff()
		s.pauses.InitialInterval, s.pauses.MaxInterval = firstPause, lastPause
	}
	return s.pauses.NextBackOff()
}

func (d *Dispatcher) submission(p *placement) cell.Submission {
	sub := cell.Submission{
		JobID: p.id, Tenant: p.request.Tenant, Job: p.request.Job, Candidates: make([]string, len(p.candidates)),
		Class:  cell.Class{ID: p.class.ID(), Definition: p.class.Definition()},
		Weight: d.cfg.Weight(p.request.Tenant),
	}
	for i, n := range p.candidates {
		sub.Candidates[i] = n.ID()
	}
	if p.waiter != nil {
		sub.ReplyTo = d.cfg.Replica
	}
	if p.enqueues() {
		sub.Origin = p.request.Origin
		sub.MaxKinds = d.cfg.Limits(p.request.Tenant).Kinds
		sub.Limits = d.limitsOf(&p.request, p.at.cell.Index())
		sub.NodeWait = p.nodeWait
	}
	if p.request.Run != nil {
		sub.Once = p.request.Run.Once
	}
	return sub
}

func (s *submit) start(c *call) {
	s.underWay++
	go func() {
		c.run(s.ctx)
		s.ended <- c // after a panic, cleanUp receives it
	}()
}

func (c *call) run(ctx context.Context) {
	defer c.at.d.fence.leave(c.age)
	if c.pause > 0 {
		sleep(ctx, c.pause)
	}
	if c.enqueue {
		c.results = c.at.cell.EnqueueAll(ctx, c.subs)
	} else {
		c.results = c.at.cell.SubmitAll(ctx, c.subs)
	}
}
