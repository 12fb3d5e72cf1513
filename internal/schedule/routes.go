package schedule

import (
	"context"
	"net/http"
	"reflect"

	"github.com/danielgtaylor/huma/v2"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/api"
	"github.com/freeslot/freeslot/internal/audit"
)

// schedules lists what the routes call of *Service.
type schedules interface {
	Put(ctx context.Context, tenant, name string, change *Change) (status Schedule, created bool, err error)
	Preview(ctx context.Context, tenant, name string, change *Change, runs int) (Schedule, bool, error)
	Get(ctx context.Context, tenant, name string, runs int) (Schedule, error)
	List(ctx context.Context, tenant, cursor string, limit int) (SchedulePage, error)
	Delete(ctx context.Context, tenant, name string, version *uint64) (Schedule, error)
	Pause(ctx context.Context, tenant, name string) (Schedule, error)
	Resume(ctx context.Context, tenant, name string) (Schedule, error)
}

const schedulePath = "/v1/schedules/{name}"

// ScheduleRequest is the body of a PUT.
type ScheduleRequest struct {
	Cron     string       `json:"cron" maxLength:"256" doc:"When: minute, hour, day of month, month and day of week, such as 30 4 * * 1-5; or @hourly, @daily, @weekly, @monthly, @yearly; or @every with a duration of at least 1s, such as @every 10m."`
	TimeZone string       `json:"time_zone,omitempty" doc:"In which time zone, such as Europe/Berlin; absent means UTC."`
	Job      freeslot.Job `json:"job" doc:"What: a job without run_at_ms, idempotency_key and traceparent."`
	OnMissed OnMissed     `json:"on_missed,omitempty" enum:"skip,latest,all" doc:"What becomes of runs that did not begin in time. skip: nothing. latest: the last of them is made, once. all: the last 100 are made. Absent means latest."`
	GraceMS  int64        `json:"grace_ms,omitempty" minimum:"0" maximum:"604800000" doc:"After how many milliseconds a run that has not begun counts as missed, and for how long one is tried again that cannot be made, because no node fits, say. Absent means 60000."`
	Paused   *bool        `json:"paused,omitempty" doc:"Whether it is to be paused; absent leaves that as it is."`
	Version  *uint64      `json:"version,omitempty" doc:"The version of the schedule that is replaced, 0 for none; another one is a conflict. Absent replaces any."`
}

// SchedulePage is one page of a listing.
type SchedulePage struct {
	Schedules []Schedule `json:"schedules" doc:"In the order of their tenants and names."`
	// The tag documents Cursor.
	Cursor string `json:"cursor,omitempty" doc:"Continues the listing; absent at its end."`

	nowMS int64 // Redis' clock
}

type (
	scheduleInput struct {
		Name   string `path:"name" doc:"The name of the schedule; a tenant has at most one of each name."`
		Tenant string `query:"tenant" maxLength:"64" doc:"The tenant whose schedule it is, for operators; absent means the caller's."`
	}
	putScheduleInput struct {
		Name    string `path:"name" doc:"The name of the schedule; a tenant has at most one of each name."`
		Tenant  string `query:"tenant" maxLength:"64" doc:"The tenant whose schedule it is, for operators; absent means the caller's."`
		DryRun  bool   `query:"dry_run" doc:"Change nothing, and answer with the schedule as it would be, or with what is wrong."`
		Runs    int    `query:"runs" minimum:"0" maximum:"100" doc:"In a dry run, how many of the coming runs to tell."`
		RawBody []byte
	}
	deleteScheduleInput struct {
		Name    string `path:"name" doc:"The name of the schedule; a tenant has at most one of each name."`
		Tenant  string `query:"tenant" maxLength:"64" doc:"The tenant whose schedule it is, for operators; absent means the caller's."`
		Version uint64 `query:"version" doc:"The version of the schedule that is meant; another one is a conflict. Absent deletes any."`
	}
	getScheduleInput struct {
		Name   string `path:"name" doc:"The name of the schedule; a tenant has at most one of each name."`
		Tenant string `query:"tenant" maxLength:"64" doc:"The tenant whose schedule it is, for operators; absent means the caller's."`
		Runs   int    `query:"runs" minimum:"0" maximum:"100" doc:"How many of the coming runs to tell."`
	}
	listSchedulesInput struct {
		Tenant string `query:"tenant" maxLength:"64" doc:"Only schedules of this tenant. Clients may only name their own; operators see all without it."`
		Cursor string `query:"cursor" maxLength:"256" doc:"The cursor of the page before."`
		Limit  int    `query:"limit" minimum:"1" maximum:"100" default:"100" doc:"At most this many schedules; fewer where they are large."`
	}
	scheduleOutput struct {
		Status int
		Body   Schedule
	}
	schedulePageOutput struct{ Body SchedulePage }
)

