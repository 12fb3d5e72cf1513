package history

import (
	"cmp"
	"context"
	"encoding/json"
	"net/http"
	"slices"

	"github.com/danielgtaylor/huma/v2"

	"github.com/freeslot/freeslot/internal/api"
)

// Status is what a replica says of itself, beside its figures.
type Status struct {
	// Build and the rest are documented in their tags.
	Build         string         `json:"build,omitempty" doc:"Its version."`
	Embedded      bool           `json:"embedded,omitempty" doc:"Whether it runs in another program, without listeners."`
	Features      []string       `json:"features,omitempty" doc:"What its release knows of the configuration of pools and earlier ones refuse: expects."`
	ConfigVersion uint64         `json:"config_version" doc:"The version of the configuration of pools that it follows."`
	Ready         bool           `json:"ready"`
	Failed        []FailedCheck  `json:"failed,omitempty" doc:"The checks of readiness that fail, or hold only in part."`
	Redis         []ServerStatus `json:"redis,omitempty" doc:"The servers of Redis, as this replica sees them."`
}

// FailedCheck is a check of readiness that fails, or holds only in part.
type FailedCheck struct {
	Name   string `json:"name"`
	OK     bool   `json:"ok" doc:"Whether it holds in part."`
	Detail string `json:"detail,omitempty"`
}

// ServerStatus is a server of Redis.
type ServerStatus struct {
	// Address and the rest are documented in their tags.
	Address   string  `json:"address,omitempty" doc:"Without credentials; absent on a cluster."`
	Cells     []int   `json:"cells" doc:"The cells that it holds."`
	Connected bool    `json:"connected" doc:"Whether it answered within the last seconds. If not, the rest is absent."`
	Role      string  `json:"role,omitempty" doc:"master or slave, as it says."`
	Run       string  `json:"run,omitempty" doc:"The id of its run, which another server takes up after a failover."`
	LatencyMS float64 `json:"latency_ms,omitempty" doc:"The time of the last call that asked it for its memory."`
	UsedBytes int64   `json:"used_bytes,omitempty" doc:"Memory in use."`
	MaxBytes  int64   `json:"max_bytes,omitempty" doc:"Its maxmemory; absent without one."`
}

// ReplicaStatus is one running replica.
type ReplicaStatus struct {
	Name string `json:"name"`
	// ReportedMS and the rest are documented in their tags.
	ReportedMS  int64  `json:"reported_ms,omitempty" doc:"When it last told its figures, in milliseconds since 1970, by the store's clock; absent for a replica of an older release, like the rest."`
	StartedMS   int64  `json:"started_ms,omitempty" doc:"When it started, by its own clock."`
	Cells       int    `json:"cells,omitempty" doc:"How many cells answer it."`
	CPU         Figure `json:"cpu" doc:"Processor cores that it uses; null if that is not known."`
	MemoryBytes int64  `json:"memory_bytes,omitempty"`
	Arrivals    Figure `json:"arrivals" doc:"Jobs that it takes or refuses, per second; null if that is not known."`
	Status
}

// ReplicaStatuses lists the running replicas.
type ReplicaStatuses struct {
	Replicas []ReplicaStatus `json:"replicas" doc:"In the order of their names."`
}

type replicasOutput struct{ Body ReplicaStatuses }

// Statuses returns what the running replicas say of themselves by name, as JSON of Status.
type Statuses func(ctx context.Context) (map[string]string, error)

// StatusRoutes registers GET /v1/replicas/status.
func (h *History) StatusRoutes(statuses Statuses) api.Routes {
	return func(r *api.Router) {
		huma.Register(r, huma.Operation{
			OperationID: "list-replica-statuses", Method: http.MethodGet, Path: "/v1/replicas/status", Tags: []string{"history"},
			Summary: "Show the running replicas and their servers of Redis",
			Description: "What each replica says of itself: its figures every 2 s, the rest every 10 s or when its readiness " +
				"changes. /v1/replicas tells clients where replicas are.",
		}, func(ctx context.Context, _ *struct{}) (*replicasOutput, error) {
			ctx, cancel := context.WithTimeout(ctx, api.CallTimeout)
			defer cancel()
			all, err := h.Replicas(ctx, statuses)
			if err != nil {
				return nil, r.Refuse("replicas", err)
			}
			return &replicasOutput{Body: ReplicaStatuses{Replicas: all}}, nil
		})
	}
}

// Replicas returns the running replicas, sorted by name. Errors: of statuses.
func (h *History) Replicas(ctx context.Context, statuses Statuses) ([]ReplicaStatus, error) {
	told, err := statuses(ctx)
	if err != nil {
		return nil, err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	all := make([]ReplicaStatus, 0, len(h.names))
	for _, name := range h.names {
		s := ReplicaStatus{Name: name}
		if k, there := h.replicas[name]; there {
			s.ReportedMS, s.StartedMS, s.Cells = k.at, k.figures.StartMS, k.figures.Cells
			s.MemoryBytes = max(k.figures.Memory, 0)
			s.CPU, s.Arrivals = figure(k.cpu), figure(k.arrivals)
		}
		_ = json.Unmarshal([]byte(told[name]), &s.Status) // another release may say anything, or nothing
		all = append(all, s)
	}
	slices.SortFunc(all, func(a, b ReplicaStatus) int { return cmp.Compare(a.Name, b.Name) })
	return all, nil
}

func figure(v float64) Figure {
	if v == none {
		return nil
	}
	return &v
}

// Encode returns the status as text.
func (s *Status) Encode() string {
	text, _ := json.Marshal(s) // it has no value that cannot be encoded
	return string(text)
}
