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
type client struct {
	d       *Dispatcher
	cell    *cell.Cell
	log     *zap.Logger
	metrics cellMetrics

	outstanding *xsync.MapOf[string, *waiter]
	lastRead    position                           // in the reply stream
	reader      atomic.Pointer[context.CancelFunc] // ends the read of it that is under way
	// fetches bounds the reads of this cell's own records, and asks those of others': a cell that is away must not keep
	// the reader of another waiting.
	fetches, asks chan struct{}
	// page is how many records one recheck reads; owned by keepReplies.
	page int
	// keeping and reading fail for as long as the cell is away; each is its loop's.
	keeping, reading *logging.Outage
	// often is log for what fails by the call: some lines of each kind are enough.
	sampled *zap.Logger

	queues queues
	match  *matcher
	full   fullNodes
	// contact is since when the cell has answered without a break.
	contact contact
	reaper  reaper // owned by its loop
	mover   mover  // owned by its loop
	// sweeping, tending, reaping and moving fail as keeping does.
	sweeping, tending, reaping, moving *logging.Outage
}

func newClient(d *Dispatcher, of *cell.Cell) *client {
	c := &client{
		d: d, cell: of, log: d.log, metrics: d.metrics.forCell(of.Index()),
		outstanding: xsync.NewMapOf[string, *waiter](),
		fetches:     make(chan struct{}, fetchLimit),
		asks:        make(chan struct{}, askLimit),
		page:        cell.MaxPage,
	}
	if d.cells.Len() > 1 {
		c.log = d.log.With(zap.Int("cell", of.Index()))
	}
	c.keeping = logging.NewOutage(c.log, "replies.keep_failed", "replies.kept_again")
	c.reading = logging.NewOutage(c.log, "replies.read_failed", "replies.read_again")
	c.sweeping = logging.NewOutage(c.log, "queues.sweep_failed", "queues.swept_again")
	c.tending = logging.NewOutage(c.log, "due.failed", "due.handled_again")
	c.reaping = logging.NewOutage(c.log, "nodes.reap_failed", "nodes.reaped_again")
	c.moving = logging.NewOutage(c.log, "jobs.move_failed", "jobs.move_again")
	c.sampled = logging.Sampled(c.log)
	c.queues.byID = xsync.NewMapOf[string, *queue]()
	c.match = newMatcher()
	return c
}

// run starts the loops of the cell, which Stop waits for.
func (c *client) run() {
	loops := []func(){c.readReplies, c.keepReplies, c.sweepQueues, c.handleDue, c.reapNodes, c.retainRecords, c.countBacklog}
	if len(c.d.clients) > 1 {
		loops = append(loops, c.moveJobs)
	}
	for range matchers {
		loops = append(loops, c.matchNodes)
	}
	c.d.loops.Add(len(loops))
	for _, loop := range loops {
		go func() { defer c.d.loops.Done(); loop() }()
	}
}

// tick calls f again and again, with pauses of interval that vary by a quarter, until
// Stop; a token of wake ends a pause.
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

// of is the link of a job's cell; false when no cell has such jobs.
func (d *Dispatcher) clientOf(jobID string) (*client, bool) {
	of, ok := d.cells.OfJob(jobID)
	if !ok {
		return nil, false
	}
	return d.clients[of.Index()], true
}

// watchReplies is how long a stream is watched that another process has opened; its
// keeper would renew it within that time.
const watchTime = renewInterval * 7 / 4

// ErrReplicaRuns is returned by Start when another process runs under the same
// replica id: each would take results that the other's clients wait for.
var ErrReplicaRuns = errors.New("another process runs under this replica id")

func (c *client) openReplies(ctx context.Context) error {
	if err := c.checkAlone(ctx); err != nil {
		return err
	}
	return c.cell.OpenReplies(ctx, c.d.cfg.Replica)
}

// alone looks whether somebody keeps a stream of this name alive. One that a crash
// has left behind only grows older, and is taken over.
func (c *client) checkAlone(ctx context.Context) error {
	left, err := c.cell.RepliesLeft(ctx, c.d.cfg.Replica)
	if err != nil || left == 0 {
		return err
	}
	c.log.Info("replies.found", zap.Duration("watched_for", watchTime))
	tick := time.NewTicker(watchTime / 8)
	defer tick.Stop()
	for end := time.Now().Add(watchTime); time.Now().Before(end); {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return ctx.Err()
		}
		now, err := c.cell.RepliesLeft(ctx, c.d.cfg.Replica)
		switch {
		case err != nil:
			return err
		case now > left:
			return fmt.Errorf("%w: replica_id is %s, expected one that no other replica has", ErrReplicaRuns, c.d.cfg.Replica)
		}
		left = now
	}
	return nil
}

func (c *client) closeReplies(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, ioTimeout)
	defer cancel()
	return c.cell.CloseReplies(ctx, c.d.cfg.Replica)
}

func (c *client) logFailure(what string, err error) { logFailure(c.sampled, what, err) }

// failed has the cell's nodes left out of choices until the cell answers again.
func (c *client) noteFailure() {
	c.metrics.failures.Inc()
	c.d.failing.set(c.cell.Index(), true)
	c.d.nodes.CellFailed(c.cell.Index())
}

// drop removes w unless another has taken its place since.
func (c *client) drop(id string, w *waiter) {
	c.outstanding.Compute(id, func(now *waiter, loaded bool) (*waiter, bool) {
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

type cellMetrics struct {
	placed, failures, enqueued, matched, reaped, expired, moved, dropped prometheus.Counter
	reapingPaused                                                        prometheus.Gauge
	// retained has no value where nothing is limited.
	retained *prometheus.GaugeVec
}
