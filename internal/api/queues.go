package api

import (
	"context"
	"net/http"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/cell"
	"github.com/freeslot/freeslot/internal/dispatch"
	"github.com/freeslot/freeslot/internal/selection"
)

// lengthTimeout bounds what an explanation, which is about this replica's memory, asks of the store.
const lengthTimeout = 500 * time.Millisecond

// Queues is what the server needs of the dispatcher for operators; *dispatch.Dispatcher is
// it. An empty tenant stands for any.
type Queues interface {
	Queues(ctx context.Context) (queues []dispatch.Queue, unreachable []int, err error)
	Held(ctx context.Context) (held []cell.Held, unreachable []int, err error)
	QueueLength(ctx context.Context, service string, r *freeslot.Requirement) (waiting int, known bool)
	Drop(ctx context.Context, tenant, jobID string) (freeslot.JobStatus, error)
}

// QueueStatus is a class of which jobs wait.
type QueueStatus struct {
	// Class and the rest are documented for their readers in the tags.
	Class       string               `json:"class" doc:"The id of the class: jobs with the same requirement."`
	Service     string               `json:"service"`
	Requirement freeslot.Requirement `json:"requirement,omitzero"`
	Waiting     int                  `json:"waiting" doc:"How many jobs of it wait."`
	OldestMS    int64                `json:"oldest_ms" doc:"When the oldest of them was submitted, in milliseconds since 1970, by the clock of the replica that took it."`
	First       string               `json:"first" doc:"A job that is served next."`
	Fits        int                  `json:"fits" doc:"How many nodes fit, whatever they do now."`
	Paused      bool                 `json:"paused" doc:"Whether no job of the class begins because something is paused."`
	PausedBy    string               `json:"paused_by,omitempty" doc:"The service or the class that is paused; absent where pools are."`
	PausedNodes int                  `json:"paused_nodes" doc:"How many of the nodes that fit get no jobs of the class because something is paused."`
	Unreadable  bool                 `json:"unreadable,omitempty" doc:"Whether the definition in the store is not one that this release reads."`
}

// HeldStatus is a limit that holds jobs back.
type HeldStatus struct {
	// By and the rest are documented for their readers in the tags.
	By      string `json:"by" enum:"max_running,concurrency_key" doc:"Which limit."`
	Tenant  string `json:"tenant"`
	Limit   int    `json:"limit" doc:"How many jobs may run; of max_running the share of one cell."`
	Running int    `json:"running" doc:"How many do."`
	Held    int    `json:"held" doc:"How many wait for that, and are in no queue meanwhile."`
	First   string `json:"first" doc:"The job that goes on next."`
}

// QueueList is what waits.
type QueueList struct {
	Queues      []QueueStatus     `json:"queues" doc:"The longest first."`
	Held        []HeldStatus      `json:"held" doc:"Limits that hold jobs back, at most 1000 of each cell."`
	AllPaused   *selection.Paused `json:"all_paused" doc:"All that is paused, as this replica goes by it."`
	Unreachable []int             `json:"unreachable,omitempty" doc:"The cells that did not answer, whose jobs are not counted."`
}

type (
	queuesInput  struct{}
	queuesOutput struct{ Body QueueList }
)

func (s *Server) registerQueues(api huma.API) {
	if s.queues == nil {
		return
	}
	huma.Register(api, huma.Operation{
		OperationID: "list-queues", Method: http.MethodGet, Path: "/v1/queues", Tags: []string{"jobs"},
		Summary:     "List what waits",
		Description: "The classes of which jobs wait: jobs that fit the same nodes. How many nodes fit is what the cache of this replica says. Operators only.",
	}, s.listQueues)
	huma.Register(api, huma.Operation{
		OperationID: "drop-job", Method: http.MethodDelete, Path: "/v1/jobs/{id}", Tags: []string{"jobs"},
		Summary: "Forget a job that has ended",
		Description: "Before its retention ends; the answer is what was known of it, without its result. One that has not ended is refused with conflict. " +
			"Asking again is answered with not_found, as are jobs of other tenants to clients.",
	}, s.dropJob)
}

func (s *Server) listQueues(ctx context.Context, _ *queuesInput) (*queuesOutput, error) {
	if err := OperatorsOnly(ctx, "see what waits"); err != nil {
		return nil, s.refuse("queues", err)
	}
	ctx, cancel := context.WithTimeout(ctx, CallTimeout)
	defer cancel()
	queues, unreachable, err := s.queues.Queues(ctx)
	if err != nil {
		return nil, s.refuse("queues", err)
	}
	held, _, err := s.queues.Held(ctx)
	if err != nil {
		return nil, s.refuse("queues", err)
	}
	out := QueueList{Held: make([]HeldStatus, len(held)), Queues: make([]QueueStatus, len(queues)), AllPaused: s.nodes.Config().Paused.Normal(), Unreachable: unreachable}
	for i := range queues {
		q := &queues[i]
		out.Queues[i] = QueueStatus{
			Class: q.ID, Service: q.Service, Requirement: q.Requirement, Waiting: q.Waiting, OldestMS: q.OldestMS, First: q.First,
			Fits: q.Fits, Paused: q.Paused(), PausedBy: q.PausedBy, PausedNodes: q.PausedNodes, Unreadable: q.Unreadable,
		}
	}
	for i, h := range held {
		out.Held[i] = HeldStatus{By: h.By, Tenant: h.Tenant, Limit: h.Limit, Running: h.Running, Held: h.Jobs, First: h.First}
	}
	return &queuesOutput{Body: out}, nil
}

func (s *Server) dropJob(ctx context.Context, in *jobInput) (*JobAnswer, error) {
	return s.one(ctx, "drop", in.ID, s.queues.Drop)
}

// length is how many jobs wait of the class that is explained; nil where that is not known.
func (s *Server) length(ctx context.Context, job *freeslot.Job) *int {
	if s.queues == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, lengthTimeout)
	defer cancel()
	if n, known := s.queues.QueueLength(ctx, job.Service, &job.Requirement); known {
		return &n
	}
	return nil
}
