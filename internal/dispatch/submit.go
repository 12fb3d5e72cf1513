package dispatch

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/cenkalti/backoff/v5"
	"go.uber.org/zap"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/cell"
	"github.com/freeslot/freeslot/internal/selection"
)

// The pauses before a cell is asked again whose call failed.
const (
	firstPause = 10 * time.Millisecond
	lastPause  = 500 * time.Millisecond
)

// Request is one job to place. The tenant and the job must be valid.
type Request struct {
	Tenant string
	Job    *freeslot.Job
	// Unlimited exempts the job from the tenant's submit rate, because an operator submits it
	// again.
	Unlimited bool
	// Run is set for a schedule's job.
	Run *Run
}

// Submit places the jobs, or enqueues them if no slot is free. It calls accepted exactly once for
// each index, before any news of that job reaches sink. The error is a *freeslot.Error. Submit
// returns when all jobs are decided: within the submit timeout, plus the time that cells give the
// calls then under way. If sink is nil, only the record keeps the result.
func (d *Dispatcher) Submit(
	ctx context.Context, reqs []Request, sink Sink, accepted func(i int, a Accepted, err error),
) {
	d.submits.Add(1)
	defer d.submits.Add(-1)
	ctx, cancel := context.WithTimeout(ctx, d.cfg.SubmitTimeout)
	s := submit{
		d: d, ctx: ctx, begin: time.Now(), accepted: accepted, all: make([]placement, len(reqs)),
		ended: make(chan *call, len(reqs)), // each call has at least one job of its own
	}
	jobs := make([]*placement, len(reqs))
	for i, r := range reqs {
		jobs[i] = &s.all[i]
		s.all[i] = placement{index: i, request: r}
		if sink != nil {
			s.all[i].waiter = &waiter{sink: sink, checkedAt: d.nodes.Now(), known: freeslot.JobStatus{
				Tenant: r.Tenant, Service: r.Job.Service, Slots: r.Job.SlotCount(), Priority: r.Job.Priority,
			}, timeoutMS: r.Job.TimeoutMS}
		}
	}
	// There is something to clean up only if accepted or the sink has panicked. An HTTP server
	// survives that; slots that stay taken would be lost for good.
	defer func() {
		cancel()
		s.cleanUp()
	}()
	s.run(s.admit(jobs))
}

// errUndecided is the error for an enqueued job that the answer neither placed nor kept.
var errUndecided = errors.New("the job was neither placed nor enqueued")

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

// call is one call to one cell for some of the jobs.
type call struct {
	client  *client
	enqueue bool
	jobs    []*placement
	subs    []cell.Submission
	results []cell.SubmitResult
	// pause precedes the call if one of the jobs was in a failed call to this cell.
	pause time.Duration
	// age is the age of the fence that run leaves.
	age uint32
}

func (s *submit) run(ready []*placement) {
	for len(ready) > 0 || s.underWay > 0 {
		calls := s.prepareFenced(ready)
		ready = nil
		if len(calls) == 1 && s.underWay == 0 { // the usual case needs no goroutine
			calls[0].run(s.ctx)
			ready = s.finish(calls[0])
			continue
		}
		for _, c := range calls {
			s.start(c)
		}
		if s.underWay > 0 {
			s.underWay--
			ready = s.finish(<-s.ended)
		}
	}
}

func (s *submit) start(c *call) {
	s.underWay++
	go func() {
		c.run(s.ctx)
		s.ended <- c // after a panic, cleanUp receives it
	}()
}

