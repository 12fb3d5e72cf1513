package api_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/api"
	"github.com/freeslot/freeslot/internal/cron"
)

// fakeSchedules has one schedule, a of acme, and notes what it is called with.
type fakeSchedules struct {
	calls []string
	err   error
}

func (f *fakeSchedules) use(d *api.Deps) { d.Schedules = f }

func (f *fakeSchedules) call(ctx context.Context, tenant, name string, parts ...any) (cron.Status, error) {
	if _, ok := ctx.Deadline(); !ok {
		return cron.Status{}, fmt.Errorf("%v has no deadline", parts)
	}
	f.calls = append(f.calls, strings.TrimSpace(fmt.Sprintln(append([]any{tenant, name}, parts...)...)))
	if f.err == nil && (tenant != "acme" || name != "a") {
		return cron.Status{}, &freeslot.Error{Code: freeslot.CodeNotFound, Field: "name", Message: "there is no schedule " + name}
	}
	return cron.Status{
		Name: name, Tenant: tenant, Version: 3, NextRunMS: 7, LastErrorMS: 8, Missed: 9,
		Schedule: cron.Schedule{Cron: "@daily", TimeZone: "UTC", Job: freeslot.Job{Service: "tts"}, OnMissed: cron.Latest, GraceMS: 5},
	}, f.err
}

func (f *fakeSchedules) Put(ctx context.Context, tenant, name string, c *cron.Change) (cron.Status, bool, error) {
	s, err := f.call(ctx, tenant, name, "put", c.Cron, c.Job.Service)
	return s, c.Version != nil && *c.Version == 0, err
}

func (f *fakeSchedules) Get(ctx context.Context, tenant, name string, runs int) (cron.Status, error) {
	s, err := f.call(ctx, tenant, name, "get", runs)
	if runs > 0 {
		s.NextRuns = []int64{7, 8}
	}
	return s, err
}

func (f *fakeSchedules) Delete(ctx context.Context, tenant, name string) (cron.Status, error) {
	return f.call(ctx, tenant, name, "delete")
}

func (f *fakeSchedules) Pause(ctx context.Context, tenant, name string) (cron.Status, error) {
	return f.call(ctx, tenant, name, "pause")
}

func (f *fakeSchedules) Resume(ctx context.Context, tenant, name string) (cron.Status, error) {
	return f.call(ctx, tenant, name, "resume")
}

func (f *fakeSchedules) List(ctx context.Context, tenant, cursor string, limit int) (cron.Page, error) {
	f.calls = append(f.calls, fmt.Sprintf("%q list %q %d", tenant, cursor, limit))
	s, err := f.call(ctx, "acme", "a")
	return cron.Page{Schedules: []cron.Status{s}, Cursor: "acme/a"}, err
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
	f := setup(t, api.Config{}, withTokens, store.use)
	acme, other, root := []string{"Authorization", "Bearer acme-token"}, []string{"Authorization", "Bearer other-token"}, []string{"Authorization", "Bearer root-token"}
	for _, c := range scheduleCalls {
		target := "/v1/schedules/a" + c.action
		for _, who := range []struct {
			header []string
			query  string
		}{{acme, ""}, {acme, "?tenant=acme"}, {root, "?tenant=acme"}} {
			store.calls = nil
			got := f.do(t, c.method, target+who.query, c.content, who.header...)
			if got.status != http.StatusOK || len(store.calls) != 1 || store.calls[0] != "acme a "+c.call {
				t.Errorf("%s %s: %d %s, called %q", c.method, target+who.query, got.status, got.text, store.calls)
			}
			if got.body["name"] != "a" || got.body["tenant"] != "acme" || got.body["missed"] != 9.0 || got.body["last_error_at_ms"] != 8.0 || at(got.body, "job", "service") != "tts" {
				t.Error(got.text)
			}
		}
		store.calls = nil
		f.do(t, c.method, target, c.content, other...).refusal(t, http.StatusNotFound, freeslot.CodeNotFound)
		f.do(t, c.method, target, c.content, root...).refusal(t, http.StatusNotFound, freeslot.CodeNotFound)
		if len(store.calls) != 2 || !strings.HasPrefix(store.calls[0], "other ") || !strings.HasPrefix(store.calls[1], "ops ") {
			t.Error(store.calls)
		}
		f.do(t, c.method, target+"?tenant=acme", c.content, other...).refusal(t, http.StatusForbidden, freeslot.CodePermissionDenied)
		f.do(t, c.method, target, c.content).refusal(t, http.StatusUnauthorized, freeslot.CodeUnauthenticated)
		if len(store.calls) != 2 {
			t.Error(store.calls)
		}
	}
	if got := f.do(t, "PUT", "/v1/schedules/a", `{"cron":"@daily","job":{"service":"tts"},"version":0}`, acme...); got.status != http.StatusCreated {
		t.Error(got.status, got.text)
	}
	if got := f.do(t, "PUT", "/v1/schedules/a", `{"cron":"@daily","job":{}}`, acme...); got.body["field"] != "job.service" {
		t.Error(got.text)
	}
	if got := f.do(t, "GET", "/v1/schedules/a?runs=2", "", acme...); fmt.Sprint(got.body["next_runs_ms"]) != "[7 8]" {
		t.Error(got.text)
	}
	f.do(t, "GET", "/v1/schedules/a?runs=101", "", acme...).refusal(t, http.StatusBadRequest, freeslot.CodeInvalidArgument)
	store.err = &freeslot.Error{Code: freeslot.CodeConflict, Field: "version", Message: "version is 1"}
	f.do(t, "PUT", "/v1/schedules/a", `{"cron":"@daily","job":{"service":"tts"}}`, acme...).refusal(t, http.StatusConflict, freeslot.CodeConflict)
}

