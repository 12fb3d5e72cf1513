package api

import (
	"context"
	"net/http"
	"reflect"

	"github.com/danielgtaylor/huma/v2"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/cron"
)

// Schedules manages schedules; *cron.Service is it.
type Schedules interface {
	Put(ctx context.Context, tenant, name string, change *cron.Change) (status cron.Status, created bool, err error)
	Get(ctx context.Context, tenant, name string, runs int) (cron.Status, error)
	List(ctx context.Context, tenant, cursor string, limit int) (cron.Page, error)
	Delete(ctx context.Context, tenant, name string) (cron.Status, error)
	Pause(ctx context.Context, tenant, name string) (cron.Status, error)
	Resume(ctx context.Context, tenant, name string) (cron.Status, error)
}

const schedulePath = "/v1/schedules/{name}"

// ScheduleRequest is the body of a PUT.
type ScheduleRequest struct {
	Cron     string        `json:"cron" maxLength:"256" doc:"When: minute, hour, day of month, month and day of week, such as 30 4 * * 1-5; or @hourly, @daily, @weekly, @monthly, @yearly; or @every with a duration of at least 1s, such as @every 10m."`
	TimeZone string        `json:"time_zone,omitempty" doc:"In which time zone, such as Europe/Berlin; absent means UTC."`
	Job      freeslot.Job  `json:"job" doc:"What: a job without run_at_ms, idempotency_key and traceparent."`
	OnMissed cron.OnMissed `json:"on_missed,omitempty" enum:"skip,latest,all" doc:"What becomes of runs that did not begin in time. skip: nothing. latest: the last of them is made, once. all: the last 100 are made. Absent means latest."`
	GraceMS  int64         `json:"grace_ms,omitempty" minimum:"0" maximum:"604800000" doc:"After how many milliseconds a run that has not begun counts as missed, and for how long one is tried again that cannot be made, because no node fits, say. Absent means 60000."`
	Paused   *bool         `json:"paused,omitempty" doc:"Whether it is to be paused; absent leaves that as it is."`
	Version  *uint64       `json:"version,omitempty" doc:"The version of the schedule that is replaced, 0 for none; another one is a conflict. Absent replaces any."`
}

// Schedule is a schedule and how it stands.
type Schedule struct {
	Name     string        `json:"name"`
	Tenant   string        `json:"tenant"`
	Cron     string        `json:"cron"`
	TimeZone string        `json:"time_zone"`
	Job      freeslot.Job  `json:"job"`
	OnMissed cron.OnMissed `json:"on_missed" enum:"skip,latest,all"`
	GraceMS  int64         `json:"grace_ms"`
	Paused   bool          `json:"paused"`

	Version       uint64 `json:"version" doc:"Changes with every change by a client."`
	CreatedAtMS   int64  `json:"created_at_ms" doc:"The store's clock, in milliseconds since 1970, as all times here."`
	UpdatedAtMS   int64  `json:"updated_at_ms"`
	NextRunMS     int64  `json:"next_run_ms,omitempty" doc:"Absent while it is paused."`
	LastRunMS     int64  `json:"last_run_ms,omitempty" doc:"The time of the last run that is over, whether a job could be created or not."`
	LastJobID     string `json:"last_job_id,omitempty" doc:"The last job that was created."`
	LastError     string `json:"last_error,omitempty" doc:"Why the last run could not be made, or cannot be yet; absent after one that was."`
	LastErrorAtMS int64  `json:"last_error_at_ms,omitempty"`
	Runs          uint64 `json:"runs" doc:"How many jobs were created."`
	Failed        uint64 `json:"failed" doc:"How many runs could not be made."`
	Missed        uint64 `json:"missed" doc:"How many runs were left out because they were missed."`
	// NextRunsMS is documented for its reader in the tag.
	NextRunsMS []int64 `json:"next_runs_ms,omitempty" doc:"The coming runs, where they were asked for; of a paused schedule those that there would be."`
}

// SchedulePage is one page of a listing.
type SchedulePage struct {
	Schedules []Schedule `json:"schedules" doc:"In the order of their tenants and names."`
	// Cursor is documented for its reader in the tag.
	Cursor string `json:"cursor,omitempty" doc:"Continues the listing; absent at its end."`
}

