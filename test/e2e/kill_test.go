package e2e

import (
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/client"
	"github.com/freeslot/freeslot/internal/process/interrupt"
	"github.com/freeslot/freeslot/internal/testing/waittest"
)

// TestReplicaIsKilled takes a replica away without a word: what it had accepted goes on, and
// clients find their results at the other one.
func TestReplicaIsKilled(t *testing.T) {
	t.Parallel()
	s := newSystem(t)
	gate := make(chan struct{})
	svc := newService(t, gate)
	s.startAgent(nodeSpec{id: "node-a", slots: 8}, svc)
	replicas := s.startReplicas(2, 1)
	first, second := replicas[0], replicas[1]
	ours := submitOurs(t, first.ws()+","+second.ws(), anyJobs(8))
	svc.awaitUse(8)
	first.signal(syscall.SIGKILL)
	if code := first.wait(); code != -1 {
		t.Errorf("exit status %d after SIGKILL", code)
	}
	close(gate)
	waitOurs(t, ours)
	for i, n := range svc.seen {
		if n != 1 {
			t.Errorf("job %d was executed %d times", i, n)
		}
	}
}

// TestAgentIsKilled takes a node's agent away without a word, for good: its job goes to the other
// node, and nothing of the lost one is left.
func TestAgentIsKilled(t *testing.T) { bothWays(t, testAgentIsKilled) }

func testAgentIsKilled(t *testing.T, s *system) {
	gate := make(chan struct{})
	first, second := newService(t, gate), newService(t, nil)
	// Short, so that the test need not wait for long.
	const heartbeat, limit = 250 * time.Millisecond, "FREESLOT_HEARTBEAT_LIMIT=5s"
	replicas := s.startReplicas(2, 0, limit, "FREESLOT_HEARTBEAT_INTERVAL=1s")
	a := s.startAgent(nodeSpec{id: "node-a", slots: 2, tts: []string{"de"}, heartbeat: heartbeat}, first)
	for _, r := range replicas {
		r.awaitNodes(1)
	}
	ours := submitOurs(t, replicas[0].ws(), anyJobs(2))
	first.awaitUse(2)
	s.startAgent(nodeSpec{id: "node-b", slots: 2, heartbeat: heartbeat}, second)
	for _, r := range replicas {
		r.awaitNodes(2)
	}
	a.signal(syscall.SIGKILL)
	a.wait()
	for _, h := range ours {
		checkAttempt(t, h, "node-b", 2)
	}
	for _, r := range replicas {
		r.awaitNodes(1)
	}
	if left := s.mentions("node-a"); len(left) > 0 {
		t.Errorf("the node is lost, and Redis still has %v", left)
	}
	close(gate)
	s.checkNoSlotsInUse()
}

// TestAgentIsRestarted kills a node's agent and starts it again: the job that it ran is not kept
// waiting until the node is missed, only for the moment in which other nodes would go first.
func TestAgentIsRestarted(t *testing.T) { bothWays(t, testAgentIsRestarted) }

func testAgentIsRestarted(t *testing.T, s *system) {
	gate := make(chan struct{})
	spec := nodeSpec{id: "node-a", slots: 1}
	// No replica takes the node for lost while this test runs.
	r := s.startReplicas(1, 0, "FREESLOT_HEARTBEAT_LIMIT=1h")[0]
	a := s.startAgent(spec, newService(t, gate))
	r.awaitNodes(1)
	ours := submitOurs(t, r.ws(), anyJobs(1))
	<-ours[0].Assigned()
	a.signal(syscall.SIGKILL)
	a.wait()

	s.startAgent(spec, newService(t, nil))
	checkAttempt(t, ours[0], "node-a", 2)
	close(gate)
	waitOurs(t, submitOurs(t, r.ws(), anyJobs(2)[1:]))
	s.checkNoSlotsInUse()
}

// TestAgentHandsBack stops an agent whose job does not end in time: the job goes to the other node,
// and that is no failure of the job.
func TestAgentHandsBack(t *testing.T) { bothWays(t, testAgentHandsBack) }

func testAgentHandsBack(t *testing.T, s *system) {
	gate := make(chan struct{})
	first := newService(t, gate)
	r := s.startReplica("r1")
	a := s.startAgent(nodeSpec{id: "node-a", slots: 1}, first)
	r.awaitNodes(1)
	ours := submitOurs(t, r.ws(), anyJobs(1))
	first.awaitUse(1)
	s.startAgent(nodeSpec{id: "node-b", slots: 1}, newService(t, nil))
	r.awaitNodes(2)
	a.signal(syscall.SIGTERM)
	drained := time.Now()
	eventually(t, func() error { return r.status("node-a", freeslot.StatusDraining) })
	// Sooner it would count as a copy of the first one.
	waittest.Until(t, "a moment in which a second signal counts", func() bool { return time.Since(drained) > 2*interrupt.Gap })
	a.signal(syscall.SIGTERM)
	if status := checkAttempt(t, ours[0], "node-b", 2); status.Failures != 0 {
		t.Errorf("the job has %d failures, expected none", status.Failures)
	}
	if code := a.wait(); code != 0 {
		t.Errorf("the agent ended with status %d", code)
	}
	close(gate)
	s.checkNoSlotsInUse()
}

// checkAttempt expects that a job succeeds on this node with this attempt.
func checkAttempt(t *testing.T, h *client.Handle, node string, attempt int) freeslot.JobStatus {
	t.Helper()
	ctx := waittest.Context(t)
	status, err := h.Wait(ctx)
	if err != nil || status.State != freeslot.StateSucceeded || status.Node != node || status.Attempt != attempt {
		t.Errorf("job %s: %s on %s, attempt %d (%v, %v), expected succeeded on %s with attempt %d",
			h.ID(), status.State, status.Node, status.Attempt, status.Error, err, node, attempt)
	}
	return status
}

// TestSecondAgent starts an agent under the name of a running one: the first ends and prints why.
func TestSecondAgent(t *testing.T) { bothWays(t, testSecondAgent) }

func testSecondAgent(t *testing.T, s *system) {
	svc := newService(t, nil)
	spec := nodeSpec{id: "node-a", slots: 1}
	r := s.startReplica("r1")
	first := s.startAgent(spec, svc)
	r.awaitNodes(1)
	second := s.startAgent(spec, svc)
	if code := first.wait(); code != 3 {
		t.Errorf("the first agent ended with status %d, expected 3", code)
	}
	complaint := first.stderr.String()
	if !strings.Contains(complaint, "another process has registered this node") {
		t.Errorf("the first agent does not say why it ended: %s", complaint)
	}
	waitOurs(t, submitOurs(t, r.ws(), anyJobs(1)))
	second.stop()
}
