package dispatch

import (
	"context"
	"sync"

	"github.com/freeslot/freeslot"
)

// waiter is one outstanding job: who waits for it, and what the reply stream does
// not repeat. mu makes the calls for one job come one after the other.
type waiter struct {
	mu sync.Mutex
	// sink is nil once the result was given or the waiter was forgotten.
	sink Sink
	// open is false until the sink knows the job; a result that is faster waits in early.
	open  bool
	early *freeslot.JobStatus
	// known holds what is known from the start: tenant, service, slots, times.
	known     freeslot.JobStatus
	checkedAt int64 // cache.Now when the record was last read; mu
}

// opened tells the sink of the assignment, and of the result if that was faster.
func (w *waiter) opened(a Assignment) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.sink == nil {
		return
	}
	w.known.AssignedAtMS, w.known.SubmittedAtMS = a.AssignedAtMS, a.AssignedAtMS
	w.sink.Assigned(a)
	w.open = true
	if w.early != nil {
		w.finish(*w.early)
	}
}

// result gives a terminal state to the sink; the first one counts. It reports
// whether the waiter is done with.
func (w *waiter) result(s freeslot.JobStatus) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.sink == nil {
		return true
	}
	if !w.open {
		w.early = &s
		return false
	}
	w.finish(s)
	return true
}

// finish is called with mu held.
func (w *waiter) finish(s freeslot.JobStatus) {
	if s.Tenant == "" { // from the reply stream, which does not repeat these
		s.Tenant, s.Service, s.Slots = w.known.Tenant, w.known.Service, w.known.Slots
		s.SubmittedAtMS, s.AssignedAtMS = w.known.SubmittedAtMS, w.known.AssignedAtMS
	}
	w.sink.Result(s)
	w.sink = nil
}

func (w *waiter) detached(jobID string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.sink != nil {
		w.sink.Detached(jobID)
		w.sink = nil
	}
}

// Forget drops everything that sink waits for: its session has ended. The jobs go
// on; whoever wants their results attaches. Cost: O(outstanding).
func (d *Dispatcher) Forget(sink Sink) {
	d.outstanding.Range(func(id string, w *waiter) bool {
		w.mu.Lock()
		mine := w.sink == sink
		if mine {
			w.sink = nil
		}
		w.mu.Unlock()
		if mine {
			d.drop(id, w)
		}
		return true
	})
}

// drop removes w unless somebody has attached since.
func (d *Dispatcher) drop(id string, w *waiter) {
	d.outstanding.Compute(id, func(now *waiter, loaded bool) (*waiter, bool) {
		return now, !loaded || now == w
	})
}

// Attach makes sink the one that gets the job's result and returns what is known
// now. When that is terminal nothing more comes; else Result or Detached comes
// once, possibly before Attach returns. Who waited before is told Detached. The
// error is a *freeslot.Error.
func (d *Dispatcher) Attach(ctx context.Context, tenant, jobID string, sink Sink) (freeslot.JobStatus, error) {
	// The record is read first, so that a stranger cannot take over a waiter.
	known, err := d.Job(ctx, tenant, jobID)
	if err != nil {
		return freeslot.JobStatus{}, err
	}
	w := &waiter{sink: sink, open: true, known: known, checkedAt: d.cache.Now()}
	if before, ok := d.outstanding.LoadAndStore(jobID, w); ok {
		before.mu.Lock()
		same := before.sink == sink
		if same {
			before.sink = nil
		}
		before.mu.Unlock()
		if !same {
			before.detached(jobID)
		}
	}
	status, err := d.cell.Attach(ctx, tenant, jobID, d.cfg.Replica)
	if err != nil {
		d.drop(jobID, w)
		return freeslot.JobStatus{}, coded("attach", err)
	}
	w.mu.Lock()
	w.known = status
	if status.State.Terminal() {
		w.sink = nil
	}
	w.mu.Unlock()
	if status.State.Terminal() {
		d.drop(jobID, w)
	}
	return status, nil
}
