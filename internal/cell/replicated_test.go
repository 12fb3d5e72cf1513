package cell

import (
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/script"
	"github.com/freeslot/freeslot/internal/testing/redistest"
)

// vain is how long the tests wait for a replica that does not answer.
const vain = 250 * time.Millisecond

func replicated(timeout time.Duration) func(*Config) {
	return func(c *Config) { c.Acknowledge = script.Acknowledge{Replicas: 1, Timeout: timeout} }
}

// withReplica is a rig that waits for its replica as long as it takes, and the same cell seen
// by one that soon gives up.
func withReplica(t *testing.T) (patient, hasty *rig, redis *redistest.WithReplicas) {
	t.Helper()
	redis = redistest.NewWithReplicas(t, 1)
	patient = newRig(t, redis.Target, replicated(patience))
	hasty = newRig(t, redis.Target, replicated(vain), func(c *Config) { c.Layout = patient.l })
	return patient, hasty, redis
}

// promoted is the rig's cell as the replica has it, once the master is dead.
func (r *rig) promoted(redis *redistest.WithReplicas) *rig {
	r.t.Helper()
	redis.Kill()
	redis.Replicas[0].Resume()
	redis.Promote(redis.Replicas[0])
	return newRig(r.t, redis.Replicas[0].Target, func(c *Config) { c.Layout = r.l })
}

func (r *rig) notReplicated(what string, err error) {
	r.t.Helper()
	if !errors.Is(err, ErrNotReplicated) {
		r.t.Errorf("%s: %v, expected %v", what, err, ErrNotReplicated)
	}
}

// TestAcceptedIsReplicated: what was accepted is there when the master dies at once.
func TestAcceptedIsReplicated(t *testing.T) {
	t.Parallel()
	r, _, redis := withReplica(t)
	r.register(testNode("n1", 100))
	const each = 100
	jobs := make([]string, 2*each)
	at := func(i int, f func(i int)) *sync.WaitGroup {
		var calls sync.WaitGroup
		for k := range each {
			calls.Go(func() { f(i + k) })
		}
		return &calls
	}
	at(0, func(i int) {
		s := submission("", "n1")
		if p, err := r.Submit(r.ctx(), s); err != nil || !p.Assigned {
			t.Errorf("submit: %+v, %v", p, err)
		}
		jobs[i] = s.JobID
	}).Wait()
	at(each, func(i int) {
		s := submission("")
		s.Job.IdempotencyKey = fmt.Sprint("key-", i)
		if out := r.EnqueueAll(r.ctx(), []Submission{s}); out[0].Err != nil {
			t.Errorf("enqueue: %v", out[0].Err)
		}
		jobs[i] = s.JobID
	}).Wait()
	after := r.promoted(redis)
	for _, job := range jobs {
		after.status(job)
	}
	again := submission("")
	again.Job.IdempotencyKey = fmt.Sprint("key-", each)
	if p := after.enqueued(again)[0]; p.Owner != jobs[each] {
		t.Errorf("the key belongs to %q, expected %s: %+v", p.Owner, jobs[each], p)
	}
}

// TestSubmitWithoutReplica: with a replica that does not answer a job is in Redis, and is
// not accepted, however often it is repeated; and it is the same job once the replica does.
func TestSubmitWithoutReplica(t *testing.T) {
	t.Parallel()
	r, hasty, redis := withReplica(t)
	r.register(testNode("n1", 4))
	redis.Replicas[0].Pause()
	s, waits := submission("", "n1"), submission("")
	for range 2 {
		_, err := hasty.Submit(r.ctx(), s)
		r.notReplicated("submit", err)
		r.notReplicated("enqueue", hasty.EnqueueAll(r.ctx(), []Submission{waits})[0].Err)
	}
	if got := r.status(s.JobID); got.State != freeslot.StateRunning {
		t.Errorf("the job is %s", got.State)
	}
	redis.Replicas[0].Resume()
	if p, err := r.Submit(r.ctx(), s); err != nil || !p.Assigned || !p.Repeated {
		t.Errorf("%+v, %v; want no error, p.Assigned, p.Repeated", p, err)
	}
	if out := r.EnqueueAll(r.ctx(), []Submission{waits})[0]; out.Err != nil || !out.Placement.Waiting {
		t.Errorf("%+v; want no error, out.Placement.Waiting", out)
	}
	r.sound()
}

