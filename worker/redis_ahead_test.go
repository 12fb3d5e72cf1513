package worker

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/freeslot/freeslot/internal/cell"
	"github.com/freeslot/freeslot/internal/redistest"
)

// counted is the real cell; it notes what completions ask for ahead.
type counted struct {
	store
	asked *atomic.Int64
}

func (c *counted) Complete(ctx context.Context, comp cell.Completion) (cell.CompletionOutcome, error) {
	if comp.Ahead > 0 {
		c.asked.Add(1)
	}
	return c.store.Complete(ctx, comp)
}

// wrap puts something between a worker and its cell.
func wrap(around func(store) store) func(*Worker) {
	return func(w *Worker) {
		open := w.open
		w.open = func(ctx context.Context) (store, func(context.Context) error, error) {
			s, end, err := open(ctx)
			if err != nil {
				return nil, nil, err
			}
			return around(s), end, nil
		}
	}
}

// TestRedisJobsAhead: with a backlog of short jobs the node asks for jobs ahead, never runs
// more than it has slots, and ends every job once.
func TestRedisJobsAhead(t *testing.T) {
	t.Parallel()
	redis := redistest.Shared(t)
	prefix := redis.Prefix(t)
	r := newReplica(t, redis, prefix)
	const jobs, slots = 300, 4 // as startRedisWorker has it
	var running, most, asked atomic.Int64
	runs := make(chan string, 2*jobs)
	startRedisWorker(t, redis, prefix, wrap(func(s store) store { return &counted{s, &asked} }), func(w *Worker) {
		w.Handle("nap", func(_ context.Context, job *Job) (any, error) {
			if now := running.Add(1); now > most.Load() {
				most.Store(now)
			}
			time.Sleep(2 * time.Millisecond) // the work
			running.Add(-1)
			runs <- job.ID
			return nil, nil
		})
	})
	r.nodes = []string{"node-1"}
	r.eachRunsOnce(r.wait("nap", jobs), runs, r.match)
	if asked.Load() == 0 || most.Load() > slots {
		t.Errorf("%d completions asked for jobs ahead, %d handlers ran at once", asked.Load(), most.Load())
	}
}
