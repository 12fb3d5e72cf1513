package api

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"go.opentelemetry.io/otel/trace"
	"go.uber.org/zap"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/audit"
	"github.com/freeslot/freeslot/internal/cell"
	"github.com/freeslot/freeslot/internal/dispatch"
	"github.com/freeslot/freeslot/internal/process/tracing"
	"github.com/freeslot/freeslot/internal/wire"
)

// Jobs is what the server needs from the dispatcher; *dispatch.Dispatcher implements it. An empty
// tenant means any tenant.
type Jobs interface {
	Submit(
		ctx context.Context, reqs []dispatch.Request, sink dispatch.Sink,
		accepted func(i int, a dispatch.Accepted, err error),
	)
	Forget(sink dispatch.Sink)
	Cancel(ctx context.Context, tenant, jobID string) (freeslot.JobStatus, error)
	Job(ctx context.Context, tenant, jobID string) (freeslot.JobStatus, error)
	Jobs(ctx context.Context, f cell.JobFilter, cursor string, limit int) (cell.JobPage, error)
}

// DefaultPage and MaxPage bound a page of jobs.
const (
	DefaultPage = 100
	MaxPage     = cell.MaxPage
)

type (
	submitInput struct {
		WaitMS      int64  `query:"wait_ms" minimum:"0" maximum:"60000" doc:"How long to wait for the job to end, in milliseconds. 0: do not wait."`
		TraceParent string `header:"Traceparent" doc:"W3C trace context; the job's own traceparent wins."`
		Key         string `header:"Idempotency-Key" doc:"The job's idempotency_key, where the body has none."`
		RawBody     []byte
	}
	jobInput struct {
		ID string `path:"id" doc:"The job's id."`
	}
	listInput struct {
		State  string `query:"state" enum:"scheduled,waiting,moving,retry_wait,running,cancelling,succeeded,failed,cancelled,expired,dead" doc:"Only jobs in this state."`
		Tenant string `query:"tenant" maxLength:"64" doc:"Only jobs of this tenant. Clients may only name their own; operators see all without it."`
		Class  string `query:"class" maxLength:"16" doc:"Only jobs of this class, by its id. Those that wait come in the order in which they are served."`
		Cursor string `query:"cursor" maxLength:"256" doc:"The cursor of the page before."`
		Limit  int    `query:"limit" minimum:"1" maximum:"500" default:"100" doc:"At most this many jobs."`
	}
	pageOutput struct {
		Body JobPage
	}
)

// JobAnswer is an answer with the status of a job.
type JobAnswer struct {
	Status int
	Body   freeslot.JobStatus
}

// JobPage is one page of a listing.
type JobPage struct {
	Jobs []freeslot.JobStatus `json:"jobs" doc:"Jobs that wait, running ones by node, then ended ones, the newest first. The place of a job that waits is not listed."`
	// Cursor is documented in its tag.
	Cursor string `json:"cursor,omitempty" doc:"Continues the listing; absent at its end. A page can be short, even empty, and still have one."`
}

func (s *Server) registerJobs(api huma.API) {
	huma.Register(api, huma.Operation{
		OperationID: "submit-job", Method: http.MethodPost, Path: "/v1/jobs", Tags: []string{"jobs"},
		Summary: "Submit a job",
		Description: "Places the job on a node, or has it wait for one that fits; position is then its place. With " +
			"wait_ms the answer is 200 and the terminal status " +
			"if the job ends in time, else 202 and what is known so far. The body is read as JSON whatever its Content-Type " +
			"says. Unknown fields, fields given twice and null (but as a payload) are refused.",
		DefaultStatus: http.StatusAccepted,
	}, handle(s, "submit", s.submit))
	huma.Register(api, huma.Operation{
		OperationID: "get-job", Method: http.MethodGet, Path: "/v1/jobs/{id}", Tags: []string{"jobs"},
		Summary: "Read a job", Description: "Jobs of other tenants are not_found to clients.",
	}, s.aboutJob("get", s.deps.Jobs.Job))
	huma.Register(api, huma.Operation{
		OperationID: "list-jobs", Method: http.MethodGet, Path: "/v1/jobs", Tags: []string{"jobs"},
		Summary: "List jobs", Description: "A job that ends while the listing goes on can be seen twice, never missed.",
	}, handle(s, "list", s.listJobs))
	huma.Register(api, huma.Operation{
		OperationID: "cancel-job", Method: http.MethodPost, Path: "/v1/jobs/{id}/cancel", Tags: []string{"jobs"},
		Summary: "Cancel a job",
		Description: "Asks the node to stop the job; the answer is its status then, mostly cancelling. A job that waits " +
			"is cancelled at once. One that has ended is only read.",
	}, s.aboutJob("cancel", s.deps.Jobs.Cancel))
	if s.deps.Specs != nil {
		s.registerRequeue(api)
		s.registerExplainJob(api)
	}
}

