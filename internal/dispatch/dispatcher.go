package dispatch

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/puzpuzpuz/xsync/v3"
	"go.uber.org/zap"

	"github.com/freeslot/freeslot/internal/beat"
	"github.com/freeslot/freeslot/internal/cell"
	"github.com/freeslot/freeslot/internal/presence"
	"github.com/freeslot/freeslot/internal/process/logging"
	"github.com/freeslot/freeslot/internal/selection"
)

// This file holds what all parts of a dispatcher share: its state, and its state for each cell.

// Dispatcher places jobs and delivers their results. It is safe for concurrent use.
type Dispatcher struct {
	cfg     Config
	cells   *cell.Set
	nodes   Nodes
	log     *zap.Logger
	sampled *zap.Logger // log for repeated failures: some lines of each kind are enough
	metrics *metrics
	byCell  []*cellClient

	allCells selection.CellMask
	// outOfMemory holds the cells whose Redis has too little memory left for new jobs.
	outOfMemory cellSet
	// lackReplicas holds the cells whose Redis has too few replicas to confirm a job.
	lackReplicas cellSet
	// reapingPaused holds the cells in which too many nodes are silent at the same time.
	reapingPaused cellSet
	// misrecorded holds the cells that would refuse a start of this replica.
	misrecorded cellSet
	// failing holds the cells whose last submit or renewal failed. Choices do not use it: unlike
	// Nodes.Skip it can hold every cell.
	failing cellSet
	// share holds the nodes that this replica matches first; nil means all nodes.
	share atomic.Pointer[selection.Share]

	buckets      *buckets
	replicaCount atomic.Int64 // how many replicas run; 0 means unknown

	fence fence
	// configs gets a token when the configuration has changed.
	configs chan struct{}
	// followed is the last configuration that this replica has reported to follow.
	followed atomic.Pointer[selection.Config]
	presence *presence.Store

	classCells classCellsCache
	anyCell    *classCells // for jobs that wait for the first node of their class
	// submits counts the calls of Submit that are under way.
	submits    atomic.Int64
	openGroups openGroups

	start    sync.Once
	startErr error // set in start
	started  bool  // set in start: loops run and reply streams are open
	stop     sync.Once
	ctx      context.Context
	cancel   context.CancelFunc
	loops    sync.WaitGroup
}

// cellClient is a replica's connection to one cell: the outstanding jobs there, and what it knows
// of the waiting jobs and of the cell's state. Cells share nothing, so a server that is down delays
// no other cell.
type cellClient struct {
	d       *Dispatcher
	cell    *cell.Cell
	log     *zap.Logger
	sampled *zap.Logger // log for repeated failures: some lines of each kind are enough
	metrics cellMetrics

	// outstanding holds the jobs whose results are awaited, by id.
	outstanding *xsync.MapOf[string, *waiter]

	queues queues
	free   freeNodes
	full   fullNodes
	// sweeps gets a token when the sweeper must run at once.
	sweeps chan struct{}
	// moves gets a token when the mover must run at once. unfit is true while jobs wait here that no
	// node of any cell fits.
	moves     chan struct{}
	unfit     atomic.Bool
	announced announcedConfig

	// load is the last reading of the server's load, backlog the last count of the waiting jobs; both
	// are nil while the cell does not answer. ended counts the jobs that ended since the first
	// reading, by cell.EndStates, and retried the attempts that were retried. Only the replyKeeper
	// uses loadAt, the time of the last reading, and retries, the count that it read.
	load    atomic.Pointer[CellLoad]
	backlog atomic.Pointer[backlogCount]
	ended   [5]atomic.Uint64
	retried atomic.Uint64
	loadAt  int64
	retries int64

	contact contact
	// refusal says why the cell's Redis refused the last call for due jobs, which writes. It is
	// empty if Redis did not refuse.
	refusal atomic.Pointer[string]
}

// announcedConfig is the last configuration that was announced to a cell. mu is held during the
// announcement.
type announcedConfig struct {
	mu     sync.Mutex
	config *selection.Config
}

func newCellClient(d *Dispatcher, of *cell.Cell) *cellClient {
	c := &cellClient{
		d: d, cell: of, log: d.log, metrics: d.metrics.forCell(of.Index()),
		outstanding: xsync.NewMapOf[string, *waiter](),
		queues:      queues{byID: xsync.NewMapOf[string, *queue]()},
		free:        newFreeNodes(),
		sweeps:      make(chan struct{}, 1),
		moves:       make(chan struct{}, 1),
	}
	if d.cells.Len() > 1 {
		c.log = d.log.With(zap.Int("cell", of.Index()))
	}
	c.sampled = logging.Sampled(c.log)
	c.refusal.Store(new(string))
	return c
}

