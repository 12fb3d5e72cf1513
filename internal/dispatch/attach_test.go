package dispatch

import (
	"bytes"
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/cell"
	"github.com/freeslot/freeslot/internal/testing/redistest"
	"github.com/freeslot/freeslot/internal/testing/waittest"
)

// The last session to attach gets the result, on the same replica or another one. The session
// before it gets Detached.
func TestAttach(t *testing.T) {
	t.Parallel()
	redistest.Backends(t, func(t *testing.T, redis *redistest.Target) {
		t.Parallel()
		for _, where := range []string{"same replica", "another replica"} {
			t.Run(where, func(t *testing.T) {
				r := newRig(t, redis)
				a := r.agent(node("n1", 8))
				rep := r.replica("r1")
				other := rep
				if where == "another replica" {
					other = r.replica("r2")
				}
				first, second := newRecorder(t), newRecorder(t)
				id := rep.mustPlace(&freeslot.Job{Service: "echo", Slots: 3}, first)
				s, err := other.Attach(deadline(t), tenant, id, second)
				if err != nil || s.State != freeslot.StateRunning || s.Node != "n1" || s.Slots != 3 || s.AssignedAtMS == 0 {
					t.Fatalf(`%+v, %v; want no error, s.State == freeslot.StateRunning, s.Node == "n1", s.Slots == 3, s.AssignedAtMS != 0`, s, err)
				}
				waittest.Until(t, "the first gets Detached", func() bool { return first.kinds(id) == "assigned detached" })
				a.complete(id, `"done"`)
				got := second.result(id)
				if string(got.Result) != `"done"` || got.Tenant != tenant || got.Slots != 3 || got.AssignedAtMS != s.AssignedAtMS {
					t.Errorf("%+v; want string(got.Result) == `\"done\"`, got.Tenant == %v, got.Slots == 3, got.AssignedAtMS == %v", got, tenant, s.AssignedAtMS)
				}
				second.want(id, "result")
				first.want(id, "assigned detached")
				for _, x := range []*replica{rep, other} {
					waittest.Until(t, "nothing outstanding", func() bool { return x.Outstanding() == 0 })
				}
			})
		}
	})
}

// The stream still holds another replica's attach after the job was taken back. That entry no
// longer counts: a client went to another replica and returned before the first replica, which
// stood still, read of it.
func TestAttachReturns(t *testing.T) {
	t.Parallel()
	r := newRig(t, redistest.Shared(t))
	a := r.agent(node("n1", 8))
	rep := r.replica("r1")
	sink, away := newRecorder(t), newRecorder(t)
	id, lost := rep.mustPlace(job(), sink), rep.mustPlace(job(), away)
	r.do("HSET", r.layout.Job(lost), "reply_to", "r2")
	for _, it := range []string{id, lost} {
		add := r.client.B().Xadd().Key(r.layout.Replies("r1")).Id("*").FieldValue().FieldValue("d", it).Build()
		if err := r.client.Do(deadline(t), add).Error(); err != nil {
			t.Fatal(err)
		}
	}
	waittest.Until(t, "the other job gets Detached", func() bool { return away.kinds(lost) == "assigned detached" })
	a.complete(id, `"done"`)
	sink.result(id)
	sink.want(id, "assigned result")
}

