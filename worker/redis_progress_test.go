package worker

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/testing/redistest"
	"github.com/freeslot/freeslot/internal/testing/waittest"
)

// A handler that hangs is stopped, its failure counts, and the next attempt does the job. The
// progress of the first stays until the second reports some.
func TestRedisStalledHandler(t *testing.T) {
	t.Parallel()
	redis := redistest.Shared(t)
	prefix := redis.Prefix(t)
	causes, told := make(chan error, 1), make(chan struct{})
	hangs := func(ctx context.Context, job *Job) (any, error) {
		if job.Attempt > 1 {
			return job.Attempt, nil
		}
		if err := job.Progress(map[string]int{"done": 7}); err != nil {
			return nil, err
		}
		close(told)
		<-ctx.Done()
		causes <- context.Cause(ctx)
		return nil, ctx.Err()
	}
	for _, node := range []string{"node-1", "node-2"} {
		startRedisNode(t, redis, prefix, node, handle("hangs", hangs))
	}
	r := newReplica(t, redis, prefix)
	id := r.submit(freeslot.Job{Service: "hangs", ProgressTimeoutMS: 300})
	<-told
	if cause := <-causes; !errors.Is(cause, ErrStalled) {
		t.Errorf("cause %v", cause)
	}
	s := r.await(id)
	if s.State != freeslot.StateSucceeded || string(s.Result) != "2" || s.Failures != 1 {
		t.Errorf("%+v, expected the second attempt to succeed", s)
	}
	if p := s.Progress; p == nil || p.Attempt != 1 || p.Seq != 1 || string(p.Value) != `{"done":7}` {
		t.Errorf("progress %+v", p)
	}
}

// Redis hangs for longer than the heartbeat limit. Jobs that ask for it are stopped then (TestLeaseLoss
// shows: not sooner), and go on to their next attempts once Redis answers. Others go on and keep their result.
func TestRedisLeaseLoss(t *testing.T) {
	t.Parallel()
	redis := redistest.New(t)
	const prefix, limit = "lease", 1500 * time.Millisecond
	causes, begun := make(chan error, 1), make(chan struct{}, 2)
	release := make(chan struct{})
	w, logs := startRedisWorker(t, redis.Target, prefix, func(w *Worker) { w.cfg.HeartbeatLimit = limit },
		handle("heeds", func(ctx context.Context, job *Job) (any, error) {
			if job.Attempt > 1 {
				return job.Attempt, nil
			}
			begun <- struct{}{}
			<-ctx.Done()
			causes <- context.Cause(ctx)
			return nil, ctx.Err()
		}), handle("works", func(context.Context, *Job) (any, error) { begun <- struct{}{}; <-release; return "done", nil }))
	r := newReplica(t, redis.Target, prefix)
	heeds := r.submit(freeslot.Job{Service: "heeds", OnLeaseLoss: freeslot.LeaseLossCancel})
	works := r.submit(freeslot.Job{Service: "works"})
	<-begun
	<-begun
	if w.limit != limit {
		t.Fatalf("the limit is %s", w.limit)
	}
	redis.Pause()
	if cause := waittest.Receive(t, "the job to be stopped", causes); !errors.Is(cause, ErrLeaseLost) {
		t.Errorf("cause %v", cause)
	}
	logs.wait(t, "node.lease_lost")
	close(release)
	redis.Resume()
	if s := r.await(heeds); s.State != freeslot.StateSucceeded || string(s.Result) != "2" || s.Failures != 1 {
		t.Errorf("%+v, expected the second attempt to succeed after one failure", s)
	}
	if s := r.await(works); s.State != freeslot.StateSucceeded || s.Attempt != 1 || !strings.Contains(string(s.Result), "done") {
		t.Errorf("%+v, expected the first attempt to succeed", s)
	}
}
