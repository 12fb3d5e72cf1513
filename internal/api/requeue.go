package api

import (
	"cmp"
	"context"
	"errors"
	"net/http"

	"github.com/danielgtaylor/huma/v2"
	"go.uber.org/zap"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/cell"
	"github.com/freeslot/freeslot/internal/dispatch"
)

// Specs returns jobs as they were submitted, and notes as which job one was submitted again;
// *cell.Set implements it.
type Specs interface {
	Spec(ctx context.Context, jobID string) (job *freeslot.Job, tenant string, err error)
	Requeued(ctx context.Context, jobID, as string) error
}

type requeueInput struct {
	ID          string `path:"id" doc:"The id of a job that is dead, failed or expired."`
	TraceParent string `header:"Traceparent" doc:"W3C trace context of the new job; without it the old job's goes on."`
}

func (s *Server) registerRequeue(api huma.API) {
	huma.Register(api, huma.Operation{
		OperationID: "requeue-job", Method: http.MethodPost, Path: "/v1/jobs/{id}/requeue", Tags: []string{"jobs"},
		Summary: "Submit a job again that did not succeed",
		Description: "Makes a new job of the same tenant from the submission of a dead, failed or expired one; " +
			"the answer is its status, with an id of its own. " +
			"The old job stays as it is until its retention ends. requeued_as and requeued_from lead from one to the other. " +
			"Asking again answers the same new job, also if an operation on many jobs has made it, for as long as that job's " +
			"record is kept; then conflict, until idempotency_retention is over. A job that an operator " +
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
	if s.hides(ctx) {
		return nil, &freeslot.Error{
			Code:    freeslot.CodePermissionDenied,
			Message: "console.payloads hides what jobs were submitted with; schedctl shows it",
		}
	}
	ctx, cancel := context.WithTimeout(ctx, CallTimeout)
	defer cancel()
	status, err := s.deps.Jobs.Job(ctx, Caller(ctx).scope(), in.ID)
	if err != nil {
		return nil, err
	}
	job, tenant, err := s.deps.Specs.Spec(ctx, in.ID)
	if err != nil {
		return nil, err
	}
	out := new(specOutput)
	out.Body.Tenant, out.Body.Job = tenant, *job
	if from := status.RequeuedFrom; from != "" && job.IdempotencyKey == requeueKey(from) {
		out.Body.Job.IdempotencyKey = "" // no caller gave it, and submitted with it the job would be this one
	}
	return out, nil
}

// Requeue submits a job again that did not succeed, unless that was done before. tenant is whose
// jobs the caller may touch; "" means any, and then the tenant's submit rate does not count the
// job.
func (r *Router) Requeue(ctx context.Context, tenant, jobID string) error {
	old, again, err := r.server.again(ctx, tenant, jobID)
	if err != nil || old.RequeuedAs != "" {
		return err
	}
	a, err := r.server.send(ctx, again, nil)
	if err == nil {
		r.server.noteRequeued(ctx, jobID, a.JobID)
	}
	return requeuedBefore(jobID, err)
}

func (s *Server) requeue(ctx context.Context, in *requeueInput) (*JobAnswer, error) {
	tenant := Caller(ctx).scope()
	old, again, err := s.again(ctx, tenant, in.ID)
	if err != nil {
		return nil, err
	}
	if old.RequeuedAs != "" {
		before, err := s.jobNow(ctx, tenant, old.RequeuedAs)
		if freeslot.CodeOf(err) != freeslot.CodeNotFound {
			return s.answer(ctx, before), err
		}
	}
	again.Job.TraceParent = cmp.Or(in.TraceParent, again.Job.TraceParent)
	out, err := s.submitNow(ctx, "freeslot.http.requeue", again)
	if err == nil {
		s.noteRequeued(ctx, in.ID, out.Body.ID)
	}
	return out, requeuedBefore(in.ID, err)
}

func (s *Server) jobNow(ctx context.Context, tenant, id string) (freeslot.JobStatus, error) {
	ctx, cancel := context.WithTimeout(ctx, CallTimeout)
	defer cancel()
	return s.deps.Jobs.Job(ctx, tenant, id)
}

// requeueKey returns the idempotency key of the job that a job is submitted again as. Callers who
// ask for it, twice or at the same time, get one new job, even if the note on the old one was lost.
func requeueKey(id string) string { return "bulk-" + id }

// requeuedBefore makes a conflict of requeueKey, which the caller does not know, one of the job.
func requeuedBefore(id string, err error) error {
	var e *freeslot.Error
	if !errors.As(err, &e) || e.Code != freeslot.CodeConflict || e.Field != "job.idempotency_key" {
		return err
	}
	return &freeslot.Error{
		Code: freeslot.CodeConflict, Field: "id",
		Message: "job " + id + " was submitted again before: " + e.Message,
	}
}

// noteRequeued lets the old job name the new one, which exists even if that fails.
func (s *Server) noteRequeued(ctx context.Context, id, as string) {
	ctx, cancel := context.WithTimeout(ctx, CallTimeout)
	defer cancel()
	if err := s.deps.Specs.Requeued(ctx, id, as); err != nil {
		s.log.Warn("http.requeue_unnoted", zap.String("job_id", id), zap.String("as", as), zap.Error(err))
	}
}

// again returns a job and the request that submits it once more, if a caller who may touch the jobs
// of tenant ("" is all) may see it and it did not succeed.
func (s *Server) again(
	ctx context.Context, tenant, id string,
) (old freeslot.JobStatus, again dispatch.Request, err error) {
	if err := cell.ValidateJobID("id", id); err != nil {
		return old, again, err
	}
	ctx, cancel := context.WithTimeout(ctx, CallTimeout)
	defer cancel()
	if old, err = s.deps.Jobs.Job(ctx, tenant, id); err != nil {
		return old, again, err
	}
	switch old.State {
	case freeslot.StateDead, freeslot.StateFailed, freeslot.StateExpired:
	default:
		return old, again, freeslot.Invalid(
			"id", "names a job that is %s, expected one that is dead, failed or expired", old.State,
		)
	}
	job, _, err := s.deps.Specs.Spec(ctx, id)
	if err != nil {
		return old, again, err
	}
	job.RunAtMS, job.IdempotencyKey = 0, requeueKey(old.ID) // its own key belongs to the old job
	return old, dispatch.Request{
		Tenant: old.Tenant, Job: job, Unlimited: tenant == "",
		Origin: cell.Origin{Schedule: old.Schedule, RequeuedFrom: id},
	}, nil
}
