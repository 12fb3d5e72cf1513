package worker

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/cell"
	"github.com/freeslot/freeslot/internal/testing/redistest"
	"github.com/freeslot/freeslot/internal/testing/waittest"
)

func TestRedisRetry(t *testing.T) {
	t.Parallel()
	redis := redistest.Shared(t)
	prefix := redis.Prefix(t)
	busy := &freeslot.JobError{Code: "busy", Message: "try later"}
	for _, node := range []string{"node-1", "node-2"} { // after a failure another node goes first
		startRedisNode(t, redis, prefix, node, handle("third", func(_ context.Context, job *Job) (any, error) {
			if job.Attempt < 3 {
				return nil, RetryAfter(busy, 10*time.Millisecond)
			}
			return job.Attempt, nil
		}), handle("never", returns(nil, RetryAfter(busy, 0))), handle("random", func(_ context.Context, job *Job) (any, error) {
			if job.Attempt < 2 {
				return nil, Retryable(busy)
			}
			return job.Attempt, nil
		}))
	}
	r := newReplica(t, redis, prefix)
	if s := r.end(r.submit(freeslot.Job{Service: "third"})); s.State != freeslot.StateSucceeded || string(s.Result) != "3" || s.Attempt != 3 || s.Failures != 2 {
		t.Errorf("%+v, expected success at the third attempt", s)
	}
	if s := r.end(r.submit(freeslot.Job{Service: "never", MaxAttempts: 2})); s.State != freeslot.StateDead || s.Error == nil || *s.Error != *busy || s.Failures != 2 {
		t.Errorf("%+v, expected dead after two attempts", s)
	}
	if s := r.end(r.submit(freeslot.Job{Service: "random"})); s.State != freeslot.StateSucceeded || s.Attempt != 2 || s.Failures != 1 {
		t.Errorf("%+v, expected success at the second attempt", s)
	}
}

// A node stops. Another node does the jobs that its handlers leave undone, and that is no failure.
func TestRedisStopHandsJobsBack(t *testing.T) {
	t.Parallel()
	redis := redistest.Shared(t)
	prefix := redis.Prefix(t)
	begun, stuck := make(chan struct{}, 3), make(chan struct{})
	leaving, _ := startRedisWorker(t, redis, prefix, func(w *Worker) { w.cfg.InterruptGrace = 200 * time.Millisecond },
		handle("heeds", func(ctx context.Context, job *Job) (any, error) { begun <- struct{}{}; return untilCancelled(ctx, job) }),
		handle("saves", func(ctx context.Context, _ *Job) (any, error) { begun <- struct{}{}; <-ctx.Done(); return "saved", nil }),
		handle("stuck", func(context.Context, *Job) (any, error) { begun <- struct{}{}; <-stuck; return nil, nil }))
	t.Cleanup(func() { close(stuck) })
	r := newReplica(t, redis, prefix)
	heeds, saves, stays := r.submit(freeslot.Job{Service: "heeds"}), r.submit(freeslot.Job{Service: "saves"}), r.submit(freeslot.Job{Service: "stuck"})
	for range 3 {
		<-begun
	}
	attempt := func(_ context.Context, job *Job) (any, error) { return job.Attempt, nil }
	startRedisNode(t, redis, prefix, "node-2", handle("heeds", attempt), handle("saves", attempt), handle("stuck", attempt))
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	if err := leaving.Stop(ended); err == nil {
		t.Error("there is no error about the handler that did not return")
	}
	if s := r.end(saves); s.State != freeslot.StateSucceeded || string(s.Result) != `"saved"` || s.Attempt != 1 || s.Node != "node-1" {
		t.Errorf("%+v, expected the result of the first attempt", s)
	}
	for _, job := range []string{heeds, stays} {
		if s := r.await(job); s.State != freeslot.StateSucceeded || string(s.Result) != "2" || s.Node != "node-2" || s.Failures != 0 {
			t.Errorf("%+v, expected the second attempt to succeed on the other node", s)
		}
	}
}

