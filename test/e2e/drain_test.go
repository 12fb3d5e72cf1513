package e2e

import (
	"context"
	"fmt"
	"net/http"
	"syscall"
	"testing"
	"time"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/client"
)

// drainLimit is what the replicas of these tests are given to stop, as drain_timeout.
const drainLimit = 10 * time.Second

// TestReplicaDrains stops a replica whose clients wait for results: both the client that is not ours and the
// one that is take their jobs to the other replica, and get every result there.
func TestReplicaDrains(t *testing.T) {
	s := newSystem(t)
	gate := make(chan struct{})
	svc := newService(t, gate)
	s.startAgent(nodeSpec{id: "node-a", slots: 16}, svc)
	drain := "FREESLOT_DRAIN_TIMEOUT=" + drainLimit.String()
	first, second := s.startReplica("r1", drain), s.startReplica("r2", drain)
	first.awaitNodes(1)
	second.awaitNodes(1)

	const foreign = 6
	plan := map[string]any{"from": first.ws(), "to": second.ws(), "jobs": anyJobs(foreign)}
	d := startDriver(t, "reattach.mjs", plan)
	d.expect("assigned", nil, startLimit)
	ours := submitOurs(t, first.ws()+","+second.ws(), anyJobs(foreign + 4)[foreign:])
	svc.awaitUse(foreign + len(ours))

	begin := time.Now()
	first.signal(syscall.SIGTERM)
	d.expect("goaway", nil, drainLimit)
	if err := first.ready(); err == nil {
		t.Error("/readyz is still green after goaway")
	}
	var refused struct{ Code freeslot.Code }
	d.expect("refused", &refused, drainLimit)
	if refused.Code != freeslot.CodeUnavailable {
		t.Errorf("a submit after goaway is refused with %q, expected unavailable", refused.Code)
	}
	var attached struct{ States []freeslot.State }
	d.expect("attached", &attached, drainLimit)
	for _, state := range attached.States {
		if state != freeslot.StateRunning {
			t.Errorf("a job is %s when it is attached to, expected running", state)
		}
	}
	if code := first.wait(drainLimit); code != 0 {
		t.Errorf("the replica ended with status %d", code)
	}
	t.Logf("the replica ended %s after SIGTERM", time.Since(begin).Round(time.Millisecond))

	close(gate) // only now can any job end: all results must come by the second replica
	var done struct {
		Results []struct {
			JobID string         `json:"job_id"`
			State freeslot.State `json:"state"`
			Via   string         `json:"via"`
		} `json:"results"`
		Closed struct {
			Code   int    `json:"code"`
			Reason string `json:"reason"`
		} `json:"closed"`
	}
	d.expect("done", &done, stopLimit)
	ids := make(map[string]bool)
	for _, r := range done.Results {
		ids[r.JobID] = true
		if r.State != freeslot.StateSucceeded || r.Via != "r2" {
			t.Errorf("job %s: %s by %s, expected succeeded by r2", r.JobID, r.State, r.Via)
		}
	}
	if len(done.Results) != foreign || len(ids) != foreign {
		t.Errorf("%d results of %d jobs, expected one of each of %d", len(done.Results), len(ids), foreign)
	}
	if done.Closed.Code != 1001 { // RFC 6455: going away
		t.Errorf("the session was closed with %d %q, expected 1001", done.Closed.Code, done.Closed.Reason)
	}
	waitOurs(t, ours)
	if len(svc.seen) != foreign+len(ours) || svc.most != foreign+len(ours) {
		t.Errorf("%d jobs were executed, %d at once, expected %d", len(svc.seen), svc.most, foreign+len(ours))
	}
	for i, n := range svc.seen {
		if n != 1 {
			t.Errorf("job %d was executed %d times", i, n)
		}
	}
	second.stop()
}

// anyJobs are jobs for any node.
func anyJobs(n int) []freeslot.Job {
	jobs := make([]freeslot.Job, n)
	for i := range jobs {
		jobs[i] = (&kind{}).job(i)
	}
	return jobs
}

// submitOurs submits jobs with the Go client and returns their handles, all of them assigned.
func submitOurs(t *testing.T, urls string, jobs []freeslot.Job) []*client.Handle {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), startLimit)
	defer cancel()
	c, err := client.Dial(ctx, urls, client.Options{Name: "e2e"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	var handles []*client.Handle
	for i := range jobs {
		h, err := c.Submit(ctx, jobs[i])
		if err != nil {
			t.Fatal(err)
		}
		handles = append(handles, h)
	}
	return handles
}

func waitOurs(t *testing.T, handles []*client.Handle) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), stopLimit)
	defer cancel()
	for _, h := range handles {
		status, err := h.Wait(ctx)
		if err != nil || status.State != freeslot.StateSucceeded {
			t.Errorf("job %s: %s, %v", h.ID(), status.State, err)
		}
	}
}

