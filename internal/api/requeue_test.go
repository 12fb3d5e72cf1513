package api_test

import (
	"context"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/api"
	"github.com/freeslot/freeslot/internal/cell"
	"github.com/freeslot/freeslot/internal/dispatch"
	"github.com/freeslot/freeslot/internal/testing/apitest"
)

const newID = "0-01JD5Y8G6W9V0M5T2C3Q4R7X90"

// TestRequeue: the new job is the old one as it was submitted, of the same tenant, but for now and
// with a key of its own.
func TestRequeue(t *testing.T) {
	t.Parallel()
	spec := freeslot.Job{
		Service: "tts", Payload: []byte(`{"a":1}`), Slots: 2, Priority: 3, MaxAttempts: 4, TimeoutMS: 5000,
		TraceParent: "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
	}
	again := spec
	again.IdempotencyKey = "bulk-" + newID // the same for all who submit it again
	state, before := freeslot.StateDead, ""
	f := apitest.New(t, api.Config{}, apitest.WithTokens)
	f.Jobs.OnJob = func(tenant, id string) (freeslot.JobStatus, error) {
		if tenant != "" && tenant != "acme" {
			return freeslot.JobStatus{}, &freeslot.Error{Code: freeslot.CodeNotFound, Message: "there is no job " + id}
		}
		return freeslot.JobStatus{ID: id, Tenant: "acme", Service: "tts", State: state, Slots: 2, Schedule: "nightly", RequeuedAs: before}, nil
	}
	f.Jobs.OnSpec = func(string) (*freeslot.Job, string, error) {
		job := spec
		job.RunAtMS, job.IdempotencyKey = 1, "k"
		return &job, "acme", nil
	}
	requeue := func(token string, header ...string) apitest.Response {
		return f.Do(t, "POST", "/v1/jobs/"+newID+"/requeue", "", append(header, "Authorization", "Bearer "+token)...)
	}
	for _, ended := range []freeslot.State{freeslot.StateDead, freeslot.StateFailed, freeslot.StateExpired} {
		state = ended
		for _, token := range []string{"acme-token", "root-token"} {
			f.Jobs.Submitted = nil
			got := requeue(token)
			if got.Body["job_id"] != apitest.JobID || got.Status != http.StatusOK && got.Status != http.StatusAccepted {
				t.Errorf("%s by %s: %d %s", ended, token, got.Status, got.Text)
			}
			want := []apitest.Submission{{Tenant: "acme", Job: again, Origin: cell.Origin{Schedule: "nightly", RequeuedFrom: newID}}}
			if diff := cmp.Diff(want, f.Jobs.Submitted, cmp.AllowUnexported(apitest.Submission{})); diff != "" {
				t.Error(diff)
			}
		}
	}
	if as := f.Jobs.Requeues[newID]; as != apitest.JobID {
		t.Errorf("the old job was submitted again as %q; want %s", as, apitest.JobID)
	}
	const trace = "00-1af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	requeue("acme-token", "Traceparent", trace)
	if got := f.Jobs.Submitted[len(f.Jobs.Submitted)-1].Job.TraceParent; got != trace {
		t.Error(got)
	}

	f.Jobs.Submitted, before = nil, apitest.JobID
	for range 2 {
		if got := requeue("acme-token"); got.Body["job_id"] != apitest.JobID {
			t.Errorf("asked again: %d %s; want job %s", got.Status, got.Text, apitest.JobID)
		}
	}
	before = ""
	requeue("other-token").Refusal(t, http.StatusNotFound, freeslot.CodeNotFound)
	f.Do(t, "POST", "/v1/jobs/nonsense/requeue", "", "Authorization", "Bearer acme-token").Refusal(t, http.StatusBadRequest, freeslot.CodeInvalidArgument)
	for _, other := range []freeslot.State{freeslot.StateWaiting, freeslot.StateRetryWait, freeslot.StateRunning, freeslot.StateCancelling, freeslot.StateSucceeded, freeslot.StateCancelled} {
		state = other
		got := requeue("acme-token")
		got.Refusal(t, http.StatusBadRequest, freeslot.CodeInvalidArgument)
		if want := "id names a job that is " + string(other) + ", expected one that is dead, failed or expired"; got.Body["message"] != want || got.Body["field"] != "id" {
			t.Error(got.Text)
		}
	}
	state = freeslot.StateDead
	f.Jobs.OnSpec = func(string) (*freeslot.Job, string, error) { return nil, "", context.DeadlineExceeded }
	requeue("acme-token").Refusal(t, http.StatusServiceUnavailable, freeslot.CodeUnavailable)
	f.Drain()
	f.Jobs.OnSpec = func(string) (*freeslot.Job, string, error) { return &freeslot.Job{}, "acme", nil }
	requeue("acme-token").Refusal(t, http.StatusServiceUnavailable, freeslot.CodeUnavailable)
	if len(f.Jobs.Submitted) != 0 {
		t.Error("submitted all the same:", f.Jobs.Submitted)
	}
}

