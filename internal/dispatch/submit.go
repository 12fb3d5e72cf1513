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
)

// Pauses before a cell whose call failed is asked again.
const (
	firstPause = 10 * time.Millisecond
	lastPause  = 500 * time.Millisecond
)

// Submit places the jobs, or has them wait where no slot is free. accepted is called
// exactly once for each index, before anything about that job reaches sink; its error is a
// *freeslot.Error. Submit returns when all are decided: within the submit timeout, and the time that the
// cells give the calls that are then under way. sink may be nil: then nobody is told
// of the result and the record alone keeps it.
func (d *Dispatcher) Submit(ctx context.Context, reqs []Request, sink Sink, accepted func(i int, a Accepted, err error)) {
	ctx, cancel := context.WithTimeout(ctx, d.cfg.SubmitTimeout)
	s := submit{d: d, ctx: ctx, begin: time.Now(), accepted: accepted, all: make([]placement, len(reqs))}
	jobs := make([]*placement, len(reqs))
	for i, r := range reqs {
		jobs[i] = &s.all[i]
		s.all[i] = placement{index: i, request: r}
		if sink != nil {
			s.all[i].waiter = &waiter{sink: sink, checkedAt: d.nodes.Now(), known: freeslot.JobStatus{
				Tenant: r.Tenant, Service: r.Job.Service, Slots: r.Job.SlotCount(), Priority: r.Job.Priority,
			}, timeout: r.Job.TimeoutMS}
		}
	}
	// There is something to clean up only when accepted or the sink has panicked: an
	// HTTP server survives that, and slots that stay taken would be lost for good.
	defer func() {
		cancel()
		s.cleanUp()
	}()
	s.run(s.admit(jobs))
}

// errUndecided is an answer to an enqueued job that neither placed nor kept it.
var errUndecided = errors.New("the job was neither placed nor enqueued")

// submit is one call of Submit. It is its caller's goroutine that chooses, decides
// and tells; calls of cells go on beside it, so that a cell that does not answer
// holds up only the jobs that are there.
type submit struct {
	d        *Dispatcher
	ctx      context.Context
	begin    time.Time
	accepted func(i int, a Accepted, err error)
	all      []placement

	// flying is the number of flights under way beside, which end in landed. It has
	// room for all, so that none of them ever waits for this goroutine.
	flying int
	landed chan *flight
	// pauses is nil until a call has failed.
	pauses *backoff.ExponentialBackOff
	// room is for the flights of a submit to one cell.
	room [1]flight
}

// flight is one call of one cell for some of the jobs.
type flight struct {
	client    *client
	enqueue bool
	jobs    []*placement
	subs    []cell.Submission
	results []cell.SubmitResult
	// pause before the call: one of the jobs was in a call of this cell that failed.
	pause time.Duration
	// age is that of the fence, which run leaves.
	age uint32
}

func (s *submit) run(ready []*placement) {
	for len(ready) > 0 || s.flying > 0 {
		flights := s.depart(ready)
		ready = nil
		if len(flights) == 1 && s.flying == 0 {
			flights[0].run(s.ctx)
			ready = s.land(&flights[0])
			continue
		}
		for i := range flights {
			s.launch(&flights[i])
		}
		if s.flying > 0 {
			s.flying--
			ready = s.land(<-s.landed)
		}
	}
}

func (s *submit) launch(f *flight) {
	if s.landed == nil {
		s.landed = make(chan *flight, len(s.all)) // each has a job of its own at least
	}
	s.flying++
	go func() {
		f.run(s.ctx)
		s.landed <- f // cleanUp takes what run does not
	}()
}

func (f *flight) run(ctx context.Context) {
	defer f.client.d.fence.leave(f.age)
	if f.pause > 0 {
		timer := time.NewTimer(f.pause)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-ctx.Done():
		}
	}
	if f.enqueue {
		f.results = f.client.cell.EnqueueAll(ctx, f.subs)
	} else {
		f.results = f.client.cell.SubmitAll(ctx, f.subs)
	}
}

// depart is prepare behind the fence, in which every flight stays until it is over: what it
// carries was chosen by the configuration of now.
func (s *submit) depart(jobs []*placement) (flights []flight) {
	age := s.d.fence.enter()
	defer func() {
		s.d.fence.hold(age, len(flights))
		s.d.fence.leave(age)
	}()
	flights = s.prepare(jobs)
	for i := range flights {
		flights[i].age = age
	}
	return flights
}

// prepare chooses candidates for the jobs and puts those of one cell into one
// flight, or into two where some are to be enqueued. Jobs for which there are none are
// decided.
func (s *submit) prepare(jobs []*placement) []flight {
	flights := s.room[:0]
	if s.flying > 0 {
		flights = nil // the room is in use
	}
	for _, p := range jobs {
		if err := s.d.choose(p); err != nil {
			s.decide(p, cell.Placement{}, err)
			continue
		}
		s.d.enlist(p)
		i := 0
		for i < len(flights) && (flights[i].client != p.client || flights[i].enqueue != p.enqueue || flights[i].pause > 0 != p.missed) {
			i++
		}
		if i == len(flights) {
			flights = append(flights, flight{client: p.client, enqueue: p.enqueue, pause: s.pause(p.missed), subs: make([]cell.Submission, 0, len(jobs))})
			if i == 0 {
				flights[i].jobs = jobs[:0] // what is written there has been read
			} else {
				flights[i].jobs = make([]*placement, 0, len(jobs))
			}
		}
		flights[i].jobs = append(flights[i].jobs, p)
		flights[i].subs = append(flights[i].subs, s.d.submission(p))
	}
	return flights
}