func (c *call) run(ctx context.Context) {
	defer c.client.d.fence.leave(c.age)
	if c.pause > 0 {
		sleep(ctx, c.pause)
	}
	if c.enqueue {
		c.results = c.client.cell.EnqueueAll(ctx, c.subs)
	} else {
		c.results = c.client.cell.SubmitAll(ctx, c.subs)
	}
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
		s.d.assignID(p)
		i := slices.IndexFunc(calls, func(c *call) bool {
			return c.client == p.client && c.enqueue == p.enqueue && c.pause > 0 == p.afterPause
		})
		if i < 0 {
			i = len(calls)
			calls = append(calls, &call{
				client: p.client, enqueue: p.enqueue, pause: s.pause(p.afterPause),
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

// finish processes the answers of a call, and returns the jobs that are still undecided.
func (s *submit) finish(c *call) (ready []*placement) {
	var blamed []*selection.Node
	for i, p := range c.jobs {
		r := c.results[i]
		blamed = s.d.updateCache(p, r, blamed)
		if p.probe != (probe{}) {
			c.client.full.answered(p.probe, time.Now(), r.Err == nil && r.Placement.Waiting && r.Placement.Position > 0)
			p.probe = probe{}
		}
	}
	s.noteFailures(c) // before the next choice
	owned := false
	for i, p := range c.jobs {
		r := c.results[i]
		switch {
		case r.Err != nil && s.retry(p, r.Err):
			ready = append(ready, p)
		case r.Err != nil:
			s.decide(p, cell.Placement{}, coded("submit", r.Err))
		case r.Placement.Assigned:
			c.client.metrics.placed.Inc()
			if c.enqueue {
				c.client.noteServed(p.class)
			}
			s.decide(p, r.Placement, nil)
		case r.Placement.Waiting:
			c.client.metrics.enqueued.Inc()
			if r.Placement.Position > 0 { // otherwise it is scheduled, or held back by a limit
				c.client.noteWaiting(p.class, p.request.Job)
				c.client.offerFreeNode(p, r.Placement.Position)
			}
			s.decide(p, r.Placement, nil)
		case r.Placement.Owner != "":
			owned = true // decided last: the owner may be a job of this call
		case c.enqueue:
			s.decide(p, cell.Placement{}, coded("submit", errUndecided))
		case r.Placement.Behind:
			c.client.noteWaiting(p.class, p.request.Job)
			p.repeat, p.afterPause, p.enqueue = false, false, true
			ready = append(ready, p)
		default:
			p.repeat, p.afterPause = false, false
			p.rounds++
			ready = append(ready, p)
		}
	}
	if owned {
		s.answerOwned(c.jobs, c.results)
	}
	return ready
}

// noteFailures leaves a cell out of choices if it did not answer, or refused a write.
func (s *submit) noteFailures(c *call) {
	var failure error // the first one, or the first that means that the cell is away
	notSent := false  // after a failed call whose own Submit may not have noted it yet
	answered, refused := false, false
	for i := range c.results {
		switch err := c.results[i].Err; {
		case err == nil:
			answered = true
		case errors.Is(err, cell.ErrNotSent):
			notSent = notSent || s.ctx.Err() == nil
		default:
			if failure == nil || isAway(err) && !isAway(failure) {
				failure = err
			}
			refused = refused || refusalCode(err) != ""
		}
	}
	logFailure(c.client.sampled, "submit", failure)
	if refused {
		s.d.nodes.CellRefused(c.client.cell.Index())
	}
	switch {
	case failure != nil && isAway(failure):
		c.client.noteFailure()
	case notSent:
		s.d.nodes.CellFailed(c.client.cell.Index())
	case answered:
		s.d.failing.set(c.client.cell.Index(), false)
	}
}

// retry reports whether a job whose call failed is tried again, and records what is known of it.
// After a call of unknown outcome the job stays in its cell, under its id.
func (s *submit) retry(p *placement, err error) bool {
	if !notApplied(err) {
		p.failure, p.repeat = err, true
	}
	p.afterPause = true
	switch {
	case s.ctx.Err() != nil || errors.Is(err, cell.ErrStopped) || isInvalid(err),
		isOutOfMemory(err) && (p.failure != nil || s.d.cells.Len() == 1):
		return false
	case p.failure != nil || isNotSent(err):
		return true
	case isOutOfMemory(err):
		// watchMemory would notice it within a second. Other cells may have room.
		p.client.setOutOfMemory(true, zap.Error(err))
	default:
		p.refusedCells, p.refusedWith = p.refusedCells.With(p.client.cell.Index()), err
	}
	p.afterPause = false // another cell needs no pause
	return true
}

// decide reports the outcome of a job.
func (s *submit) decide(p *placement, placed cell.Placement, err error) {
	if err != nil {
		err = p.clientError(err)
	}
	s.d.metrics.submitted(err, placed.Assigned, time.Since(s.begin))
	if err != nil {
		p.abandon()
		s.accepted(p.index, Accepted{}, err)
		return
	}
	accepted := Accepted{JobID: p.id}
	if placed.Waiting {
		accepted.Position = placed.Position
	}
	s.accepted(p.index, accepted, nil)
	if w := p.waiter; w != nil {
		if w.opened(p.id, placed) {
			p.client.drop(p.id, w)
		}
		p.waiter = nil
	}
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