// await is for jobs whose replies an earlier call of end has read.
func (r *replica) await(jobID string) freeslot.JobStatus {
	r.t.Helper()
	var status freeslot.JobStatus
	waittest.Until(r.t, "the end of job "+jobID, func() bool {
		var err error
		if status, err = r.cell.Job(r.t.Context(), "", jobID); err == nil && status.State.Terminal() {
			return true
		}
		r.match()
		return false
	}, func() any { return status })
	return status
}

// cut is the real cell behind a network that can be away.
type cut struct {
	store
	away atomic.Bool
}

func (c *cut) Heartbeat(ctx context.Context, hb cell.Heartbeat) (cell.HeartbeatReply, error) {
	if c.away.Load() {
		return cell.HeartbeatReply{}, errRedisAway
	}
	return c.store.Heartbeat(ctx, hb)
}

func (c *cut) Complete(ctx context.Context, comp cell.Completion) (cell.CompletionOutcome, error) {
	if c.away.Load() {
		return "", errRedisAway
	}
	return c.store.Complete(ctx, comp)
}

// A node cannot reach Redis and is reaped. Its jobs are done elsewhere by the time it is back, and
// the results of its old handlers do not count.
func TestRedisReapedWhileCutOff(t *testing.T) {
	t.Parallel()
	redis := redistest.Shared(t)
	prefix := redis.Prefix(t)
	begun, causes, release := make(chan struct{}, 2), make(chan error, 1), make(chan struct{})
	net := &cut{}
	w, logs := startRedisWorker(t, redis, prefix, func(w *Worker) {
		open := w.open
		w.open = func(ctx context.Context) (store, func(context.Context) error, error) {
			s, done, err := open(ctx)
			net.store = s
			return net, done, err
		}
	}, handle("heeds", func(ctx context.Context, _ *Job) (any, error) {
		begun <- struct{}{}
		<-ctx.Done()
		causes <- context.Cause(ctx)
		return nil, ctx.Err()
	}), handle("ends", func(context.Context, *Job) (any, error) { begun <- struct{}{}; <-release; return "late", nil }), handle("echo", echo))
	logs.wait(t, "node.registered")
	r := newReplicaWith(t, redis, cell.Config{Layout: cell.Layout{Prefix: prefix}, CallTimeout: patience, HeartbeatLimit: time.Second})
	heeds, ends := r.submit(freeslot.Job{Service: "heeds"}), r.submit(freeslot.Job{Service: "ends"})
	<-begun
	<-begun
	net.away.Store(true)
	close(release) // this end is reported when the node is back
	for reaped := false; !reaped; {
		got, err := r.cell.Reap(t.Context(), "node-1", w.epoch)
		if err != nil {
			t.Fatal(err)
		}
		reaped = got.Gone
	}
	attempt := func(_ context.Context, job *Job) (any, error) { return job.Attempt, nil }
	startRedisNode(t, redis, prefix, "node-2", handle("heeds", attempt), handle("ends", attempt))
	for _, job := range []string{heeds, ends} {
		if s := r.await(job); s.State != freeslot.StateSucceeded || string(s.Result) != "2" || s.Node != "node-2" || s.Failures != 1 {
			t.Errorf("%+v, expected the second attempt to succeed on the other node", s)
		}
	}
	net.away.Store(false)
	logs.wait(t, "node.registered")
	if cause := <-causes; !errors.Is(cause, ErrNotOwned) {
		t.Errorf("cause %v", cause)
	}
	if s := r.await(r.submit(freeslot.Job{Service: "echo"})); s.State != freeslot.StateSucceeded || s.Node != "node-1" {
		t.Errorf(`%+v; want s.State == freeslot.StateSucceeded, s.Node == "node-1"`, s)
	}
	if s := r.await(ends); string(s.Result) != "2" {
		t.Errorf("%+v, expected the late result to be dropped", s)
	}
	if err := errors.Join(w.Err(), w.Stop(context.Background())); err != nil {
		t.Error(err)
	}
	stale, dropped := w.metrics.jobs.WithLabelValues("ends", outcomeStale), w.metrics.jobs.WithLabelValues("heeds", outcomeDropped)
	if testutil.ToFloat64(stale) != 1 || testutil.ToFloat64(dropped) != 1 {
		t.Errorf("%v stale, %v dropped, expected one of each", testutil.ToFloat64(stale), testutil.ToFloat64(dropped))
	}
}
