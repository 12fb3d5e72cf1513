package worker

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/cell"
)

const (
	// maxEnded bounds the ended attempts that are remembered. With a heartbeat each 3 s, a node
	// reaches it if it ends more than 20,000 jobs a second, or 1,600 that came by the stream while
	// nothing else comes by it.
	maxEnded = 1 << 16
	// maxEarlyCancels bounds the cancels that are remembered for attempts that have not come yet.
	maxEarlyCancels = 1 << 12
	// heldPerSlot is the number of attempts that may be held for each slot; see ledger.limit.
	heldPerSlot = 2
)

type phase uint8

const (
	waiting   phase = iota // for its spec or for slots
	running                // the handler was called
	finishing              // its end is decided and being reported
)

// attempt is one try of one job that the process holds. id, ctx and cancel never change. The
// ledger's mutex guards the rest, except that job and tenant belong to the attempt's goroutine once
// it has begun.
type attempt struct {
	id     cell.Attempt
	ctx    context.Context
	cancel context.CancelCauseFunc

	job    *freeslot.Job // nil until the spec has come
	tenant string
	// handedOver is true if the attempt came with the answer to a report, and so is in no stream.
	handedOver bool

	phase phase
	// begun is the time just before the handler was called. It belongs to the attempt's goroutine
	// until phase is running, and never changes after that.
	begun time.Time
	// asked is true once a cancel of the job has come.
	asked bool
	// disowned is true once Redis has answered that the node does not own the attempt. Heartbeats
	// no longer name it, and its end is not reported.
	disowned bool
	// lost is closed with disowned. It is nil while nothing waits for that.
	lost chan struct{}
	// moot is true if the node no longer runs the job's service.
	moot bool
	// left is set by a compare-and-swap, either of the handler that returns or of the watcher that
	// gives the handler up. The one that sets it ends the attempt.
	left atomic.Bool
}

// service returns the name of the job's service, "" before the spec has arrived.
func (a *attempt) service() string {
	if a.job == nil {
		return ""
	}
	return a.job.Service
}

// ledger knows which attempts the process holds, which have ended, and for which a cancel came
// before the attempt. It does no I/O and has no clock. Every decision that two goroutines could
// race for (start or not, report or drop) is one method, made under mu.
type ledger struct {
	base context.Context

	mu sync.Mutex // guards the rest
	// limit bounds held. It is the number of slots that Redis can have granted, and as many again
	// for attempts that Redis no longer counts: handlers that have lost their attempt and not
	// returned yet, and reports whose answer is on its way.
	limit int
	held  map[cell.Attempt]*attempt
	// freed holds a token if fewer attempts are held than the node has slots.
	freed chan struct{}
	// ended and endedHandedOver remember ended attempts. The second holds attempts that came with
	// the answers to reports; they need not wait for reads.
	ended, endedHandedOver attemptSet
	cancels                attemptSet
	// started counts the heartbeats, reads and reports that have started. through holds the latest
	// start of a heartbeat and of a read whose answer has been applied. reporting holds the reports
	// under way, in the order of their start.
	started, through moment
	reporting        []uint64
	// refused is true if the limit turned an attempt away since the last removal.
	refused bool
	// stopping is the cause with which a draining worker stops attempts; nil unless it drains.
	stopping error
	closed   bool
	// cutOff is true while Redis has not answered for the heartbeat limit.
	cutOff bool
	// idle is closed when nothing is held after drain was called.
	idle chan struct{}
}

func newLedger(base context.Context, maxConcurrency int) *ledger {
	return &ledger{
		limit:           heldPerSlot * maxConcurrency,
		base:            base,
		held:            make(map[cell.Attempt]*attempt),
		freed:           make(chan struct{}, 1),
		endedHandedOver: newAttemptSet(maxEnded),
		ended:           newAttemptSet(maxEnded),
		cancels:         newAttemptSet(maxEarlyCancels),
		idle:            make(chan struct{}),
	}
}

// resize adapts to a change of the node's slots.
func (l *ledger) resize(maxConcurrency int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.limit = heldPerSlot * maxConcurrency
}

// offer takes in an attempt that the node owns according to Redis. It returns nil if the attempt is
// known already, and if there is no room. In the second case the next heartbeat does not name the
// attempt, so its reply offers it again.
func (l *ledger) offer(id cell.Attempt, job *freeslot.Job, tenant string, handedOver bool) *attempt {
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, ok := l.held[id]; ok || l.closed || l.hasEnded(id) {
		return nil
	}
	if len(l.held) >= l.limit {
		l.refused = true
		return nil
	}
	a := &attempt{id: id, job: job, tenant: tenant, handedOver: handedOver, asked: l.cancels.has(id)}
	a.ctx, a.cancel = context.WithCancelCause(l.base)
	if a.asked {
		l.cancels.remove(id)
		a.cancel(ErrCancelled)
	}
	if l.stopping != nil {
		a.cancel(l.stopping)
	}
	l.held[id] = a
	return a
}

// hasEnded reports whether the attempt is remembered as ended.
func (l *ledger) hasEnded(id cell.Attempt) bool { return l.ended.has(id) || l.endedHandedOver.has(id) }

// ask records that the attempt is to be cancelled. It changes nothing for an attempt whose end is
// decided. An attempt that has not come yet is cancelled when it arrives.
func (l *ledger) ask(id cell.Attempt) {
	l.mu.Lock()
	defer l.mu.Unlock()
	a, ok := l.held[id]
	switch {
	case ok && a.phase != finishing:
		a.asked = true
		a.cancel(ErrCancelled)
	case !ok && !l.hasEnded(id) && !l.cancels.has(id):
		l.cancels.add(id, l.started)
	}
}