// An attach was answered, and a failover takes it back: by the record the job belongs to another
// replica, where no session waits any more. The session does not wait for ever. If the entry was
// read before the failover, a recheck finds the result. If it is read after the failover, it
// counts: the client gets Detached and attaches once more.
func TestAttachTakenBack(t *testing.T) {
	t.Parallel()
	for _, when := range []string{"read before", "read after"} {
		t.Run(when, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, redistest.Shared(t))
			a := r.agent(node("n1", 8))
			rep := r.replica("r1", quick)
			blocker, sink := newRecorder(t), newRecorder(t)
			stands, goOn := make(chan struct{}), make(chan struct{})
			first, id := rep.mustPlace(job(), blocker), rep.mustPlace(job(), sink)
			blocker.hold = func() { close(stands); <-goOn }
			if when == "read after" {
				a.complete(first, `1`)
				<-stands // it reads the stream
			}
			if _, err := r.cell.Attach(deadline(t), tenant, id, "r2"); err != nil { // reported to r1
				t.Fatal(err)
			}
			if when == "read before" {
				waittest.Until(t, "the first gets Detached", func() bool { return sink.kinds(id) == "assigned detached" })
				sink = newRecorder(t)
			}
			if _, err := rep.Attach(deadline(t), tenant, id, sink); err != nil {
				t.Fatal(err)
			}
			r.do("HSET", r.layout.Job(id), "reply_to", "r2", "attaches", "1") // the record of the new master
			if when == "read after" {
				close(goOn)
				waittest.Until(t, "the client gets Detached", func() bool { return sink.kinds(id) == "assigned detached" })
				sink = newRecorder(t)
				if s, err := rep.Attach(deadline(t), tenant, id, sink); err != nil || s.State != freeslot.StateRunning {
					t.Fatalf("%+v, %v; want no error, s.State == freeslot.StateRunning", s, err)
				}
			}
			a.complete(id, `"done"`)
			if s := sink.result(id); string(s.Result) != `"done"` {
				t.Errorf("%+v; want string(s.Result) == `\"done\"`", s)
			}
			sink.want(id, "result")
		})
	}
}

// The attach of a session that has ended reaches Redis late, behind the same client's attach at
// another replica. It takes the job from no session.
func TestLateAttach(t *testing.T) {
	t.Parallel()
	redis := redistest.Shared(t)
	r := newRig(t, redis)
	a := r.agent(node("n1", 8))
	p := newProxy(t, redis)
	x, y := r.replica("x", func(c *replicaConfig) { c.url = p.url() }), r.replica("y")
	first, late, now := newRecorder(t), newRecorder(t), newRecorder(t)
	if _, err := x.Attach(deadline(t), tenant, x.mustPlace(job(), nil), newRecorder(t)); err != nil { // Redis knows the script
		t.Fatal(err)
	}
	id := y.mustPlace(job(), first)
	y.Forget(first) // its connection broke
	held, release := make(chan struct{}), make(chan struct{})
	var once atomic.Bool
	f := func(request []byte) verdict {
		if bytes.Contains(request, []byte(tenant+"\r\n$1\r\nx\r\n")) && once.CompareAndSwap(false, true) {
			close(held)
			<-release
		}
		return pass
	}
	p.cut.Store(&f)
	ctx, cancel := context.WithCancel(deadline(t))
	failed := make(chan error, 1)
	go func() { _, err := x.Attach(ctx, tenant, id, late); failed <- err }()
	<-held
	cancel() // its session has ended
	if err := receive(t, "attach", failed); err == nil {
		t.Fatal("it did not fail")
	}
	x.Forget(late)
	if s, err := y.Attach(deadline(t), tenant, id, now); err != nil || s.State != freeslot.StateRunning {
		t.Fatalf("%+v, %v; want no error, s.State == freeslot.StateRunning", s, err)
	}
	close(release)
	if _, err := x.Job(deadline(t), tenant, id); err != nil { // on the same connection, behind it
		t.Fatal(err)
	}
	a.complete(id, `"done"`)
	now.result(id)
	now.want(id, "result")
}

func TestAttachToEndedJob(t *testing.T) {
	t.Parallel()
	r := newRig(t, redistest.Shared(t))
	a := r.agent(node("n1", 8))
	rep := r.replica("r1")
	id := rep.mustPlace(job(), nil)
	a.complete(id, `"done"`)
	sink := newRecorder(t)
	s, err := rep.Attach(deadline(t), tenant, id, sink)
	if err != nil || s.State != freeslot.StateSucceeded || string(s.Result) != `"done"` {
		t.Errorf("%+v, %v; want no error, s.State == freeslot.StateSucceeded, string(s.Result) == `\"done\"`", s, err)
	}
	sink.want(id, "")
	if n := rep.Outstanding(); n != 0 {
		t.Errorf("%d outstanding", n)
	}
}

