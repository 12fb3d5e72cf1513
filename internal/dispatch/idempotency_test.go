package dispatch

import (
	"context"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/cell"
	"github.com/freeslot/freeslot/internal/testing/redistest"
	"github.com/freeslot/freeslot/internal/testing/waittest"
)

// submitOne submits one job and returns its answer.
func (rep *replica) submitOne(t *testing.T, j *freeslot.Job, sink Sink) (accepted Accepted, err error) {
	t.Helper()
	answers := 0
	rep.Submit(deadline(t), []Request{{Tenant: tenant, Job: j}}, sink, func(_ int, a Accepted, e error) {
		answers++
		accepted, err = a, e
	})
	if answers != 1 {
		t.Fatalf("answered %d times", answers)
	}
	return accepted, err
}

// Two submits with one idempotency key make one job, whichever replicas they go to and whether or
// not it has ended. Both submitters get its result.
func TestIdempotencyKey(t *testing.T) {
	t.Parallel()
	redistest.Backends(t, func(t *testing.T, redis *redistest.Target) {
		t.Parallel()
		r := newRig(t, redis)
		agents := map[string]*agent{"n1": r.agent(node("n1", 2)), "n2": r.agent(node("n2", 2)), "n3": r.agent(node("n3", 2))}
		x, y := r.replica("x"), r.replica("y")
		keyed := func(key string) *freeslot.Job { return &freeslot.Job{Service: "echo", IdempotencyKey: key} }
		first, second, third := newRecorder(t), newRecorder(t), newRecorder(t)
		a, err := x.submitOne(t, keyed("k"), first)
		if err != nil {
			t.Fatal(err)
		}
		at := first.begun(a.JobID, 1).Node
		if b, err := y.submitOne(t, keyed("k"), second); err != nil || b.JobID != a.JobID {
			t.Fatalf("%+v, %v, expected job %s", b, err, a.JobID)
		}
		if c, err := x.submitOne(t, keyed("l"), nil); err != nil || c.JobID == a.JobID {
			t.Errorf("another key: %+v, %v", c, err)
		}
		agents[at].attempt(a.JobID, 1)
		got := second.result(a.JobID)
		if got.State != freeslot.StateSucceeded {
			t.Errorf("%+v; want got.State == freeslot.StateSucceeded", got)
		}
		if b, err := x.submitOne(t, keyed("k"), third); err != nil || b.JobID != a.JobID || third.result(a.JobID).State != freeslot.StateSucceeded {
			t.Errorf("after its end: %+v, %v", b, err)
		}
		other := keyed("k")
		other.Slots = 2
		if _, err := y.submitOne(t, other, third); freeslot.CodeOf(err) != freeslot.CodeConflict {
			t.Errorf("another job under the key: %v", err)
		}
		traced := keyed("k")
		traced.TraceParent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
		if b, err := y.submitOne(t, traced, nil); err != nil || b.JobID != a.JobID {
			t.Errorf("traced: %+v, %v", b, err)
		}
		if c, _ := x.ofJob(a.JobID); c.cell.Layout().Prefix != "" {
			r.do("DEL", c.cell.Layout().Job(a.JobID))
		}
		if _, err := x.submitOne(t, keyed("k"), third); freeslot.CodeOf(err) != freeslot.CodeConflict {
			t.Errorf("after its record expired: %v", err)
		}
		waittest.Until(t, "nothing outstanding", func() bool { return y.Outstanding() == 0 })
	})
}

// Two jobs with one key in one batch are one job. The sink gets its result once, and never
// Detached.
func TestKeyTwiceInABatch(t *testing.T) {
	t.Parallel()
	r := newRig(t, redistest.Shared(t))
	a := r.agent(node("n1", 1))
	rep := r.replica("r1")
	for i := range 20 {
		sink := newRecorder(t)
		j := job()
		j.IdempotencyKey = strconv.Itoa(i)
		var ids [2]string
		rep.Submit(deadline(t), []Request{{Tenant: tenant, Job: j}, {Tenant: tenant, Job: j}}, sink, func(i int, got Accepted, err error) {
			if err != nil {
				t.Error(err)
			}
			ids[i] = got.JobID
		})
		if ids[0] != ids[1] {
			t.Fatalf("two jobs: %v", ids)
		}
		a.attempt(ids[0], sink.begun(ids[0], 1).Attempt)
		_ = sink.result(ids[0])
		sink.want(ids[0], "assigned result")
	}
}