// TestEndIsToldOnceReplicated: until a replica has it, an end is told by nothing; what came
// before it is.
func TestEndIsToldOnceReplicated(t *testing.T) {
	t.Parallel()
	r, hasty, redis := withReplica(t)
	epoch := r.register(testNode("n1", 2))
	if err := r.OpenReplies(r.ctx(), "replica-1"); err != nil {
		t.Fatal(err)
	}
	first, job := r.place("replica-1", 1, "n1"), r.place("replica-1", 1, "n1")
	r.end("n1", epoch, first)
	told, err := r.Replies(r.ctx(), "replica-1", "", 0, 10)
	if err != nil || len(told) != 2 || told[1].Status.ID != first {
		t.Fatalf("%+v, %v; want no error, len(told) == 2, told[1].Status.ID == %v", told, err, first)
	}
	at := told[1].ID

	redis.Replicas[0].Pause()
	if _, err := hasty.Attach(r.ctx(), "", job, "replica-2"); err != nil { // tells replica-1
		t.Fatal(err)
	}
	if _, err := hasty.Attach(r.ctx(), "", job, "replica-1"); err != nil {
		t.Fatal(err)
	}
	r.end("n1", epoch, job)
	if told, err = hasty.Replies(r.ctx(), "replica-1", at, 0, 10); err != nil || len(told) != 1 || !told[0].Detached {
		t.Fatalf("%+v, %v; expected what came before the end", told, err)
	}
	at = told[0].ID
	ways := map[string]func(r *rig) error{
		"replies": func(r *rig) error {
			told, err := r.Replies(r.ctx(), "replica-1", at, 0, 10)
			if err == nil && (len(told) != 1 || told[0].Status.State != freeslot.StateSucceeded) {
				t.Errorf("%+v; want an error or (len(told) == 1 and told[0].Status.State == freeslot.StateSucceeded)", told)
			}
			return err
		},
		"read":   func(r *rig) error { _, err := r.Job(r.ctx(), "", job); return err },
		"attach": func(r *rig) error { _, err := r.Attach(r.ctx(), "", job, "replica-2"); return err },
		"cancel": func(r *rig) error { _, err := r.Cancel(r.ctx(), "", job); return err },
	}
	for what, f := range ways {
		r.notReplicated(what, f(hasty))
	}
	redis.Replicas[0].Resume()
	for what, f := range ways {
		if err := f(r); err != nil {
			t.Errorf("%s: %v; want no error", what, err)
		}
	}
}

// TestOperatorsWordIsReplicated: what is answered of a drain is there when the master dies at once; without its
// replica it is in force, and not answered.
func TestOperatorsWordIsReplicated(t *testing.T) {
	t.Parallel()
	r, hasty, redis := withReplica(t)
	r.register(testNode("n1", 2))
	ways := map[string]func(r *rig) error{
		"drain":   func(r *rig) error { return r.Drain(r.ctx(), "n1") },
		"confirm": func(r *rig) error { return r.Confirm(r.ctx()) },
	}
	redis.Replicas[0].Pause()
	for what, f := range ways {
		r.notReplicated(what, f(hasty))
	}
	redis.Replicas[0].Resume()
	for what, f := range ways {
		if err := f(r); err != nil {
			t.Errorf("%s: %v; want no error", what, err)
		}
	}
	after := r.promoted(redis)
	if status := after.field(after.l.Node("n1"), "status"); status != "drained" {
		t.Errorf("the node is %s", status)
	}
}

// TestDrainIsConfirmedAfterLeave: what could not be confirmed before the node left is so by the same call again.
func TestDrainIsConfirmedAfterLeave(t *testing.T) {
	t.Parallel()
	r, hasty, redis := withReplica(t)
	ways := map[string]func(r *rig) error{
		"drain":   func(r *rig) error { return r.Drain(r.ctx(), "n1") },
		"undrain": func(r *rig) error { return r.Undrain(r.ctx(), "n1") },
	}
	for _, what := range []string{"drain", "undrain"} {
		f := ways[what]
		epoch := r.register(testNode("n1", 4))
		redis.Replicas[0].Pause()
		r.notReplicated(what, f(hasty))
		if _, err := r.Deregister(r.ctx(), "n1", epoch); err != nil {
			t.Fatal(err)
		}
		r.notReplicated(what+" again", f(hasty))
		redis.Replicas[0].Resume()
		if err := f(r); err != nil {
			t.Errorf("%s: %v; want no error", what, err)
		}
	}
}

