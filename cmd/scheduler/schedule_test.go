package main

import (
	"net/http"
	"testing"

	"github.com/freeslot/freeslot/internal/testing/waittest"
)

// TestSchedulesRun: a complete replica runs schedules again and again.
func TestSchedulesRun(t *testing.T) {
	t.Parallel()
	s := startSystem(t)
	status, body := s.call(t, "PUT", "/v1/schedules/beat", `{"cron":"@every 1s","job":{"service":"echo","payload":"tick"}}`)
	if status != http.StatusCreated || body["version"] != 1.0 || body["on_missed"] != "latest" {
		t.Fatalf(`%d %v; want status == http.StatusCreated, body["version"] == 1.0, body["on_missed"] == "latest"`, status, body)
	}
	waittest.Until(t, "a run", func() bool {
		_, body = s.call(t, "GET", "/v1/schedules/beat", "")
		return body["runs"] != 0.0
	})
	job := body["last_job_id"].(string)
	waittest.Until(t, "the success of its job", func() bool {
		_, body = s.call(t, "GET", "/v1/jobs/"+job, "")
		return body["state"] == "succeeded"
	}, func() any { return body["state"] })
	if body["result"] != "tick" || body["tenant"] != "default" {
		t.Error(body)
	}
	if status, body = s.call(t, "POST", "/v1/schedules/beat/pause", ""); status != http.StatusOK || body["paused"] != true {
		t.Errorf(`%d %v; want status == http.StatusOK, body["paused"] == true`, status, body)
	}
	if status, body = s.call(t, "POST", "/v1/schedules/beat/run", ""); status/100 != 2 || body["job_id"] == job {
		t.Errorf(`%d %v; want status/100 == 2, body["job_id"] != %v`, status, body, job)
	}
	if status, body = s.call(t, "DELETE", "/v1/schedules/beat", ""); status != http.StatusOK {
		t.Errorf("%d %v; want status == http.StatusOK", status, body)
	}
	if status, body = s.call(t, "GET", "/v1/schedules", ""); status != http.StatusOK || len(body["schedules"].([]any)) != 0 {
		t.Errorf(`%d %v; want status == http.StatusOK, len(body["schedules"].([]any)) == 0`, status, body)
	}
}