func TestListSchedules(t *testing.T) {
	t.Parallel()
	store := new(fakeSchedules)
	f := setup(t, api.Config{}, withTokens, store.use)
	for _, c := range []struct{ token, query, call string }{
		{"acme-token", "", `"acme" list "" 100`},
		{"acme-token", "?tenant=acme&limit=2&cursor=acme/a", `"acme" list "acme/a" 2`},
		{"root-token", "", `"" list "" 100`},
		{"root-token", "?tenant=acme", `"acme" list "" 100`},
	} {
		store.calls = nil
		got := f.do(t, "GET", "/v1/schedules"+c.query, "", "Authorization", "Bearer "+c.token)
		if list, _ := got.body["schedules"].([]any); got.status != http.StatusOK || store.calls[0] != c.call || len(list) != 1 || got.body["cursor"] != "acme/a" {
			t.Errorf("%+v: %s, called %q", c, got.text, store.calls)
		}
	}
	f.do(t, "GET", "/v1/schedules?tenant=other", "", "Authorization", "Bearer acme-token").refusal(t, http.StatusForbidden, freeslot.CodePermissionDenied)
}

// TestRunSchedule: the job is the tenant's, whoever asks.
func TestRunSchedule(t *testing.T) {
	t.Parallel()
	f := setup(t, api.Config{}, withTokens, new(fakeSchedules).use)
	for _, who := range []struct{ token, query string }{{"acme-token", ""}, {"root-token", "?tenant=acme"}} {
		got := f.do(t, "POST", "/v1/schedules/a/run"+who.query, "", "Authorization", "Bearer "+who.token)
		if got.status != http.StatusAccepted || got.body["job_id"] != jobID {
			t.Error(got.status, got.text)
		}
		if s := f.jobs.submitted[len(f.jobs.submitted)-1]; s.tenant != "acme" || s.job.Service != "tts" {
			t.Errorf("%+v", s)
		}
	}
	f.do(t, "POST", "/v1/schedules/b/run", "", "Authorization", "Bearer acme-token").refusal(t, http.StatusNotFound, freeslot.CodeNotFound)
	f.server.Drain()
	f.do(t, "POST", "/v1/schedules/a/run", "", "Authorization", "Bearer acme-token").refusal(t, http.StatusServiceUnavailable, freeslot.CodeUnavailable)
	if len(f.jobs.submitted) != 2 {
		t.Error(f.jobs.submitted)
	}
}
