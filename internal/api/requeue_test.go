package api_test

import (
	"context"
	"net/http"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/api"
	"github.com/freeslot/freeslot/internal/dispatch"
)

const newID = "0-01JD5Y8G6W9V0M5T2C3Q4R7X90"

// TestRequeue: the new job is what the old one was submitted as, but for now and whatever
// its key, and its tenant's.
func TestRequeue(t *testing.T) {
	t.Parallel()
	spec := freeslot.Job{
		Service: "tts", Payload: []byte(`{"a":1}`), Slots: 2, Priority: 3, MaxAttempts: 4, TimeoutMS: 5000,
		TraceParent: "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
	}
	state := freeslot.StateDead
	f := setup(t, api.Config{}, withTokens)
	f.jobs.job = func(tenant, id string) (freeslot.JobStatus, error) {
		if tenant != "" && tenant != "acme" {
			return freeslot.JobStatus{}, &freeslot.Error{Code: freeslot.CodeNotFound, Message: "there is no job " + id}
		}
		return freeslot.JobStatus{ID: id, Tenant: "acme", Service: "tts", State: state, Slots: 2}, nil
	}
	f.jobs.spec = func(string) (*freeslot.Job, string, error) {
		job := spec
		job.RunAtMS, job.IdempotencyKey = 1, "k"
		return &job, "acme", nil
	}
	requeue := func(token string, header ...string) response {
		return f.do(t, "POST", "/v1/jobs/"+newID+"/requeue", "", append(header, "Authorization", "Bearer "+token)...)
	}
	for _, ended := range []freeslot.State{freeslot.StateDead, freeslot.StateFailed, freeslot.StateExpired} {
		state = ended
		for _, token := range []string{"acme-token", "root-token"} {
			f.jobs.submitted = nil
			got := requeue(token)
			if got.body["job_id"] != jobID || got.status != http.StatusOK && got.status != http.StatusAccepted {
				t.Errorf("%s by %s: %d %s", ended, token, got.status, got.text)
			}
			want := []submission{{tenant: "acme", job: spec}}
			if diff := cmp.Diff(want, f.jobs.submitted, cmp.AllowUnexported(submission{})); diff != "" {
				t.Error(diff)
			}
		}
	}
	const trace = "00-1af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	requeue("acme-token", "Traceparent", trace)
	if got := f.jobs.submitted[len(f.jobs.submitted)-1].job.TraceParent; got != trace {
		t.Error(got)
	}

	f.jobs.submitted = nil
	requeue("other-token").refusal(t, http.StatusNotFound, freeslot.CodeNotFound)
	f.do(t, "POST", "/v1/jobs/nonsense/requeue", "", "Authorization", "Bearer acme-token").refusal(t, http.StatusBadRequest, freeslot.CodeInvalidArgument)
	for _, other := range []freeslot.State{freeslot.StateWaiting, freeslot.StateRetryWait, freeslot.StateRunning, freeslot.StateCancelling, freeslot.StateSucceeded, freeslot.StateCancelled} {
		state = other
		got := requeue("acme-token")
		got.refusal(t, http.StatusBadRequest, freeslot.CodeInvalidArgument)
		if want := "id is that of a job that is " + string(other) + ", expected one that is dead, failed or expired"; got.body["message"] != want || got.body["field"] != "id" {
			t.Error(got.text)
		}
	}
	state = freeslot.StateDead
	f.jobs.spec = func(string) (*freeslot.Job, string, error) { return nil, "", context.DeadlineExceeded }
	requeue("acme-token").refusal(t, http.StatusServiceUnavailable, freeslot.CodeUnavailable)
	f.server.Drain()
	f.jobs.spec = func(string) (*freeslot.Job, string, error) { return &freeslot.Job{}, "acme", nil }
	requeue("acme-token").refusal(t, http.StatusServiceUnavailable, freeslot.CodeUnavailable)
	if len(f.jobs.submitted) != 0 {
		t.Error("submitted all the same:", f.jobs.submitted)
	}
}

// TestSubmitThatWaits: the answer says where the job stands, also when its record cannot
// be read.
func TestSubmitThatWaits(t *testing.T) {
	t.Parallel()
	f := setup(t, api.Config{})
	f.jobs.position = 3
	f.jobs.job = func(_, id string) (freeslot.JobStatus, error) {
		return freeslot.JobStatus{ID: id, Service: "tts", State: freeslot.StateWaiting, Slots: 2, Position: 2, DeadlineMS: 7}, nil
	}
	got := f.do(t, "POST", "/v1/jobs", ttsJob)
	if got.status != http.StatusAccepted || got.body["state"] != "waiting" || got.body["position"] != 2.0 || got.body["deadline_ms"] != 7.0 {
		t.Errorf("answer is %d %s", got.status, got.text)
	}
	f.jobs.job = func(string, string) (freeslot.JobStatus, error) {
		return freeslot.JobStatus{}, context.DeadlineExceeded
	}
	got = f.do(t, "POST", "/v1/jobs", `{"service":"tts","priority":9}`)
	if got.status != http.StatusAccepted || got.body["state"] != "waiting" || got.body["position"] != 3.0 || got.body["priority"] != 9.0 {
		t.Errorf("answer is %d %s", got.status, got.text)
	}
}

// TestEndsOfJobs: a job that is dead or expired has ended.
func TestEndsOfJobs(t *testing.T) {
	t.Parallel()
	for _, state := range []freeslot.State{freeslot.StateDead, freeslot.StateExpired} {
		f := setup(t, api.Config{})
		done := make(chan response, 1)
		go func() { done <- f.do(t, "POST", "/v1/jobs?wait_ms=60000", ttsJob) }()
		sink := soon(t, f.jobs.sinks, "the job to be submitted")
		sink.Assigned(assignment(2))
		sink.Result(freeslot.JobStatus{ID: jobID, State: state, Failures: 3, FinishedAtMS: time.Now().UnixMilli()})
		got := soon(t, done, "the answer")
		if got.status != http.StatusOK || got.body["state"] != string(state) || got.body["failures"] != 3.0 {
			t.Errorf("answer is %d %s", got.status, got.text)
		}
	}
}

func assignment(attempt int) dispatch.Assignment {
	return dispatch.Assignment{JobID: jobID, Node: "node-1", Attempt: attempt}
}
