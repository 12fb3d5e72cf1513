package dispatch

import (
	"bytes"
	"context"
	"math"
	"sync/atomic"
	"testing"
	"time"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/testing/redistest"
	"github.com/freeslot/freeslot/internal/testing/waittest"
)

func keyed(trace string) *freeslot.Job {
	j := job()
	j.IdempotencyKey, j.TraceParent = "k", trace
	return j
}

// The answer to a submit is lost. The client submits once more under the key, while the first
// submit is undecided at the same replica. Both are accepted as one job, and no session gets
// Detached.
func TestKeyAfterLostAnswer(t *testing.T) {
	t.Parallel()
	redis := redistest.Shared(t)
	r := newRig(t, redis)
	a := r.agent(node("n1", 2))
	p := newProxy(t, redis)
	rep := r.replica("r1", func(c *replicaConfig) { c.url = p.url() })
	const one, two = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01", "00-5bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
	if _, err := rep.submitOne(t, &freeslot.Job{Service: "echo", IdempotencyKey: "warm"}, nil); err != nil { // Redis knows the script
		t.Fatal(err)
	}
	warm := a.next()
	var seen atomic.Int64
	unanswered1 := make(chan struct{})
	f := func(request []byte) verdict {
		if bytes.Contains(request, []byte(one)) {
			switch n := seen.Add(1); {
			case n == 1:
				close(unanswered1)
				return unanswered
			case n < 6: // Redis is hard to reach for a moment
				return lost
			}
		}
		return pass
	}
	p.cut.Store(&f)
	sink, first := newRecorder(t), make(chan Accepted, 1)
	go func() {
		rep.Submit(deadline(t), []Request{{Tenant: tenant, Job: keyed(one)}}, sink, func(_ int, got Accepted, err error) {
			if err != nil {
				t.Error(err)
			}
			first <- got
		})
	}()
	<-unanswered1
	var again Accepted
	waittest.Until(t, "accepted again", func() bool {
		var err error
		again, err = rep.submitOne(t, keyed(two), sink)
		return err == nil
	})
	if got := receive(t, "the first", first); got.JobID != again.JobID {
		t.Errorf("%s and %s", got.JobID, again.JobID)
	}
	a.complete(warm.Attempt.Job, `0`)
	a.complete(again.JobID, `1`)
	sink.result(again.JobID)
	for _, what := range sink.of(again.JobID) {
		if _, is := what.(gone); is {
			t.Errorf("it got %q, want no detached", sink.kinds(again.JobID))
		}
	}
}

// TestKeyWithoutAttach: the job of a key cannot be attached to for as long as a submit may take.
// Its result still comes to the last session that submitted it. An earlier session keeps it only at
// another replica: at the same one it may be a dead connection.
func TestKeyWithoutAttach(t *testing.T) {
	t.Parallel()
	t.Run("at another replica", func(t *testing.T) { t.Parallel(); keyWithoutAttach(t, false) })
	t.Run("at the same", func(t *testing.T) { t.Parallel(); keyWithoutAttach(t, true) })
}

func keyWithoutAttach(t *testing.T, same bool) {
	redis := redistest.Shared(t)
	r := newRig(t, redis)
	a := r.agent(node("n1", 2))
	p := newProxy(t, redis)
	x := r.replica("x", func(c *replicaConfig) {
		c.url, c.dispatch.RecheckInterval, c.dispatch.SubmitTimeout = p.url(), 100*time.Millisecond, 500*time.Millisecond
	})
	y := x
	if !same {
		y = r.replica("y")
	}
	first, second := newRecorder(t), newRecorder(t)
	got, err := y.submitOne(t, keyed(""), first)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := x.submitOne(t, &freeslot.Job{Service: "echo", IdempotencyKey: "other"}, nil); err != nil { // the scripts are known
		t.Fatal(err)
	}
	if _, err := x.Attach(deadline(t), tenant, x.mustWait(job(), 1, nil), newRecorder(t)); err != nil {
		t.Fatal(err)
	}
	p.cutOn(tenant+"\r\n$1\r\nx\r\n$", lost, math.MaxInt64) // each attach
	var b Accepted
	waittest.Until(t, "accepted", func() bool {
		b, err = x.submitOne(t, keyed(""), second)
		return err == nil
	})
	if b.JobID != got.JobID {
		t.Fatalf("%s and %s", b.JobID, got.JobID)
	}
	a.complete(got.JobID, `1`)
	waiting := []*recorder{second, first}
	if same {
		waiting = waiting[:1]
		waittest.Until(t, "one of them hears more", func() bool { return first.kinds(got.JobID)+second.kinds(got.JobID) != "assigned" })
		first.want(got.JobID, "assigned detached")
	}
	for _, sink := range waiting {
		if s := sink.result(got.JobID); string(s.Result) != `1` {
			t.Errorf("%+v; want string(s.Result) == `1`", s)
		}
	}
}

// leaver is a sink with a life of its own.
type leaver struct {
	*recorder
	life context.Context
}

func (l *leaver) Life() context.Context { return l.life }

// TestKeyOfCancelledSubmit: a program gives up its submit under a key when it is accepted already.
// The result comes to its sink for as long as that lives.
func TestKeyOfCancelledSubmit(t *testing.T) {
	t.Parallel()
	r := newRig(t, redistest.Shared(t))
	a := r.agent(node("n1", 1))
	first, second := r.replica("r1"), r.replica("r2")
	got, err := first.submitOne(t, keyed(""), newRecorder(t))
	if err != nil {
		t.Fatal(err)
	}
	sink := &leaver{recorder: newRecorder(t), life: t.Context()}
	ctx, cancel := context.WithCancel(deadline(t))
	second.Submit(ctx, []Request{{Tenant: tenant, Job: keyed("")}}, sink, func(_ int, b Accepted, err error) {
		if err != nil || b.JobID != got.JobID {
			t.Errorf("%+v, %v; want no error, b.JobID == %v", b, err, got.JobID)
		}
		cancel()
	})
	a.complete(got.JobID, `1`)
	if s := sink.result(got.JobID); string(s.Result) != `1` {
		t.Errorf("%+v; want string(s.Result) == `1`", s)
	}
}

// A missing record proves nothing more: the job's end may lie unread in the stream.
func TestEndBesideLostRecord(t *testing.T) {
	t.Parallel()
	r := newRig(t, redistest.Shared(t))
	a := r.agent(node("n1", 8))
	rep := r.replica("r1", func(c *replicaConfig) { c.dispatch.RecheckInterval = time.Hour })
	blocker, sink := newRecorder(t), newRecorder(t)
	stands, goOn := make(chan struct{}), make(chan struct{})
	first, id := rep.mustPlace(job(), blocker), rep.mustPlace(job(), sink)
	blocker.hold = func() { close(stands); <-goOn }
	a.complete(first, `1`)
	<-stands // it reads the stream
	a.complete(id, `"done"`)
	r.do("DEL", r.layout.Job(id))
	if !newRechecker(rep.byCell[0]).recheck([]string{id}) {
		t.Fatal("the recheck failed")
	}
	close(goOn)
	if got := sink.result(id); got.State != freeslot.StateSucceeded {
		t.Errorf("%+v %+v, and the stream has its result", got, got.Error)
	}
}