// TestRefusalsNeedNoReplica: what is refused is told so, whatever the replicas have.
func TestRefusalsNeedNoReplica(t *testing.T) {
	t.Parallel()
	r, hasty, redis := withReplica(t)
	redis.Replicas[0].Pause()
	if err := hasty.Drain(r.ctx(), "nobody"); freeslot.CodeOf(err) != freeslot.CodeNotFound {
		t.Errorf("drain of a node that there is not: %v", err)
	}
}

// TestLostEndWasNotTold: an end that a failover loses was told to nobody, and the job goes on
// from where it was.
func TestLostEndWasNotTold(t *testing.T) {
	t.Parallel()
	r, hasty, redis := withReplica(t)
	epoch := r.register(testNode("n1", 2))
	if err := r.OpenReplies(r.ctx(), "replica-1"); err != nil {
		t.Fatal(err)
	}
	job := r.place("replica-1", 1, "n1")
	redis.Replicas[0].Pause()
	r.do("CLIENT", "KILL", "TYPE", "replica") // what is written from now on reaches not even its socket
	r.end("n1", epoch, job)
	opened, err := hasty.Replies(r.ctx(), "replica-1", "", 0, 10)
	if err != nil || len(opened) != 1 || opened[0].Status.ID != "" {
		t.Fatalf(`%+v, %v; want no error, len(opened) == 1, opened[0].Status.ID == ""`, opened, err)
	}
	_, err = hasty.Replies(r.ctx(), "replica-1", opened[0].ID, 0, 10)
	r.notReplicated("replies", err)
	after := r.promoted(redis)
	if got := after.status(job).State; got != freeslot.StateRunning {
		t.Fatalf("the job is %s", got)
	}
	after.end("n1", epoch, job)
}

// TestNoReplicas: where Redis has none nothing hangs.
func TestNoReplicas(t *testing.T) {
	t.Parallel()
	redistest.Backends(t, func(t *testing.T, redis *redistest.Target) {
		t.Parallel()
		r := newRig(t, redis, replicated(vain))
		r.register(testNode("n1", 4))
		_, err := r.Submit(r.ctx(), submission("", "n1"))
		r.notReplicated("submit", err)
		if n, err := r.ReplicasOnline(r.ctx()); err != nil || n != 0 {
			t.Errorf("%d replicas, %v", n, err)
		}
	})
}

func TestReplicasOnline(t *testing.T) {
	t.Parallel()
	r, _, _ := withReplica(t)
	if n, err := r.ReplicasOnline(r.ctx()); err != nil || n != 1 {
		t.Errorf("%d replicas, %v", n, err)
	}
}

// TestReplicatedCluster: the wait is one for the replicas of the master that has the cell,
// also when the cell has just moved.
func TestReplicatedCluster(t *testing.T) {
	t.Parallel()
	redis := redistest.NewReplicaCluster(t)
	r := newRig(t, redis.Target, third, replicated(patience))
	r.register(testNode("n1", 4))
	r.place("", 1, "n1")
	slot, ok := r.l.Slot()
	if !ok {
		t.Fatal("the cell has no slot")
	}
	owner := redis.Owner(uint16(slot))
	for _, to := range redis.Processes()[:3] {
		if to != owner {
			redis.MigrateSlot(uint16(slot), to)
			break
		}
	}
	if n, err := r.ReplicasOnline(r.ctx()); err != nil || n != 1 {
		t.Errorf("%d replicas, %v", n, err)
	}
	job := r.place("", 1, "n1")
	if err := r.OpenReplies(r.ctx(), "replica-1"); err != nil {
		t.Fatal(err)
	}
	if _, err := r.Attach(r.ctx(), "", job, "replica-1"); err != nil {
		t.Fatal(err)
	}
	if _, err := r.Cancel(r.ctx(), "", r.waits("")); err != nil {
		t.Fatal(err)
	}
}

func TestBadAcknowledge(t *testing.T) {
	t.Parallel()
	for _, bad := range []script.Acknowledge{{Replicas: 17}, {Replicas: 1, Timeout: time.Microsecond}} {
		if err := (Config{Acknowledge: bad}).WithDefaults().Validate(); err == nil {
			t.Errorf("%+v is taken", bad)
		}
	}
}
