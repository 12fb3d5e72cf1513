package dispatch

import (
	"cmp"
	"context"
	"sync"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/cell"
)

// waiter is one outstanding job: who waits for it, and what the reply stream does
// not repeat. mu makes the calls for one job come one after the other. Methods that
// return done say whether nobody waits any more: the waiter is then to be dropped.
type waiter struct {
	mu sync.Mutex
	// sink is nil while nobody but attaches under way needs the waiter, and once the
	// result was given or the waiter was forgotten.
	sink Sink
	// open is false until the sink knows the job. What comes sooner is kept in begun,
	// early and gone.
	open          bool
	earlyAttempts []Assignment        // rising attempts, for attaches under way, too
	earlyResult   *freeslot.JobStatus // for attaches under way, too
	earlyDetach   bool
	// told is the last progress, once there is any; passed on is what the sink knows of it.
	progressed, sentProgress freeslot.Progress
	// attaching counts the attaches under way, attaches all that there were.
	attaching, attaches int
	// known holds what is known from the start: tenant, service, slots, times; and of the
	// last attempt that the sink was told of: node, number, time.
	known     freeslot.JobStatus
	timeout   int64 // the job's, in milliseconds; 0 is none
	checkedAt int64 // Nodes.Now when the record was last read
	missingAt int64 // since when it has been gone, 0 while it is there
}

// done is called with mu held.
func (w *waiter) done() bool { return w.sink == nil && w.attaching == 0 }

// opened tells the sink of the assignment, if there is one, and of what was faster.
func (w *waiter) opened(jobID string, placed cell.Placement) (done bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.sink == nil {
		return w.done()
	}
	w.known.SubmittedAtMS = cmp.Or(placed.SubmittedAtMS, placed.AssignedAtMS)
	if w.timeout > 0 {
		w.known.DeadlineMS = w.known.SubmittedAtMS + w.timeout
	}
	w.open = true
	if placed.Assigned && placed.Attempt > 0 { // 0 of a job that ended while it waited
		w.sendAttempt(Assignment{JobID: jobID, Node: placed.Node, Attempt: placed.Attempt, AssignedAtMS: placed.AssignedAtMS})
	}
	w.sendEarly()
	w.sendProgress(jobID)
	switch {
	case w.earlyResult != nil:
		w.sendResult(*w.earlyResult)
	case w.earlyDetach:
		w.sendDetached(jobID)
	}
	return w.done()
}

// assigned takes in that an attempt has begun; one that is known already is nothing new.
func (w *waiter) assigned(a Assignment) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.open || w.attaching > 0 {
		w.earlyAttempts = append(w.earlyAttempts, a)
	}
	if w.open && w.sink != nil {
		w.sendAttempt(a)
		w.sendProgress(a.JobID)
	}
}

// misses reports whether a result of this attempt would come to a sink that was not told
// of it.
func (w *waiter) misses(attempt int) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.open && w.sink != nil && attempt > w.known.Attempt
}

// result gives a terminal state to the sink; the first one counts.
func (w *waiter) result(s freeslot.JobStatus) (done bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.earlyResult == nil && (!w.open || w.attaching > 0) {
		w.earlyResult = &s
	}
	if w.open && w.sink != nil {
		w.sendResult(s)
	}
	return w.done()
}

// joined begins an attach. It is called with mu held.
func (w *waiter) beginAttach() { w.attaching, w.attaches = w.attaching+1, w.attaches+1 }

// contested takes in that another replica has attached at some time. ask is true where its record has to
// tell whether that one still has the job, or we have it back; attaches is for [waiter.detached] then.
func (w *waiter) contested() (attaches int, ask bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case w.attaching > 0:
		// Before us, and then we take the job back; or after us, and then the record
		// tells the result. To believe it could leave the job with nobody.
	case !w.open:
		w.earlyDetach = true
	case w.sink != nil:
		return w.attaches, true
	}
	return 0, false
}

// detached takes in that another replica had the job after so many attaches of ours.
func (w *waiter) detached(jobID string, attaches int) (done bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.attaches == attaches && w.sink != nil {
		w.sendDetached(jobID)
	}
	return w.done()
}

// attached ends an attach under way: unless it failed, sink has what is known now,
// and gets what is still to come.
func (w *waiter) endAttach(sink Sink, status *freeslot.JobStatus, err error) (done bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.attaching--
	switch {
	case err != nil:
	case status.State.Terminal() && w.sink == sink:
		w.sink = nil
	case status.State.Terminal():
		if w.sink != nil { // nothing was taken from it
			w.sendResult(*status)
		}
	default:
		last := w.known
		if w.sink != nil && w.sink != sink {
			w.sendDetached(status.ID)
		}
		same := w.sink == sink
		w.sink, w.open, w.known = sink, true, *status
		if a, ok := sink.(Attacher); ok {
			a.Attached(status.ID)
		}
		if !same {
			w.sentProgress = freeslot.Progress{}
		}
		if p := status.Progress; p != nil && p.After(&w.sentProgress) {
			w.sentProgress = *p
		}
		if same && last.Attempt > status.Attempt { // it was told already
			w.known.Node, w.known.Attempt, w.known.AssignedAtMS = last.Node, last.Attempt, last.AssignedAtMS
		}
		w.sendEarly()
		w.sendProgress(status.ID)
		if w.earlyResult != nil {
			w.sendResult(*w.earlyResult)
		}
	}
	if w.attaching == 0 {
		w.earlyAttempts = nil
	}
	return w.done()
}