// TestIdleReplicaStops stops a replica that nobody uses: it has nothing to wait for.
func TestIdleReplicaStops(t *testing.T) {
	s := newSystem(t)
	r := s.startReplica("idle")
	// A replica that has just started may not have begun to wait for replies.
	eventually(t, startLimit, func() error { return s.blocked("freeslot-idle") })
	begin := time.Now()
	r.stop()
	if took := time.Since(begin); took > 3*time.Second {
		t.Errorf("an idle replica took %s to stop", took.Round(time.Millisecond))
	}
	for _, key := range s.keys(s.redis.Client(t)) {
		if key == s.prefix+":replies:idle" {
			t.Errorf("the replica left %s behind", key)
		}
	}
}

// TestAgentDrains stops a node's agent while it runs a job: the node takes nothing new, the job ends as if
// nothing had happened, and then nothing of the node is left.
func TestAgentDrains(t *testing.T) {
	s := newSystem(t)
	gate := make(chan struct{})
	svc := newService(t, gate)
	a := s.startAgent(nodeSpec{id: "node-a", slots: 4, tts: []string{"de"}, pools: []string{"batch"}}, svc)
	other := newService(t, nil)
	s.startAgent(nodeSpec{id: "node-b", slots: 4}, other)
	r := s.startReplica("r1")
	r.awaitNodes(2)
	if len(s.mentions("node-a")) == 0 {
		t.Fatal("nothing in Redis mentions the node while it runs")
	}

	german := (&kind{requirement: freeslot.Requirement{TargetLanguage: "de"}}).job(0)
	running := submitOurs(t, r.ws(), []freeslot.Job{german})
	svc.awaitUse(1)
	a.signal(syscall.SIGTERM)
	eventually(t, startLimit, func() error {
		nodes, err := r.nodes()
		if err == nil && nodes["node-a"].Status != string(freeslot.StatusDraining) {
			err = fmt.Errorf("node-a is %q, expected draining", nodes["node-a"].Status)
		}
		return err
	})
	refuseOurs(t, r.ws(), german)
	close(gate)
	waitOurs(t, running)
	if code := a.wait(stopLimit); code != 0 {
		t.Errorf("the agent ended with status %d", code)
	}
	r.awaitNodes(1)
	if left := s.mentions("node-a"); len(left) > 0 {
		t.Errorf("the node has gone, and Redis still has %v", left)
	}
	// The node that stays takes the next job.
	waitOurs(t, submitOurs(t, r.ws(), anyJobs(1)))
}

// refuseOurs expects that a job is refused because the only node for it takes nothing new.
func refuseOurs(t *testing.T, url string, job freeslot.Job) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), startLimit)
	defer cancel()
	c, err := client.Dial(ctx, url, client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if h, err := c.Submit(ctx, job); freeslot.CodeOf(err) != freeslot.CodeOverloaded {
		t.Errorf("a draining node got the job %v (%v)", h, err)
	}
}

// TestReadyzIsRedWhileDraining looks at a replica that cannot stop yet, because a job of one of its sessions
// has not ended and its client does not leave.
func TestReadyzIsRedWhileDraining(t *testing.T) {
	s := newSystem(t)
	gate := make(chan struct{})
	svc := newService(t, gate)
	s.startAgent(nodeSpec{id: "node-a", slots: 1}, svc)
	r := s.startReplica("r1", "FREESLOT_DRAIN_TIMEOUT=4s")
	r.awaitNodes(1)
	submitOurs(t, r.ws(), anyJobs(1))
	svc.awaitUse(1)
	r.signal(syscall.SIGTERM)
	red := false
	eventually(t, drainLimit, func() error {
		var body struct{ Ready bool }
		status, err := r.get("/readyz", &body)
		if err == nil && status == http.StatusServiceUnavailable && !body.Ready {
			red = true
		}
		if err == nil && status == http.StatusOK {
			return fmt.Errorf("/readyz is green after SIGTERM")
		}
		return nil
	})
	if r.ended() {
		t.Error("the replica did not give its session the time to go")
	}
	if !red {
		t.Error("/readyz never answered 503 while the replica was draining: whoever balances load sees it refuse connections without a warning")
	}
	if code := r.wait(drainLimit); code != 0 {
		t.Errorf("the replica ended with status %d", code)
	}
	close(gate)
}
