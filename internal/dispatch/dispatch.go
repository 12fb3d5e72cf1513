package dispatch

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"github.com/freeslot/freeslot/internal/cell"
	"github.com/freeslot/freeslot/internal/presence"
	"github.com/freeslot/freeslot/internal/process/logging"
)

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
	d.metrics = newMetrics(reg, d.Outstanding, slices.Collect(maps.Keys(cfg.Rates)))
	for _, c := range cells.All() {
		d.byCell = append(d.byCell, newCellClient(d, c))
		d.allCells = d.allCells.With(c.Index())
	}
	d.buckets = newBuckets(d.newBucket, cfg.Rates, cfg.DefaultRate)
	d.classCells.nodes, d.classCells.cells = nodes, cells.Len()
	d.anyCell = anyCell(cells.Len())
	nodes.OnFree(d.nodeFreed)
	cells.SetGuide(d.guide())
	cells.SetOwners(d.owners)
	return d, nil
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
		for _, c := range d.byCell {
			d.run(c)
		}
		d.loops.Go(d.followConfig)
	})
	return d.startErr
}

// run starts the loops of a cell. Stop waits for them.
func (d *Dispatcher) run(c *cellClient) {
	reader := newReplyReader(c)
	loops := []interface{ run() }{
		reader, newReplyKeeper(c, reader), newSweeper(c), newDueJobs(c), newReaper(c), newMover(c),
		newRetention(c), newBacklog(c),
	}
	for range matchers {
		loops = append(loops, &matcher{c})
	}
	for _, loop := range loops {
		d.loops.Go(loop.run)
	}
}

// startGrace is how long a start waits for the other cells after one has answered.
const startGrace = 2 * time.Second

// open returns nil once one cell has opened its stream and the others had startGrace. The
// replyKeepers of late cells open theirs.
func (d *Dispatcher) open(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	opened := make(chan error, len(d.byCell))
	for _, c := range d.byCell {
		go func() { opened <- c.openReplies(ctx) }()
	}
	var first, duplicate error
	some := false
	for range d.byCell {
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
			err = d.eachCell(func(c *cellClient) error { return c.closeReplies(ctx) })
		}
	})
	return err
}
