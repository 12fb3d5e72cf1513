package schedule

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/api"
	"github.com/freeslot/freeslot/internal/testing/apitest"
)

// fakeSchedules has one schedule, a of acme, and notes what it is called with.
type fakeSchedules struct {
	calls []string
	err   error
}

func (f *fakeSchedules) use(d *api.Deps) { d.Routes = []api.Routes{routesOf(f)} }

func (f *fakeSchedules) call(ctx context.Context, tenant, name string, parts ...any) (Schedule, error) {
	if _, ok := ctx.Deadline(); !ok {
		return Schedule{}, fmt.Errorf("%v has no deadline", parts)
	}
	f.calls = append(f.calls, strings.TrimSpace(fmt.Sprintln(append([]any{tenant, name}, parts...)...)))
	if f.err == nil && (tenant != "acme" || name != "a") {
		return Schedule{}, &freeslot.Error{Code: freeslot.CodeNotFound, Field: "name", Message: "there is no schedule " + name}
	}
	return Schedule{
		Name: name, Tenant: tenant, Version: 3, NextRunMS: 7, LastErrorAtMS: 8, Missed: 9,
		Cron: "@daily", TimeZone: "UTC", Job: freeslot.Job{Service: "tts"}, OnMissed: Latest, GraceMS: 5,
	}, f.err
}

func (f *fakeSchedules) Put(ctx context.Context, tenant, name string, c *Change) (Schedule, bool, error) {
	s, err := f.call(ctx, tenant, name, "put", c.Cron, c.Job.Service)
	return s, c.Version != nil && *c.Version == 0, err
}

func (f *fakeSchedules) Get(ctx context.Context, tenant, name string, runs int) (Schedule, error) {
	s, err := f.call(ctx, tenant, name, "get", runs)
	if runs > 0 {
		s.NextRunsMS = []int64{7, 8}
	}
	return s, err
}

func (f *fakeSchedules) Preview(ctx context.Context, tenant, name string, c *Change, runs int) (Schedule, bool, error) {
	s, err := f.call(ctx, tenant, name, "preview", c.Cron, runs)
	return s, true, err
}

func (f *fakeSchedules) Delete(ctx context.Context, tenant, name string, version *uint64) (Schedule, error) {
	if version != nil {
		return f.call(ctx, tenant, name, "delete", *version)
	}
	return f.call(ctx, tenant, name, "delete")
}

func (f *fakeSchedules) Pause(ctx context.Context, tenant, name string) (Schedule, error) {
	return f.call(ctx, tenant, name, "pause")
}

func (f *fakeSchedules) Resume(ctx context.Context, tenant, name string) (Schedule, error) {
	return f.call(ctx, tenant, name, "resume")
}

func (f *fakeSchedules) List(ctx context.Context, tenant, cursor string, limit int) (SchedulePage, error) {
	f.calls = append(f.calls, fmt.Sprintf("%q list %q %d", tenant, cursor, limit))
	s, err := f.call(ctx, "acme", "a")
	return SchedulePage{Schedules: []Schedule{s}, Cursor: "acme/a"}, err
}

// scheduleCalls are all calls, with what they come to for the schedules' store.
var scheduleCalls = []struct{ method, action, content, call string }{
	{"PUT", "", `{"cron":"@daily","job":{"service":"tts"}}`, "put @daily tts"},
	{"GET", "", "", "get 0"},
	{"DELETE", "", "", "delete"},
	{"POST", "/pause", "", "pause"},
	{"POST", "/resume", "", "resume"},
}

