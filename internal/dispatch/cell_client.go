package dispatch

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/puzpuzpuz/xsync/v3"
	"go.uber.org/zap"

	"github.com/freeslot/freeslot/internal/cell"
	"github.com/freeslot/freeslot/internal/process/logging"
	"github.com/freeslot/freeslot/internal/selection"
)

const (
	// fetchLimit bounds the records of one cell that are read at once because of its replies.
	fetchLimit = 16
	// askLimit bounds the questions to all cells that the replies of one lead to at once.
	askLimit = 16
)

// link is the replica's side of one cell: its reply stream, the jobs there whose
// results somebody waits for, and the care for those that wait for a slot. Cells have nothing in common, so that one whose server
// is down holds up no other.
type link struct {
	d       *Dispatcher
	cell    *cell.Cell
	log     *zap.Logger
	metrics linkMetrics

	outstanding *xsync.MapOf[string, *waiter]
	read        position                           // in the reply stream
	reader      atomic.Pointer[context.CancelFunc] // ends the read of it that is under way
	// fetches bounds the reads of this cell's own records, and asks those of others': a cell that is away must not keep
	// the reader of another waiting.
	fetches, asks chan struct{}
	// page is how many records one recheck reads; owned by keepReplies.
	page int
	// keeping and reading fail for as long as the cell is away; each is its loop's.
	keeping, reading *logging.Outage
	// often is log for what fails by the call: some lines of each kind are enough.
	often *zap.Logger

	queues  queues
	match   *matcher
	resting resting
	// contact is since when the cell has answered without a break.
	contact contact
	reaper  reaper // owned by its loop
	mover   mover  // owned by its loop
	// sweeping, tending, reaping and moving fail as keeping does.
	sweeping, tending, reaping, moving *logging.Outage
}

func newLink(d *Dispatcher, c *cell.Cell) *link {
	l := &link{
		d: d, cell: c, log: d.log, metrics: d.metrics.link(c.Index()),
		outstanding: xsync.NewMapOf[string, *waiter](),
		fetches:     make(chan struct{}, fetchLimit),
		asks:        make(chan struct{}, askLimit),
		page:        cell.MaxPage,
	}
	if d.cells.Len() > 1 {
		l.log = d.log.With(zap.Int("cell", c.Index()))
	}
	l.keeping = logging.NewOutage(l.log, "replies.keep_failed", "replies.kept_again")
	l.reading = logging.NewOutage(l.log, "replies.read_failed", "replies.read_again")
	l.sweeping = logging.NewOutage(l.log, "queues.sweep_failed", "queues.swept_again")
	l.tending = logging.NewOutage(l.log, "due.failed", "due.handled_again")
	l.reaping = logging.NewOutage(l.log, "nodes.reap_failed", "nodes.reaped_again")
	l.moving = logging.NewOutage(l.log, "jobs.move_failed", "jobs.move_again")
	l.often = logging.Sampled(l.log)
	l.queues.byID = xsync.NewMapOf[string, *queue]()
	l.match = newMatcher()
	return l
}

// run starts the loops of the cell, which Stop waits for.
func (l *link) run() {
	loops := []func(){l.readReplies, l.keepReplies, l.sweepQueues, l.handleDue, l.reapNodes, l.retainRecords, l.countBacklog}
	if len(l.d.links) > 1 {
		loops = append(loops, l.moveJobs)
	}
	for range matchers {
		loops = append(loops, l.matchNodes)
	}
	l.d.loops.Add(len(loops))
	for _, loop := range loops {
		go func() { defer l.d.loops.Done(); loop() }()
	}
}

// tick calls f again and again, with pauses of interval that vary by a quarter, until
// Stop; a token of wake ends a pause.
func (l *link) tick(interval time.Duration, wake <-chan struct{}, f func()) {
	for {
		timer := time.NewTimer(interval*7/8 + rand.N(interval/4+1))
		select {
		case <-timer.C:
		case <-wake:
			timer.Stop()
		case <-l.d.ctx.Done():
			timer.Stop()
			return
		}
		f()
	}
}

// of is the link of a job's cell; false when no cell has such jobs.
func (d *Dispatcher) of(jobID string) (*link, bool) {
	c, ok := d.cells.OfJob(jobID)
	if !ok {
		return nil, false
	}
	return d.links[c.Index()], true
}

// watchReplies is how long a stream is watched that another process has opened; its
// keeper would renew it within that time.
const watchReplies = keepInterval * 7 / 4

// ErrReplicaRuns is returned by Start when another process runs under the same
// replica id: each would take results that the other's clients wait for.
var ErrReplicaRuns = errors.New("another process runs under this replica id")

func (l *link) open(ctx context.Context) error {
	if err := l.alone(ctx); err != nil {
		return err
	}
	return l.cell.OpenReplies(ctx, l.d.cfg.Replica)
}

// alone looks whether somebody keeps a stream of this name alive. One that a crash
// has left behind only grows older, and is taken over.
func (l *link) alone(ctx context.Context) error {
	left, err := l.cell.RepliesLeft(ctx, l.d.cfg.Replica)
	if err != nil || left == 0 {
		return err
	}
	l.log.Info("replies.found", zap.Duration("watched_for", watchReplies))
	tick := time.NewTicker(watchReplies / 8)
	defer tick.Stop()
	for end := time.Now().Add(watchReplies); time.Now().Before(end); {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return ctx.Err()
		}
		now, err := l.cell.RepliesLeft(ctx, l.d.cfg.Replica)
		switch {
		case err != nil:
			return err
		case now > left:
			return fmt.Errorf("%w: replica_id is %s, expected one that no other replica has", ErrReplicaRuns, l.d.cfg.Replica)
		}
		left = now
	}
	return nil
}

func (l *link) close(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, ioTimeout)
	defer cancel()
	return l.cell.CloseReplies(ctx, l.d.cfg.Replica)
}

func (l *link) logFailure(what string, err error) { logFailure(l.often, what, err) }

// failed has the cell's nodes left out of choices until the cell answers again.
func (l *link) failed() {
	l.metrics.failures.Inc()
	l.d.failing.set(l.cell.Index(), true)
	l.d.nodes.CellFailed(l.cell.Index())
}

// drop removes w unless another has taken its place since.
func (l *link) drop(id string, w *waiter) {
	l.outstanding.Compute(id, func(now *waiter, loaded bool) (*waiter, bool) {
		return now, !loaded || now == w
	})
}

// cellSet is a set of cells that many goroutines read and some change.
type cellSet struct{ mask atomic.Uint64 }

func (s *cellSet) load() selection.CellMask { return selection.CellMask(s.mask.Load()) }

// set puts cell in, or takes it out, and reports whether that changed anything.
func (s *cellSet) set(cell int, in bool) bool {
	bit := uint64(1) << uint(cell)
	if in {
		return s.mask.Or(bit)&bit == 0
	}
	return s.mask.And(^bit)&bit != 0
}

type linkMetrics struct {
	placed, failures, enqueued, matched, reaped, expired, moved, dropped prometheus.Counter
	sparing                                                              prometheus.Gauge
	// retained has no value where nothing is limited.
	retained *prometheus.GaugeVec
}
