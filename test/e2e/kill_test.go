package e2e

import (
	"context"
	"strings"
	"syscall"
	"testing"

	"github.com/freeslot/freeslot"
)

// TestReplicaIsKilled takes a replica away without a word: what it had accepted goes on, and clients find
// their results at the other one.
func TestReplicaIsKilled(t *testing.T) {
	s := newSystem(t)
	gate := make(chan struct{})
	svc := newService(t, gate)
	s.startAgent(nodeSpec{id: "node-a", slots: 8}, svc)
	first, second := s.startReplica("r1"), s.startReplica("r2")
	first.awaitNodes(1)
	second.awaitNodes(1)
	ours := submitOurs(t, first.ws()+","+second.ws(), anyJobs(8))
	svc.awaitUse(8)
	first.signal(syscall.SIGKILL)
	if code := first.wait(stopLimit); code != -1 {
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

// TestAgentIsKilled takes a node's agent away without a word and starts it again: the job that it ran is
// reported as lost, its slot is free again, and the node takes jobs.
func TestAgentIsKilled(t *testing.T) {
	s := newSystem(t)
	gate := make(chan struct{})
	svc := newService(t, gate)
	spec := nodeSpec{id: "node-a", slots: 1}
	a := s.startAgent(spec, svc)
	r := s.startReplica("r1")
	r.awaitNodes(1)
	lost := submitOurs(t, r.ws(), anyJobs(1))
	svc.awaitUse(1)
	a.signal(syscall.SIGKILL)
	a.wait(stopLimit)

	s.startAgent(spec, svc)
	ctx, cancel := context.WithTimeout(t.Context(), stopLimit)
	defer cancel()
	status, err := lost[0].Wait(ctx)
	if err != nil || status.State != freeslot.StateFailed || status.Error == nil || status.Error.Code != freeslot.JobErrorNodeLost {
		t.Errorf("the job ended %s with %v (%v), expected failed with node_lost", status.State, status.Error, err)
	}
	close(gate)
	waitOurs(t, submitOurs(t, r.ws(), anyJobs(2)[1:]))
	s.checkNoSlotsInUse()
}

// TestSecondAgent starts an agent under the name of another that runs: the first gives way and says why.
func TestSecondAgent(t *testing.T) {
	s := newSystem(t)
	svc := newService(t, nil)
	spec := nodeSpec{id: "node-a", slots: 1}
	first := s.startAgent(spec, svc)
	r := s.startReplica("r1")
	r.awaitNodes(1)
	second := s.startAgent(spec, svc)
	if code := first.wait(startLimit); code != 1 {
		t.Errorf("the first agent ended with status %d, expected 1", code)
	}
	complaint := first.stderr.String()
	if !strings.Contains(complaint, "another process has registered this node") {
		t.Errorf("the first agent does not say why it ended: %s", complaint)
	}
	waitOurs(t, submitOurs(t, r.ws(), anyJobs(1)))
	second.stop()
}
