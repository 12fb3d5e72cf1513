package worker

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/cell"
)

const (
	// maxSettled bounds the ended attempts that are remembered: at 3 s a heartbeat
	// it is reached by a node that ends more than 20,000 jobs a second (of those that came by the stream, when
	// nothing else does for a while: by one with more than 1,600).
	maxSettled = 1 << 16
	// maxEarlyCancels bounds the cancels remembered for attempts not seen yet.
	maxEarlyCancels = 1 << 12
	// heldPerSlot is how many attempts may be held for each slot, see ledger.limit.
	heldPerSlot = 2
)

type phase uint8

const (
	waiting   phase = iota // for its spec or for slots
	running                // the handler has been called
	finishing              // its end is decided and being reported
)

// attempt is one try of one job that the process holds. id, ctx and cancel never
// change; the ledger's mutex guards the rest, except that job and tenant belong
// to the attempt's goroutine once it has begun.
type attempt struct {
	id     cell.Attempt
	ctx    context.Context
	cancel context.CancelCauseFunc

	job    *freeslot.Job // nil until it has been read
	tenant string
	// handed is true when the attempt came with the answer to a report, and so in no stream.
	handed bool

	phase phase
	// asked is true once somebody asked to cancel the job.
	asked bool
	// disowned is true once Redis said that the node does not own the attempt:
	// it is not named in heartbeats any more and its end is not reported.
	disowned bool
	// lost is closed with disowned, where somebody waits for that.
	lost chan struct{}
	// moot is true when the node runs the job's service no more.
	moot bool
	// left is set by whoever comes first: the handler that returns, or who gives it up.
	left atomic.Bool
}

// service is empty while the job has not been read.
func (a *attempt) service() string {
	if a.job == nil {
		return ""
	}
	return a.job.Service
}

// ledger knows which attempts the process holds, which have ended and which it is
// to cancel before it has seen them. It does no I/O and has no clock. Every
// decision that two goroutines could race for (start or not, report or drop) is
// one method, made under mu.
type ledger struct {
	base context.Context

	mu sync.Mutex // guards the rest
	// limit bounds held: the slots that Redis can have granted, and as many again for what Redis does not
	// count any more: handlers that have lost their attempt and not returned yet, and reports whose
	// answer is on its way.
	limit int
	held  map[cell.Attempt]*attempt
	// freed has a token when held has become fewer than the node's slots.
	freed chan struct{}
	// settled remembers ended attempts; handed those of them that came with answers, which need not wait for reads.
	settled, handed memory
	cancels         memory
	// started and through count heartbeats, reads and reports: started ones, and the latest start
	// of heartbeats and reads whose answer has been applied. reporting are the reports under
	// way, in the order of their start.
	started, through moment
	reporting        []uint64
	// refused is true when an attempt was turned away at the limit since the last settle.
	refused  bool
	draining bool
	closed   bool
	// cutOff is true while Redis has not answered for the heartbeat limit.
	cutOff bool
	// idle is closed when nothing is held after drain was called.
	idle chan struct{}
}

func newLedger(base context.Context, maxConcurrency int) *ledger {
	return &ledger{
		limit:   heldPerSlot * maxConcurrency,
		base:    base,
		held:    make(map[cell.Attempt]*attempt),
		freed:   make(chan struct{}, 1),
		settled: newMemory(maxSettled),
		handed:  newMemory(maxSettled),
		cancels: newMemory(maxEarlyCancels),
		idle:    make(chan struct{}),
	}
}

// resize follows a change of the node's slots.
func (l *ledger) resize(maxConcurrency int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.limit = heldPerSlot * maxConcurrency
}

