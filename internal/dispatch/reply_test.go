package dispatch

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/cell"
	"github.com/freeslot/freeslot/internal/testing/redistest"
	"github.com/freeslot/freeslot/internal/testing/waittest"
)

func (r *rig) do(args ...string) int64 {
	r.t.Helper()
	n, err := r.client.Do(deadline(r.t), r.client.B().Arbitrary(args[0]).Keys(args[1]).Args(args[2:]...).Build()).AsInt64()
	if err != nil {
		r.t.Fatalf("%q: %v; want no error", args, err)
	}
	return n
}

// quick makes a replica that reads the records of its jobs at every tick.
func quick(c *replicaConfig) { c.dispatch.RecheckInterval = time.Millisecond }

func TestOutcomes(t *testing.T) {
	t.Parallel()
	redistest.Backends(t, func(t *testing.T, redis *redistest.Target) {
		t.Parallel()
		r := newRig(t, redis)
		a := r.agent(node("n1", 8))
		rep := r.replica("r1")
		sink := newRecorder(t)
		failure := &freeslot.JobError{Code: freeslot.JobErrorHandler, Message: "no luck"}

		failed := rep.mustPlace(job(), sink)
		a.end(cell.Completion{Attempt: cell.Attempt{Job: failed, N: 1}, State: freeslot.StateFailed, Error: failure})
		if s := sink.result(failed); s.State != freeslot.StateFailed || s.Error == nil || *s.Error != *failure || s.Result != nil {
			t.Errorf("%+v; want s.State == freeslot.StateFailed, s.Error != nil, *s.Error == *failure, s.Result == nil", s)
		}
		none := rep.mustPlace(job(), sink)
		a.end(cell.Completion{Attempt: cell.Attempt{Job: none, N: 1}, State: freeslot.StateSucceeded})
		if s := sink.result(none); string(s.Result) != "null" || s.Error != nil {
			t.Errorf(`%+v; want string(s.Result) == "null", s.Error == nil`, s)
		}
		lost := rep.mustPlace(&freeslot.Job{Service: "echo", MaxAttempts: 1}, sink)
		a.epoch = cell.NewEpoch()
		a.register()
		if s := sink.result(lost); s.State != freeslot.StateDead || s.Error.Code != freeslot.JobErrorNodeLost {
			t.Errorf("%+v; want s.State == freeslot.StateDead, s.Error.Code == freeslot.JobErrorNodeLost", s)
		}
		interrupted := rep.mustPlace(job(), sink)
		if _, err := r.cell.Deregister(deadline(t), "n1", a.epoch); err != nil {
			t.Fatal(err)
		}
		if s, err := rep.Job(deadline(t), tenant, interrupted); err != nil || s.State != freeslot.StateWaiting || s.Failures != 0 {
			t.Errorf("%+v, %v; want no error, s.State == freeslot.StateWaiting, s.Failures == 0", s, err)
		}
		if s, err := rep.Cancel(deadline(t), tenant, interrupted); err != nil || s.State != freeslot.StateCancelled {
			t.Errorf("%+v, %v; want no error, s.State == freeslot.StateCancelled", s, err)
		}
		if s := sink.result(interrupted); s.State != freeslot.StateCancelled {
			t.Errorf("%+v; want s.State == freeslot.StateCancelled", s)
		}
		for _, id := range []string{failed, none, lost, interrupted} {
			sink.want(id, "assigned result")
		}
	})
}

