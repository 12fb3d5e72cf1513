package worker

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/cell"
	gatewayclient "github.com/freeslot/freeslot/internal/gateway/client"
)

// specTimeout is longer than callTimeout: a large payload takes long to come, and a call that is
// cut off begins anew. Heartbeats notice a dead connection.
const specTimeout = 4 * callTimeout

// store is the part of a cell that a worker uses: redisStore, or *gatewayclient.Store. The worker
// does not know which one it has.
type store interface {
	Register(ctx context.Context, node freeslot.Node, epoch cell.Epoch) (cell.Registration, error)
	Heartbeat(ctx context.Context, hb cell.Heartbeat) (cell.HeartbeatReply, error)
	Deregister(ctx context.Context, node string, epoch cell.Epoch) ([]string, error)
	Complete(ctx context.Context, comp cell.Completion) (cell.CompletionOutcome, error)
	Progress(
		ctx context.Context, node string, epoch cell.Epoch, reports []cell.ProgressReport,
	) ([]cell.ProgressOutcome, error)
	Dispatches(ctx context.Context, node, after string, block time.Duration, limit int) ([]cell.Dispatch, error)
	Served(ctx context.Context) (bool, error)
	// Spec has a deadline of its own.
	Spec(ctx context.Context, jobID string) (*freeslot.Job, string, error)
}

// openStore opens the store of the worker: Redis itself, or a gateway if the configuration has one.
// The returned function closes it.
func (w *Worker) openStore(ctx context.Context, reg prometheus.Registerer) (store, func(context.Context) error, error) {
	if w.cfg.Gateway == "" {
		return openRedis(ctx, w.cfg, reg)
	}
	of := w.cfg.gateway()
	of.Epoch, of.Beat = w.epoch, w.requestBeat
	s, err := gatewayclient.New(of, w.cfg.Logger, w.metrics.gateway)
	if err != nil {
		return nil, nil, err
	}
	return s, s.Stop, s.Start(ctx)
}
