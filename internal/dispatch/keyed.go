package dispatch

import (
	"time"

	"github.com/cenkalti/backoff/v5"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/cell"
	"github.com/freeslot/freeslot/internal/selection"
)

// ownerPause is the first pause between two tries to wait for the job that a key belongs to.
const ownerPause = 5 * time.Millisecond

// classFirst fills in the class of such a job.
func (d *Dispatcher) classFirst(p *placing) {
	job := p.request.Job
	p.enqueue, p.class = true, d.nodes.Class(job.Service, &job.Requirement)
	if !couldRun(p.class, job) {
		p.class = d.nodes.Settle(job.Service, &job.Requirement)
	}
}

// keyHome is the cell that jobs with this key go to: the same one for every
// replica, as long as the same cells have nodes that could run the job. It is found
// whether or not the cell answers now: in another one a second job would come into being.
func keyHome(p *placing, key string, homes *classHomes) (home int, ok bool) {
	cells := len(homes.nodes)
	first := cell.NodeCell(p.request.Tenant+" "+key, cells)
	for i := range cells {
		if home = (first + i) % cells; homes.takes(home, p.request.Job, selection.CellMask(0)) {
			return home, true
		}
	}
	return 0, false
}

// owned tells of a job whose idempotency key belongs to another one: that one is what was
// accepted, and its result comes to the sink, unless the two are not the same.
func (s *submit) owned(p *placing, placed cell.Placement) {
	tenant, sink := p.request.Tenant, Sink(nil)
	if p.waiter != nil {
		sink = p.waiter.sink
	}
	if p.request.Run != nil && placed.Owner == p.id { // it was made before, and its record is gone again
		s.decide(p, cell.Placement{Assigned: true}, nil)
		return
	}
	p.abandon()
	if placed.Differs {
		s.decide(p, cell.Placement{}, &freeslot.Error{
			Code: freeslot.CodeConflict, Field: "job.idempotency_key",
			Message: "job.idempotency_key was used for job " + placed.Owner + ", which differs from this one, expected the same job or another key",
		})
		return
	}
	// Its record can be gone before the key is.
	known, err := s.d.Job(s.ctx, tenant, placed.Owner)
	if err != nil {
		if freeslot.CodeOf(err) == freeslot.CodeNotFound {
			err = &freeslot.Error{
				Code: freeslot.CodeConflict, Field: "job.idempotency_key",
				Message: "job.idempotency_key was used for job " + placed.Owner + ", which ended longer ago than results are kept",
			}
		}
		s.decide(p, cell.Placement{}, err)
		return
	}
	p.id = placed.Owner
	s.decide(p, cell.Placement{Assigned: true}, nil)
	if sink != nil {
		s.joinOwner(&known, sink)
	}
}

// joinOwner has the result of a job that was accepted before come to the sink. It is tried again for as long as a submit may
// take: the other submit may not be decided yet, or Redis away. After that the record alone tells the result.
func (s *submit) joinOwner(known *freeslot.JobStatus, sink Sink) {
	pause := backoff.NewExponentialBackOff()
	pause.InitialInterval, pause.MaxInterval = ownerPause, 16*ownerPause
	for !s.d.awaits(known.ID, sink) {
		status, err := s.d.Attach(s.ctx, known.Tenant, known.ID, sink)
		if err == nil && status.State.Terminal() {
			sink.Result(status)
		}
		if err == nil {
			return
		}
		select {
		case <-time.After(pause.NextBackOff()):
		case <-s.ctx.Done():
			if l, ok := s.d.of(known.ID); !ok || !l.adopt(known, sink) {
				sink.Detached(known.ID)
			}
			return
		}
	}
}

// adopt has the sink told what rechecks find of a job. It returns false where somebody else waits for it.
func (l *link) adopt(known *freeslot.JobStatus, sink Sink) bool {
	_, taken := l.outstanding.LoadOrStore(known.ID, &waiter{sink: sink, open: true, known: *known, checkedAt: l.d.nodes.Now()})
	return !taken
}

// awaits reports whether the sink gets the job's result already, by another submit or attach.
func (d *Dispatcher) awaits(jobID string, sink Sink) bool {
	l, ok := d.of(jobID)
	if !ok {
		return false
	}
	w, ok := l.outstanding.Load(jobID)
	if !ok {
		return false
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.open && w.sink == sink
}