func TestSchedules(t *testing.T) {
	t.Parallel()
	store := new(fakeSchedules)
	f := apitest.New(t, api.Config{}, apitest.WithTokens, store.use)
	acme, other, root := []string{"Authorization", "Bearer acme-token"}, []string{"Authorization", "Bearer other-token"}, []string{"Authorization", "Bearer root-token"}
	for _, c := range scheduleCalls {
		target := "/v1/schedules/a" + c.action
		for _, who := range []struct {
			header []string
			query  string
		}{{acme, ""}, {acme, "?tenant=acme"}, {root, "?tenant=acme"}} {
			store.calls = nil
			got := f.Do(t, c.method, target+who.query, c.content, who.header...)
			if got.Status != http.StatusOK || len(store.calls) != 1 || store.calls[0] != "acme a "+c.call {
				t.Errorf("%s %s: %d %s, called %q", c.method, target+who.query, got.Status, got.Text, store.calls)
			}
			if got.Body["name"] != "a" || got.Body["tenant"] != "acme" || got.Body["missed"] != 9.0 || got.Body["last_error_at_ms"] != 8.0 || apitest.At(got.Body, "job", "service") != "tts" {
				t.Error(got.Text)
			}
		}
		store.calls = nil
		f.Do(t, c.method, target, c.content, other...).Refusal(t, http.StatusNotFound, freeslot.CodeNotFound)
		f.Do(t, c.method, target, c.content, root...).Refusal(t, http.StatusNotFound, freeslot.CodeNotFound)
		if len(store.calls) != 2 || !strings.HasPrefix(store.calls[0], "other ") || !strings.HasPrefix(store.calls[1], "ops ") {
			t.Error(store.calls)
		}
		f.Do(t, c.method, target+"?tenant=acme", c.content, other...).Refusal(t, http.StatusForbidden, freeslot.CodePermissionDenied)
		f.Do(t, c.method, target, c.content).Refusal(t, http.StatusUnauthorized, freeslot.CodeUnauthenticated)
		if len(store.calls) != 2 {
			t.Error(store.calls)
		}
	}
	if got := f.Do(t, "PUT", "/v1/schedules/a", `{"cron":"@daily","job":{"service":"tts"},"version":0}`, acme...); got.Status != http.StatusCreated {
		t.Error(got.Status, got.Text)
	}
	if got := f.Do(t, "PUT", "/v1/schedules/a", `{"cron":"@daily","job":{}}`, acme...); got.Body["field"] != "job.service" {
		t.Error(got.Text)
	}
	if got := f.Do(t, "GET", "/v1/schedules/a?runs=2", "", acme...); fmt.Sprint(got.Body["next_runs_ms"]) != "[7 8]" {
		t.Error(got.Text)
	}
	store.calls = nil
	f.Do(t, "PUT", "/v1/schedules/a?dry_run=true&runs=5", `{"cron":"@daily","job":{"service":"tts"}}`, acme...)
	f.Do(t, "DELETE", "/v1/schedules/a?version=7", "", acme...)
	if want := []string{"acme a preview @daily 5", "acme a delete 7"}; !slices.Equal(store.calls, want) {
		t.Errorf("called %q; want %q", store.calls, want)
	}
	f.Do(t, "GET", "/v1/schedules/a?runs=101", "", acme...).Refusal(t, http.StatusBadRequest, freeslot.CodeInvalidArgument)
	store.err = &freeslot.Error{Code: freeslot.CodeConflict, Field: "version", Message: "version is 1"}
	f.Do(t, "PUT", "/v1/schedules/a", `{"cron":"@daily","job":{"service":"tts"}}`, acme...).Refusal(t, http.StatusConflict, freeslot.CodeConflict)
}

func TestListSchedules(t *testing.T) {
	t.Parallel()
	store := new(fakeSchedules)
	f := apitest.New(t, api.Config{}, apitest.WithTokens, store.use)
	for _, c := range []struct{ token, query, call string }{
		{"acme-token", "", `"acme" list "" 100`},
		{"acme-token", "?tenant=acme&limit=2&cursor=acme/a", `"acme" list "acme/a" 2`},
		{"root-token", "", `"" list "" 100`},
		{"root-token", "?tenant=acme", `"acme" list "" 100`},
	} {
		store.calls = nil
		got := f.Do(t, "GET", "/v1/schedules"+c.query, "", "Authorization", "Bearer "+c.token)
		if list, _ := got.Body["schedules"].([]any); got.Status != http.StatusOK || store.calls[0] != c.call || len(list) != 1 || got.Body["cursor"] != "acme/a" {
			t.Errorf("%+v: %s, called %q", c, got.Text, store.calls)
		}
	}
	f.Do(t, "GET", "/v1/schedules?tenant=other", "", "Authorization", "Bearer acme-token").Refusal(t, http.StatusForbidden, freeslot.CodePermissionDenied)
}

// TestRunSchedule: the job is the tenant's, whoever asks.
func TestRunSchedule(t *testing.T) {
	t.Parallel()
	f := apitest.New(t, api.Config{}, apitest.WithTokens, new(fakeSchedules).use)
	for _, who := range []struct{ token, query string }{{"acme-token", ""}, {"root-token", "?tenant=acme"}} {
		got := f.Do(t, "POST", "/v1/schedules/a/run"+who.query, "", "Authorization", "Bearer "+who.token)
		if got.Status != http.StatusAccepted || got.Body["job_id"] != apitest.JobID {
			t.Error(got.Status, got.Text)
		}
		if s := f.Jobs.Submitted[len(f.Jobs.Submitted)-1]; s.Tenant != "acme" || s.Job.Service != "tts" {
			t.Errorf(`%+v; want s.Tenant == "acme", s.Job.Service == "tts"`, s)
		}
	}
	f.Do(t, "POST", "/v1/schedules/b/run", "", "Authorization", "Bearer acme-token").Refusal(t, http.StatusNotFound, freeslot.CodeNotFound)
	f.Drain()
	f.Do(t, "POST", "/v1/schedules/a/run", "", "Authorization", "Bearer acme-token").Refusal(t, http.StatusServiceUnavailable, freeslot.CodeUnavailable)
	if len(f.Jobs.Submitted) != 2 {
		t.Error(f.Jobs.Submitted)
	}
}
