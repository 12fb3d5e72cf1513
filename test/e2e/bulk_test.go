package e2e

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"syscall"
	"testing"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/testing/waittest"
)

// TestReplicaIsKilledInABulk: another replica goes on with an operation, and each job is submitted
// again once.
func TestReplicaIsKilledInABulk(t *testing.T) {
	t.Parallel()
	s := newSystem(t)
	gate := make(chan struct{})
	svc := newService(t, gate)
	s.startAgent(nodeSpec{id: "node-a", slots: 1, tts: []string{"de"}}, svc)
	replicas := s.startReplicas(2, 1)
	first, second := replicas[0], replicas[1]
	blocker := submitOurs(t, first.ws()+","+second.ws(), anyJobs(1)) // holds the slot
	svc.awaitUse(1)
	const jobs = 600
	for i := range jobs {
		first.post(t, "/v1/jobs", map[string]any{"service": testService, "payload": i, "timeout_ms": 1}, nil)
	}
	waittest.Until(t, "all jobs to expire", func() bool { return len(second.expired(t)) == jobs })

	var o struct {
		ID, State string
		Done      int
		Outcomes  map[string]int
	}
	plan := map[string]any{"action": "requeue", "filter": map[string]string{"state": "expired"}}
	first.post(t, "/v1/bulk-plans", plan, &o)
	first.post(t, "/v1/bulk", map[string]any{"plan": o.ID, "count": jobs}, nil)
	look := func() bool {
		_, err := second.get("/v1/bulk/"+o.ID, &o)
		return err == nil
	}
	waittest.Until(t, "the first targets", func() bool { return look() && o.Done > 0 })
	first.signal(syscall.SIGKILL)
	first.wait()
	if o.Done == jobs {
		t.Fatal("the operation ended before the kill")
	}
	waittest.Until(t, "the end of the operation", func() bool { return look() && o.State == "ended" }, func() any { return o.Done })
	if o.Done != jobs || o.Outcomes["done"] != jobs {
		t.Errorf("the operation ended as %+v; want %d done", o, jobs)
	}
	waittest.Until(t, "all new jobs to expire", func() bool { return len(second.expired(t)) >= 2*jobs })
	if found := len(second.expired(t)); found != 2*jobs {
		t.Errorf("%d jobs expired; want each of %d twice", found, jobs)
	}
	close(gate)
	waitOurs(t, blocker)
}

// post sends a body as JSON and decodes the answer into v, unless v is nil.
func (r *replica) post(t *testing.T, path string, body, v any) {
	t.Helper()
	text, err := json.Marshal(body)
	if err != nil {
		t.Fatal(err)
	}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, r.http()+path, bytes.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	var answer json.RawMessage
	status, err := do(req, &answer)
	if err == nil && status > http.StatusAccepted {
		err = fmt.Errorf("status %d: %s", status, answer)
	}
	if err == nil && v != nil {
		err = json.Unmarshal(answer, v)
	}
	if err != nil {
		t.Fatalf("post %s: %v", path, err)
	}
}

// expired returns the ids of all jobs that expired.
func (r *replica) expired(t *testing.T) map[string]bool {
	t.Helper()
	ids, cursor := map[string]bool{}, ""
	for {
		var page struct {
			Jobs   []freeslot.JobStatus
			Cursor string
		}
		if status, err := r.get("/v1/jobs?state=expired&limit=500&cursor="+cursor, &page); err != nil || status != http.StatusOK {
			t.Fatalf("the listing answers %d, %v; want 200", status, err)
		}
		for _, j := range page.Jobs {
			ids[j.ID] = true
		}
		if cursor = page.Cursor; cursor == "" {
			return ids
		}
	}
}