func (s *submit) pause(missed bool) time.Duration {
	if !missed {
		return 0
	}
	if s.pauses == nil {
		s.pauses = backoff.NewExponentialBackOff()
		s.pauses.InitialInterval, s.pauses.MaxInterval = firstPause, lastPause
	}
	return s.pauses.NextBackOff()
}

// land takes in what a call came to and returns the jobs that are still undecided.
func (s *submit) land(f *flight) (ready []*placement) {
	for i, p := range f.jobs {
		r := f.results[i]
		s.d.settle(p, r)
		f.client.probed(p, r.Err == nil && r.Placement.Waiting && r.Placement.Position > 0)
	}
	s.notice(f) // before the next choice
	ready = f.jobs[:0]
	jobs := f.jobs
	owned := slices.ContainsFunc(f.results, func(r cell.SubmitResult) bool { return r.Placement.Owner != "" })
	if owned {
		jobs = slices.Clone(jobs) // ready is written over them
	}
	for i, p := range jobs {
		r := f.results[i]
		switch {
		case r.Err != nil && s.again(p, r.Err):
			ready = append(ready, p)
		case r.Err != nil:
			s.decide(p, cell.Placement{}, coded("submit", r.Err))
		case r.Placement.Assigned:
			f.client.metrics.placed.Inc()
			if f.enqueue {
				f.client.served(p.class)
			}
			s.decide(p, r.Placement, nil)
		case r.Placement.Waiting:
			f.client.metrics.enqueued.Inc()
			if r.Placement.Position > 0 { // else it is for later, or held back by a limit
				f.client.waits(p.class, p.request.Job)
				f.client.lookFor(p, r.Placement.Position)
			}
			s.decide(p, r.Placement, nil)
		case r.Placement.Owner != "": // told last: the owner may be one of this call, and is to be decided first
		case f.enqueue:
			s.decide(p, cell.Placement{}, coded("submit", errUndecided))
		case r.Placement.Behind:
			f.client.waits(p.class, p.request.Job)
			p.repeat, p.missed, p.enqueue = false, false, true
			ready = append(ready, p)
		default:
			p.repeat, p.missed = false, false
			p.rounds++
			ready = append(ready, p)
		}
	}
	if owned {
		s.owned(jobs, f.results)
	}
	return ready
}

// notice has a cell left out of choices that did not answer.
func (s *submit) notice(f *flight) {
	var failure error // one of them; the first that says so where the cell is away
	behind := false   // a call that failed, whose own Submit may not have said so yet
	answered, refused := false, false
	for i := range f.results {
		err := f.results[i].Err
		switch {
		case err == nil:
			answered = true
		case errors.Is(err, cell.ErrNotSent):
			behind = behind || s.ctx.Err() == nil
		case failure == nil || isAway(err) && !isAway(failure):
			failure = err
			fallthrough
		default:
			refused = refused || refusal(err) != ""
		}
	}
	f.client.logFailure("submit", failure)
	if refused {
		s.d.nodes.CellRefused(f.client.cell.Index())
	}
	switch {
	case failure != nil && isAway(failure):
		f.client.failed()
	case behind:
		s.d.nodes.CellFailed(f.client.cell.Index())
	case answered:
		s.d.failing.set(f.client.cell.Index(), false)
	}
}

// again reports whether there is still something to be tried for a job whose call
// failed, and notes what is known of it.
func (s *submit) again(p *placement, err error) bool {
	if !untouched(err) {
		p.failure, p.repeat = err, true
	}
	p.missed = true
	switch {
	case s.ctx.Err() != nil || errors.Is(err, cell.ErrStopped) || isOurs(err):
		return false
	case isOutOfMemory(err) && (p.failure != nil || s.d.cells.Len() == 1):
		return false
	case p.failure != nil || isQueued(err):
		return true
	case isOutOfMemory(err):
		// Its keeper would see it within a second; other cells may have room.
		p.client.setShort(true, zap.Error(err))
	default:
		p.away, p.refusal = p.away.With(p.client.cell.Index()), err
	}
	p.missed = false // another cell has no reason to wait
	return true
}

// decide tells what became of a job.
func (s *submit) decide(p *placement, placed cell.Placement, err error) {
	if err != nil {
		err = p.told(err)
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

// cleanUp waits for the calls under way and lets go of what is undecided.
func (s *submit) cleanUp() {
	for ; s.flying > 0; s.flying-- {
		<-s.landed
	}
	for i := range s.all {
		s.all[i].giveBack()
		s.all[i].abandon()
	}
}