// The result is on its way to the sink, but slow. A session that attaches meanwhile gets the status
// and takes nothing away.
func TestAttachToEndedJobWhoseReplyIsLost(t *testing.T) {
	t.Parallel()
	r := newRig(t, redistest.Shared(t))
	a := r.agent(node("n1", 8))
	rep := r.replica("r1", func(c *replicaConfig) { c.dispatch.RecheckInterval = time.Hour })
	first, second := newRecorder(t), newRecorder(t)
	id := rep.mustPlace(job(), first)
	r.do("HSET", r.layout.Job(id), "reply_to", "")
	a.complete(id, `"done"`)
	s, err := rep.Attach(deadline(t), tenant, id, second)
	if err != nil || s.State != freeslot.StateSucceeded {
		t.Errorf("%+v, %v; want no error, s.State == freeslot.StateSucceeded", s, err)
	}
	second.want(id, "")
	first.want(id, "assigned result")
	if n := rep.Outstanding(); n != 0 {
		t.Errorf("%d outstanding", n)
	}
}

// Another tenant learns nothing and takes nothing.
func TestAttachRefused(t *testing.T) {
	t.Parallel()
	r := newRig(t, redistest.Shared(t))
	a := r.agent(node("n1", 8))
	rep := r.replica("r1")
	owner, stranger := newRecorder(t), newRecorder(t)
	id := rep.mustPlace(job(), owner)
	_, err := rep.Attach(deadline(t), "another-tenant", id, stranger)
	wantCode(t, err, freeslot.CodeNotFound)
	_, err = rep.Attach(deadline(t), tenant, cell.NewJobID(0), stranger)
	wantCode(t, err, freeslot.CodeNotFound)
	_, err = rep.Attach(deadline(t), tenant, "nonsense", stranger)
	wantCode(t, err, freeslot.CodeInvalidArgument)
	if n := rep.Outstanding(); n != 1 {
		t.Errorf("%d outstanding", n)
	}
	a.complete(id, `1`)
	owner.result(id)
	owner.want(id, "assigned result")
	stranger.want(id, "")
}

// After an attach that fails, the sink keeps the job, even if the same session attached.
func TestAttachFails(t *testing.T) {
	t.Parallel()
	for _, who := range []string{"same sink", "another sink", "no sink waited"} {
		t.Run(who, func(t *testing.T) {
			t.Parallel()
			redis := redistest.Shared(t)
			r := newRig(t, redis)
			a := r.agent(node("n1", 8))
			p := newProxy(t, redis)
			rep := r.replica("r1", func(c *replicaConfig) { c.url = p.url() })
			first := newRecorder(t)
			attacher, waiting := first, Sink(first)
			switch who {
			case "another sink":
				attacher = newRecorder(t)
			case "no sink waited":
				attacher, waiting = newRecorder(t), nil
			}
			id := rep.mustPlace(job(), waiting)
			if _, err := rep.Attach(deadline(t), tenant, rep.mustPlace(job(), nil), newRecorder(t)); err != nil { // Redis knows the script
				t.Fatal(err)
			}
			p.cutOn(tenant+"\r\n$2\r\nr1\r\n", lost, 1) // the script, which the loops do not call
			_, err := rep.Attach(deadline(t), tenant, id, attacher)
			wantCode(t, err, freeslot.CodeUnavailable)
			if p.cuts.Load() != 1 {
				t.Fatalf("%d cuts", p.cuts.Load())
			}
			a.complete(id, `1`)
			if waiting != nil {
				first.result(id)
				first.want(id, "assigned result")
			}
			if attacher != first {
				attacher.want(id, "")
			}
			waittest.Until(t, "the other job only", func() bool { return rep.Outstanding() == 1 })
		})
	}
}

// A session attaches to its own job, as a client does that is not sure whether its submit arrived.
func TestAttachBySameSink(t *testing.T) {
	t.Parallel()
	r := newRig(t, redistest.Shared(t))
	a := r.agent(node("n1", 8))
	rep := r.replica("r1")
	sink := newRecorder(t)
	id := rep.mustPlace(job(), sink)
	for range 3 {
		if s, err := rep.Attach(deadline(t), tenant, id, sink); err != nil || s.State != freeslot.StateRunning {
			t.Fatalf("%+v, %v; want no error, s.State == freeslot.StateRunning", s, err)
		}
	}
	a.complete(id, `1`)
	sink.result(id)
	sink.want(id, "assigned result")
	if s, err := rep.Attach(deadline(t), tenant, id, sink); err != nil || s.State != freeslot.StateSucceeded {
		t.Errorf("%+v, %v; want no error, s.State == freeslot.StateSucceeded", s, err)
	}
	sink.want(id, "assigned result")
}