func TestCancel(t *testing.T) {
	t.Parallel()
	redistest.Backends(t, func(t *testing.T, redis *redistest.Target) {
		t.Parallel()
		r := newRig(t, redis)
		a := r.agent(node("n1", 8))
		rep := r.replica("r1")
		sink := newRecorder(t)
		id := rep.mustPlace(job(), sink)
		a.next()
		_, err := rep.Cancel(deadline(t), "another-tenant", id)
		wantCode(t, err, freeslot.CodeNotFound)
		for _, who := range []string{tenant, ""} { // again, by an operator
			s, err := rep.Cancel(deadline(t), who, id)
			if err != nil || s.State != freeslot.StateCancelling || s.ID != id {
				t.Errorf("%+v, %v; want no error, s.State == freeslot.StateCancelling, s.ID == %v", s, err, id)
			}
		}
		if d := a.next(); !d.Cancel || d.Attempt.Job != id {
			t.Errorf("dispatched %+v", d)
		}
		a.end(cell.Completion{Attempt: cell.Attempt{Job: id, N: 1}, State: freeslot.StateCancelled})
		if s := sink.result(id); s.State != freeslot.StateCancelled {
			t.Errorf("%+v; want s.State == freeslot.StateCancelled", s)
		}
		sink.want(id, "assigned result")
		s, err := rep.Cancel(deadline(t), tenant, id)
		if err != nil || s.State != freeslot.StateCancelled {
			t.Errorf("cancelled again: %+v, %v", s, err)
		}
		_, err = rep.Cancel(deadline(t), tenant, "nonsense")
		wantCode(t, err, freeslot.CodeInvalidArgument)
	})
}

// A result that is too large for the stream is read from the record. Results behind it do not wait
// for that.
func TestLargeResult(t *testing.T) {
	t.Parallel()
	redistest.Backends(t, func(t *testing.T, redis *redistest.Target) {
		t.Parallel()
		const jobs = 3 * fetchLimit
		r := newRig(t, redis)
		a := r.agent(node("n1", jobs))
		rep := r.replica("r1")
		sink := newRecorder(t)
		ids := make([]string, jobs)
		for i := range ids {
			ids[i] = rep.mustPlace(job(), sink)
		}
		want := func(i int) string {
			if i%2 == 0 {
				return fmt.Sprintf(`"%d %s"`, i, strings.Repeat("x", 100<<10))
			}
			return fmt.Sprint(i)
		}
		for i, id := range ids {
			a.complete(id, want(i))
		}
		for i, id := range ids {
			if s := sink.result(id); string(s.Result) != want(i) || s.Service != "echo" {
				t.Errorf("job %d has the result %.40s", i, s.Result)
			}
			sink.want(id, "assigned result")
		}
		waittest.Until(t, "nothing outstanding", func() bool { return rep.Outstanding() == 0 })
	})
}

// The reply stream is deleted while a job ends, so nothing is written then. The stream is reopened
// and all records are read.
func TestReplyStreamIsGone(t *testing.T) {
	t.Parallel()
	redistest.Backends(t, func(t *testing.T, redis *redistest.Target) {
		t.Parallel()
		r := newRig(t, redis)
		a := r.agent(node("n1", 8))
		rep := r.replica("r1", func(c *replicaConfig) { c.dispatch.RecheckInterval = time.Hour })
		sink := newRecorder(t)
		during, after := rep.mustPlace(job(), sink), rep.mustPlace(job(), sink)
		r.do("DEL", r.layout.Replies("r1"))
		a.complete(during, `"during"`)
		if s := sink.result(during); string(s.Result) != `"during"` {
			t.Errorf("%+v; want string(s.Result) == `\"during\"`", s)
		}
		if r.do("EXISTS", r.layout.Replies("r1")) != 1 {
			t.Error("the stream was not opened again")
		}
		a.complete(after, `"after"`)
		if s := sink.result(after); string(s.Result) != `"after"` {
			t.Errorf("%+v; want string(s.Result) == `\"after\"`", s)
		}
		sink.want(during, "assigned result")
		sink.want(after, "assigned result")
	})
}

// A reply is deleted before it is read. The record is read once the job has been outstanding for
// long.
func TestReplyIsLost(t *testing.T) {
	t.Parallel()
	r := newRig(t, redistest.Shared(t))
	a := r.agent(node("n1", 8))
	rep := r.replica("r1", quick)
	sink, stopper := newRecorder(t), newRecorder(t)
	id := rep.mustPlace(job(), sink)
	// The reader is held in the sink of another job, so that it cannot be first.
	hold, held := make(chan struct{}), make(chan struct{})
	block := rep.mustPlace(job(), stopper)
	var once sync.Once
	stopper.hold = func() { once.Do(func() { close(held); <-hold }) }
	a.complete(block, `1`)
	receive(t, "the reader in the sink", held)
	a.complete(id, `"found"`)
	entries, err := r.client.Do(deadline(t), r.client.B().Xrange().Key(r.layout.Replies("r1")).Start("-").End("+").Build()).AsXRange()
	if err != nil {
		t.Fatal(err)
	}
	deleted := int64(0)
	for _, e := range entries {
		if strings.HasPrefix(e.FieldValues["j"], id+" ") {
			deleted += r.do("XDEL", r.layout.Replies("r1"), e.ID)
		}
	}
	if deleted != 1 {
		t.Fatalf("deleted %d of %v", deleted, entries)
	}
	close(hold)
	if s := sink.result(id); string(s.Result) != `"found"` || s.Tenant != tenant {
		t.Errorf("%+v; want string(s.Result) == `\"found\"`, s.Tenant == %v", s, tenant)
	}
	sink.want(id, "assigned result")
	stopper.want(block, "assigned result")
}

