package e2e

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/freeslot/freeslot"
)

// TestSchedctl goes through the command line for people.
func TestSchedctl(t *testing.T) {
	t.Parallel()
	s := newSystem(t)
	s.redis.Age(t, s.prefix+":version:nodes")
	gate := make(chan struct{})
	svc := newService(t, gate)
	s.startAgent(nodeSpec{id: "node-a", slots: 2, tts: []string{"de"}, shout: true}, svc)
	r := s.startReplicas(1, 1)[0]
	schedctl := func(code int, args ...string) (stdout, stderr string) {
		t.Helper()
		stdout, stderr, got := run(t, []string{"FREESLOT_SERVER=" + r.http()}, "schedctl", args...)
		if got != code {
			t.Errorf("schedctl %v: exit status %d, expected %d: %s", args, got, code, stderr)
		}
		return stdout, stderr
	}
	asJSON := func(v any, args ...string) {
		t.Helper()
		stdout, _ := schedctl(0, append(args, "--output", "json")...)
		if err := json.Unmarshal([]byte(stdout), v); err != nil {
			t.Fatalf("schedctl %v: %v: %s", args, err, stdout)
		}
	}

	// A command on the node, from submit to result.
	if out, _ := schedctl(0, "submit", shoutService, `"guten tag"`, "--target", "de-AT", "--wait"); out != `"GUTEN TAG"`+"\n" {
		t.Errorf("the job's result is %q", out)
	}
	// One that runs until it is cancelled.
	out, _ := schedctl(0, "submit", testService, `{"index":0,"slots":1}`)
	id := strings.TrimSpace(out)
	svc.awaitUse(1)
	var job freeslot.JobStatus
	asJSON(&job, "get", id)
	if job.ID != id || job.State != freeslot.StateRunning || job.Node != "node-a" {
		t.Errorf("get: %+v", job)
	}
	var jobs []freeslot.JobStatus
	asJSON(&jobs, "list", "--state", "running")
	if len(jobs) != 1 || jobs[0].ID != id {
		t.Errorf("list: %+v", jobs)
	}
	var nodes []nodeView
	asJSON(&nodes, "nodes")
	if len(nodes) != 1 || nodes[0].ID != "node-a" || nodes[0].Used != 1 {
		t.Errorf("nodes: %+v", nodes)
	}
	asJSON(&job, "cancel", id)
	if job.State != freeslot.StateCancelling && job.State != freeslot.StateCancelled {
		t.Errorf("cancel: %+v", job)
	}
	eventually(t, func() error {
		asJSON(&job, "get", id)
		return expectState(job, freeslot.StateCancelled)
	})
	close(gate)

	// Mistakes.
	_, complaint := schedctl(1, "submit", testService, "--target", "sw")
	for _, want := range []string{"no_matching_node", "1 node: target_language"} {
		if !strings.Contains(complaint, want) {
			t.Errorf("%q does not contain %q", complaint, want)
		}
	}
	if _, complaint := schedctl(1, "get", "0-01JD5Y8G6W9V0M5T2C3Q4R7X8Z"); !strings.Contains(complaint, "not_found") {
		t.Errorf("an unknown job: %q", complaint)
	}
	schedctl(2, "submit", testService, "not json")
	if _, complaint := schedctl(1, "nodes", "--server", "http://"+closedPort(t)); !strings.Contains(complaint, "--server") {
		t.Errorf("no server: %q", complaint)
	}
}

func expectState(job freeslot.JobStatus, want freeslot.State) error {
	if job.State != want {
		return fmt.Errorf("job %s is %s, expected %s", job.ID, job.State, want)
	}
	return nil
}