// TestListByKey: a key is looked up for the caller's tenant. Who sees all tenants names one.
func TestListByKey(t *testing.T) {
	t.Parallel()
	f := apitest.New(t, api.Config{}, apitest.WithTokens)
	list := func(token, query string) apitest.Response {
		return f.Do(t, "GET", "/v1/jobs?"+query, "", "Authorization", "Bearer "+token)
	}
	for _, got := range []apitest.Response{
		list("acme-token", "idempotency_key=order+7"), list("root-token", "idempotency_key=order+7&tenant=acme"),
	} {
		if want := `"tenant":"acme","service":"order 7"`; got.Status != http.StatusOK || !strings.Contains(got.Text, want) {
			t.Errorf("answer %d %s; want %s", got.Status, got.Text, want)
		}
	}
	list("root-token", "idempotency_key=order+7").Refusal(t, http.StatusBadRequest, freeslot.CodeInvalidArgument)
	list("acme-token", "idempotency_key=order+7&tenant=beta").Refusal(t, http.StatusForbidden, freeslot.CodePermissionDenied)
	list("acme-token", "idempotency_key=%00").Refusal(t, http.StatusBadRequest, freeslot.CodeInvalidArgument)
}

// TestSubmitThatWaits: the answer has the job's position, even if its record cannot be read.
func TestSubmitThatWaits(t *testing.T) {
	t.Parallel()
	f := apitest.New(t, api.Config{})
	f.Jobs.Position = 3
	f.Jobs.OnJob = func(_, id string) (freeslot.JobStatus, error) {
		return freeslot.JobStatus{ID: id, Service: "tts", State: freeslot.StateWaiting, Slots: 2, Position: 2, DeadlineMS: 7}, nil
	}
	got := f.Do(t, "POST", "/v1/jobs", ttsJob)
	if got.Status != http.StatusAccepted || got.Body["state"] != "waiting" || got.Body["position"] != 2.0 || got.Body["deadline_ms"] != 7.0 {
		t.Errorf("answer is %d %s", got.Status, got.Text)
	}
	f.Jobs.OnJob = func(string, string) (freeslot.JobStatus, error) {
		return freeslot.JobStatus{}, context.DeadlineExceeded
	}
	got = f.Do(t, "POST", "/v1/jobs", `{"service":"tts","priority":9}`)
	if got.Status != http.StatusAccepted || got.Body["state"] != "waiting" || got.Body["position"] != 3.0 || got.Body["priority"] != 9.0 {
		t.Errorf("answer is %d %s", got.Status, got.Text)
	}
}

// TestEndsOfJobs: a job that is dead or expired has ended.
func TestEndsOfJobs(t *testing.T) {
	t.Parallel()
	for _, state := range []freeslot.State{freeslot.StateDead, freeslot.StateExpired} {
		f := apitest.New(t, api.Config{})
		done := make(chan apitest.Response, 1)
		go func() { done <- f.Do(t, "POST", "/v1/jobs?wait_ms=60000", ttsJob) }()
		sink := soon(t, f.Jobs.Sinks, "the job to be submitted")
		sink.Assigned(assignment(2))
		sink.Result(freeslot.JobStatus{ID: apitest.JobID, State: state, Failures: 3, FinishedAtMS: time.Now().UnixMilli()})
		got := soon(t, done, "the answer")
		if got.Status != http.StatusOK || got.Body["state"] != string(state) || got.Body["failures"] != 3.0 {
			t.Errorf("answer is %d %s", got.Status, got.Text)
		}
	}
}

func assignment(attempt int) dispatch.Assignment {
	return dispatch.Assignment{JobID: apitest.JobID, Node: "node-1", Attempt: attempt}
}

// TestSpec: the answer has the job as it was submitted, and can be submitted again: also a requeued
// one, without the key that its requeue gave it. Where the job is not the caller's, its spec is not
// read.
func TestSpec(t *testing.T) {
	t.Parallel()
	f := apitest.New(t, api.Config{}, apitest.WithTokens)
	owner, from, key := "acme", "", ""
	f.Jobs.OnJob = func(tenant, id string) (freeslot.JobStatus, error) {
		if tenant == owner {
			return freeslot.JobStatus{ID: id, Tenant: tenant, RequeuedFrom: from}, nil
		}
		return freeslot.JobStatus{}, &freeslot.Error{Code: freeslot.CodeNotFound, Message: "there is no job " + id}
	}
	f.Jobs.OnSpec = func(string) (*freeslot.Job, string, error) {
		return &freeslot.Job{
			Service: "tts", Payload: []byte(`{"n":12345678901234567890}`), Slots: 2, IdempotencyKey: key,
		}, "acme", nil
	}
	const want = `"job":{"service":"tts","payload":{"n":12345678901234567890},"slots":2`
	for _, of := range []struct{ from, key, shown string }{
		{"", "", want + "}"}, {"", "k", want + `,"idempotency_key":"k"}`}, {"0-1", "bulk-0-1", want + "}"},
	} {
		from, key = of.from, of.key
		got := f.Do(t, "GET", "/v1/jobs/"+newID+"/spec", "", "Authorization", "Bearer acme-token")
		if got.Status != http.StatusOK || !strings.Contains(got.Text, of.shown) || got.Body["tenant"] != "acme" {
			t.Errorf("answer %d %s; want 200, tenant acme and %s", got.Status, got.Text, of.shown)
		}
	}
	f.Jobs.OnSpec = func(string) (*freeslot.Job, string, error) {
		t.Error("the spec of another tenant's job was read")
		return &freeslot.Job{}, "acme", nil
	}
	owner = "beta"
	f.Do(t, "GET", "/v1/jobs/"+newID+"/spec", "", "Authorization", "Bearer acme-token").
		Refusal(t, http.StatusNotFound, freeslot.CodeNotFound)
	f.Do(t, "GET", "/v1/jobs/nonsense/spec", "", "Authorization", "Bearer acme-token").
		Refusal(t, http.StatusBadRequest, freeslot.CodeInvalidArgument)
}
