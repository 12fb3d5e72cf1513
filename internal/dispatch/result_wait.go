package dispatch

import (
	"cmp"
	"sync"
	"time"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/cell"
)

// waiter awaits the result of one outstanding job for its sink, and keeps what the reply stream
// does not repeat. mu makes the calls of the sink for one job come one after the other. A method
// that returns done reports whether the waiter is no longer needed: the caller then drops it.
type waiter struct {
	mu sync.Mutex // guards all fields
	// sink is nil while only attaches under way need the waiter, and after the result was sent or
	// the waiter was forgotten.
	sink Sink
	// open is false until the sink knows the job. Until then, the early fields keep what arrives.
	open bool
	// earlyAttempts, in rising order, and earlyResult are also kept for attaches under way.
	earlyAttempts []Assignment
	earlyResult   *freeslot.JobStatus
	earlyDetach   bool
	// progressed is the last progress of the job. sentProgress is the last that the sink got.
	progressed, sentProgress freeslot.Progress
	// attaching counts the attaches under way.
	attaching int
	// attaches counts all attaches of this replica. A Detached that read an older count is
	// ignored, so it cannot take the job from a sink that attached later.
	attaches int
	// known holds what is fixed at the submit (tenant, service, slots, times), and the last attempt
	// that the sink got (node, number, time).
	known     freeslot.JobStatus
	timeoutMS int64 // the job's timeout; 0 means none
	// begin is the time of the submit by this replica, zero for jobs of others and once the start of
	// the job has been counted. traceParent is the job's.
	begin       time.Time
	traceParent string
	// kind is the job's, and ran gets how long its last attempt ran; nil for jobs of others. kind is
	// set before opened.
	kind      Kind
	ran       func(k Kind, took time.Duration)
	checkedAt int64 // Nodes.Now when the record was last read
	missingAt int64 // Nodes.Now when the record was first found missing; 0 while it exists
}

// done reports whether the waiter is no longer needed. The caller holds mu.
func (w *waiter) done() bool { return w.sink == nil && w.attaching == 0 }

// opened tells the sink about the placement of its job, and about everything that arrived earlier.
// From now on the sink knows the job.
func (w *waiter) opened(jobID string, placed cell.Placement) (done bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.sink == nil {
		return w.done()
	}
	w.known.SubmittedAtMS = cmp.Or(placed.SubmittedAtMS, placed.AssignedAtMS)
	if w.timeoutMS > 0 {
		w.known.DeadlineMS = w.known.SubmittedAtMS + w.timeoutMS
	}
	w.open = true
	if placed.Assigned && placed.Attempt > 0 { // 0 for a job that ended while it waited
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

// assigned records that an attempt has begun. A repeated one changes nothing.
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

// misses reports whether the sink does not know this attempt yet, so that its result would come too
// early.
func (w *waiter) misses(attempt int) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.open && w.sink != nil && attempt > w.known.Attempt
}

// progress records progress of the job. Before the sink knows the job, only the latest is kept.
func (w *waiter) progress(jobID string, p *freeslot.Progress) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if p.After(&w.progressed) {
		w.progressed = *p
	}
	if w.open && w.sink != nil {
		w.sendProgress(jobID)
	}
}

// result sends a terminal state to the sink. The first one counts.
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

// contested records that another replica has attached at some time. If ask is true, the caller must
// read from the record which replica has the job now, and pass attaches to [waiter.detached].
func (w *waiter) contested() (attaches int, ask bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case w.attaching > 0:
		// If the other attach came before ours, ours takes the job back. If it came after, a
		// recheck finds the result. Giving the job up could leave it without a sink.
	case !w.open:
		w.earlyDetach = true
	case w.sink != nil:
		return w.attaches, true
	}
	return 0, false
}

// detached records that another replica had the job when this replica's count of attaches was
// attaches.
func (w *waiter) detached(jobID string, attaches int) (done bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.attaches == attaches && w.sink != nil {
		w.sendDetached(jobID)
	}
	return w.done()
}

// beginAttach begins an attach. It fails and changes nothing while a submit is under way, or if the
// waiter is done.
func (w *waiter) beginAttach() (ok, done bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.done() || w.submitting() {
		return false, w.done()
	}
	w.attaching++
	w.attaches++
	return true, false
}

// submitting reports whether a submit is under way. The caller holds mu.
func (w *waiter) submitting() bool { return w.sink != nil && !w.open }

// endAttach ends an attach. Unless it failed, sink now knows the job as status, and gets what comes
// later.
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
		last, same := w.known, w.sink == sink
		if w.sink != nil && !same {
			w.sendDetached(status.ID)
		}
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
		if same && last.Attempt > status.Attempt { // the sink has that attempt already
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

// adopt gives the job to sink without an attach. It fails and changes nothing while a submit is
// under way, or if the waiter is done.
func (w *waiter) adopt(known *freeslot.JobStatus, sink Sink) (ok, done bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case w.done(), w.submitting():
		return false, w.done()
	case w.sink == sink:
		return true, false
	case w.sink != nil:
		w.sendDetached(known.ID)
	}
	w.sink, w.open, w.known, w.sentProgress = sink, true, *known, freeslot.Progress{}
	w.attaches++ // an earlier Detached is not for this sink
	w.sendEarly()
	if w.earlyResult != nil {
		w.sendResult(*w.earlyResult)
	}
	return true, w.done()
}

// forget removes a sink that is gone; nil means any sink.
func (w *waiter) forget(sink Sink) (done bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if sink == nil || w.sink == sink {
		w.sink = nil
	}
	return w.done()
}

// sendAttempt reports an attempt unless the sink knows it, or a later one. For this function and
// those below, the caller holds mu, and the sink is open.
func (w *waiter) sendAttempt(a Assignment) {
	if a.Attempt > w.known.Attempt {
		w.known.Node, w.known.Attempt, w.known.AssignedAtMS = a.Node, a.Attempt, a.AssignedAtMS
		w.sink.Assigned(a)
	}
}

// sendEarly reports the attempts that began before the sink was open.
func (w *waiter) sendEarly() {
	for _, a := range w.earlyAttempts {
		w.sendAttempt(a)
	}
	if w.attaching == 0 {
		w.earlyAttempts = nil
	}
}

// sendProgress reports new progress of the attempt that the sink knows. Progress of an earlier
// attempt is useless. For a later one, the attempt must be reported first.
func (w *waiter) sendProgress(jobID string) {
	if w.progressed.Attempt == w.known.Attempt && w.progressed.After(&w.sentProgress) {
		w.sentProgress = w.progressed
		w.sink.Progress(jobID, w.progressed)
	}
}

func (w *waiter) sendResult(s freeslot.JobStatus) {
	if s.Tenant == "" { // from the reply stream, which does not repeat these
		s.Tenant, s.Service, s.Class, s.Slots = w.known.Tenant, w.known.Service, w.known.Class, w.known.Slots
		s.SubmittedAtMS, s.AssignedAtMS = w.known.SubmittedAtMS, w.known.AssignedAtMS
		s.Priority, s.DeadlineMS = w.known.Priority, w.known.DeadlineMS
	}
	if took := s.FinishedAtMS - s.AssignedAtMS; w.ran != nil && took >= 0 && s.AssignedAtMS > 0 &&
		(s.State == freeslot.StateSucceeded || s.State == freeslot.StateFailed) {
		w.ran(w.kind, time.Duration(took)*time.Millisecond)
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

// recheckSoon makes the next recheck read the record. The caller holds mu.
func (w *waiter) recheckSoon(now int64) {
	w.checkedAt = now - int64(time.Hour) // among the oldest
}