// offer takes in an attempt that the node is said to own. It returns nil when the
// attempt is known already, and when there is no room: then the next heartbeat does
// not name it, and its reply offers it again.
func (l *ledger) offer(id cell.Attempt, job *freeslot.Job, tenant string, handed bool) *attempt {
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, ok := l.held[id]; ok || l.closed || l.ended(id) {
		return nil
	}
	if len(l.held) >= l.limit {
		l.refused = true
		return nil
	}
	a := &attempt{id: id, job: job, tenant: tenant, handed: handed, asked: l.cancels.has(id)}
	a.ctx, a.cancel = context.WithCancelCause(l.base)
	if a.asked {
		l.cancels.remove(id)
		a.cancel(ErrCancelled)
	}
	if l.draining {
		a.cancel(ErrStopping)
	}
	l.held[id] = a
	return a
}

// ended tells whether the attempt is remembered as ended.
func (l *ledger) ended(id cell.Attempt) bool { return l.settled.has(id) || l.handed.has(id) }

// ask notes that the attempt is to be cancelled. One whose end is decided already
// keeps it; one that has not been seen is cancelled when it arrives.
func (l *ledger) ask(id cell.Attempt) {
	l.mu.Lock()
	defer l.mu.Unlock()
	a, ok := l.held[id]
	switch {
	case ok && a.phase != finishing:
		a.asked = true
		a.cancel(ErrCancelled)
	case !ok && !l.ended(id) && !l.cancels.has(id):
		l.cancels.add(id, l.started)
	}
}

// disown stops an attempt that the node does not own. One that is being reported
// is left alone: the answer to its report decides, and the reason why it is not
// owned may be that this report has been applied.
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

// lost is closed once the attempt is disowned, which can come after it was told to stop for another reason.
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

// full tells whether as many attempts are held as the node has slots.
func (l *ledger) full() bool { return len(l.held) >= l.limit/heldPerSlot }

// room is nil where there is some; else it has a token when there is.
func (l *ledger) room() <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.full() {
		return nil
	}
	select { // of before
	case <-l.freed:
	default:
	}
	return l.freed
}

// begin moves the attempt to running, unless it has been cancelled, disowned or
// interrupted before.
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

// finish decides the attempt's end: no cancel and no loss of ownership counts
// after it. It reports what was asked before.
func (l *ledger) finish(a *attempt) (asked, disowned bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !a.disowned {
		a.phase = finishing
	}
	return a.asked, a.disowned
}

// settle lets go of an attempt that has been reported or dropped. It reports
// whether a heartbeat is due because another attempt was turned away before.
func (l *ledger) settle(a *attempt) (due bool) {
	a.cancel(context.Canceled)
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.held, a.id)
	if !l.full() {
		select {
		case l.freed <- struct{}{}:
		default:
		}
	}
	if a.handed {
		at := l.started
		at.reads = noRead // in no stream, so none brings it
		l.handed.add(a.id, at)
	} else {
		l.settled.add(a.id, l.started)
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

// answered notes that the reply to the numbered heartbeat has been applied.
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

// caughtUp notes that the numbered read has reached the end of the stream and
// that its entries have been applied.
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

// reported notes that the attempts that the numbered report brought have been offered, or that it brings none.
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
	l.settled.forget(l.through)
	l.handed.forget(l.through)
	l.cancels.forget(l.through)
}

// drain cancels what has not begun, with cause ErrStopping, and everything that is
// offered from now on. The returned channel is closed when nothing is held.
func (l *ledger) drain() <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.draining = true
	for _, a := range l.held {
		if a.phase == waiting {
			a.cancel(ErrStopping)
		}
	}
	l.checkIdle()
	return l.idle
}

// interrupt cancels everything that is held, and returns the ids of these jobs.
func (l *ledger) interrupt() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	jobs := make([]string, 0, len(l.held))
	for id, a := range l.held {
		a.cancel(ErrStopping)
		jobs = append(jobs, id.Job)
	}
	return jobs
}

// abandon disowns everything, because the node belongs to another process.
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
	return l.draining
}

func (l *ledger) checkIdle() {
	if !l.draining || len(l.held) > 0 {
		return
	}
	select {
	case <-l.idle:
	default:
		close(l.idle)
	}
}