// A job for later is scheduled until its time has come by Redis' clock. It can be cancelled before.
func TestJobForLater(t *testing.T) {
	t.Parallel()
	redistest.Backends(t, func(t *testing.T, redis *redistest.Target) {
		t.Parallel()
		r := newRig(t, redis)
		a := r.agent(node("n1", 2))
		rep := r.replica("r1")
		sink := newRecorder(t)
		runAt := time.Now().Add(400 * time.Millisecond).UnixMilli()
		accepted, err := rep.submitOne(t, &freeslot.Job{Service: "echo", RunAtMS: runAt}, sink)
		if err != nil || accepted.Position != 0 {
			t.Fatalf("%+v, %v; want no error, accepted.Position == 0", accepted, err)
		}
		if s, err := rep.Job(deadline(t), tenant, accepted.JobID); err != nil || s.State != freeslot.StateScheduled {
			t.Errorf("%+v, %v; want no error, s.State == freeslot.StateScheduled", s, err)
		}
		never, err := rep.submitOne(t, &freeslot.Job{Service: "echo", RunAtMS: runAt + 3_600_000}, sink)
		if err != nil {
			t.Fatal(err)
		}
		if s, err := rep.Attach(deadline(t), tenant, never.JobID, sink); err != nil || s.State != freeslot.StateScheduled || s.RunAtMS != runAt+3_600_000 {
			t.Errorf("%+v, %v; want no error, s.State == freeslot.StateScheduled, s.RunAtMS == runAt+3_600_000", s, err)
		}
		if s, err := rep.Cancel(deadline(t), tenant, never.JobID); err != nil || s.State != freeslot.StateCancelled {
			t.Errorf("%+v, %v; want no error, s.State == freeslot.StateCancelled", s, err)
		}
		if got := sink.result(never.JobID); got.State != freeslot.StateCancelled {
			t.Errorf("%+v; want got.State == freeslot.StateCancelled", got)
		}
		if b := sink.begun(accepted.JobID, 1); b.AssignedAtMS < runAt {
			t.Errorf("began at %d, %d ms early", b.AssignedAtMS, runAt-b.AssignedAtMS)
		}
		a.attempt(accepted.JobID, 1)
		_ = sink.result(accepted.JobID)
		past, err := rep.submitOne(t, &freeslot.Job{Service: "echo", RunAtMS: 1}, sink)
		if err != nil {
			t.Fatal(err)
		}
		sink.begun(past.JobID, 1)
	})
}

// TestBatchAgainByKeys: a client that lost its connection submits its batch once more under its
// keys.
func TestBatchAgainByKeys(t *testing.T) {
	t.Parallel()
	const jobs = 5 * ownersAtOnce
	r := newRig(t, redistest.Shared(t))
	r.agent(node("n1", 2*jobs))
	ids := make([]string, jobs)
	for _, rep := range []*replica{r.replica("x"), r.replica("y")} {
		var all []Request
		for i := range jobs {
			j := job()
			j.IdempotencyKey = strconv.Itoa(i)
			all = append(all, Request{Tenant: tenant, Job: j})
		}
		rep.Submit(deadline(t), all, newRecorder(t), func(i int, a Accepted, err error) {
			if err != nil || ids[i] != "" && ids[i] != a.JobID {
				t.Errorf("%d: %+v, expected %q, %v", i, a, ids[i], err)
			}
			ids[i] = a.JobID
		})
	}
}

// TestForEach: Redis may be far away, so owners are asked about neither one by one nor all at once.
func TestForEach(t *testing.T) {
	t.Parallel()
	owners := make([]*keyOwner, 3*ownersAtOnce)
	for i := range owners {
		owners[i] = &keyOwner{id: strconv.Itoa(i)}
	}
	var mu sync.Mutex
	inside, most, done, full := 0, 0, map[string]bool{}, make(chan struct{})
	ctx := deadline(t)
	forEach(owners, func(o *keyOwner) {
		mu.Lock()
		inside, done[o.id] = inside+1, true
		if most = max(most, inside); most == ownersAtOnce && len(done) == ownersAtOnce {
			close(full)
		}
		mu.Unlock()
		select {
		case <-full:
		case <-ctx.Done():
		}
		mu.Lock()
		inside--
		mu.Unlock()
	})
	if most != ownersAtOnce || len(done) != len(owners) {
		t.Errorf("%d at once, %d in all", most, len(done))
	}
	forEach(nil, nil)
}