// Redis lost the job: its sink gets an error instead of waiting.
func TestRecordIsGone(t *testing.T) {
	t.Parallel()
	redistest.Backends(t, func(t *testing.T, redis *redistest.Target) {
		t.Parallel()
		r := newRig(t, redis)
		r.agent(node("n1", 8))
		rep := r.replica("r1", quick)
		sink := newRecorder(t)
		id := rep.mustPlace(job(), sink)
		r.do("DEL", r.layout.Job(id))
		s := sink.result(id)
		if s.State != freeslot.StateFailed || s.Error == nil || s.Error.Code != freeslot.JobErrorLost || s.Tenant != tenant || s.Service != "echo" {
			t.Errorf(`%+v; want s.State == freeslot.StateFailed, s.Error != nil, s.Error.Code == freeslot.JobErrorLost, s.Tenant == %v, s.Service == "echo"`, s, tenant)
		}
		sink.want(id, "assigned result")
		waittest.Until(t, "nothing outstanding", func() bool { return rep.Outstanding() == 0 })
	})
}

// A job whose submit is under way has no record yet. It is not lost.
func TestJobBeingPlacedIsNotLost(t *testing.T) {
	t.Parallel()
	redis := redistest.New(t)
	r := newRig(t, redis.Target)
	a := r.agent(node("n1", 8))
	rep := r.unstarted("r1", quick)
	start(t, rep.cache)
	records := newRechecker(rep.byCell[0])
	sink := newRecorder(t)
	var id string
	rep.Submit(deadline(t), []Request{{Tenant: tenant, Job: job()}}, sink, func(_ int, a Accepted, err error) {
		jobID := a.JobID
		if err != nil {
			t.Fatal(err)
		}
		id = jobID
		r.do("HSET", r.layout.Job("elsewhere"), "x", "1")
		records.recheckOlder(0)
		records.recheckOlder(time.Nanosecond)
		sink.want(jobID, "")
	})
	sink.want(id, "assigned")
	a.complete(id, `1`)
	records.recheckOlder(0)
	sink.want(id, "assigned result")
}

// More jobs are outstanding for long than one recheck reads: each has its turn.
func TestRecheckIsFair(t *testing.T) {
	t.Parallel()
	const jobs = 2*cell.MaxPage + 200
	r := newRig(t, redistest.Shared(t))
	rep := r.unstarted("r1")
	start(t, rep.cache)
	records := newRechecker(rep.byCell[0])
	waiters := make([]*waiter, jobs)
	last := ""
	for i := range waiters {
		id := cell.NewJobID(0)
		waiters[i] = &waiter{sink: newRecorder(t), open: true, checkedAt: int64(i % 7)}
		rep.byCell[0].outstanding.Store(id, waiters[i])
		r.do("HSET", r.layout.Job(id), "state", "running", "job", tenant+` 1 0 1000 0123456789abcdef 0 3 0 {"service":"tts"}`, "run", "1 n1 e1 0")
		last = id
	}
	for range 3 {
		records.recheckOlder(time.Nanosecond)
	}
	for i, w := range waiters {
		if w.checkedAt < 7 {
			t.Fatalf("job %d was not read", i)
		}
	}
	if rep.Outstanding() != jobs {
		t.Errorf("%d outstanding", rep.Outstanding())
	}
	// Age 0 means all of them at once.
	before := rep.cache.Now()
	records.recheckOlder(0)
	for i, w := range waiters {
		if w.checkedAt < before {
			t.Fatalf("job %d was not read again", i)
		}
	}
	r.do("DEL", r.layout.Job(last))
	waittest.Until(t, "the one that is gone gets its error", func() bool {
		records.recheckOlder(0)
		return rep.Outstanding() == jobs-1
	})
}

