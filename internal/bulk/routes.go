package bulk

import (
	"context"
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"github.com/freeslot/freeslot/internal/api"
	"github.com/freeslot/freeslot/internal/audit"
	"github.com/freeslot/freeslot/internal/plural"
)

// BulkStart starts a plan.
type BulkStart struct {
	// Plan and the rest are documented in their tags.
	Plan  string `json:"plan" maxLength:"64" doc:"The id of the plan."`
	Count int    `json:"count" minimum:"0" doc:"How many targets it has, as the plan says. Another number is a conflict."`
}

// BulkList lists plans and operations.
type BulkList struct {
	Operations []BulkOperation `json:"operations" doc:"The latest first, at most 64 in all."`
}

type (
	planInput  struct{ Body BulkRequest }
	startInput struct {
		Reason string `header:"Freeslot-Reason" maxLength:"256" doc:"Why, for the operation and the audit."`
		Body   BulkStart
	}
	oneInput struct {
		ID string `path:"id" maxLength:"64" doc:"The id of the operation."`
	}
	operationOutput struct{ Body BulkOperation }
	listOutput      struct{ Body BulkList }
)

type routes struct {
	*api.Router
	service *Service
}

func routesOf(s *Service) api.Routes {
	return func(router *api.Router) {
		r := &routes{router, s}
		r.register()
		router.OpenAPI().Tags = append(router.OpenAPI().Tags, &huma.Tag{
			Name: "bulk", Description: "One action on many jobs or nodes.",
		})
	}
}

func (r *routes) register() {
	tags := []string{"bulk"}
	huma.Register(r, huma.Operation{
		OperationID: "plan-bulk", Method: http.MethodPost, Path: "/v1/bulk-plans", Tags: tags,
		Summary: "Plan an operation on many jobs or nodes",
		Description: "Finds the targets and changes nothing. The answer says how many they are and what they have in " +
			"common. The plan can be started for 15 minutes, and touches these targets alone: what comes later is not " +
			"touched. An operation has at most 10,000 targets.",
	}, r.plan)
	huma.Register(r, huma.Operation{
		OperationID: "start-bulk", Method: http.MethodPost, Path: "/v1/bulk", Tags: tags,
		Summary: "Start a plan",
		Description: "A replica touches 200 targets a second. If it dies another one goes on; each job is submitted " +
			"again at most once. A job that was waiting and has begun since the plan is not cancelled.",
		DefaultStatus: http.StatusAccepted,
	}, r.start)
	huma.Register(r, huma.Operation{
		OperationID: "list-bulk", Method: http.MethodGet, Path: "/v1/bulk", Tags: tags,
		Summary: "List plans and operations",
	}, r.list)
	huma.Register(r, huma.Operation{
		OperationID: "get-bulk", Method: http.MethodGet, Path: "/v1/bulk/{id}", Tags: tags,
		Summary: "Read how far an operation is",
	}, r.one("bulk", r.service.Get))
	huma.Register(r, huma.Operation{
		OperationID: "stop-bulk", Method: http.MethodPost, Path: "/v1/bulk/{id}/stop", Tags: tags,
		Summary:     "Stop an operation",
		Description: "Before its next targets. What was touched stays as it is.",
	}, r.one("stop bulk", r.service.Stop))
}

// scope returns the tenant whose jobs the caller may touch; "" means all.
func scope(ctx context.Context) string {
	if p := api.Caller(ctx); !p.AllTenants {
		return p.Tenant
	}
	return ""
}

func (r *routes) plan(ctx context.Context, in *planInput) (*operationOutput, error) {
	if err := mayAct(ctx, in.Body.Action); err != nil {
		return nil, r.Refuse("plan bulk", err)
	}
	ctx, cancel := context.WithTimeout(ctx, api.CallTimeout)
	defer cancel()
	plan, err := r.service.Plan(ctx, scope(ctx), &in.Body)
	if err != nil {
		return nil, r.Refuse("plan bulk", err)
	}
	return &operationOutput{*plan}, nil
}

// mayAct refuses nodes to those who may not drain one.
func mayAct(ctx context.Context, a Action) error {
	if !a.ofNodes() {
		return nil
	}
	_, err := api.Caller(ctx).May(string(a) + "-node")
	return err
}

func (r *routes) start(ctx context.Context, in *startInput) (*operationOutput, error) {
	ctx, cancel := context.WithTimeout(ctx, api.CallTimeout)
	defer cancel()
	o, err := r.service.Start(ctx, scope(ctx), in.Body.Plan, in.Body.Count, api.Author(ctx, "", ""), in.Reason)
	if err != nil {
		return nil, r.Refuse("start bulk", err)
	}
	audit.Of(ctx).Note("", string(o.Action)+" "+plural.Of(o.Count, "target", "targets")+" by operation "+o.ID)
	return &operationOutput{*o}, nil
}

func (r *routes) list(ctx context.Context, _ *struct{}) (*listOutput, error) {
	ctx, cancel := context.WithTimeout(ctx, api.CallTimeout)
	defer cancel()
	all, err := r.service.List(ctx, scope(ctx))
	if err != nil {
		return nil, r.Refuse("list bulk", err)
	}
	return &listOutput{BulkList{all}}, nil
}

func (r *routes) one(
	name string, call func(ctx context.Context, tenant, id string) (*BulkOperation, error),
) func(context.Context, *oneInput) (*operationOutput, error) {
	return func(ctx context.Context, in *oneInput) (*operationOutput, error) {
		ctx, cancel := context.WithTimeout(ctx, api.CallTimeout)
		defer cancel()
		o, err := call(ctx, scope(ctx), in.ID)
		if err != nil {
			return nil, r.Refuse(name, err)
		}
		audit.Of(ctx).Note("", string(o.State))
		return &operationOutput{*o}, nil
	}
}