// disown stops an attempt that the node does not own. It leaves an attempt alone while its end is
// being reported: the answer to the report decides. The node may have lost the attempt just because
// this report was applied.
func (l *ledger) disown(id cell.Attempt) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if a, ok := l.held[id]; ok && a.phase != finishing {
		a.disown(ErrNotOwned)
	}
}

func (a *attempt) disown(cause error) {
	if a.lost != nil && !a.disowned {
		close(a.lost)
	}
	a.disowned = true
	a.cancel(cause)
}

// lost returns a channel that is closed once the attempt is disowned. That can come after its
// handler was stopped for another reason.
func (l *ledger) lost(a *attempt) <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	if a.lost == nil {
		a.lost = make(chan struct{})
		if a.disowned {
			close(a.lost)
		}
	}
	return a.lost
}

// full reports whether as many attempts are held as the node has slots.
func (l *ledger) full() bool { return len(l.held) >= l.limit/heldPerSlot }

// room returns nil if there is room; otherwise a channel that gets a token when there is.
func (l *ledger) room() <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.full() {
		return nil
	}
	select { // removes an earlier token
	case <-l.freed:
	default:
	}
	return l.freed
}

// begin moves the attempt to running, unless it has been cancelled, disowned or interrupted before.
func (l *ledger) begin(a *attempt) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.cutOff && a.job.OnLeaseLoss == freeslot.LeaseLossCancel {
		a.cancel(ErrLeaseLost)
	}
	if a.ctx.Err() != nil {
		return false
	}
	a.phase = running
	return true
}

// finish decides the attempt's end: a later cancel or loss of ownership does not count. It reports
// whether either came before.
func (l *ledger) finish(a *attempt) (asked, disowned bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !a.disowned {
		a.phase = finishing
	}
	return a.asked, a.disowned
}

// remove lets go of an attempt that has been reported or dropped. It reports whether a heartbeat is
// due because another attempt was turned away before.
func (l *ledger) remove(a *attempt) (due bool) {
	a.cancel(context.Canceled)
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.held, a.id)
	if !l.full() {
		notify(l.freed)
	}
	if a.handedOver {
		at := l.started
		at.reads = noRead // it is in no stream, so no read brings it
		l.endedHandedOver.add(a.id, at)
	} else {
		l.ended.add(a.id, l.started)
	}
	due, l.refused = l.refused, false
	l.checkIdle()
	return due
}

// beat starts a heartbeat: it returns the attempts to name and the heartbeat's number.
func (l *ledger) beat() (names []cell.Attempt, number uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	names = make([]cell.Attempt, 0, len(l.held))
	for id, a := range l.held {
		if !a.disowned {
			names = append(names, id)
		}
	}
	l.started.beats++
	return names, l.started.beats
}

// answered records that the reply to the numbered heartbeat has been applied.
func (l *ledger) answered(number uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.through.beats = number
	l.forget()
}

// read starts a read of the dispatch stream and returns its number.
func (l *ledger) read() uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.started.reads++
	return l.started.reads
}

// caughtUp records that the numbered read has reached the end of the stream and that its entries
// have been applied.
func (l *ledger) caughtUp(number uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.through.reads = number
	l.forget()
}

// report starts a report, whose answer may bring attempts, and returns its number.
func (l *ledger) report() uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.started.reports++
	l.reporting = append(l.reporting, l.started.reports)
	return l.started.reports
}

// reported records that the attempts in the answer to the numbered report have been offered, or
// that it brings none.
func (l *ledger) reported(number uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if i, ok := slices.BinarySearch(l.reporting, number); ok {
		l.reporting = slices.Delete(l.reporting, i, i+1)
	}
}

func (l *ledger) forget() {
	l.through.reports = l.started.reports + 1
	if len(l.reporting) > 0 {
		l.through.reports = l.reporting[0]
	}
	l.ended.forget(l.through)
	l.endedHandedOver.forget(l.through)
	l.cancels.forget(l.through)
}

// ran returns for how long the running handlers have run, added up.
func (l *ledger) ran(now time.Time) (sum time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, a := range l.held {
		if a.phase == running {
			sum += now.Sub(a.begun)
		}
	}
	return sum
}

// drain cancels the attempts that have not begun, and every attempt that is offered from now on.
// The cause, of the first call, is or wraps ErrStopping. The returned channel is closed when
// nothing is held.
func (l *ledger) drain(cause error) <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.stopping == nil {
		l.stopping = cause
	}
	for _, a := range l.held {
		if a.phase == waiting {
			a.cancel(l.stopping)
		}
	}
	l.checkIdle()
	return l.idle
}

// interrupt cancels all held attempts of a draining worker, and returns the ids of their jobs.
func (l *ledger) interrupt() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	jobs := make([]string, 0, len(l.held))
	for id, a := range l.held {
		a.cancel(l.stopping)
		jobs = append(jobs, id.Job)
	}
	return jobs
}

// abandon disowns all attempts, because the node belongs to another process.
func (l *ledger) abandon() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, a := range l.held {
		a.disown(ErrSuperseded)
	}
}

// close makes every further offer void.
func (l *ledger) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed = true
}

func (l *ledger) isDraining() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.stopping != nil
}

func (l *ledger) checkIdle() {
	if l.stopping != nil && len(l.held) == 0 {
		closeOnce(l.idle)
	}
}
