package api

import (
	"cmp"
	"context"
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/cell"
	"github.com/freeslot/freeslot/internal/dispatch"
)

// Specs returns jobs as they were submitted; *cell.Set implements it.
type Specs interface {
	Spec(ctx context.Context, jobID string) (job *freeslot.Job, tenant string, err error)
}

type requeueInput struct {
	ID          string `path:"id" doc:"The id of a job that is dead, failed or expired."`
	TraceParent string `header:"Traceparent" doc:"W3C trace context of the new job; without it the old job's goes on."`
}

func (s *Server) registerRequeue(api huma.API) {
	huma.Register(api, huma.Operation{
		OperationID: "requeue-job", Method: http.MethodPost, Path: "/v1/jobs/{id}/requeue", Tags: []string{"jobs"},
		Summary: "Submit a job again that did not succeed",
		Description: "Makes a new job, of the same tenant, out of what a dead, failed or expired one was submitted as; " +
			"the answer is its status, with an id of its own. " +
			"The old job stays as it is until its retention ends. Asking twice makes two jobs. A job that an operator " +
			"submits again does not count for the tenant's submit_rate.",
		DefaultStatus: http.StatusAccepted,
	}, handle(s, "requeue", s.requeue))
	huma.Register(api, huma.Operation{
		OperationID: "get-job-spec", Method: http.MethodGet, Path: "/v1/jobs/{id}/spec", Tags: []string{"jobs"},
		Summary:     "Read a job as it was submitted",
		Description: "With its payload, as long as the job's record is kept. Jobs of other tenants are not_found to clients.",
	}, handle(s, "spec", s.spec))
}

type specOutput struct {
	Body struct {
		Tenant string       `json:"tenant" doc:"The tenant that the job belongs to."`
		Job    freeslot.Job `json:"job" doc:"The job, in the form in which it can be submitted again."`
	}
}

func (s *Server) spec(ctx context.Context, in *jobInput) (*specOutput, error) {
	if err := cell.ValidateJobID("id", in.ID); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, CallTimeout)
	defer cancel()
	if _, err := s.deps.Jobs.Job(ctx, Caller(ctx).scope(), in.ID); err != nil {
		return nil, err
	}
	job, tenant, err := s.deps.Specs.Spec(ctx, in.ID)
	if err != nil {
		return nil, err
	}
	out := new(specOutput)
	out.Body.Tenant, out.Body.Job = tenant, *job
	return out, nil
}

func (s *Server) requeue(ctx context.Context, in *requeueInput) (*JobAnswer, error) {
	job, tenant, err := s.ended(ctx, in.ID)
	if err != nil {
		return nil, err
	}
	job.RunAtMS, job.IdempotencyKey = 0, "" // the key belongs to the old job
	job.TraceParent = cmp.Or(in.TraceParent, job.TraceParent)
	return s.submitNow(
		ctx, "freeslot.http.requeue", dispatch.Request{Tenant: tenant, Job: job, Unlimited: Caller(ctx).AllTenants},
	)
}

// ended returns the job as it was submitted, if the caller may see it and it did not succeed.
func (s *Server) ended(ctx context.Context, id string) (job *freeslot.Job, tenant string, err error) {
	if err := cell.ValidateJobID("id", id); err != nil {
		return nil, "", err
	}
	ctx, cancel := context.WithTimeout(ctx, CallTimeout)
	defer cancel()
	status, err := s.deps.Jobs.Job(ctx, Caller(ctx).scope(), id)
	if err != nil {
		return nil, "", err
	}
	switch status.State {
	case freeslot.StateDead, freeslot.StateFailed, freeslot.StateExpired:
		return s.deps.Specs.Spec(ctx, id)
	default:
		return nil, "", freeslot.Invalid(
			"id", "names a job that is %s, expected one that is dead, failed or expired", status.State,
		)
	}
}
