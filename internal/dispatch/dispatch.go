package dispatch

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"github.com/freeslot/freeslot/internal/cell"
	"github.com/freeslot/freeslot/internal/presence"
	"github.com/freeslot/freeslot/internal/process/logging"
	"github.com/freeslot/freeslot/internal/selection"
)

// Dispatcher places jobs and delivers their results. It is safe for concurrent use.
type Dispatcher struct {
	cfg     Config
	cells   *cell.Set
	nodes   Nodes
	log     *zap.Logger
	sampled *zap.Logger // log for repeated failures: some lines of each kind are enough
	metrics *metrics
	clients []*client // by cell

	allCells selection.CellMask
	// outOfMemory holds the cells whose Redis has too little memory left for new jobs.
	outOfMemory cellSet
	// lackReplicas holds the cells whose Redis has too few replicas to confirm a job.
	lackReplicas cellSet
	// misrecorded holds the cells that would refuse a start of this replica.
	misrecorded cellSet
	// failing holds the cells whose last submit or renewal failed. Choices do not use it: unlike
	// Nodes.Skip it can hold every cell.
	failing cellSet
	// share holds the nodes that this replica matches first; nil means all nodes.
	share atomic.Pointer[selection.Share]

	buckets      map[string]*bucket // of the tenants with a submit rate; immutable
	replicaCount atomic.Int64       // how many replicas run; 0 means unknown

	fence fence
	// configs gets a token when the configuration has changed.
	configs chan struct{}
	// followed is the last configuration that this replica has reported to follow.
	followed atomic.Pointer[selection.Config]
	presence *presence.Store

	classCells classCellsCache
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

// New makes a dispatcher. It does no I/O. reg may be nil. nodes must not serve another dispatcher.
func New(cfg Config, cells *cell.Set, nodes Nodes, log *zap.Logger, reg prometheus.Registerer) (*Dispatcher, error) {
	cfg = cfg.WithDefaults()
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("dispatch: %w", err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	d := &Dispatcher{
		cfg: cfg, cells: cells, nodes: nodes, log: log, sampled: logging.Sampled(log),
		configs: make(chan struct{}, 1), presence: presence.NewStore(cells.At(0).Runner()),
		ctx: ctx, cancel: cancel,
	}
	d.metrics = newMetrics(d, reg)
	for _, c := range cells.All() {
		d.clients = append(d.clients, newClient(d, c))
		d.allCells = d.allCells.With(c.Index())
	}
	d.buckets = newBuckets(d, cfg.Rates)
	nodes.OnFree(d.nodeFreed)
	cells.SetGuide(d.guide())
	return d, nil
}

// SetReplicas sets the replicas that run, this one among them, without duplicates. They share the
// nodes: each goes first to match its part with waiting jobs. Before the first call this replica
// counts as alone.
func (d *Dispatcher) SetReplicas(names []string) {
	d.share.Store(selection.NewShare(d.cfg.Replica, names))
	d.replicaCount.Store(int64(len(names)))
}

// Replica returns the name of this replica.
func (d *Dispatcher) Replica() string { return d.cfg.Replica }

// Outstanding returns the number of jobs whose results are awaited at this replica.
func (d *Dispatcher) Outstanding() int {
	n := 0
	for _, c := range d.clients {
		n += c.outstanding.Size()
	}
	return n
}

// Start opens a reply stream in each cell and starts the loops. It succeeds if one cell answers;
// late cells join when they do. ctx bounds only the opening. If Start returns an error, nothing
// runs, and the dispatcher cannot be started again.
func (d *Dispatcher) Start(ctx context.Context) error {
	d.start.Do(func() {
		if d.startErr = d.open(ctx); d.startErr != nil {
			return
		}
		d.started = true
		for _, c := range d.clients {
			c.run()
		}
		d.loops.Go(d.followConfig)
	})
	return d.startErr
}

// startGrace is how long a start waits for the other cells after one has answered.
const startGrace = 2 * time.Second

// open returns nil once one cell has opened its stream and the others had startGrace. The
// keepReplies loops of late cells open theirs.
func (d *Dispatcher) open(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	opened := make(chan error, len(d.clients))
	for _, c := range d.clients {
		go func() { opened <- c.openReplies(ctx) }()
	}
	var first, duplicate error
	some := false
	for range d.clients {
		err := <-opened
		switch {
		case errors.Is(err, ErrReplicaRuns):
			duplicate = err
		case err != nil:
			first = cmp.Or(first, err)
		case !some:
			some = true
			defer time.AfterFunc(startGrace, cancel).Stop()
		}
	}
	if duplicate != nil || !some {
		return cmp.Or(duplicate, first)
	}
	if first != nil {
		d.log.Warn("replies.not_opened", zap.Error(first))
	}
	return nil
}

// Stop ends the loops and closes the reply streams. Later results stay in their records, waiting
// jobs keep waiting, and later submits are refused. It may be called twice, and on a dispatcher
// that was never started.
func (d *Dispatcher) Stop(ctx context.Context) error {
	var err error
	d.start.Do(func() {}) // a Start after Stop does nothing
	d.stop.Do(func() {
		d.cancel()
		d.loops.Wait()
		if d.started {
			err = d.eachClient(func(c *client) error { return c.closeReplies(ctx) })
		}
	})
	return err
}

// eachClient calls f for all cells at the same time, so that a cell that is away does not delay the
// others.
func (d *Dispatcher) eachClient(f func(*client) error) error {
	errs := make([]error, len(d.clients))
	var all sync.WaitGroup
	for i, c := range d.clients {
		all.Go(func() { errs[i] = f(c) })
	}
	all.Wait()
	return errors.Join(errs...)
}
