package dispatch

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cenkalti/backoff/v5"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/cell"
	"github.com/freeslot/freeslot/internal/selection"
)

// ownerPause is the first pause between two tries to wait for the job that a key belongs to.
const ownerPause = 5 * time.Millisecond

// classFirst fills in the class of such a job.
func (d *Dispatcher) setClass(p *placement) {
	job := p.request.Job
	p.enqueue, p.class = true, d.nodes.Class(job.Service, &job.Requirement)
	if !couldRun(p.class, job) {
		p.class = d.nodes.Settle(job.Service, &job.Requirement)
	}
}

// keyHome is the cell that jobs with this key go to: the same one for every
// replica, as long as the same cells have nodes that could run the job. It is found
// whether or not the cell answers now: in another one a second job would come into being.
func keyCell(p *placement, key string, cells *classCells) (home int, ok bool) {
	count := len(cells.nodes)
	first := cell.NodeCell(p.request.Tenant+" "+key, count)
	for i := range count {
		if home = (first + i) % count; cells.takes(home, p.request.Job, selection.CellMask(0)) {
			return home, true
		}
	}
	return 0, false
}

// owner is the job that an idempotency key belongs to, of one that was submitted under it.
type keyOwner struct {
	p     *placement
	id    string
	sink  Sink // nil where nobody waits
	known freeslot.JobStatus
	err   error
}

// owned tells of jobs whose idempotency keys belong to others: those are what was
// accepted, and their results come to the sinks, unless the two are not the same.
func (s *submit) answerOwned(jobs []*placement, results []cell.SubmitResult) {
	var owners []*keyOwner
	for i, p := range jobs {
		switch placed := results[i].Placement; {
		case results[i].Err != nil || placed.Owner == "":
		case p.request.Run != nil && placed.Owner == p.id: // it was made before, and its record is gone again
			s.decide(p, cell.Placement{Assigned: true}, nil)
		case placed.Differs:
			s.decide(p, cell.Placement{}, &freeslot.Error{
				Code: freeslot.CodeConflict, Field: "job.idempotency_key",
				Message: "job.idempotency_key was used for job " + placed.Owner + ", which differs from this one, expected the same job or another key",
			})
		default:
			o := &keyOwner{p: p, id: placed.Owner}
			if p.waiter != nil {
				o.sink = p.waiter.sink
			}
			p.abandon()
			owners = append(owners, o)
		}
	}
	forEach(owners, func(o *keyOwner) { o.known, o.err = s.d.Job(s.ctx, o.p.request.Tenant, o.id) })
	joins, joined := owners[:0], make(map[string]bool)
	for _, o := range owners {
		switch {
		case freeslot.CodeOf(o.err) == freeslot.CodeNotFound: // its record can be gone before the key is
			o.err = &freeslot.Error{
				Code: freeslot.CodeConflict, Field: "job.idempotency_key",
				Message: "job.idempotency_key was used for job " + o.id + ", which ended longer ago than results are kept",
			}
		case o.err == nil && o.sink != nil && hasLeft(o.sink):
			o.err = &freeslot.Error{
				Code: freeslot.CodeUnavailable, RetryAfter: retryAfter(),
				Message: "the session is ending, and job.idempotency_key was used for job " + o.id + ": submit it again, or attach, elsewhere",
			}
		}
		if o.err != nil {
			s.decide(o.p, cell.Placement{}, o.err)
			continue
		}
		o.p.id = o.id
		s.decide(o.p, cell.Placement{Assigned: true}, nil)
		if o.sink != nil && !joined[o.known.ID] { // the sink is the same for all
			joined[o.known.ID] = true
			joins = append(joins, o)
		}
	}
	forEach(joins, s.joinOwner)
}

// ownersAtOnce bounds the owners that a submit asks Redis about side by side: one after the other those of a large batch
// would take longer than a submit may.
const ownersAtOnce = 64

// forEach calls f for all of them, ownersAtOnce at a time, and waits.
func forEach(owners []*keyOwner, f func(*keyOwner)) {
	var calls sync.WaitGroup
	var next atomic.Int64
	for range min(len(owners), ownersAtOnce) {
		calls.Go(func() {
			for i := next.Add(1) - 1; int(i) < len(owners); i = next.Add(1) - 1 {
				f(owners[i])
			}
		})
	}
	calls.Wait()
}

// joinOwner has the result of a job that was accepted before come to the sink. It is tried again for as long as a submit may
// take: the other submit may not be decided yet, or Redis away. After that the record alone tells the result.
func (s *submit) joinOwner(o *keyOwner) {
	ctx, id := s.ctx, o.known.ID
	if l, ok := o.sink.(Leaver); ok {
		of, cancel := context.WithCancel(ctx)
		defer cancel()
		defer context.AfterFunc(l.Life(), cancel)()
		ctx = of
	}
	pause := backoff.NewExponentialBackOff()
	pause.InitialInterval, pause.MaxInterval = ownerPause, 16*ownerPause
	for !s.d.awaits(id, o.sink) {
		status, err := s.d.Attach(ctx, o.known.Tenant, id, o.sink)
		if err == nil && status.State.Terminal() {
			o.sink.Result(status)
		}
		if err == nil {
			return
		}
		select {
		case <-time.After(pause.NextBackOff()):
		case <-ctx.Done():
			// Who hung up, or goes elsewhere, takes it from nobody.
			ours := errors.Is(ctx.Err(), context.DeadlineExceeded) && !hasLeft(o.sink)
			if c, ok := s.d.clientOf(id); !s.d.awaits(id, o.sink) && !(ok && ours && c.adopt(&o.known, o.sink)) {
				o.sink.Detached(id)
			}
			return
		}
	}
}

// adopt has the sink told what comes here of a job, and what rechecks find, in the place of a sink that waited before; an attach
// that is under way takes it from this one, too. It returns false where a submit is under way.
func (c *client) adopt(known *freeslot.JobStatus, sink Sink) bool {
	for {
		w, loaded := c.outstanding.LoadOrCompute(known.ID, func() *waiter {
			return &waiter{sink: sink, open: true, known: *known, checkedAt: c.d.nodes.Now()}
		})
		if !loaded {
			return true
		}
		adopted, done := w.adopt(known, sink)
		if done {
			c.drop(known.ID, w) // as whoever ended it is about to
		}
		if adopted || !done {
			return adopted
		}
	}
}

// awaits reports whether the sink gets the job's result already, by another submit or attach.
func (d *Dispatcher) awaits(jobID string, sink Sink) bool {
	c, ok := d.clientOf(jobID)
	if !ok {
		return false
	}
	w, ok := c.outstanding.Load(jobID)
	if !ok {
		return false
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.open && w.sink == sink
}
