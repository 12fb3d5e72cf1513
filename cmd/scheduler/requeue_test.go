package main

import (
	"fmt"
	"net/http"
	"sync"
	"testing"

	"github.com/freeslot/freeslot/internal/testing/waittest"
)

// TestRequeueOnce: people and an operation on many jobs submit one job again at the same time, and
// one of them once more. That makes one job.
func TestRequeueOnce(t *testing.T) {
	t.Parallel()
	s := startSystem(t)
	_, first := s.call(t, "POST", "/v1/jobs?wait_ms=20000", `{"service":"block","timeout_ms":50}`)
	if first["state"] != "expired" {
		t.Fatalf("the job ends as %v; want expired", first)
	}
	old := first["job_id"].(string)
	bulk := func(plan string) string {
		_, o := s.call(t, "POST", "/v1/bulk-plans", plan)
		_, o = s.call(t, "POST", "/v1/bulk", fmt.Sprintf(`{"plan":%q,"count":%v}`, o["id"], o["count"]))
		return fmt.Sprint(o["id"])
	}
	var made [4]any
	var calls sync.WaitGroup
	for i := range made {
		calls.Go(func() {
			status, got := s.call(t, "POST", "/v1/jobs/"+old+"/requeue", "")
			if made[i] = got["job_id"]; status != http.StatusAccepted && status != http.StatusOK {
				t.Errorf("requeue: %d %v; want 200 or 202", status, got)
			}
		})
	}
	operations := []string{
		bulk(`{"action":"requeue","filter":{"state":"expired"}}`), bulk(`{"action":"requeue","ids":["` + old + `"]}`),
	}
	calls.Wait()
	waittest.Until(t, "the operations to end", func() bool {
		for _, id := range operations {
			if _, o := s.call(t, "GET", "/v1/bulk/"+id, ""); o["state"] != "ended" {
				return false
			}
		}
		return true
	})
	_, again := s.call(t, "POST", "/v1/jobs/"+old+"/requeue", "")
	for _, id := range made {
		if id != again["job_id"] {
			t.Errorf("one was answered with job %v, the last one with %v; want the same", id, again["job_id"])
		}
	}
	_, all := s.call(t, "GET", "/v1/jobs?service=block", "")
	if jobs := all["jobs"].([]any); len(jobs) != 2 {
		t.Errorf("there are %d jobs; want the old one and one new one: %v", len(jobs), jobs)
	}
	_, was := s.call(t, "GET", "/v1/jobs/"+old, "")
	if was["requeued_as"] != again["job_id"] {
		t.Errorf("the old job was submitted again as %v; want %v", was["requeued_as"], again["job_id"])
	}
}
