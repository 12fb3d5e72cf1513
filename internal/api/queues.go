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

// lengthTimeout bounds the store call of an explanation, which otherwise comes from memory.
const lengthTimeout = 500 * time.Millisecond

// Queues is what the server needs from the dispatcher for operators; *dispatch.Dispatcher
// implements it. An empty tenant means any tenant.
type Queues interface {
	Queues(ctx context.Context) (queues []dispatch.Queue, unreachable []int, err error)
	FullLimits(ctx context.Context) (full []cell.FullLimit, unreachable []int, err error)
	QueueLength(ctx context.Context, service string, r *freeslot.Requirement) (waiting int, known bool)
	Drop(ctx context.Context, tenant, jobID string) (freeslot.JobStatus, error)
}

// QueueStatus is a class with waiting jobs.
type QueueStatus struct {
	// Class and the rest are documented in their tags.
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
	// By and the rest are documented in their tags.
	By      string `json:"by" enum:"max_running,concurrency_key" doc:"Which limit."`
	Tenant  string `json:"tenant"`
	Limit   int    `json:"limit" doc:"How many jobs may run; of max_running the share of one cell."`
	Running int    `json:"running" doc:"How many do."`
	Held    int    `json:"held" doc:"How many wait for that, and are in no queue meanwhile."`
	First   string `json:"first" doc:"The job that goes on next."`
}

// QueueList lists the waiting jobs by class, and the limits that hold jobs back.
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
	huma.Register(api, huma.Operation{
		OperationID: "list-queues", Method: http.MethodGet, Path: "/v1/queues", Tags: []string{"jobs"},
		Summary: "List what waits",
		Description: "The classes that have waiting jobs. The jobs of a class fit the same nodes. The cache of this " +
			"replica says how many nodes fit.",
	}, handleBounded(s, "queues", s.listQueues))
	huma.Register(api, huma.Operation{
		OperationID: "drop-job", Method: http.MethodDelete, Path: "/v1/jobs/{id}", Tags: []string{"jobs"},
		Summary: "Forget a job that has ended",
		Description: "Before its retention ends; the answer is what was known of it, without its result. One that has not " +
			"ended is refused with conflict. " +
			"Asking again is answered with not_found, as are jobs of other tenants to clients.",
	}, s.aboutJob("drop", s.deps.Queues.Drop))
}

func (s *Server) listQueues(ctx context.Context, _ *queuesInput) (*queuesOutput, error) {
	queues, unreachable, err := s.deps.Queues.Queues(ctx)
	if err != nil {
		return nil, err
	}
	full, _, err := s.deps.Queues.FullLimits(ctx)
	if err != nil {
		return nil, err
	}
	out := QueueList{
		Held: make([]HeldStatus, len(full)), Queues: make([]QueueStatus, len(queues)),
		AllPaused: s.deps.Nodes.Config().Paused.Normal(), Unreachable: unreachable,
	}
	for i := range queues {
		q := &queues[i]
		out.Queues[i] = QueueStatus{
			Class: q.ID, Service: q.Service, Requirement: q.Requirement, Waiting: q.Waiting, OldestMS: q.OldestMS,
			First: q.First,
			Fits:  q.Fits, Paused: q.Paused(), PausedBy: q.PausedBy, PausedNodes: q.PausedNodes, Unreadable: q.Unreadable,
		}
	}
	for i, h := range full {
		out.Held[i] = HeldStatus{By: h.By, Tenant: h.Tenant, Limit: h.Limit, Running: h.Running, Held: h.Jobs, First: h.First}
	}
	return &queuesOutput{Body: out}, nil
}

// length returns how many jobs of the explained class wait; nil if that is not known.
func (s *Server) length(ctx context.Context, job *freeslot.Job) *int {
	if s.deps.Queues == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, lengthTimeout)
	defer cancel()
	if n, known := s.deps.Queues.QueueLength(ctx, job.Service, &job.Requirement); known {
		return &n
	}
	return nil
}
