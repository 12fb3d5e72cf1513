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
	"github.com/freeslot/freeslot/internal/identity"
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
	CancelIf(ctx context.Context, tenant, jobID string, seen cell.Seen) (freeslot.JobStatus, error)
	Job(ctx context.Context, tenant, jobID string) (freeslot.JobStatus, error)
	Jobs(ctx context.Context, f cell.JobFilter, cursor string, limit int) (cell.JobPage, error)
	JobsByKey(ctx context.Context, f cell.JobFilter, key string) (cell.JobPage, error)
	DeadLetters(ctx context.Context, f cell.JobFilter, by []cell.DeadKey) (cell.DeadLetters, error)
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
	restoreInput struct {
		Tenant  string `query:"tenant" required:"true" maxLength:"64" doc:"The tenant that the job belongs to."`
		RawBody []byte
	}
	jobInput struct {
		ID string `path:"id" doc:"The job's id."`
	}
	cancelInput struct {
		ID      string `path:"id" doc:"The job's id."`
		Attempt int    `query:"attempt" minimum:"0" maximum:"1000000000" doc:"Only if the job is in this attempt, as GET /v1/jobs/{id} has it; otherwise the answer is conflict, and nothing is cancelled. 0 or absent: in any."`
		State   string `query:"state" enum:"scheduled,waiting,moving,retry_wait,running,cancelling,succeeded,failed,cancelled,expired,dead" doc:"Only if the job is in this state; absent: in any. One that was cancelled meanwhile is no conflict."`
	}
	listInput struct {
		State    string `query:"state" enum:"scheduled,waiting,moving,retry_wait,running,cancelling,succeeded,failed,cancelled,expired,dead" doc:"Only jobs in this state."`
		Tenant   string `query:"tenant" maxLength:"64" doc:"Only jobs of this tenant. Clients may only name their own; operators see all without it."`
		Class    string `query:"class" maxLength:"16" doc:"Only jobs of this class, by its id. Those that wait come in the order in which they are served."`
		Service  string `query:"service" maxLength:"64" doc:"Only jobs of this service."`
		Node     string `query:"node" maxLength:"64" doc:"Only jobs that run on this node, or ran there last."`
		Code     string `query:"code" maxLength:"128" doc:"Only jobs whose error has this code. Without a state, only jobs that have ended."`
		Schedule string `query:"schedule" maxLength:"64" doc:"Only jobs that this schedule made, or that repeat one of them."`
		Key      string `query:"idempotency_key" maxLength:"128" doc:"Only the job that this idempotency key of the tenant names: the last one that was submitted with it, while its record and the key are kept. With rights for all tenants, name the tenant, too."`
		FromMS   int64  `query:"ended_from_ms" minimum:"0" maximum:"99999999999999" doc:"Only jobs that ended at this time or later, in milliseconds since 1970 by Redis' clock."`
		ToMS     int64  `query:"ended_to_ms" minimum:"0" maximum:"99999999999999" doc:"Only jobs that ended before this time."`
		Cursor   string `query:"cursor" maxLength:"256" doc:"The cursor of the page before."`
		Limit    int    `query:"limit" minimum:"1" maximum:"500" default:"100" doc:"At most this many jobs."`
	}
	pageOutput struct {
		Body JobPage
	}
)

// restorePath is the path at which jobs of a backup are submitted.
const restorePath = "/v1/restored-jobs"

// JobAnswer is an answer with the status of a job.
type JobAnswer struct {
	Status int
	Body   freeslot.JobStatus
}