func (s *Server) submit(ctx context.Context, in *submitInput) (*JobAnswer, error) {
	tenant := Caller(ctx).Tenant
	job, err := s.decodeJob(in.RawBody)
	if err == nil {
		err = keyFrom(in.Key, job)
	}
	if err == nil {
		err = s.refuseDraining()
	}
	if err != nil {
		return nil, err
	}
	job.TraceParent = cmp.Or(job.TraceParent, in.TraceParent)
	const span = "freeslot.http.submit"
	if in.WaitMS == 0 {
		return s.submitNow(ctx, span, dispatch.Request{Tenant: tenant, Job: job})
	}
	ctx, sp := s.span(ctx, span, job)
	defer sp.End()
	return s.submitAndWait(ctx, tenant, job, time.Duration(in.WaitMS)*time.Millisecond)
}

// refuseDraining returns the refusal of new jobs once the replica stops, otherwise nil.
func (s *Server) refuseDraining() error {
	if !s.isDraining() {
		return nil
	}
	return &freeslot.Error{
		Code: freeslot.CodeUnavailable, Message: "the replica is stopping, submit to another", RetryAfter: time.Second,
	}
}

// span begins the span of a submit under the job's trace context. The job then carries the span's
// context.
func (s *Server) span(ctx context.Context, name string, job *freeslot.Job) (context.Context, trace.Span) {
	ctx, span := s.tracer.Start(tracing.Parent(ctx, job.TraceParent), name, trace.WithSpanKind(trace.SpanKindServer))
	job.TraceParent = tracing.TraceParent(ctx)
	return ctx, span
}

// keyFrom copies the idempotency key of the request's header into the job.
func keyFrom(header string, job *freeslot.Job) error {
	if header == "" || header == job.IdempotencyKey {
		return nil
	}
	if job.IdempotencyKey != "" {
		return freeslot.Invalid("Idempotency-Key", "is another than job.idempotency_key, expected one of them or the same")
	}
	job.IdempotencyKey = header
	return job.Validate("job")
}

func (s *Server) decodeJob(data []byte) (*freeslot.Job, error) {
	job, refused := wire.DecodeJob(bytes.TrimPrefix(data, []byte("\ufeff")))
	if refused != nil {
		return nil, refused
	}
	if err := wire.CheckPayload("job", &job, s.cfg.MaxPayloadBytes); err != nil {
		return nil, err
	}
	return &job, job.Validate("job")
}

// send submits one job. sink may be nil.
func (s *Server) send(
	ctx context.Context, req dispatch.Request, sink dispatch.Sink,
) (accepted dispatch.Accepted, err error) {
	ctx, cancel := context.WithTimeout(ctx, CallTimeout)
	defer cancel()
	s.deps.Jobs.Submit(
		ctx, []dispatch.Request{req}, sink, func(_ int, a dispatch.Accepted, e error) { accepted, err = a, e },
	)
	return accepted, err
}

// submitNow submits a job in a span of this name, and answers with its status so far.
func (s *Server) submitNow(ctx context.Context, span string, req dispatch.Request) (*JobAnswer, error) {
	if err := s.refuseDraining(); err != nil {
		return nil, err
	}
	ctx, sp := s.span(ctx, span, req.Job)
	defer sp.End()
	a, err := s.send(ctx, req, nil)
	if err != nil {
		return nil, err
	}
	return s.soFar(ctx, req.Tenant, a, req.Job), nil
}

