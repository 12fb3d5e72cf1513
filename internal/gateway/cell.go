package gateway

import (
	"context"
	"time"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/cell"
)

// Cell is what a gateway needs from a cell; *cell.Cell implements it. It must be comparable.
type Cell interface {
	Link(ctx context.Context, node string) (cell.NodeLink, error)
	Nodes(ctx context.Context, ids []string) (cell.Changes, error)
	RegisterLinked(
		ctx context.Context, node freeslot.Node, epoch cell.Epoch, link cell.Link, replaces cell.Epoch,
	) (cell.Registration, error)
	HeartbeatsLinked(ctx context.Context, beats []cell.LinkedHeartbeat) []cell.HeartbeatResult
	OwnedSpec(ctx context.Context, node string, epoch cell.Epoch, jobID string) (*freeslot.Job, string, error)
	Deregister(ctx context.Context, node string, epoch cell.Epoch) ([]string, error)
	Complete(ctx context.Context, comp cell.Completion) (cell.CompletionOutcome, error)
	CompleteNode(ctx context.Context, comps []cell.Completion) []cell.CompletionResult
	CompleteNodes(ctx context.Context, comps []cell.Completion) ([]cell.SharedOutcome, error)
	Progress(
		ctx context.Context, node string, epoch cell.Epoch, reports []cell.ProgressReport,
	) ([]cell.ProgressOutcome, error)
	OpenGateway(ctx context.Context, replica string) error
	KeepGateway(ctx context.Context, replica, trimTo string) error
	CloseGateway(ctx context.Context, replica string) error
	GatewayDispatches(
		ctx context.Context, replica, after string, block time.Duration, limit int,
	) ([]cell.GatewayDispatch, error)
}
