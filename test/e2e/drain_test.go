package e2e

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/client"
	"github.com/freeslot/freeslot/internal/testing/waittest"
)

// drainLimit is what the replicas of these tests are given to stop, as drain_timeout. Sessions that do
// not go by themselves have a quarter of it.
const drainLimit = 40 * time.Second

// TestReplicaDrains stops a replica whose clients wait for results: both the client that is not
// ours and the one that is take their jobs to the other replica, and get every result there.
func TestReplicaDrains(t *testing.T) {
	t.Parallel()
	s := newSystem(t)
	gate := make(chan struct{})
	svc := newService(t, gate)
	s.startAgent(nodeSpec{id: "node-a", slots: 16}, svc)
	replicas := s.startReplicas(2, 1, "FREESLOT_DRAIN_TIMEOUT="+drainLimit.String())
	first, second := replicas[0], replicas[1]

	const foreign = 6
	plan := map[string]any{"from": first.ws(), "to": second.ws(), "jobs": anyJobs(foreign)}
	d := startDriver(t, "reattach.mjs", plan)
	d.expect("assigned", nil)
	ours := submitOurs(t, first.ws()+","+second.ws(), anyJobs(foreign + 4)[foreign:])
	svc.awaitUse(foreign + len(ours))

	first.signal(syscall.SIGTERM)
	d.expect("goaway", nil)
	if err := first.ready(); err == nil {
		t.Error("/readyz is still green after goaway")
	}
	var refused struct{ Code freeslot.Code }
	d.expect("refused", &refused)
	if refused.Code != freeslot.CodeUnavailable {
		t.Errorf("a submit after goaway is refused with %q, expected unavailable", refused.Code)
	}
	var attached struct{ States []freeslot.State }
	d.expect("attached", &attached)
	for _, state := range attached.States {
		if state != freeslot.StateRunning {
			t.Errorf("a job is %s when it is attached to, expected running", state)
		}
	}
	if code := first.wait(); code != 0 {
		t.Errorf("the replica ended with status %d", code)
	}

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
	d.expect("done", &done)
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

// submitOurs submits jobs with the Go client and returns their handles.
func submitOurs(t *testing.T, urls string, jobs []freeslot.Job) []*client.Handle {
	t.Helper()
	ctx := waittest.Context(t)
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
	ctx := waittest.Context(t)
	for _, h := range handles {
		status, err := h.Wait(ctx)
		if err != nil || status.State != freeslot.StateSucceeded {
			t.Errorf("job %s: %s, %v", h.ID(), status.State, err)
		}
	}
}

// TestIdleReplicaStops stops a replica without clients: it has nothing to wait for.
func TestIdleReplicaStops(t *testing.T) {
	s := newSystem(t)
	r := s.startReplica("idle", "FREESLOT_DRAIN_TIMEOUT=1h")
	// A replica that has just started may not have begun to wait for replies.
	eventually(t, func() error { return s.blocked("freeslot-idle") })
	r.stop()
	for _, key := range s.keys(s.redis.Client(t)) {
		if strings.HasPrefix(key, s.prefix+":replies:") {
			t.Errorf("the replica left %s behind", key)
		}
	}
}

// TestAgentDrains stops a node's agent while it runs a job: the node takes nothing new, the job
// ends as if nothing had happened, and then nothing of the node is left.
func TestAgentDrains(t *testing.T) { bothWays(t, testAgentDrains) }

func testAgentDrains(t *testing.T, s *system) {
	gate := make(chan struct{})
	svc := newService(t, gate)
	r := s.startReplica("r1")
	a := s.startAgent(nodeSpec{id: "node-a", slots: 4, tts: []string{"de"}, pools: []string{"batch"}}, svc)
	other := newService(t, nil)
	s.startAgent(nodeSpec{id: "node-b", slots: 4}, other)
	r.awaitNodes(2)
	if len(s.mentions("node-a")) == 0 {
		t.Fatal("nothing in Redis mentions the node while it runs")
	}

	german := (&kind{requirement: freeslot.Requirement{TargetLanguage: "de"}}).job(0)
	running := submitOurs(t, r.ws(), []freeslot.Job{german})
	svc.awaitUse(1)
	a.signal(syscall.SIGTERM)
	eventually(t, func() error { return r.status("node-a", freeslot.StatusDraining) })
	waiting := waitInLine(t, r.ws(), (&kind{requirement: german.Requirement}).job(1))
	close(gate)
	waitOurs(t, running)
	if code := a.wait(); code != 0 {
		t.Errorf("the agent ended with status %d", code)
	}
	r.awaitNodes(1)
	if left := s.mentions("node-a"); len(left) > 0 {
		t.Errorf("the node has gone, and Redis still has %v", left)
	}
	// The node that stays takes what it can, and the other one its own job when it is back.
	waitOurs(t, submitOurs(t, r.ws(), anyJobs(1)))
	s.startAgent(nodeSpec{id: "node-a", slots: 4, tts: []string{"de"}}, svc)
	checkAttempt(t, waiting, "node-a", 1)
}

// waitInLine submits a job that no node takes now, and expects that it is the first to wait.
func waitInLine(t *testing.T, url string, job freeslot.Job) *client.Handle {
	t.Helper()
	h := submitOurs(t, url, []freeslot.Job{job})[0]
	if h.Position() != 1 {
		t.Errorf("job %s is accepted at position %d, expected 1", h.ID(), h.Position())
	}
	return h
}

// TestReadyzIsRedWhileDraining looks at a replica that cannot stop yet, because a job of one of its
// sessions has not ended and its client does not leave.
func TestReadyzIsRedWhileDraining(t *testing.T) {
	t.Parallel()
	s := newSystem(t)
	gate := make(chan struct{})
	svc := newService(t, gate)
	s.startAgent(nodeSpec{id: "node-a", slots: 1}, svc)
	r := s.startReplicas(1, 1, "FREESLOT_DRAIN_TIMEOUT=15s")[0]
	submitOurs(t, r.ws(), anyJobs(1))
	svc.awaitUse(1)
	r.signal(syscall.SIGTERM)
	red := false
	eventually(t, func() error {
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
	if code := r.wait(); code != 0 {
		t.Errorf("the replica ended with status %d", code)
	}
	close(gate)
}

// TestOperatorDrains has an operator take a node out of use and back.
func TestOperatorDrains(t *testing.T) {
	t.Parallel()
	s := newSystem(t)
	gate := make(chan struct{})
	svc := newService(t, gate)
	spec := nodeSpec{id: "n1", slots: 2}
	a := s.startAgent(spec, svc)
	r := s.startReplicas(1, 1)[0]
	running := submitOurs(t, r.ws(), anyJobs(1))
	svc.awaitUse(1)
	r.schedctlNodes(0, "n1 is drained", "drain", "n1")
	eventually(t, func() error { return r.status("n1", freeslot.StatusDrained) })
	r.schedctlNodes(0, " drained ")
	waiting := waitInLine(t, r.ws(), anyJobs(2)[1])
	close(gate) // the running job goes on, and no job gets its slot
	waitOurs(t, running)
	a.signal(syscall.SIGKILL)
	a.wait()
	a = s.startAgent(spec, svc)
	eventually(t, func() error {
		if log := a.stderr.String(); !strings.Contains(log, `"agent.started"`) {
			return fmt.Errorf("the agent has not started: %s", log)
		}
		return nil
	})
	if err := r.status("n1", freeslot.StatusDrained); err != nil {
		t.Error("with an agent that was started again:", err)
	}
	select {
	case <-waiting.Assigned():
		t.Error("a drained node got a job:", waiting.Assignment())
	default:
	}
	r.schedctlNodes(0, "n1 is not drained any more", "undrain", "n1")
	checkAttempt(t, waiting, "n1", 1)
	r.schedctlNodes(1, "the agent of node n1 is alive", "remove", "n1")
	r.schedctlNodes(1, "not_found", "drain", "n2")
}

// TestOperatorRemoves has an operator take out a node that died while no replica ran, before the
// replica that comes would: it waits until it has been in touch with Redis for the heartbeat limit.
func TestOperatorRemoves(t *testing.T) {
	t.Parallel()
	s := newSystem(t)
	const limit = time.Hour // in which the replica that comes cannot take the node out by itself
	env := []string{"FREESLOT_HEARTBEAT_LIMIT=" + limit.String(), "FREESLOT_HEARTBEAT_INTERVAL=1s"}
	gate := make(chan struct{})
	svc := newService(t, gate)
	a := s.startAgent(nodeSpec{id: "n1", slots: 1, heartbeat: time.Second}, svc)
	first := s.startReplicas(1, 1, append(env, "FREESLOT_DRAIN_TIMEOUT=1s")...)[0]
	stdout, _, _ := run(t, []string{"FREESLOT_SERVER=" + first.http()}, "schedctl", "submit", testService, `{"index":0,"slots":1}`)
	id := strings.TrimSpace(stdout)
	svc.awaitUse(1)
	first.stop()
	s.awaitBeat("n1")
	a.signal(syscall.SIGKILL)
	a.wait()
	close(gate)
	s.fallSilent("n1", 2*limit)

	r := s.startReplica("r2", env...)
	r.schedctlNodes(0, "n1 is removed; its jobs go to their next attempts: "+id, "remove", "n1")
	r.awaitNodes(0)
	r.schedctlNodes(1, "not_found", "remove", "n1")
	if left := s.mentions("n1"); len(left) > 0 {
		t.Errorf("the node is removed, and Redis still has %v", left)
	}
	s.startAgent(nodeSpec{id: "n2", slots: 1}, svc)
	var job freeslot.JobStatus
	eventually(t, func() error {
		if _, err := r.get("/v1/jobs/"+id, &job); err != nil {
			return err
		}
		return expectState(job, freeslot.StateSucceeded)
	})
	if job.Node != "n2" || job.Attempt != 2 || job.Failures != 0 {
		t.Errorf("the job ended on %s with attempt %d and %d failures, expected n2, 2 and none", job.Node, job.Attempt, job.Failures)
	}

	imported := filepath.Join(t.TempDir(), "nodes.json")
	if err := os.WriteFile(imported, []byte(`[{"node_id":"old","max_concurrency":1}]`), 0o600); err != nil {
		t.Fatal(err)
	}
	r.schedctlNodes(0, "copied", "import", imported, "--redis-url", s.redis.URL(), "--key-prefix", s.prefix)
	r.awaitNodes(2)
	r.schedctlNodes(0, "old is removed", "remove", "old")
	r.awaitNodes(1)
}

// schedctlNodes runs "schedctl nodes" against the replica.
func (r *replica) schedctlNodes(code int, want string, args ...string) {
	r.t.Helper()
	stdout, stderr, got := run(r.t, []string{"FREESLOT_SERVER=" + r.http()}, "schedctl", append([]string{"nodes"}, args...)...)
	if got != code || !strings.Contains(stdout+stderr, want) {
		r.t.Errorf("schedctl nodes %v: exit status %d, expected %d and %q:\n%s%s", args, got, code, want, stdout, stderr)
	}
}