// A job that waits for its next attempt has no node, and no attempt without a node is reported.
func TestRecheckOfAJobThatWaitsAgain(t *testing.T) {
	t.Parallel()
	r := newRig(t, redistest.Shared(t))
	rep := r.unstarted("r1")
	start(t, rep.cache)
	records := newRechecker(rep.byCell[0])
	sink := newRecorder(t)
	waits, runs := cell.NewJobID(0), cell.NewJobID(0)
	for id, state := range map[string]string{waits: "waiting", runs: "running"} {
		rep.byCell[0].outstanding.Store(id, &waiter{sink: sink, open: true})
		r.do("HSET", r.layout.Job(id), "state", state, "job", tenant+` 1 0 1000 0123456789abcdef 0 3 0 {"service":"tts"}`, "run", "1 n1 e1 7")
	}
	records.recheckOlder(0)
	sink.want(waits, "")
	sink.want(runs, "assigned")
}

// Redis is away. A recheck ends with the first read that fails, asks for less the next time, and
// returns to full pages soon after Redis is back.
func TestRecheckWhileRedisIsAway(t *testing.T) {
	t.Parallel()
	const jobs = 2 * cell.MaxPage
	redis := redistest.New(t)
	r := newRig(t, redis.Target)
	rep := r.unstarted("r1", func(c *replicaConfig) {
		c.cell = func(cc *cell.Config) { cc.CallTimeout = 200 * time.Millisecond }
	})
	start(t, rep.cache)
	records := newRechecker(rep.byCell[0])
	for range jobs {
		rep.byCell[0].outstanding.Store(cell.NewJobID(0), &waiter{sink: newRecorder(t), open: true})
	}
	redis.Pause()
	for want := cell.MaxPage / 2; want > 1; want /= 2 {
		records.recheckOlder(0)
		if records.page != want {
			t.Errorf("page is %d, want %d", records.page, want)
		}
	}
	if rep.Outstanding() != jobs {
		t.Errorf("%d outstanding", rep.Outstanding())
	}
	redis.Resume()
	waittest.Until(t, "all are read", func() bool {
		records.recheckOlder(0)
		return rep.Outstanding() == 0 // they were never there
	})
	if records.page != cell.MaxPage {
		t.Errorf("page is %d", records.page)
	}
}

// The connections break again and again while jobs come and go. Every result arrives once.
func TestResultsWhileConnectionsBreak(t *testing.T) {
	t.Parallel()
	const jobs = 60
	redis := redistest.Shared(t)
	r := newRig(t, redis)
	r.agent(node("n1", 4)).serve(func(d cell.Dispatch) string { return string(d.Job.Payload) })
	p := newProxy(t, redis)
	rep := r.replica("r1", quick, func(c *replicaConfig) { c.url = p.url() })
	sink := newRecorder(t)
	for i := range jobs {
		switch i % 6 {
		case 0:
			p.cutOn("XREAD", unanswered, 1) // the reader: what it was about to get is read again
		case 3:
			p.cutOn("EVALSHA", []verdict{lost, unanswered}[i/6%2], 1)
		}
		payload := fmt.Sprintf(`"%d"`, i)
		var id string
		waittest.Until(t, "a place", func() bool {
			var err error
			id, err = rep.place(&freeslot.Job{Service: "echo", Payload: json.RawMessage(payload)}, sink)
			if err != nil && freeslot.CodeOf(err) != freeslot.CodeOverloaded {
				t.Fatal(err)
			}
			return err == nil
		})
		if s := sink.result(id); string(s.Result) != payload {
			t.Errorf("job %d has the result %s", i, s.Result)
		}
		sink.want(id, "assigned result")
	}
	if n := p.cuts.Load(); n < jobs/6 {
		t.Errorf("only %d connections were cut", n)
	}
	waittest.Until(t, "nothing outstanding", func() bool { return rep.Outstanding() == 0 })
	if _, used := r.owned("n1"); used != 0 {
		t.Errorf("%d slots in use", used)
	}
}

