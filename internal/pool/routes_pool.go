package pool

import (
	"context"
	"net/http"
	"slices"
	"strings"

	"github.com/danielgtaylor/huma/v2"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/selection"
)

// firstMembers is how many members of each pool a listing of pools names.
const firstMembers = 20

// PoolStatus is a pool with its present members.
type PoolStatus struct {
	selection.Pool
	Configured bool `json:"configured" doc:"False for a pool that only nodes name, in their profiles."`
	// The tags document Paused, Size and Nodes.
	Paused bool `json:"paused,omitempty" doc:"Whether no new job begins on its nodes by way of it."`

	Size  int      `json:"size" doc:"How many nodes are in the pool."`
	Nodes []string `json:"nodes" doc:"Their ids, in order; the first 20 in a listing of pools, else one page."`
}

// PoolList lists every pool.
type PoolList struct {
	Version uint64 `json:"version" doc:"The version of the configuration in force at this replica; 0: its own file has it."`
	Source  string `json:"source" enum:"redis,file,history" doc:"Where it comes from."`
	Enabled bool   `json:"enabled" doc:"When false, configured pools have no members and restrict nothing."`
	Mode    string `json:"mode" enum:"two_level,flat" doc:"two_level: the job's languages give the pools. flat: pools restrict only the jobs that name one."`

	Pools []PoolStatus `json:"pools" doc:"The configured ones in order of preference, then those that only nodes name."`
}

// PoolMembers is one pool with one page of its members.
type PoolMembers struct {
	PoolStatus
	Cursor string `json:"cursor,omitempty" doc:"Continues the listing; absent at its end."`
}

type (
	poolsOutput struct{ Body PoolList }
	poolInput   struct {
		ID     string `path:"id" doc:"The pool's id."`
		Cursor string `query:"cursor" maxLength:"64" doc:"The cursor of the page before."`
		Limit  int    `query:"limit" minimum:"1" maximum:"1000" default:"1000" doc:"At most this many members."`
	}
	poolOutput struct{ Body PoolMembers }
)

func (r *routes) registerPools() {
	huma.Register(r, huma.Operation{
		OperationID: "list-pools", Method: http.MethodGet, Path: "/v1/pools", Tags: []string{"config"},
		Summary:     "List pools",
		Description: "By the configuration in force at this replica and the nodes in its cache.",
	}, r.listPools)
	huma.Register(r, huma.Operation{
		OperationID: "get-pool", Method: http.MethodGet, Path: "/v1/pools/{id}", Tags: []string{"config"},
		Summary: "Read a pool", Description: "With its members, page by page.",
	}, r.getPool)
}

func (r *routes) listPools(_ context.Context, _ *configInput) (*poolsOutput, error) {
	now := r.pools.Current()
	cfg := now.Config.WithDefaults()
	out := PoolList{
		Version: now.Version, Source: string(now.Source), Enabled: cfg.Enabled, Mode: string(cfg.Mode),
		Pools: r.poolStatuses(now.Config),
	}
	for i := range out.Pools {
		out.Pools[i].Nodes = out.Pools[i].Nodes[:min(firstMembers, out.Pools[i].Size)]
	}
	return &poolsOutput{Body: out}, nil
}

func (r *routes) getPool(_ context.Context, in *poolInput) (*poolOutput, error) {
	if err := freeslot.ValidateName("id", in.ID); err != nil {
		return nil, r.Refuse("pool", err)
	}
	pools := r.poolStatuses(r.pools.Current().Config)
	i := slices.IndexFunc(pools, func(p PoolStatus) bool { return p.ID == in.ID })
	if i < 0 {
		return nil, r.Refuse(
			"pool",
			&freeslot.Error{Code: freeslot.CodeNotFound, Message: "there is no pool " + in.ID + ", and no node names one"},
		)
	}
	out := PoolMembers{PoolStatus: pools[i]}
	out.Nodes = slices.DeleteFunc(out.Nodes, func(id string) bool { return id <= in.Cursor })
	if len(out.Nodes) > in.Limit {
		out.Nodes = out.Nodes[:in.Limit]
		out.Cursor = out.Nodes[in.Limit-1]
	}
	return &poolOutput{Body: out}, nil
}

// poolStatuses returns all pools with all their members.
func (r *routes) poolStatuses(cfg *selection.Config) []PoolStatus {
	pools := make([]PoolStatus, 0, len(cfg.Pools))
	index := make(map[string]int, len(cfg.Pools))
	for i := range cfg.Pools {
		index[cfg.Pools[i].ID] = i
		pools = append(pools, PoolStatus{Pool: cfg.Pools[i], Configured: true, Nodes: []string{}})
	}
	for _, n := range r.nodes() {
		for _, id := range cfg.Members(&n) {
			i, ok := index[id]
			if !ok {
				i = len(pools)
				index[id] = i
				pools = append(pools, PoolStatus{Pool: selection.Pool{ID: id}})
			}
			pools[i].Nodes = append(pools[i].Nodes, n.ID)
			pools[i].Size++
		}
	}
	for i := range pools {
		pools[i].Paused = cfg.Paused != nil && slices.Contains(cfg.Paused.Pools, pools[i].ID)
	}
	slices.SortFunc(pools[len(cfg.Pools):], func(a, b PoolStatus) int { return strings.Compare(a.ID, b.ID) })
	return pools
}