// routes serves the HTTP routes of schedules.
type routes struct {
	*api.Router
	schedules schedules
}

func routesOf(s schedules) api.Routes {
	return func(router *api.Router) {
		r := &routes{router, s}
		r.register()
		r.document(router.OpenAPI())
	}
}

func (r *routes) register() {
	tags := []string{"schedules"}
	huma.Register(r, huma.Operation{
		OperationID: "put-schedule", Method: http.MethodPut, Path: schedulePath, Tags: tags,
		Summary: "Make or replace a schedule",
		Description: "201 for a new one, else 200. The same again changes nothing. A bad one is refused with every bad " +
			"field in errors. Where time or zone change, the next run is the first from now on; " +
			"a run that is just being made goes on.",
		DefaultStatus: http.StatusOK,
	}, r.put)
	huma.Register(r, huma.Operation{
		OperationID: "get-schedule", Method: http.MethodGet, Path: schedulePath, Tags: tags,
		Summary: "Read a schedule and how it stands", Description: "Schedules of other tenants are not_found to clients.",
	}, r.get)
	huma.Register(r, huma.Operation{
		OperationID: "list-schedules", Method: http.MethodGet, Path: "/v1/schedules", Tags: tags, Summary: "List schedules",
	}, r.list)
	huma.Register(r, huma.Operation{
		OperationID: "delete-schedule", Method: http.MethodDelete, Path: schedulePath, Tags: tags,
		Summary:     "Delete a schedule",
		Description: "The answer is what it was. Its jobs go on; a run that is just being made may come to a job.",
	}, r.delete)
	huma.Register(r, huma.Operation{
		OperationID: "pause-schedule", Method: http.MethodPost, Path: schedulePath + "/pause", Tags: tags,
		Summary: "Keep a schedule from running", Description: "A run that is just being made is made.",
	}, func(ctx context.Context, in *scheduleInput) (*scheduleOutput, error) {
		return r.one(ctx, in, r.schedules.Pause)
	})
	huma.Register(r, huma.Operation{
		OperationID: "resume-schedule", Method: http.MethodPost, Path: schedulePath + "/resume", Tags: tags,
		Summary:     "Have a schedule run again",
		Description: "It runs again from its next time on. Runs that fell into the pause do not count as missed.",
	}, func(ctx context.Context, in *scheduleInput) (*scheduleOutput, error) {
		return r.one(ctx, in, r.schedules.Resume)
	})
	huma.Register(r, huma.Operation{
		OperationID: "run-schedule", Method: http.MethodPost, Path: schedulePath + "/run", Tags: tags,
		Summary: "Submit a schedule's job now",
		Description: "Beside its runs, and also while it is paused; the answer is the status of the job. Asking twice " +
			"makes two jobs.",
		DefaultStatus: http.StatusAccepted,
	}, r.run)
}

// scheduleTenant returns the tenant of the schedule that the caller means.
func scheduleTenant(p *api.Principal, tenant string) (string, error) {
	switch {
	case tenant == "" || tenant == p.Tenant:
		return p.Tenant, nil
	case !p.AllTenants:
		return "", &freeslot.Error{
			Code: freeslot.CodePermissionDenied, Field: "tenant",
			Message: "tenant is another's, whose schedules only operators may manage",
		}
	default:
		return tenant, freeslot.ValidateName("tenant", tenant)
	}
}