type (
	scheduleInput struct {
		Name   string `path:"name" doc:"The name of the schedule, of which a tenant has one."`
		Tenant string `query:"tenant" maxLength:"64" doc:"The tenant whose schedule it is, for operators; absent means the caller's."`
	}
	putScheduleInput struct {
		Name    string `path:"name" doc:"The name of the schedule, of which a tenant has one."`
		Tenant  string `query:"tenant" maxLength:"64" doc:"The tenant whose schedule it is, for operators; absent means the caller's."`
		RawBody []byte
	}
	getScheduleInput struct {
		Name   string `path:"name" doc:"The name of the schedule, of which a tenant has one."`
		Tenant string `query:"tenant" maxLength:"64" doc:"The tenant whose schedule it is, for operators; absent means the caller's."`
		Runs   int    `query:"runs" minimum:"0" maximum:"100" doc:"How many of the coming runs to tell."`
	}
	listSchedulesInput struct {
		Tenant string `query:"tenant" maxLength:"64" doc:"Only schedules of this tenant. Clients may only name their own; operators see all without it."`
		Cursor string `query:"cursor" maxLength:"256" doc:"The cursor of the page before."`
		Limit  int    `query:"limit" minimum:"1" maximum:"100" default:"100" doc:"At most so many schedules; fewer where they are large."`
	}
	scheduleOutput struct {
		Status int
		Body   Schedule
	}
	schedulePageOutput struct{ Body SchedulePage }
)

func (s *Server) registerSchedules(api huma.API) {
	if s.schedules == nil {
		return
	}
	tags := []string{"schedules"}
	huma.Register(api, huma.Operation{
		OperationID: "put-schedule", Method: http.MethodPut, Path: schedulePath, Tags: tags,
		Summary: "Make or replace a schedule",
		Description: "201 for a new one, else 200. The same again changes nothing. A bad one is refused with every bad field in errors. Where time or zone change, the next run is the first from now on; " +
			"a run that is just being made goes on.",
		DefaultStatus: http.StatusOK,
	}, s.putSchedule)
	huma.Register(api, huma.Operation{
		OperationID: "get-schedule", Method: http.MethodGet, Path: schedulePath, Tags: tags,
		Summary: "Read a schedule and how it stands", Description: "Schedules of other tenants are not_found to clients.",
	}, s.getSchedule)
	huma.Register(api, huma.Operation{
		OperationID: "list-schedules", Method: http.MethodGet, Path: "/v1/schedules", Tags: tags, Summary: "List schedules",
	}, s.listSchedules)
	huma.Register(api, huma.Operation{
		OperationID: "delete-schedule", Method: http.MethodDelete, Path: schedulePath, Tags: tags,
		Summary: "Delete a schedule", Description: "The answer is what it was. Its jobs go on; a run that is just being made may come to a job.",
	}, func(ctx context.Context, in *scheduleInput) (*scheduleOutput, error) {
		return s.oneSchedule(ctx, in, s.schedules.Delete)
	})
	huma.Register(api, huma.Operation{
		OperationID: "pause-schedule", Method: http.MethodPost, Path: schedulePath + "/pause", Tags: tags,
		Summary: "Keep a schedule from running", Description: "A run that is just being made is made.",
	}, func(ctx context.Context, in *scheduleInput) (*scheduleOutput, error) {
		return s.oneSchedule(ctx, in, s.schedules.Pause)
	})
	huma.Register(api, huma.Operation{
		OperationID: "resume-schedule", Method: http.MethodPost, Path: schedulePath + "/resume", Tags: tags,
		Summary: "Have a schedule run again", Description: "From its next run on: those of the pause do not count as missed.",
	}, func(ctx context.Context, in *scheduleInput) (*scheduleOutput, error) {
		return s.oneSchedule(ctx, in, s.schedules.Resume)
	})
	huma.Register(api, huma.Operation{
		OperationID: "run-schedule", Method: http.MethodPost, Path: schedulePath + "/run", Tags: tags,
		Summary:       "Submit a schedule's job now",
		Description:   "Beside its runs, and also while it is paused; the answer is the status of the job. Asking twice makes two jobs.",
		DefaultStatus: http.StatusAccepted,
	}, s.runSchedule)
}

// scheduleTenant is whose schedule is meant.
func scheduleTenant(p Principal, tenant string) (string, error) {
	switch {
	case tenant == "" || tenant == p.Tenant:
		return p.Tenant, nil
	case !p.Operator:
		return "", &freeslot.Error{
			Code: freeslot.CodePermissionDenied, Field: "tenant", Message: "tenant is another's, whose schedules only operators may manage",
		}
	default:
		return tenant, freeslot.ValidateName("tenant", tenant)
	}
}