func TestForget(t *testing.T) {
	t.Parallel()
	r := newRig(t, redistest.Shared(t))
	a := r.agent(node("n1", 8))
	rep := r.replica("r1")
	left, stays := newRecorder(t), newRecorder(t)
	gone1, gone2, kept := rep.mustPlace(job(), left), rep.mustPlace(job(), left), rep.mustPlace(job(), stays)
	rep.Forget(left)
	if n := rep.Outstanding(); n != 1 {
		t.Errorf("%d outstanding", n)
	}
	rep.Forget(left) // again, by a sink that awaits nothing
	for _, id := range []string{gone1, gone2, kept} {
		a.complete(id, `1`)
	}
	stays.result(kept) // the others were before it
	left.want(gone1, "assigned")
	left.want(gone2, "assigned")
	stays.want(kept, "assigned result")
	if s, err := rep.Job(deadline(t), tenant, gone1); err != nil || s.State != freeslot.StateSucceeded {
		t.Errorf("%+v, %v; want no error, s.State == freeslot.StateSucceeded", s, err)
	}
}

func TestStop(t *testing.T) {
	t.Parallel()
	t.Run("never started", func(t *testing.T) {
		t.Parallel()
		r := newRig(t, redistest.Shared(t))
		// Another replica of this name, by mistake or not, keeps its stream.
		if err := r.cell.OpenReplies(deadline(t), "r1"); err != nil {
			t.Fatal(err)
		}
		rep := r.unstarted("r1")
		stop(t, rep)
		stop(t, rep)
		if r.do("EXISTS", r.layout.Replies("r1")) != 1 {
			t.Error("the stream was deleted")
		}
		if err := rep.Start(deadline(t)); err != nil {
			t.Error(err)
		}
		stop(t, rep)
	})
	t.Run("with work under way", func(t *testing.T) {
		t.Parallel()
		r := newRig(t, redistest.Shared(t))
		a := r.agent(node("n1", 8))
		rep, other := r.replica("r1"), r.replica("r2")
		sink := newRecorder(t)
		id := rep.mustPlace(job(), sink)
		stop(t, rep)
		if r.do("EXISTS", r.layout.Replies("r1")) != 0 {
			t.Error("the stream is still there")
		}
		_, err := rep.place(job(), sink)
		if e := asError(t, err, freeslot.CodeUnavailable); !strings.Contains(e.Message, "stopping") || e.RetryAfter <= 0 {
			t.Errorf(`%+v; want strings.Contains(e.Message, "stopping"), e.RetryAfter > 0`, e)
		}
		if jobs, _ := r.owned("n1"); len(jobs) != 1 {
			t.Errorf("n1 owns %v", jobs)
		}
		later := newRecorder(t)
		if s, err := other.Attach(deadline(t), tenant, id, later); err != nil || s.State != freeslot.StateRunning {
			t.Errorf("%+v, %v; want no error, s.State == freeslot.StateRunning", s, err)
		}
		a.complete(id, `1`)
		later.result(id)
		sink.want(id, "assigned")
		if r.do("EXISTS", r.layout.Replies("r1")) != 0 {
			t.Error("the stream is back")
		}
	})
	t.Run("together with submits", func(t *testing.T) {
		t.Parallel()
		r := newRig(t, redistest.Shared(t))
		r.agent(node("n1", 1000)).serve(func(cell.Dispatch) string { return "1" })
		rep := r.replica("r1")
		stopped := make(chan struct{})
		var answers atomic.Int64
		first := make(chan struct{}, 1)
		go func() {
			defer close(stopped)
			<-first
			stop(t, rep)
		}()
		for i := 0; ; i++ {
			rep.Submit(deadline(t), []Request{{Tenant: tenant, Job: job()}}, newRecorder(t), func(_ int, _ Accepted, err error) {
				answers.Add(1)
				if err != nil && freeslot.CodeOf(err) != freeslot.CodeUnavailable {
					t.Errorf("submit: %v", err)
				}
			})
			if answers.Load() != int64(i+1) {
				t.Fatalf("%d answers for %d submits", answers.Load(), i+1)
			}
			if i == 10 {
				first <- struct{}{}
			}
			select {
			case <-stopped:
				rep.settled()
				return
			default:
			}
		}
	})
	t.Run("while Redis hangs", func(t *testing.T) {
		t.Parallel()
		redis := redistest.New(t)
		r := newRig(t, redis.Target)
		rep := r.unstarted("r1")
		start(t, rep.cache)
		if err := rep.Start(deadline(t)); err != nil {
			t.Fatal(err)
		}
		redis.Pause()
		defer redis.Resume()
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		if err := rep.Stop(ctx); err == nil {
			t.Error("the stream was deleted by a server that hangs")
		}
	})
}

