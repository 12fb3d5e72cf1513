package dispatch

import (
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/cell"
	"github.com/freeslot/freeslot/internal/script"
	"github.com/freeslot/freeslot/internal/testing/redistest"
	"github.com/freeslot/freeslot/internal/testing/waittest"
)

// confirmedBy makes jobs accepted only once a replica of Redis has them.
func confirmedBy(timeout time.Duration) func(*replicaConfig) {
	return func(c *replicaConfig) {
		c.dispatch.SubmitTimeout = 2 * timeout
		c.cell = func(c *cell.Config) { c.Acknowledge = script.Acknowledge{Replicas: 1, Timeout: timeout} }
	}
}

// TestReplicaAway: without Redis' replica, submits end in time and say that the job may have been
// placed. Results are held back, and all goes on once the replica is back.
func TestReplicaAway(t *testing.T) {
	t.Parallel()
	redis := redistest.NewWithReplicas(t, 1)
	r := newRig(t, redis.Target)
	a := r.agent(node("n1", 8))
	rep := r.replica("r1", confirmedBy(300*time.Millisecond))
	var before string
	sink := newRecorder(t)
	waittest.Until(t, "a job is confirmed", func() bool { // on a very busy machine the first may not be in time
		id, err := rep.place(job(), sink)
		before = id
		return err == nil
	})

	redis.Replicas[0].Pause()
	_, err := rep.place(job(), newRecorder(t))
	if freeslot.CodeOf(err) != freeslot.CodeUnavailable {
		t.Fatalf("%v, expected unavailable", err)
	}
	_, owned, _ := strings.Cut(err.Error(), "all the same, as ")
	jobs, _ := r.owned("n1")
	if found := strings.Contains(strings.Join(jobs, " "), owned); owned == "" || !found {
		t.Errorf("%v does not name one of %v", err, jobs)
	}
	a.complete(before, `"reported late"`)
	if _, err := rep.Job(deadline(t), "", before); freeslot.CodeOf(err) != freeslot.CodeUnavailable {
		t.Errorf("the end was reported: %v", err)
	}
	// Otherwise the master would take a while to see that its replica is silent.
	if err := r.client.Do(deadline(t), r.client.B().ClientKill().TypeReplica().Build()).Error(); err != nil {
		t.Fatal(err)
	}
	waittest.Until(t, "no more submits are sent", func() bool { ok, _ := rep.Replicated(); return !ok })
	_, err = rep.place(job(), nil)
	if freeslot.CodeOf(err) != freeslot.CodeUnavailable || !strings.Contains(err.Error(), "acknowledge_replicas (1)") {
		t.Error(err)
	}
	for _, what := range sink.of(before) {
		if status, ok := what.(freeslot.JobStatus); ok {
			t.Errorf("reported while no replica had it: %+v", status)
		}
	}

	redis.Replicas[0].Resume()
	if got := sink.result(before); string(got.Result) != `"reported late"` {
		t.Errorf("%+v; want string(got.Result) == `\"reported late\"`", got)
	}
	waittest.Until(t, "jobs are accepted again", func() bool { _, err := rep.place(job(), nil); return err == nil })
	if ok, detail := rep.Replicated(); !ok || detail != "" {
		t.Errorf(`%t, %s; want ok, detail == ""`, ok, detail)
	}
}

// TestNoReplica: if Redis has no replica at all, readiness says so and submits end at once.
func TestNoReplica(t *testing.T) {
	t.Parallel()
	r := newRig(t, redistest.Shared(t))
	r.agent(node("n1", 8))
	rep := r.replica("r1", confirmedBy(patience/2))
	waittest.Until(t, "readiness turns red", func() bool { ok, _ := rep.Replicated(); return !ok })
	_, err := rep.place(job(), nil)
	if freeslot.CodeOf(err) != freeslot.CodeUnavailable || !strings.Contains(err.Error(), "no new jobs until it has") {
		t.Error(err)
	}
	if jobs, _ := r.owned("n1"); len(jobs) != 0 {
		t.Errorf("there are jobs: %v", jobs)
	}
	if n := testutil.ToFloat64(rep.metrics.submits.WithLabelValues("unavailable")); n != 1 {
		t.Errorf("%v counted", n)
	}
}