// TestAdopt: a sink that takes over a waiter, whose attach is under way and fails, gets the result.
// A submit that is under way keeps its job.
func TestAdopt(t *testing.T) {
	t.Parallel()
	r := newRig(t, redistest.Shared(t))
	x := r.replica("x")
	c, known, sink := x.byCell[0], &freeslot.JobStatus{ID: cell.NewJobID(0), Tenant: tenant}, newRecorder(t)
	w, err := c.join(known.ID)
	if err != nil {
		t.Fatal(err)
	}
	if !c.adopt(known, sink) {
		t.Error("refused beside an attach")
	}
	w.endAttach(newRecorder(t), &freeslot.JobStatus{}, cell.ErrStopped)
	c.answer(w, freeslot.JobStatus{ID: known.ID, State: freeslot.StateSucceeded})
	sink.result(known.ID)
	c.outstanding.Store(known.ID, &waiter{sink: newRecorder(t)})
	if c.adopt(known, sink) {
		t.Error("taken from a submit that is under way")
	}
	c.outstanding.Delete(known.ID)
}

// TestJoinCancelled: a submitter that hangs up takes the job from no other sink.
func TestJoinCancelled(t *testing.T) {
	t.Parallel()
	r := newRig(t, redistest.Shared(t))
	a := r.agent(node("n1", 1))
	x := r.replica("x")
	first, second := newRecorder(t), newRecorder(t)
	id := x.mustWait(job(), 0, first)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	(&submit{d: x.Dispatcher, ctx: ctx}).joinOwner(&keyOwner{id: id, sink: second, known: freeslot.JobStatus{ID: id, Tenant: tenant}})
	second.want(id, "detached")
	a.complete(id, `1`)
	if s := first.result(id); s.State != freeslot.StateSucceeded {
		t.Errorf("%+v; want s.State == freeslot.StateSucceeded", s)
	}
}

// TestRepeatedKeyIsNoAssignment: a submit that gets the id of an earlier job assigned nothing.
func TestRepeatedKeyIsNoAssignment(t *testing.T) {
	t.Parallel()
	r := newRig(t, redistest.Shared(t))
	r.agent(node("n1", 2))
	x := r.replica("x")
	assigned := func() uint64 {
		t.Helper()
		reg := prometheus.NewRegistry()
		reg.MustRegister(x.metrics.assign)
		all, err := reg.Gather()
		if err != nil {
			t.Fatal(err)
		}
		return all[0].GetMetric()[0].GetHistogram().GetSampleCount()
	}
	for range 3 {
		if _, err := x.submitOne(t, &freeslot.Job{Service: "echo", IdempotencyKey: "k"}, nil); err != nil {
			t.Fatal(err)
		}
	}
	if n := assigned(); n != 1 {
		t.Errorf("one job was assigned, and %d are counted", n)
	}
}

// TestDropFreesKey: a job that is deleted frees its key for another one.
func TestDropFreesKey(t *testing.T) {
	t.Parallel()
	redistest.Backends(t, func(t *testing.T, redis *redistest.Target) {
		t.Parallel()
		r := newRig(t, redis)
		a := r.agent(node("n1", 1))
		rep := r.replica("r1")
		keyed := &freeslot.Job{Service: "echo", IdempotencyKey: "k"}
		first, err := rep.submitOne(t, keyed, nil)
		if err != nil {
			t.Fatal(err)
		}
		a.attempt(first.JobID, 1)
		waittest.Until(t, "the job to be deleted once it has ended", func() bool {
			_, err := rep.Drop(t.Context(), tenant, first.JobID)
			return err == nil
		})
		again, err := rep.submitOne(t, keyed, nil)
		if err != nil || again.JobID == first.JobID {
			t.Errorf("the key of a deleted job gives %q and %v, expected a new job", again.JobID, err)
		}
		a.attempt(again.JobID, 1)
	})
}