// soFar returns the answer for an accepted job: its record or, if that cannot be read now, what is
// known without it. The job is stored either way.
func (s *Server) soFar(ctx context.Context, tenant string, a dispatch.Accepted, job *freeslot.Job) *JobAnswer {
	ctx, cancel := context.WithTimeout(ctx, CallTimeout)
	defer cancel()
	status, err := s.deps.Jobs.Job(ctx, tenant, a.JobID)
	if err != nil {
		s.log.Debug("http.status_unknown", zap.String("job_id", a.JobID), zap.Error(err))
		status = freeslot.JobStatus{
			ID: a.JobID, Tenant: tenant, Service: job.Service, State: freeslot.StateRunning, Slots: job.SlotCount(),
			Priority: job.Priority,
		}
		if a.Position > 0 {
			status.State, status.Position = freeslot.StateWaiting, a.Position
		}
	}
	return answer(status)
}

// answer returns 200 for a terminal status, otherwise 202.
func answer(status freeslot.JobStatus) *JobAnswer {
	if status.State.Terminal() {
		return &JobAnswer{Status: http.StatusOK, Body: status}
	}
	return &JobAnswer{Status: http.StatusAccepted, Body: status}
}

// aboutJob makes a handler of a call about one job.
func (s *Server) aboutJob(
	operation string, call func(ctx context.Context, tenant, jobID string) (freeslot.JobStatus, error),
) func(context.Context, *jobInput) (*JobAnswer, error) {
	return handle(s, operation, func(ctx context.Context, in *jobInput) (*JobAnswer, error) {
		if err := cell.ValidateJobID("id", in.ID); err != nil {
			return nil, err
		}
		ctx, cancel := context.WithTimeout(ctx, CallTimeout)
		defer cancel()
		status, err := call(ctx, Caller(ctx).scope(), in.ID)
		audit.Of(ctx).Note("", string(status.State))
		return &JobAnswer{Status: http.StatusOK, Body: status}, err
	})
}

func (s *Server) listJobs(ctx context.Context, in *listInput) (*pageOutput, error) {
	p := Caller(ctx)
	filter := cell.JobFilter{Tenant: in.Tenant, State: freeslot.State(in.State), Class: in.Class}
	if in.Class != "" {
		if err := freeslot.ValidateClassID("class", in.Class); err != nil {
			return nil, err
		}
	}
	if in.Tenant != "" {
		if err := freeslot.ValidateName("tenant", in.Tenant); err != nil {
			return nil, err
		}
	}
	if !p.AllTenants {
		if in.Tenant != "" && in.Tenant != p.Tenant {
			return nil, &freeslot.Error{
				Code: freeslot.CodePermissionDenied, Field: "tenant", Message: "tenant is another's, which only operators may list",
			}
		}
		filter.Tenant = p.Tenant
	}
	ctx, cancel := context.WithTimeout(ctx, CallTimeout)
	defer cancel()
	page, err := s.deps.Jobs.Jobs(ctx, filter, in.Cursor, in.Limit)
	if page.Jobs == nil {
		page.Jobs = []freeslot.JobStatus{}
	}
	return &pageOutput{Body: JobPage{Jobs: page.Jobs, Cursor: page.Cursor}}, err
}

// refuse is the only place that logs a failed call. Callers get the code, operators the cause.
// During an outage it logs only some of the failures.
func (s *Server) refuse(op string, err error) error {
	e := coded(err)
	switch e.Code {
	case freeslot.CodeInternal:
		s.log.Error("http.call_failed", zap.String("operation", op), zap.Error(err))
	case freeslot.CodeUnavailable:
		s.sampled.Warn("http.call_failed", zap.String("operation", op), zap.Error(err))
	}
	return body(e)
}

func bytesText(n int64) string {
	switch {
	case n >= 1<<20 && n%(1<<20) == 0:
		return fmt.Sprintf("%d MiB", n>>20)
	case n >= 1<<10 && n%(1<<10) == 0:
		return fmt.Sprintf("%d KiB", n>>10)
	default:
		return fmt.Sprintf("%d bytes", n)
	}
}