func (s *Server) putSchedule(ctx context.Context, in *putScheduleInput) (*scheduleOutput, error) {
	created := false
	out, err := s.oneSchedule(ctx, &scheduleInput{in.Name, in.Tenant}, func(ctx context.Context, tenant, name string) (status cron.Status, err error) {
		change, err := cron.DecodeChange(in.RawBody)
		if err == nil {
			status, created, err = s.schedules.Put(ctx, tenant, name, change)
		}
		return status, err
	})
	if created && err == nil {
		out.Status = http.StatusCreated
	}
	return out, err
}

func (s *Server) getSchedule(ctx context.Context, in *getScheduleInput) (*scheduleOutput, error) {
	return s.oneSchedule(ctx, &scheduleInput{in.Name, in.Tenant}, func(ctx context.Context, tenant, name string) (cron.Status, error) {
		return s.schedules.Get(ctx, tenant, name, in.Runs)
	})
}

func (s *Server) oneSchedule(ctx context.Context, in *scheduleInput, call func(ctx context.Context, tenant, name string) (cron.Status, error)) (*scheduleOutput, error) {
	tenant, err := scheduleTenant(principalOf(ctx), in.Tenant)
	if err != nil {
		return nil, s.refuse("schedule", err)
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	status, err := call(ctx, tenant, in.Name)
	if err != nil {
		return nil, s.refuse("schedule", err)
	}
	return &scheduleOutput{Status: http.StatusOK, Body: scheduleOf(&status)}, nil
}

func (s *Server) listSchedules(ctx context.Context, in *listSchedulesInput) (*schedulePageOutput, error) {
	p := principalOf(ctx)
	tenant := ""
	if in.Tenant != "" || !p.Operator {
		var err error
		if tenant, err = scheduleTenant(p, in.Tenant); err != nil {
			return nil, s.refuse("schedules", err)
		}
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	page, err := s.schedules.List(ctx, tenant, in.Cursor, in.Limit)
	if err != nil {
		return nil, s.refuse("schedules", err)
	}
	out := SchedulePage{Schedules: make([]Schedule, len(page.Schedules)), Cursor: page.Cursor}
	for i := range page.Schedules {
		out.Schedules[i] = scheduleOf(&page.Schedules[i])
	}
	return &schedulePageOutput{Body: out}, nil
}

// runSchedule submits the template as any other job.
func (s *Server) runSchedule(ctx context.Context, in *scheduleInput) (*jobOutput, error) {
	found, err := s.oneSchedule(ctx, in, func(ctx context.Context, tenant, name string) (cron.Status, error) {
		return s.schedules.Get(ctx, tenant, name, 0)
	})
	if err != nil {
		return nil, err
	}
	job := &found.Body.Job
	if err := s.refuseDraining(); err != nil {
		return nil, s.refuse("run schedule", err)
	}
	if err := job.Validate("job"); err != nil {
		return nil, s.refuse("run schedule", err)
	}
	p := principalOf(ctx)
	p.Tenant = found.Body.Tenant
	ctx, span := s.span(ctx, "freeslot.http.run_schedule", job)
	defer span.End()
	a, err := s.place(ctx, p, job, nil)
	if err != nil {
		return nil, s.refuse("run schedule", err)
	}
	return s.soFar(ctx, p, a, job), nil
}

func scheduleOf(s *cron.Status) Schedule {
	return Schedule{
		Name: s.Name, Tenant: s.Tenant, Cron: s.Cron, TimeZone: s.TimeZone, Job: s.Job, OnMissed: s.OnMissed, GraceMS: s.GraceMS, Paused: s.Paused,
		Version: s.Version, CreatedAtMS: s.CreatedAtMS, UpdatedAtMS: s.UpdatedAtMS, NextRunMS: s.NextRunMS, LastRunMS: s.LastRunMS, LastJobID: s.LastJobID,
		LastError: s.LastError, LastErrorAtMS: s.LastErrorMS, Runs: s.Runs, Failed: s.Failed, Missed: s.Missed, NextRunsMS: s.NextRuns,
	}
}

// finishSchedules completes the document.
func finishSchedules(doc *huma.OpenAPI) {
	path := doc.Paths[schedulePath]
	if path == nil {
		return
	}
	path.Put.RequestBody = &huma.RequestBody{
		Required: true,
		Content:  map[string]*huma.MediaType{"application/json": {Schema: doc.Components.Schemas.Schema(reflect.TypeFor[ScheduleRequest](), true, "ScheduleRequest")}},
	}
	path.Put.Responses["201"] = &huma.Response{Description: "Made.", Content: path.Put.Responses["200"].Content}
	run := doc.Paths[schedulePath+"/run"].Post
	run.Responses["202"].Description = "The job; it had not ended when this was written."
	run.Responses["200"] = &huma.Response{Description: "The job, which has ended already.", Content: run.Responses["202"].Content}
}