// JobPage is one page of a listing.
type JobPage struct {
	Jobs []freeslot.JobStatus `json:"jobs" doc:"Jobs that wait, running ones by node, then ended ones, the newest first. The place of a job that waits is not listed."`
	// LookedAt, SinceMS and Cursor are documented in their tags.
	LookedAt int    `json:"looked_at" doc:"How many jobs were looked at for this page, at most 2000. Those that do not fit are left out."`
	SinceMS  int64  `json:"since_ms,omitempty" doc:"This page and those before it have every job that fits and ended at this time or later, by Redis' clock: earlier ones were not looked at yet, or are not kept. Absent while only jobs that have not ended were looked at."`
	Cursor   string `json:"cursor,omitempty" doc:"Continues the listing; absent at its end. A page can be short, even empty, and still have one."`
	// Unreachable is documented in its tag.
	Unreachable []int `json:"unreachable,omitempty" doc:"The cells that did not answer, whose jobs are not on the page."`
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
		Summary: "List jobs",
		Description: "A job that ends while the listing goes on can be seen twice, never missed. A call looks at a bounded " +
			"number of jobs, so with filters follow the cursor. Ends that are no success are indexed by state: ask for a " +
			"state, or a " +
			"code, to look at these alone.",
	}, handle(s, "list", s.listJobs))
	huma.Register(api, huma.Operation{
		OperationID: "restore-job", Method: http.MethodPost, Path: restorePath, Tags: []string{"jobs"},
		Summary:       "Submit a job of a backup",
		Description:   "As POST /v1/jobs, for the tenant that had the job. It does not count for the tenant's submit_rate.",
		DefaultStatus: http.StatusAccepted,
	}, handle(s, "restore", s.restore))
	s.registerDeadLetters(api)
	huma.Register(api, huma.Operation{
		OperationID: "cancel-job", Method: http.MethodPost, Path: "/v1/jobs/{id}/cancel", Tags: []string{"jobs"},
		Summary: "Cancel a job",
		Description: "Asks the node to stop the job; the answer is its status then, mostly cancelling. A job that waits " +
			"is cancelled at once. One that has ended is only read. With attempt or state, a job that has gone on since the " +
			"caller saw it is left alone.",
	}, handle(s, "cancel", s.cancel))
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

// restore submits a job for the tenant that the caller names.
func (s *Server) restore(ctx context.Context, in *restoreInput) (*JobAnswer, error) {
	if err := freeslot.ValidateName("tenant", in.Tenant); err != nil {
		return nil, err
	}
	job, err := s.decodeJob(in.RawBody)
	if err != nil {
		return nil, err
	}
	return s.submitNow(ctx, "freeslot.http.restore", dispatch.Request{Tenant: in.Tenant, Job: job, Unlimited: true})
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
	return s.answer(ctx, status)
}

// answer returns 200 for a terminal status, otherwise 202.
func (s *Server) answer(ctx context.Context, status freeslot.JobStatus) *JobAnswer {
	code := http.StatusAccepted
	if status.State.Terminal() {
		code = http.StatusOK
	}
	return &JobAnswer{Status: code, Body: *s.shown(ctx, &status)}
}

// aboutJob makes a handler of a call about one job.
func (s *Server) aboutJob(
	operation string, call func(ctx context.Context, tenant, jobID string) (freeslot.JobStatus, error),
) func(context.Context, *jobInput) (*JobAnswer, error) {
	return handle(s, operation, func(ctx context.Context, in *jobInput) (*JobAnswer, error) {
		return s.tellOf(ctx, in.ID, call)
	})
}

func (s *Server) cancel(ctx context.Context, in *cancelInput) (*JobAnswer, error) {
	seen := cell.Seen{Attempt: in.Attempt, State: freeslot.State(in.State)}
	return s.tellOf(ctx, in.ID, func(ctx context.Context, tenant, jobID string) (freeslot.JobStatus, error) {
		return s.deps.Jobs.CancelIf(ctx, tenant, jobID, seen)
	})
}

// tellOf answers with what call returns about a job.
func (s *Server) tellOf(
	ctx context.Context, id string, call func(ctx context.Context, tenant, jobID string) (freeslot.JobStatus, error),
) (*JobAnswer, error) {
	if err := cell.ValidateJobID("id", id); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, CallTimeout)
	defer cancel()
	status, err := call(ctx, Caller(ctx).scope(), id)
	audit.Of(ctx).Note("", string(status.State))
	return &JobAnswer{Status: http.StatusOK, Body: *s.shown(ctx, &status)}, err
}