func (r *routes) put(ctx context.Context, in *putScheduleInput) (*scheduleOutput, error) {
	created := false
	out, err := r.one(ctx, &scheduleInput{in.Name, in.Tenant},
		func(ctx context.Context, tenant, name string) (status Schedule, err error) {
			change, err := DecodeChange(in.RawBody)
			switch {
			case err != nil:
			case in.DryRun:
				audit.Of(ctx).DryRun()
				status, _, err = r.schedules.Preview(ctx, tenant, name, change, in.Runs)
			default:
				status, created, err = r.schedules.Put(ctx, tenant, name, change)
			}
			return status, err
		})
	if created && err == nil {
		out.Status = http.StatusCreated
	}
	return out, err
}

func (r *routes) delete(ctx context.Context, in *deleteScheduleInput) (*scheduleOutput, error) {
	return r.one(ctx, &scheduleInput{in.Name, in.Tenant},
		func(ctx context.Context, tenant, name string) (Schedule, error) {
			var version *uint64
			if in.Version != 0 { // no schedule has version 0
				version = &in.Version
			}
			return r.schedules.Delete(ctx, tenant, name, version)
		})
}

func (r *routes) get(ctx context.Context, in *getScheduleInput) (*scheduleOutput, error) {
	return r.one(ctx, &scheduleInput{in.Name, in.Tenant},
		func(ctx context.Context, tenant, name string) (Schedule, error) {
			return r.schedules.Get(ctx, tenant, name, in.Runs)
		})
}

func (r *routes) one(
	ctx context.Context, in *scheduleInput, call func(ctx context.Context, tenant, name string) (Schedule, error),
) (*scheduleOutput, error) {
	tenant, err := scheduleTenant(api.Caller(ctx), in.Tenant)
	if err != nil {
		return nil, r.Refuse("schedule", err)
	}
	ctx, cancel := context.WithTimeout(ctx, api.CallTimeout)
	defer cancel()
	status, err := call(ctx, tenant, in.Name)
	if err != nil {
		return nil, r.Refuse("schedule", err)
	}
	return &scheduleOutput{Status: http.StatusOK, Body: status}, nil
}

func (r *routes) list(ctx context.Context, in *listSchedulesInput) (*schedulePageOutput, error) {
	p := api.Caller(ctx)
	tenant := ""
	if in.Tenant != "" || !p.AllTenants {
		var err error
		if tenant, err = scheduleTenant(p, in.Tenant); err != nil {
			return nil, r.Refuse("schedules", err)
		}
	}
	ctx, cancel := context.WithTimeout(ctx, api.CallTimeout)
	defer cancel()
	page, err := r.schedules.List(ctx, tenant, in.Cursor, in.Limit)
	if err != nil {
		return nil, r.Refuse("schedules", err)
	}
	return &schedulePageOutput{Body: page}, nil
}

// run submits the template like any other job.
func (r *routes) run(ctx context.Context, in *scheduleInput) (*api.JobAnswer, error) {
	found, err := r.one(ctx, in, func(ctx context.Context, tenant, name string) (Schedule, error) {
		return r.schedules.Get(ctx, tenant, name, 0)
	})
	if err != nil {
		return nil, err
	}
	job := &found.Body.Job
	if err := job.Validate("job"); err != nil {
		return nil, r.Refuse("run schedule", err)
	}
	out, err := r.Submit(ctx, "freeslot.http.run_schedule", found.Body.Tenant, job)
	if err != nil {
		return nil, r.Refuse("run schedule", err)
	}
	return out, nil
}

// document adds to the OpenAPI document what the Go types cannot say.
func (r *routes) document(doc *huma.OpenAPI) {
	doc.Tags = append(doc.Tags, &huma.Tag{Name: "schedules", Description: "Jobs that are submitted again and again."})
	path := doc.Paths[schedulePath]
	path.Put.RequestBody = &huma.RequestBody{
		Required: true,
		Content: map[string]*huma.MediaType{
			"application/json": {Schema: doc.Components.Schemas.Schema(
				reflect.TypeFor[ScheduleRequest](), true, "ScheduleRequest",
			)},
		},
	}
	path.Put.Responses["201"] = &huma.Response{Description: "Made.", Content: path.Put.Responses["200"].Content}
	run := doc.Paths[schedulePath+"/run"].Post
	run.Responses["202"].Description = "The job; it had not ended when this was written."
	run.Responses["200"] = &huma.Response{
		Description: "The job, which has ended already.", Content: run.Responses["202"].Content,
	}
}