// A client that knows a job's id from a listing, before the submitter got it, must wait. A takeover
// by another replica at that moment is reported in order.
func TestAttachWhileAccepting(t *testing.T) {
	t.Parallel()
	r := newRig(t, redistest.Shared(t))
	a := r.agent(node("n1", 8))
	rep, other := r.replica("r1"), r.replica("r2")
	first, early, second := newRecorder(t), newRecorder(t), newRecorder(t)
	var id string
	rep.Submit(deadline(t), []Request{{Tenant: tenant, Job: job()}}, first, func(_ int, a Accepted, err error) {
		jobID := a.JobID
		if err != nil {
			t.Fatal(err)
		}
		id = jobID
		_, err = rep.Attach(deadline(t), tenant, jobID, early)
		wantCode(t, err, freeslot.CodeUnavailable)
		if _, err := other.Attach(deadline(t), tenant, jobID, second); err != nil {
			t.Fatal(err)
		}
		w, _ := rep.byCell[0].outstanding.Load(jobID)
		waittest.Until(t, "the takeover", func() bool {
			w.mu.Lock()
			defer w.mu.Unlock()
			return w.earlyDetach
		})
		first.want(jobID, "")
	})
	first.want(id, "assigned detached")
	if n := rep.Outstanding(); n != 0 {
		t.Errorf("%d outstanding", n)
	}
	a.complete(id, `1`)
	second.result(id)
	second.want(id, "result")
	early.want(id, "")
}

// Sessions of two replicas take jobs from each other while the jobs end. Every job has a result, at
// one of the sessions that attached or in the status that Attach returned.
func TestAttachRaces(t *testing.T) {
	t.Parallel()
	const jobs, sessions = 20, 3
	r := newRig(t, redistest.Shared(t))
	a := r.agent(node("n1", jobs))
	replicas := []*replica{r.replica("r1", quick), r.replica("r2", quick)}
	first := newRecorder(t)
	for i := range jobs {
		id := replicas[i%2].mustPlace(job(), first)
		sinks := make([]*recorder, 2*sessions)
		ended := make([]bool, len(sinks))
		var all sync.WaitGroup
		for j := range sinks {
			sinks[j] = newRecorder(t)
			all.Go(func() {
				s, err := replicas[j%2].Attach(deadline(t), tenant, id, sinks[j])
				if err != nil {
					t.Errorf("attach: %v", err)
				}
				ended[j] = s.State.Terminal()
			})
			if j == len(sinks)/2 {
				all.Go(func() { a.complete(id, `1`) })
			}
		}
		all.Wait()
		waittest.Until(t, "nothing outstanding", func() bool {
			return replicas[0].Outstanding() == 0 && replicas[1].Outstanding() == 0
		})
		got := ""
		for j, sink := range sinks {
			story := sink.kinds(id)
			got += fmt.Sprintf(" %s/%v", story, ended[j])
			switch {
			case story == "result" && !ended[j], story == "detached" && !ended[j], story == "" && ended[j]:
			default:
				t.Errorf("session %d: %q, and the status was terminal: %v", j, story, ended[j])
			}
		}
		switch story := first.kinds(id); story {
		case "assigned result", "assigned detached":
		default:
			t.Errorf("first: %q; the others%s", story, got)
		}
	}
	for _, rep := range replicas {
		if _, err := rep.Jobs(context.Background(), cell.JobFilter{}, "", 1); err != nil {
			t.Error(err)
		}
	}
}

// TestAttachToAnEditedRecord: an operator edited the record's owner, so that it names no cell's
// replica.
func TestAttachToAnEditedRecord(t *testing.T) {
	t.Parallel()
	r := newRig(t, redistest.Shared(t))
	a := r.agent(node("n1", 1))
	rep := r.replica("r1")
	id := rep.mustPlace(job(), nil)
	r.do("HSET", r.layout.Job(id), "known", cell.MovedID(id, cell.MaxCells-1))
	sink := newRecorder(t)
	if s, err := rep.Attach(deadline(t), tenant, id, sink); err != nil || s.ID != id {
		t.Fatalf("%+v, %v; want no error, s.ID == %v", s, err, id)
	}
	a.complete(id, `"done"`)
	sink.result(id)
}