// hides reports whether payloads and results are hidden from the caller, who uses the console.
func (s *Server) hides(ctx context.Context) bool { return s.cfg.HidePayloads && identity.IsKnown(ctx) }

// shown takes out of a status what is hidden from the caller, and returns it.
func (s *Server) shown(ctx context.Context, status *freeslot.JobStatus) *freeslot.JobStatus {
	if s.hides(ctx) {
		status.Result = nil
	}
	return status
}

func (s *Server) listJobs(ctx context.Context, in *listInput) (*pageOutput, error) {
	p := Caller(ctx)
	filter, err := in.filter()
	if err != nil {
		return nil, err
	}
	if err := ownTenant(p, &filter); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, CallTimeout)
	defer cancel()
	page, err := s.pageOfJobs(ctx, in, filter)
	if page.Jobs == nil {
		page.Jobs = []freeslot.JobStatus{}
	}
	for i := range page.Jobs {
		s.shown(ctx, &page.Jobs[i])
	}
	return &pageOutput{Body: JobPage{
		Jobs: page.Jobs, Cursor: page.Cursor, LookedAt: page.LookedAt, SinceMS: page.SinceMS,
		Unreachable: page.Unreachable,
	}}, err
}

func (s *Server) pageOfJobs(ctx context.Context, in *listInput, f cell.JobFilter) (cell.JobPage, error) {
	switch {
	case in.Key == "":
		return s.deps.Jobs.Jobs(ctx, f, in.Cursor, in.Limit)
	case f.Tenant == "":
		return cell.JobPage{}, freeslot.Invalid("tenant", "is missing, expected the tenant whose idempotency_key it is")
	default:
		return s.deps.Jobs.JobsByKey(ctx, f, in.Key)
	}
}

// ownTenant limits a filter to the tenant of a caller who may not see the others.
func ownTenant(p *Principal, f *cell.JobFilter) error {
	if p.AllTenants {
		return nil
	}
	if f.Tenant != "" && f.Tenant != p.Tenant {
		return &freeslot.Error{
			Code: freeslot.CodePermissionDenied, Field: "tenant", Message: "tenant is another's, which only operators may list",
		}
	}
	f.Tenant = p.Tenant
	return nil
}

// filter returns the filter that the query asks for.
func (in *listInput) filter() (cell.JobFilter, error) {
	f := cell.JobFilter{
		Tenant: in.Tenant, State: freeslot.State(in.State), Class: in.Class, Service: in.Service, Node: in.Node,
		Code:     in.Code,
		Schedule: in.Schedule, FromMS: in.FromMS, ToMS: in.ToMS,
	}
	if f.Class != "" {
		if err := freeslot.ValidateClassID("class", f.Class); err != nil {
			return f, err
		}
	}
	if err := freeslot.ValidateKey("idempotency_key", in.Key); err != nil {
		return f, err
	}
	for _, one := range []struct{ field, value string }{
		{"tenant", f.Tenant}, {"service", f.Service}, {"node", f.Node}, {"schedule", f.Schedule},
	} {
		if one.value != "" {
			if err := freeslot.ValidateName(one.field, one.value); err != nil {
				return f, err
			}
		}
	}
	if f.State != "" && !f.State.Terminal() && (f.FromMS > 0 || f.ToMS > 0) {
		return f, freeslot.Invalid(
			"state", "is %s, expected one of an end: the query asks for jobs by when they ended", f.State,
		)
	}
	if f.ToMS > 0 && f.ToMS <= f.FromMS {
		return f, freeslot.Invalid("ended_to_ms", "is %d, expected a time after ended_from_ms (%d)", f.ToMS, f.FromMS)
	}
	return f, nil
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