func TestStartFails(t *testing.T) {
	t.Parallel()
	redis := redistest.New(t)
	r := newRig(t, redis.Target)
	rep := r.unstarted("r1", func(c *replicaConfig) {
		c.cell = func(cc *cell.Config) { cc.CallTimeout = 50 * time.Millisecond }
	})
	redis.Pause()
	defer redis.Resume()
	for range 2 {
		if err := rep.Start(context.Background()); err == nil {
			t.Error("started without a reply stream")
		}
	}
	stop(t, rep)
}

// If a client gets only the kind of an error, the log has the cause. Mistakes of clients are not logged.
func TestFailuresAreLogged(t *testing.T) {
	t.Parallel()
	core, logs := observer.New(zapcore.WarnLevel)
	redis := redistest.New(t)
	r := newRig(t, redis.Target)
	r.agent(node("n1", 8))
	acl := func(args ...string) {
		t.Helper()
		if err := r.client.Do(deadline(t), r.client.B().Arbitrary("ACL", "SETUSER", "refused").Args(args...).Build()).Error(); err != nil {
			t.Fatal(err)
		}
	}
	acl("on", ">secret", "allkeys", "allchannels", "+@all")
	rep := r.replica("r1", func(c *replicaConfig) {
		c.url = "redis://refused:secret@" + redis.Addrs()[0]
		c.log = zap.New(core)
		c.dispatch.SubmitTimeout = 100 * time.Millisecond
	})
	_, err := rep.Job(deadline(t), tenant, cell.NewJobID(0))
	wantCode(t, err, freeslot.CodeNotFound)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = rep.Job(ctx, tenant, cell.NewJobID(0))
	wantCode(t, err, freeslot.CodeUnavailable)
	if n := logs.FilterMessage("redis.call_failed").Len(); n != 0 {
		t.Errorf("logged: %v", logs.All())
	}
	acl("-@scripting")
	_, err = rep.place(job(), newRecorder(t))
	if e := asError(t, err, freeslot.CodeUnavailable); !strings.HasSuffix(e.Message, "Redis refuses it: NOPERM (its user lacks a right)") {
		t.Errorf(`%+v; want strings.HasSuffix(e.Message, "Redis refuses it: NOPERM (its user lacks a right)")`, e)
	}
	found := logs.FilterMessage("redis.call_failed").All()
	if len(found) == 0 || !strings.Contains(fmt.Sprint(found[0].ContextMap()["error"]), "NOPERM") {
		t.Errorf("logged: %v", found)
	}
}

// Two processes must not run under one replica id: the second does not start. What a crash has left
// behind prevents no start.
func TestReplicaIDIsTaken(t *testing.T) {
	t.Parallel()
	redistest.Backends(t, func(t *testing.T, redis *redistest.Target) {
		t.Parallel()
		r := newCells(t, 2, redis)
		first := r.replica("same")
		second := r.unstarted("same")
		start(t, second.cache)
		if err := second.Dispatcher.Start(deadline(t)); !errors.Is(err, ErrReplicaRuns) || !strings.Contains(err.Error(), "replica_id is same") {
			t.Errorf(`%v; want errors.Is(err, ErrReplicaRuns), strings.Contains(err.Error(), "replica_id is same")`, err)
		}
		// The first one goes on undisturbed.
		a := r.agent(node("n1", 1))
		waittest.Until(t, "the node", func() bool { return first.cache.Size() == 1 })
		sink := newRecorder(t)
		id := first.mustPlace(job(), sink)
		a.complete(id, `1`)
		_ = sink.result(id)

		for _, c := range r.set.All() {
			if err := c.OpenReplies(deadline(t), "crashed"); err != nil {
				t.Fatal(err)
			}
		}
		r.replica("crashed")
	})
}