// Replica returns the name of this replica.
func (d *Dispatcher) Replica() string { return d.cfg.Replica }

// SetReplicas sets the replicas that run, this one among them, without duplicates. They share the
// nodes: each goes first to match its part with waiting jobs. Before the first call this replica
// counts as alone.
func (d *Dispatcher) SetReplicas(names []string) {
	d.share.Store(selection.NewShare(d.cfg.Replica, names))
	d.replicaCount.Store(int64(len(names)))
}

// goesFirst reports whether this replica goes first for a node.
func (d *Dispatcher) goesFirst(node string) bool {
	share := d.share.Load()
	return share == nil || share.Has(node)
}

// nodeFreed is called when a node can take a job. Several replicas hear of it, and one goes first.
// If that one is gone, or knows of no waiting job, a sweep finds the node.
func (d *Dispatcher) nodeFreed(n *selection.Node) {
	if c := d.byCell[n.Cell()]; c.queues.byID.Size() > 0 && d.goesFirst(n.ID()) {
		c.free.offer(n, false)
	}
	if len(d.byCell) > 1 {
		d.wakeMovers(n)
	}
}

// waitingCells returns the cells in which a job of the class would wait behind others.
func (d *Dispatcher) waitingCells(class *selection.Class) (cells selection.CellMask) {
	for i, c := range d.byCell {
		if q, known := c.queues.byID.Load(class.ID()); known && q.hasWaiting.Load() {
			cells = cells.With(i)
		}
	}
	return cells
}

// ofJob returns the client of a job's cell; false if no cell has ids like this one.
func (d *Dispatcher) ofJob(jobID string) (*cellClient, bool) {
	c, ok := d.cells.OfJob(jobID)
	if !ok {
		return nil, false
	}
	return d.byCell[c.Index()], true
}

// eachCell calls f for all cells at the same time, so that a cell that is away does not delay the
// others.
func (d *Dispatcher) eachCell(f func(*cellClient) error) error {
	errs := make([]error, len(d.byCell))
	var all sync.WaitGroup
	for i, c := range d.byCell {
		all.Go(func() { errs[i] = f(c) })
	}
	all.Wait()
	return errors.Join(errs...)
}

// coded is the function coded. It also logs what the caller does not learn.
func (d *Dispatcher) coded(what string, err error) error {
	logFailure(d.sampled, what, err)
	return coded(what, err)
}

// noteWaiting records that the job waits in the cell, or others of its class do.
func (c *cellClient) noteWaiting(class *selection.Class, r *Request) {
	if c.queues.noteWaiting(class, r.Job, r.Tenant) {
		c.wakeSweep()
	}
	if class.Fits() == 0 {
		c.unfit.Store(true)
	}
}

// wakeSweep makes the sweeper run at once.
func (c *cellClient) wakeSweep() {
	select {
	case c.sweeps <- struct{}{}:
	default:
	}
}

// contactGap returns the longest outage that does not restart the contact timer. A node may have
// been silent for half a limit before it, and needs the rest to be heard again.
func (c *cellClient) contactGap() time.Duration {
	return max(c.d.nodes.SilenceLimit()/4, contactLeastGap)
}

// noteFailure leaves the cell's nodes out of choices until the cell answers again.
func (c *cellClient) noteFailure() {
	c.metrics.failures.Inc()
	c.d.failing.set(c.cell.Index(), true)
	c.d.nodes.CellFailed(c.cell.Index())
}

// succeeded records the result of a loop's call in outage, and reports whether it was a success.
func (c *cellClient) succeeded(outage *logging.Outage, err error) bool {
	switch {
	case err == nil:
		outage.Over()
	case c.d.ctx.Err() == nil:
		outage.Failed(err)
	}
	return err == nil
}

// warn logs a failure of a call, unless the dispatcher is stopping.
func (c *cellClient) warn(event string, err error, fields ...zap.Field) {
	if c.d.ctx.Err() == nil {
		c.sampled.Warn(event, append(fields, zap.Error(err))...)
	}
}

// ioTimeout bounds calls of cells that no caller of the dispatcher waits for.
const ioTimeout = 2 * time.Second

// timeout returns a context for one call of a loop.
func (d *Dispatcher) timeout() (context.Context, context.CancelFunc) {
	return context.WithTimeout(d.ctx, ioTimeout)
}

// tick calls f until Stop, with pauses of interval that vary by a quarter and end at a beat. A token
// in wake ends a pause.
func (d *Dispatcher) tick(interval time.Duration, wake <-chan struct{}, f func()) {
	for {
		timer := time.NewTimer(beat.Pause(interval*7/8 + rand.N(interval/4+1)))
		select {
		case <-timer.C:
		case <-wake:
			timer.Stop()
		case <-d.ctx.Done():
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
