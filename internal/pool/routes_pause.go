package pool

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/api"
	"github.com/freeslot/freeslot/internal/audit"
	"github.com/freeslot/freeslot/internal/selection"
)

// confirmTimeout is how long a pause waits for the other replicas.
const confirmTimeout = 3 * time.Second

// PauseRequest is the body of a pause or of its end. It may be left out.
type PauseRequest struct {
	Note   string `json:"note,omitempty" doc:"Why, for the history."`
	Author string `json:"author,omitempty" doc:"Who, for the history; the tenant of the token is put before it."`
}

// PauseResult is the answer to a pause or its end.
type PauseResult struct {
	// The tags document the fields.
	Kind      string            `json:"kind" enum:"pool,service,class"`
	Name      string            `json:"name"`
	Paused    bool              `json:"paused" doc:"Whether it is paused now."`
	Version   uint64            `json:"version" doc:"The version of the configuration in which this is so."`
	Unchanged bool              `json:"unchanged" doc:"Whether it was so before."`
	Nodes     *int              `json:"nodes,omitempty" doc:"How many nodes are in the pool, or have the service; 0 may be a mistake in the name."`
	Confirmed bool              `json:"confirmed" doc:"Of a pause: every replica and every cell follow it. No job that it concerns begins any more."`
	Behind    []string          `json:"behind,omitempty" doc:"The replicas that did not say in time that they go by it: they are away, or of a release that knows no pauses. By way of these jobs may still begin."`
	All       *selection.Paused `json:"all_paused" doc:"All that is paused now."`
}

// pausable is a kind of thing that an operator can pause.
type pausable struct {
	kind, plural string
	list         func(*selection.Paused) *[]string
	validate     func(field, name string) error
	what         string
}

var pausables = []pausable{
	{
		"pool", "pools", func(p *selection.Paused) *[]string { return &p.Pools }, freeslot.ValidateName,
		"No new job begins on its nodes by way of it: a node that is in another pool as well, which the job may use too " +
			"and which is not paused, still takes it. " +
			"A job that may go to any node counts as one that may use all pools.",
	},
	{
		"service", "services", func(p *selection.Paused) *[]string { return &p.Services }, freeslot.ValidateName,
		"No new job of it begins, nor one that asks for it besides its own.",
	},
	{
		"class", "classes", func(p *selection.Paused) *[]string { return &p.Classes }, freeslot.ValidateClassID,
		"No new job of it begins. Listings of jobs and of queues show the class.",
	},
}

type (
	pauseInput struct {
		Name    string `path:"id" doc:"The pool, the service, or the id of the class."`
		RawBody []byte
	}
	pauseOutput struct{ Body PauseResult }
)

func (r *routes) registerPauses() {
	for _, p := range pausables {
		path := "/v1/" + p.plural + "/{id}/"
		huma.Register(r, huma.Operation{
			OperationID: "pause-" + p.kind, Method: http.MethodPost, Path: path + "pause", Tags: []string{"config"},
			Summary: "Pause a " + p.kind,
			Description: p.what + " What runs goes on; jobs that come are accepted and wait. It is a change of the " +
				"configuration, with a version of its own. " +
				"The answer comes when all replicas go by it, or after 3 seconds.",
		}, func(ctx context.Context, in *pauseInput) (*pauseOutput, error) { return r.pause(ctx, &p, in, true) })
		huma.Register(r, huma.Operation{
			OperationID: "resume-" + p.kind, Method: http.MethodPost, Path: path + "resume", Tags: []string{"config"},
			Summary: "End the pause of a " + p.kind, Description: "What waits begins at once.",
		}, func(ctx context.Context, in *pauseInput) (*pauseOutput, error) { return r.pause(ctx, &p, in, false) })
	}
}

func (r *routes) pause(ctx context.Context, p *pausable, in *pauseInput, paused bool) (*pauseOutput, error) {
	var request PauseRequest
	if err := p.validate(p.kind, in.Name); err != nil {
		return nil, r.Refuse("pause", err)
	}
	if len(in.RawBody) > 0 {
		if err := freeslot.DecodeStrict("pause", in.RawBody, &request); err != nil {
			return nil, r.Refuse("pause", err)
		}
	}
	action := map[bool]string{true: "pause ", false: "resume "}[paused] + p.kind + " " + in.Name
	callCtx, cancel := context.WithTimeout(ctx, api.CallTimeout)
	defer cancel()
	outcome, all, err := r.store.ChangePaused(
		callCtx, func(now *selection.Paused) { set(p.list(now), in.Name, paused) }, action,
		api.Author(ctx, request.Author, request.Note),
		request.Note,
	)
	if err != nil {
		return nil, r.Refuse("pause", err)
	}
	audit.Of(ctx).Note("", fmt.Sprintf("%s, version %d", action, outcome.Version))
	_ = r.pools.Sync(callCtx) // if it fails, the follower hears of the change
	out := PauseResult{
		Kind: p.kind, Name: in.Name, Paused: paused, Version: outcome.Version, Unchanged: outcome.Unchanged, All: all,
		Nodes: r.concerned(p.kind, in.Name),
	}
	if paused {
		// The change is stored either way. If Redis does not tell which replicas use it, it is not
		// confirmed.
		out.Behind, err = r.confirm(ctx, &outcome)
		out.Confirmed = err == nil && len(out.Behind) == 0
	}
	return &pauseOutput{Body: out}, nil
}

func set(list *[]string, name string, there bool) {
	*list = slices.DeleteFunc(*list, func(n string) bool { return n == name })
	if there {
		*list = append(*list, name)
	}
}

func (r *routes) confirm(ctx context.Context, o *Outcome) (behind []string, err error) {
	ctx, cancel := context.WithTimeout(ctx, confirmTimeout)
	defer cancel()
	return r.fence.Confirm(ctx, o.Version, o.Generation)
}

// concerned returns how many nodes are in the pool or have the service; nil for a class.
func (r *routes) concerned(kind, name string) *int {
	count, cfg := 0, r.pools.Current().Config
	for _, n := range r.nodes() {
		switch kind {
		case "pool":
			if slices.Contains(cfg.Members(&n), name) {
				count++
			}
		case "service":
			if slices.ContainsFunc(n.Services, func(s freeslot.Service) bool { return s.Name == name }) {
				count++
			}
		default:
			return nil
		}
	}
	if kind == "class" {
		return nil
	}
	return &count
}
