package main

import (
	"net/http"
	"testing"
	"time"
)

// TestSchedulesRun: a complete replica runs schedules again and again.
func TestSchedulesRun(t *testing.T) {
	t.Parallel()
	s := startSystem(t)
	status, body := s.call(t, "PUT", "/v1/schedules/beat", `{"cron":"@every 1s","job":{"service":"echo","payload":"tick"}}`)
	if status != http.StatusCreated || body["version"] != 1.0 || body["on_missed"] != "latest" {
		t.Fatalf("%d %v", status, body)
	}
	deadline := time.Now().Add(20 * time.Second)
	for body["runs"] == 0.0 {
		if time.Now().After(deadline) {
			t.Fatalf("it does not run: %v", body)
		}
		_, body = s.call(t, "GET", "/v1/schedules/beat", "")
	}
	job := body["last_job_id"].(string)
	for body["state"] != "succeeded" {
		if time.Now().After(deadline) {
			t.Fatalf("its job has not ended: %v", body)
		}
		_, body = s.call(t, "GET", "/v1/jobs/"+job, "")
	}
	if body["result"] != "tick" || body["tenant"] != "default" {
		t.Error(body)
	}
	if status, body = s.call(t, "POST", "/v1/schedules/beat/pause", ""); status != http.StatusOK || body["paused"] != true {
		t.Errorf("%d %v", status, body)
	}
	if status, body = s.call(t, "POST", "/v1/schedules/beat/run", ""); status/100 != 2 || body["job_id"] == job {
		t.Errorf("%d %v", status, body)
	}
	if status, body = s.call(t, "DELETE", "/v1/schedules/beat", ""); status != http.StatusOK {
		t.Errorf("%d %v", status, body)
	}
	if status, body = s.call(t, "GET", "/v1/schedules", ""); status != http.StatusOK || len(body["schedules"].([]any)) != 0 {
		t.Errorf("%d %v", status, body)
	}
}