// adopted makes sink the one that waits, without an attach. It returns false, and changes nothing, where a submit is under way or
// nobody waits any more.
func (w *waiter) adopt(known *freeslot.JobStatus, sink Sink) (ok, done bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case w.done(), w.sink != nil && !w.open:
		return false, w.done()
	case w.sink == sink:
		return true, false
	case w.sink != nil:
		w.sendDetached(known.ID)
	}
	w.sink, w.open, w.known, w.sentProgress = sink, true, *known, freeslot.Progress{}
	w.attaches++ // news of before that another replica has the job is not of this sink
	w.sendEarly()
	if w.earlyResult != nil {
		w.sendResult(*w.earlyResult)
	}
	return true, w.done()
}

// forget is for a sink that is gone; nil stands for any.
func (w *waiter) forget(sink Sink) (done bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if sink == nil || w.sink == sink {
		w.sink = nil
	}
	return w.done()
}

// begin tells the sink of an attempt unless it knows a later one, or this. It is called
// with mu held and a sink that is open, as catchUp, finish and detach are.
func (w *waiter) sendAttempt(a Assignment) {
	if a.Attempt > w.known.Attempt {
		w.known.Node, w.known.Attempt, w.known.AssignedAtMS = a.Node, a.Attempt, a.AssignedAtMS
		w.sink.Assigned(a)
	}
}

// catchUp tells of the attempts that began before the sink was open.
func (w *waiter) sendEarly() {
	for _, a := range w.earlyAttempts {
		w.sendAttempt(a)
	}
	if w.attaching == 0 {
		w.earlyAttempts = nil
	}
}

func (w *waiter) sendResult(s freeslot.JobStatus) {
	if s.Tenant == "" { // from the reply stream, which does not repeat these
		s.Tenant, s.Service, s.Class, s.Slots = w.known.Tenant, w.known.Service, w.known.Class, w.known.Slots
		s.SubmittedAtMS, s.AssignedAtMS = w.known.SubmittedAtMS, w.known.AssignedAtMS
		s.Priority, s.DeadlineMS = w.known.Priority, w.known.DeadlineMS
	}
	sink := w.sink
	w.sink = nil
	sink.Result(s)
}

func (w *waiter) sendDetached(jobID string) {
	sink := w.sink
	w.sink = nil
	sink.Detached(jobID)
}

// Forget drops everything that sink waits for: its session has ended, and no Submit
// or Attach of it is under way. The jobs go on; whoever wants their results
// attaches. Cost: O(outstanding).
func (d *Dispatcher) Forget(sink Sink) {
	for _, c := range d.clients {
		c.outstanding.Range(func(id string, w *waiter) bool {
			if w.forget(sink) {
				c.drop(id, w)
			}
			return true
		})
	}
}

// Attach makes sink the one that gets the job's result and returns what is known
// now. When that is terminal nothing more comes; else Result or Detached comes
// once, possibly before Attach returns. Who waited before is told Detached, but if
// Attach fails, still waits. The error is a *freeslot.Error.
func (d *Dispatcher) Attach(ctx context.Context, tenant, jobID string, sink Sink) (freeslot.JobStatus, error) {
	// The record is read first, so that a stranger makes no waiter.
	known, err := d.Job(ctx, tenant, jobID)
	if err != nil {
		return freeslot.JobStatus{}, err
	}
	jobID = known.ID // which it may not be, of a job that has moved
	// Before the script runs, because the result can be faster than its reply.
	c, _ := d.clientOf(jobID) // its record was read there
	w, err := c.join(jobID)
	if err != nil {
		return freeslot.JobStatus{}, err
	}
	status, err := d.cells.Attach(ctx, tenant, jobID, d.cfg.Replica)
	if status.State == freeslot.StateScheduled {
		status.RunAtMS = known.RunAtMS // which does not change
	}
	if w.endAttach(sink, &status, err) {
		c.drop(jobID, w)
	}
	if err != nil {
		return freeslot.JobStatus{}, d.coded("attach", err)
	}
	return status, nil
}

// join returns the job's waiter with an attach under way.
func (c *client) join(jobID string) (*waiter, error) {
	for {
		w, loaded := c.outstanding.LoadOrCompute(jobID, func() *waiter {
			return &waiter{attaching: 1, attaches: 1, checkedAt: c.d.nodes.Now()}
		})
		if !loaded {
			return w, nil
		}
		w.mu.Lock()
		done, accepting := w.done(), w.sink != nil && !w.open
		if !done && !accepting {
			w.beginAttach()
		}
		w.mu.Unlock()
		switch {
		case accepting:
			return nil, &freeslot.Error{
				Code: freeslot.CodeUnavailable, RetryAfter: retryAfter(),
				Message: "attach: the job is just being accepted",
			}
		case !done:
			return w, nil
		}
		c.drop(jobID, w) // as whoever ended it is about to
	}
}
