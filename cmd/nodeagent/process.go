package main

import (
	"context"
	"errors"
	"sync"

	"go.uber.org/zap"

	"github.com/freeslot/freeslot/internal/nodeagent"
	"github.com/freeslot/freeslot/internal/process/logging"
	"github.com/freeslot/freeslot/internal/process/metrics"
	"github.com/freeslot/freeslot/internal/process/tracing"
	"github.com/freeslot/freeslot/internal/process/version"
)

// process is one agent with everything it needs, ready to be started once.
type process struct {
	cfg     nodeagent.Config
	log     *zap.Logger
	tracing *tracing.Tracing
	agent   *nodeagent.Agent
	// start is agent.Start, except in tests.
	start func(context.Context) error
}

// newProcess builds everything and starts nothing.
func newProcess(cfg nodeagent.Config, log *zap.Logger) (*process, error) {
	t, err := tracing.Open(context.Background(), tracing.Config{
		Endpoint: cfg.Tracing.OTLPEndpoint, SampleRatio: cfg.Tracing.SampleRatio,
		Service: "freeslot-nodeagent", Version: version.String(), Instance: cfg.Node.ID,
	})
	if err != nil {
		return nil, err
	}
	a, err := nodeagent.New(cfg, log, metrics.NewRegistry(), t.Provider())
	if err != nil {
		return nil, errors.Join(err, t.Close(context.Background()))
	}
	return &process{cfg: cfg, log: log, tracing: t, agent: a, start: a.Start}, nil
}

// stop drains, and interrupts the jobs that still run when hurry ends.
func (p *process) stop(hurry context.Context) {
	stopped := make(chan struct{})
	var hurrying sync.WaitGroup
	hurrying.Go(func() {
		select {
		case <-stopped:
		case <-hurry.Done():
			_ = p.agent.Stop(hurry) // the other call returns the same error
		}
	})
	ctx, cancel := context.WithTimeout(context.Background(), p.cfg.StopLimit())
	defer cancel()
	if err := p.agent.Stop(ctx); err != nil {
		p.log.Warn("agent.stop_incomplete", zap.String(logging.FieldNode, p.cfg.Node.ID), zap.Error(err))
	}
	close(stopped)
	hurrying.Wait()
	_ = p.tracing.Close(ctx) // last, for the spans of the drain; without a collector only spans are lost
}
