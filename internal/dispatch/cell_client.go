package dispatch

import (
	"context"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/puzpuzpuz/xsync/v3"
	"go.uber.org/zap"

	"github.com/freeslot/freeslot/internal/cell"
	"github.com/freeslot/freeslot/internal/process/logging"
	"github.com/freeslot/freeslot/internal/selection"
)

// ioTimeout bounds calls of cells that no caller of the dispatcher waits for.
const ioTimeout = 2 * time.Second

// client is a replica's connection to one cell: its reply stream, the outstanding jobs there, and
// the loops for its waiting jobs. Cells share nothing, so a server that is down delays no other
// cell.
type client struct {
	d       *Dispatcher
	cell    *cell.Cell
	log     *zap.Logger
	sampled *zap.Logger // log for repeated failures: some lines of each kind are enough
	metrics cellMetrics

	// outstanding holds the jobs whose results are awaited, by id.
	outstanding *xsync.MapOf[string, *waiter]
	// lastRead is the id of the last reply that was delivered; renewReplies trims up to it.
	lastRead atomic.Pointer[string]
	reader   atomic.Pointer[context.CancelFunc] // ends the read of the stream that is under way
	// fetches bounds the reads of this cell's records that replies cause. asks bounds the questions
	// to all cells. They are separate, so that a cell that is away does not delay this one.
	fetches, asks chan struct{}
	// page is how many records one recheck reads. Only keepReplies uses it.
	page int

	queues  queues
	match   *matcher
	full    fullNodes
	contact contact
	// refusal says why the cell's Redis refused the last call of handleDue, which writes. It is
	// empty if Redis did not refuse.
	refusal atomic.Pointer[string]
	reaper  reaper // used by reapNodes alone
	mover   mover  // used by moveJobs alone
	// unrecorded is true if the cell may have lost what Start recorded there. Only keepReplies uses
	// it.
	unrecorded bool

	// Each outage is used by one loop.
	keeping, recording, reading, sweeping, tending, reaping, mending, moving *logging.Outage
}

func newClient(d *Dispatcher, of *cell.Cell) *client {
	c := &client{
		d: d, cell: of, log: d.log, metrics: d.metrics.forCell(of.Index()),
		outstanding: xsync.NewMapOf[string, *waiter](),
		fetches:     make(chan struct{}, fetchLimit),
		asks:        make(chan struct{}, askLimit),
		page:        cell.MaxPage,
		match:       newMatcher(),
	}
	if d.cells.Len() > 1 {
		c.log = d.log.With(zap.Int("cell", of.Index()))
	}
	c.sampled = logging.Sampled(c.log)
	c.lastRead.Store(new(string))
	c.refusal.Store(new(string))
	c.queues.byID = xsync.NewMapOf[string, *queue]()
	c.keeping = logging.NewOutage(c.log, "replies.keep_failed", "replies.kept_again")
	c.recording = logging.NewOutage(c.log, "record.failed", "record.written_again")
	c.reading = logging.NewOutage(c.log, "replies.read_failed", "replies.read_again")
	c.sweeping = logging.NewOutage(c.log, "queues.sweep_failed", "queues.swept_again")
	c.tending = logging.NewOutage(c.log, "due.failed", "due.handled_again")
	c.reaping = logging.NewOutage(c.log, "nodes.reap_failed", "nodes.reaped_again")
	c.mending = logging.NewOutage(c.log, "sets.mend_failed", "sets.mended_again")
	c.moving = logging.NewOutage(c.log, "jobs.move_failed", "jobs.move_again")
	return c
}

// run starts the loops of the cell. Stop waits for them.
func (c *client) run() {
	loops := []func(){
		c.readReplies, c.keepReplies, c.sweepQueues, c.handleDue, c.reapNodes, newRetention(c).run, c.countBacklog,
	}
	if len(c.d.clients) > 1 {
		loops = append(loops, c.moveJobs)
	}
	for range matchers {
		loops = append(loops, c.matchNodes)
	}
	for _, loop := range loops {
		c.d.loops.Go(loop)
	}
}

// tick calls f until Stop, with pauses of interval that vary by a quarter. A token in wake ends a
// pause.
func (c *client) tick(interval time.Duration, wake <-chan struct{}, f func()) {
	for {
		timer := time.NewTimer(interval*7/8 + rand.N(interval/4+1))
		select {
		case <-timer.C:
		case <-wake:
			timer.Stop()
		case <-c.d.ctx.Done():
			timer.Stop()
			return
		}
		f()
	}
}

// sleep waits for pause. It returns false once ctx has ended.
func sleep(ctx context.Context, pause time.Duration) bool {
	timer := time.NewTimer(pause)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// succeeded records the result of a loop's call in outage, and reports whether it was a success.
func (c *client) succeeded(outage *logging.Outage, err error) bool {
	switch {
	case err == nil:
		outage.Over()
	case c.d.ctx.Err() == nil:
		outage.Failed(err)
	}
	return err == nil
}

// warn logs a failure of a call, unless the dispatcher is stopping.
func (c *client) warn(event string, err error, fields ...zap.Field) {
	if c.d.ctx.Err() == nil {
		c.sampled.Warn(event, append(fields, zap.Error(err))...)
	}
}

// clientOf returns the client of a job's cell; false if no cell has ids like this one.
func (d *Dispatcher) clientOf(jobID string) (*client, bool) {
	c, ok := d.cells.OfJob(jobID)
	if !ok {
		return nil, false
	}
	return d.clients[c.Index()], true
}

// noteFailure leaves the cell's nodes out of choices until the cell answers again.
func (c *client) noteFailure() {
	c.metrics.failures.Inc()
	c.d.failing.set(c.cell.Index(), true)
	c.d.nodes.CellFailed(c.cell.Index())
}

// drop removes w unless another waiter has replaced it.
func (c *client) drop(id string, w *waiter) {
	c.outstanding.Compute(id, func(now *waiter, loaded bool) (*waiter, bool) {
		return now, !loaded || now == w
	})
}

// contact records since when a cell has taken writes without a break, by the clock of Nodes.Now. A
// cell that only answers reads takes no heartbeats, so its nodes would seem silent. The zero value
// means no contact. It is safe for concurrent use; one goroutine makes and loses it.
type contact struct{ at atomic.Pointer[proofs] }

// proofs describes an unbroken series of calls that wrote: when the first was answered, and when
// the last was sent.
type proofs struct{ since, sent int64 }

// made records a call that was sent and is answered now. The cell may have been away ever since the
// call before was sent. If that was longer than gap ago, contact starts again.
func (c *contact) made(sent, now int64, gap time.Duration) {
	since := now
	if last := c.at.Load(); last != nil && now-last.sent <= int64(gap) {
		since = last.since
	}
	c.at.Store(&proofs{since: since, sent: sent})
}

func (c *contact) lost() { c.at.Store(nil) }

// lasts returns how long the contact has lasted. It returns 0 if no call was sent within gap and
// answered.
func (c *contact) lasts(now int64, gap time.Duration) time.Duration {
	last := c.at.Load()
	if last == nil || now-last.sent > int64(gap) {
		return 0
	}
	return time.Duration(now - last.since)
}

// cellSet is a set of cells. It is safe for concurrent use.
type cellSet struct{ mask atomic.Uint64 }

func (s *cellSet) load() selection.CellMask { return selection.CellMask(s.mask.Load()) }

// set adds or removes a cell, and reports whether that changed the set.
func (s *cellSet) set(cell int, in bool) bool {
	bit := uint64(1) << uint(cell)
	if in {
		return s.mask.Or(bit)&bit == 0
	}
	return s.mask.And(^bit)&bit != 0
}
