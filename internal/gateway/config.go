// Package gateway lets agents reach Redis through a replica: the door /v1/node, where a token says
// which nodes an agent may be. A gateway owns nothing. Whatever an agent asks is fenced in Redis, so a
// gateway that is late, frozen or killed costs a reconnect and never a job.
package gateway

import (
	"context"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/cell"
)

// Cell is what a session needs of its node's cell; *cell.Cell is one.
type Cell interface {
	Link(ctx context.Context, node string) (cell.NodeLink, error)
	RegisterLinked(ctx context.Context, node freeslot.Node, epoch cell.Epoch, link cell.Link, replaces cell.Epoch) (cell.Registration, error)
	HeartbeatLinked(ctx context.Context, hb cell.Heartbeat, link cell.Link) (cell.HeartbeatReply, error)
	OwnedSpec(ctx context.Context, node string, epoch cell.Epoch, jobID string) (*freeslot.Job, string, error)
	Deregister(ctx context.Context, node string, epoch cell.Epoch) ([]string, error)
	Complete(ctx context.Context, comp cell.Completion) (cell.CompletionOutcome, error)
	Progress(ctx context.Context, node string, epoch cell.Epoch, reports []cell.ProgressReport) ([]cell.ProgressOutcome, error)
	Dispatches(ctx context.Context, node, after string, block time.Duration, limit int) ([]cell.Dispatch, error)
}

// Config describes the gateway of a replica.
type Config struct {
	Replica, Version string
	HeartbeatLimit   time.Duration
	MaxAgents        int
	// Cells is the cell of a node.
	Cells  func(node string) Cell
	Tokens *Tokens
}

// Handler serves agents. It is safe for concurrent use.
type Handler struct{}

// New makes a handler; it starts nothing.
func New(cfg Config, log *zap.Logger, reg prometheus.Registerer) (*Handler, error) { panic("todo") }

// ServeHTTP serves frame.Path, frame.CompletePath and frame.SpecPath, and is 404 elsewhere.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) { panic("todo") }

// Drain asks all agents to go elsewhere, one by one until ctx ends, and waits until they have.
func (h *Handler) Drain(ctx context.Context) error { panic("todo") }

// Stop ends all sessions and waits for what they run.
func (h *Handler) Stop(ctx context.Context) error { panic("todo") }
