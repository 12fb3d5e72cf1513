package cell

import (
	"context"
	"errors"
	"fmt"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/rueidis"
	"go.uber.org/zap"

	"github.com/freeslot/freeslot/internal/process/logging"
	"github.com/freeslot/freeslot/internal/script"
)

// New makes a cell on client, which the caller keeps and closes. It does no I/O. reg may be nil.
func New(cfg Config, client rueidis.Client, logger *zap.Logger, reg prometheus.Registerer) (*Cell, error) {
	cfg = cfg.WithDefaults()
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("cell: %w", err)
	}
	if client.Mode() == rueidis.ClientModeCluster && cfg.Layout.Tag == "" {
		return nil, fmt.Errorf("cell: Redis is a cluster, where the keys of a cell need a hash tag to stay together")
	}
	c := &Cell{
		cfg: cfg, layout: cfg.Layout, client: client, log: logger,
		unreadable: logging.NewRepeated(logger, "node.unreadable"), scripts: scripts,
		tombstones: tombstonesKept, stopping: make(chan struct{}), stopped: make(chan struct{}),
	}
	c.runner = script.NewRunner(script.Config{
		Layout: script.Layout(cfg.Layout), CallTimeout: cfg.CallTimeout, Missing: cfg.Scripts, Acknowledge: cfg.Acknowledge,
	}, client, logger, reg)
	c.runner.Add(scripts)
	c.submits, c.enqueues = script.NewBatch(c.runner, c.submitBatch()), script.NewBatch(c.runner, c.enqueueBatch())
	c.completions = script.NewBatch(c.runner, c.completeBatch())
	return c, nil
}

func (c *Cell) submitBatch() script.BatchConfig[encodedSubmission, Placement] {
	return script.BatchConfig[encodedSubmission, Placement]{
		Name: "submit", Run: c.submit, Size: submissionSize, Items: batchItems, Bytes: batchBytes, Queue: c.cfg.QueueLimit,
		Calls: batchLoops, CallsOfFew: callsOfFew, Timeout: c.runner.ConfirmTimeout(), Yields: true,
	}
}

func (c *Cell) enqueueBatch() script.BatchConfig[encodedSubmission, Placement] {
	cfg := c.submitBatch()
	cfg.Name, cfg.Run = "enqueue", c.enqueue
	return cfg
}

func (c *Cell) completeBatch() script.BatchConfig[Completion, CompletionOutcome] {
	return script.BatchConfig[Completion, CompletionOutcome]{
		Name: "complete", Run: c.complete, Size: completionSize, Items: batchItems, Bytes: batchBytes,
		Queue: c.cfg.QueueLimit,
		Group: func(a, b Completion) bool { return a.Node == b.Node && a.Epoch == b.Epoch },
		Calls: batchLoops, Timeout: c.cfg.CallTimeout,
	}
}

// Start lets the cell gather Submit, EnqueueAll and Complete calls. It does no I/O.
func (c *Cell) Start(context.Context) error {
	c.start.Do(func() {
		c.submits.Start()
		c.enqueues.Start()
		c.completions.Start()
		if c.keepsScripts() {
			c.loops.Go(func() { c.runner.Keep(c.stopping) })
		}
	})
	return nil
}

// keepsScripts returns true for one cell of each server. On standalone servers, all cells of a
// server would find the same.
func (c *Cell) keepsScripts() bool {
	return c.cfg.Scripts == script.Keep && (c.layout.Sharded || c.cfg.Index < c.cfg.Servers)
}

// Stop ends the calls under way and refuses further ones with ErrStopped. It may be called twice,
// and on a cell that was never started.
func (c *Cell) Stop(ctx context.Context) error {
	c.start.Do(func() {}) // a cell that is stopped before its Start never starts
	c.stop.Do(func() {
		close(c.stopping)
		for _, stop := range []func(context.Context) error{c.submits.Stop, c.enqueues.Stop, c.completions.Stop} {
			c.loops.Go(func() { _ = stop(context.Background()) }) // it returns no error
		}
		go func() { c.loops.Wait(); close(c.stopped) }()
	})
	select {
	case <-c.stopped:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("stop cell: %w", ctx.Err())
	}
}

// Start lets every cell gather its calls. It does no I/O.
func (s *Set) Start(ctx context.Context) error {
	return errors.Join(s.each(func(c *Cell) error { return c.Start(ctx) })...)
}

// Stop stops every cell; see [Cell.Stop].
func (s *Set) Stop(ctx context.Context) error {
	return errors.Join(s.each(func(c *Cell) error { return c.Stop(ctx) })...)
}
