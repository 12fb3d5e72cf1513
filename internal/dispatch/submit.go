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
	underWay int
	ended    chan *call
	// pauses is nil until a call has failed.
	pauses *backoff.ExponentialBackOff
	// room is for the flights of a submit to one cell.
	oneCall [1]call
}

// flight is one call of one cell for some of the jobs.
type call struct {
	client  *client
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
	for len(ready) > 0 || s.underWay > 0 {
		calls := s.prepareFenced(ready)
		ready = nil
		if len(calls) == 1 && s.underWay == 0 {
			calls[0].run(s.ctx)
			ready = s.finish(&calls[0])
			continue
		}
		for i := range calls {
			s.start(&calls[i])
		}
		if s.underWay > 0 {
			s.underWay--
			ready = s.finish(<-s.ended)
		}
	}
}

func (s *submit) start(f *call) {
	if s.ended == nil {
		s.ended = make(chan *call, len(s.all)) // each has a job of its own at least
	}
	s.underWay++
	go func() {
		f.run(s.ctx)
		s.ended <- f // cleanUp takes what run does not
	}()
}

func (f *call) run(ctx context.Context) {
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
func (s *submit) prepareFenced(jobs []*placement) (calls []call) {
	age := s.d.fence.enter()
	defer func() {
		s.d.fence.hold(age, len(calls))
		s.d.fence.leave(age)
	}()
	calls = s.prepare(jobs)
	for i := range calls {
		calls[i].age = age
	}
	return calls
}

// prepare chooses candidates for the jobs and puts those of one cell into one
// flight, or into two where some are to be enqueued. Jobs for which there are none are
// decided.
func (s *submit) prepare(jobs []*placement) []call {
	calls := s.oneCall[:0]
	if s.underWay > 0 {
		calls = nil // the room is in use
	}
	for _, p := range jobs {
		if err := s.d.chooseNode(p); err != nil {
			s.decide(p, cell.Placement{}, err)
			continue
		}
		s.d.assignID(p)
		i := 0
		for i < len(calls) && (calls[i].client != p.client || calls[i].enqueue != p.enqueue || calls[i].pause > 0 != p.afterPause) {
			i++
		}
		if i == len(calls) {
			calls = append(calls, call{client: p.client, enqueue: p.enqueue, pause: s.pause(p.afterPause), subs: make([]cell.Submission, 0, len(jobs))})
			if i == 0 {
				calls[i].jobs = jobs[:0] // what is written there has been read
			} else {
				calls[i].jobs = make([]*placement, 0, len(jobs))
			}
		}
		calls[i].jobs = append(calls[i].jobs, p)
		calls[i].subs = append(calls[i].subs, s.d.submission(p))
	}
	return calls
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
func (s *submit) finish(f *call) (ready []*placement) {
	for i, p := range f.jobs {
		r := f.results[i]
		s.d.updateCache(p, r)
		f.client.probed(p, r.Err == nil && r.Placement.Waiting && r.Placement.Position > 0)
	}
	s.noteFailures(f) // before the next choice
	ready = f.jobs[:0]
	jobs := f.jobs
	owned := slices.ContainsFunc(f.results, func(r cell.SubmitResult) bool { return r.Placement.Owner != "" })
	if owned {
		jobs = slices.Clone(jobs) // ready is written over them
	}
	for i, p := range jobs {
		r := f.results[i]
		switch {
		case r.Err != nil && s.retry(p, r.Err):
			ready = append(ready, p)
		case r.Err != nil:
			s.decide(p, cell.Placement{}, coded("submit", r.Err))
		case r.Placement.Assigned:
			f.client.metrics.placed.Inc()
			if f.enqueue {
				f.client.noteServed(p.class)
			}
			s.decide(p, r.Placement, nil)
		case r.Placement.Waiting:
			f.client.metrics.enqueued.Inc()
			if r.Placement.Position > 0 { // else it is for later, or held back by a limit
				f.client.noteWaiting(p.class, p.request.Job)
				f.client.offerFreeNode(p, r.Placement.Position)
			}
			s.decide(p, r.Placement, nil)
		case r.Placement.Owner != "": // told last: the owner may be one of this call, and is to be decided first
		case f.enqueue:
			s.decide(p, cell.Placement{}, coded("submit", errUndecided))
		case r.Placement.Behind:
			f.client.noteWaiting(p.class, p.request.Job)
			p.repeat, p.afterPause, p.enqueue = false, false, true
			ready = append(ready, p)
		default:
			p.repeat, p.afterPause = false, false
			p.rounds++
			ready = append(ready, p)
		}
	}
	if owned {
		s.answerOwned(jobs, f.results)
	}
	return ready
}

// notice has a cell left out of choices that did not answer.
func (s *submit) noteFailures(f *call) {
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
			refused = refused || refusalCode(err) != ""
		}
	}
	f.client.logFailure("submit", failure)
	if refused {
		s.d.nodes.CellRefused(f.client.cell.Index())
	}
	switch {
	case failure != nil && isAway(failure):
		f.client.noteFailure()
	case behind:
		s.d.nodes.CellFailed(f.client.cell.Index())
	case answered:
		s.d.failing.set(f.client.cell.Index(), false)
	}
}

// again reports whether there is still something to be tried for a job whose call
// failed, and notes what is known of it.
func (s *submit) retry(p *placement, err error) bool {
	if !notApplied(err) {
		p.failure, p.repeat = err, true
	}
	p.afterPause = true
	switch {
	case s.ctx.Err() != nil || errors.Is(err, cell.ErrStopped) || isInvalid(err):
		return false
	case isOutOfMemory(err) && (p.failure != nil || s.d.cells.Len() == 1):
		return false
	case p.failure != nil || isNotSent(err):
		return true
	case isOutOfMemory(err):
		// Its keeper would see it within a second; other cells may have room.
		p.client.setOutOfMemory(true, zap.Error(err))
	default:
		p.refusedCells, p.refusedWith = p.refusedCells.With(p.client.cell.Index()), err
	}
	p.afterPause = false // another cell has no reason to wait
	return true
}

// decide tells what became of a job.
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

// cleanUp waits for the calls under way and lets go of what is undecided.
func (s *submit) cleanUp() {
	for ; s.underWay > 0; s.underWay-- {
		<-s.ended
	}
	for i := range s.all {
		s.all[i].giveBack()
		s.all[i].abandon()
	}
}
