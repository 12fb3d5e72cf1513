package worker

import (
	"context"
	"errors"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/cell"
	"github.com/freeslot/freeslot/internal/testing/redistest"
)

var errAnswerLost = errors.New("the answer was lost")

// wrap wraps the cell of a worker.
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

// TestHandedOver: a job that comes with the answer to a report begins at once, without an entry of
// the stream.
func TestHandedOver(t *testing.T) {
	var began []time.Duration
	begin := time.Now()
	bubbleWith(t, nil, func(t *testing.T, _ *Worker, f *fakeCell) {
		begin = time.Now()
		f.with(func() {
			f.next = []cell.Dispatch{{Attempt: id(2), Job: &freeslot.Job{Service: "s"}}, {Attempt: id(3), Job: &freeslot.Job{Service: "s"}}}
		})
		f.assign(1, freeslot.Job{Service: "s"})
		if comp := f.end(t, id(3)); comp.State != freeslot.StateSucceeded {
			t.Errorf("%+v; want comp.State == freeslot.StateSucceeded", comp)
		}
	}, handle("s", func(context.Context, *Job) (any, error) { began = append(began, time.Since(begin)); return nil, nil }))
	if len(began) != 3 || began[2] != 0 {
		t.Errorf("jobs began after %v", began)
	}
}

// lateStore carries out a worker's first report only after the heartbeat that follows the lost
// answer. With stale the repeated report finds that the node does not own the attempt, as when the
// job is elsewhere by then.
type lateStore struct {
	store
	f     *fakeCell
	stale bool
	mu    sync.Mutex // guards the rest
	first *cell.Completion
	calls int
}

func (l *lateStore) Complete(ctx context.Context, comp cell.Completion) (cell.CompletionOutcome, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.calls++; l.calls > 1 {
		return l.store.Complete(ctx, comp)
	}
	comp.Begun = nil
	l.first = &comp
	return "", errAnswerLost
}

func (l *lateStore) Heartbeat(ctx context.Context, hb cell.Heartbeat) (cell.HeartbeatReply, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	reply, err := l.store.Heartbeat(ctx, hb)
	if l.first != nil {
		_, _ = l.store.Complete(ctx, *l.first)
		if l.stale {
			l.f.with(func() { delete(l.f.ended, l.first.Attempt) })
		}
		l.first = nil
	}
	return reply, err
}

// TestHandedOverByAnAnswerThatIsLost: when the repeated report is answered the worker asks for the
// missing job at once, and does not wait for the next heartbeat.
func TestHandedOverByAnAnswerThatIsLost(t *testing.T) {
	for _, stale := range []bool{false, true} {
		t.Run("stale="+strconv.FormatBool(stale), func(t *testing.T) {
			runs, late := map[string]int{}, &lateStore{stale: stale}
			bubbleWith(t, func(c *Config) { c.HeartbeatInterval = time.Hour }, func(t *testing.T, _ *Worker, f *fakeCell) {
				begin := time.Now()
				late.f = f
				f.with(func() { f.next = []cell.Dispatch{{Attempt: id(2), Job: &freeslot.Job{Service: "s"}}} })
				f.assign(1, freeslot.Job{Service: "s"})
				if comp := f.end(t, id(2)); comp.State != freeslot.StateSucceeded {
					t.Errorf("%+v; want comp.State == freeslot.StateSucceeded", comp)
				}
				if took := time.Since(begin); took > 10*time.Second {
					t.Errorf("ended after %s", took)
				}
			}, handle("s", func(_ context.Context, job *Job) (any, error) { runs[job.ID]++; return nil, nil }), func(w *Worker) {
				wrap(func(s store) store { late.store = s; return late })(w)
			})
			if len(runs) != 2 || runs[id(1).Job] != 1 || runs[id(2).Job] != 1 {
				t.Errorf("runs %v", runs)
			}
		})
	}
}

// TestHandedOverIsForgotten: jobs that come with answers are in no stream, so the worker forgets
// them without a read, which takes long when nothing comes.
func TestHandedOverIsForgotten(t *testing.T) {
	const jobs, rate = 4_000, 100
	most := 0
	bubbleWith(t, func(c *Config) { c.Node.MaxConcurrency = 1 }, func(t *testing.T, w *Worker, f *fakeCell) {
		f.with(func() {
			for n := 2; n <= jobs; n++ {
				f.next = append(f.next, cell.Dispatch{Attempt: id(n), Job: &freeslot.Job{Service: "s"}})
			}
		})
		f.assign(1, freeslot.Job{Service: "s"})
		for n := range jobs {
			f.end(t, id(n+1))
			w.ledger.mu.Lock()
			most = max(most, len(w.ledger.ended.order)+len(w.ledger.endedHandedOver.order))
			w.ledger.mu.Unlock()
		}
	}, handle("s", func(context.Context, *Job) (any, error) { time.Sleep(time.Second / rate); return nil, nil })) // the work
	if limit := 4 * rate * int(DefaultHeartbeatInterval/time.Second); most > limit {
		t.Errorf("%d attempts are remembered, expected at most those of some heartbeats, %d", most, limit)
	}
}

// answersLate is a cell whose answers to reports come after the jobs that they brought.
type answersLate struct {
	store
	answer chan struct{}
}

func (a *answersLate) Complete(ctx context.Context, comp cell.Completion) (cell.CompletionOutcome, error) {
	outcome, err := a.store.Complete(ctx, comp)
	<-a.answer
	return outcome, err
}

// TestGrantedJobsHaveRoom: all jobs that Redis can have granted are at their end, and as many have
// come with reports whose answers are late. None of them is turned away: that would cost a
// heartbeat and a read.
func TestGrantedJobsHaveRoom(t *testing.T) {
	const slots = 2
	var release, answer chan struct{}
	bubbleWith(t, func(c *Config) { c.Node.MaxConcurrency = slots }, func(t *testing.T, _ *Worker, f *fakeCell) {
		synctest.Wait() // a gateway sends no jobs before the first heartbeat
		reads, job := 0, 0
		f.with(func() { f.onSpec = func() error { reads++; return nil } })
		assign := func() (ids []cell.Attempt) {
			for range slots {
				job++
				ids = append(ids, f.assign(job, freeslot.Job{Service: "s"}))
			}
			synctest.Wait()
			return ids
		}
		assign()
		for range slots {
			release <- struct{}{}
			synctest.Wait()
		}
		last := assign()
		close(answer)
		close(release)
		for _, id := range last {
			if comp := f.end(t, id); comp.State != freeslot.StateSucceeded {
				t.Errorf("%+v; want comp.State == freeslot.StateSucceeded", comp)
			}
		}
		f.with(func() {
			if reads != 0 {
				t.Errorf("%d jobs were turned away when they arrived, and read again", reads)
			}
		})
	}, func(w *Worker) {
		release, answer = make(chan struct{}), make(chan struct{})
		wrap(func(s store) store { return &answersLate{s, answer} })(w)
		w.Handle("s", func(context.Context, *Job) (any, error) { <-release; return nil, nil })
	})
}

// TestFullNodeReadsLater: a node without room delays its reads, but no longer than a cancel may
// wait. It reads at once when it has room.
func TestFullNodeReadsLater(t *testing.T) {
	directOnly(t, "it counts reads")
	var begun, release chan struct{}
	bubbleWith(t, func(c *Config) { c.Node.MaxConcurrency = 1 }, func(t *testing.T, w *Worker, f *fakeCell) {
		first := f.assign(1, freeslot.Job{Service: "s"})
		<-begun
		synctest.Wait()
		if w.ledger.room() == nil {
			t.Fatal("a node of one slot with a job has room")
		}
		begin := time.Now()
		f.cancel(first)
		if comp := f.end(t, first); comp.State != freeslot.StateCancelled || time.Since(begin) > fullPause {
			t.Errorf("%+v after %s", comp, time.Since(begin))
		}

		synctest.Wait() // until the node reads again
		f.with(func() { f.reads = 0 })
		second := f.assign(2, freeslot.Job{Service: "s"})
		<-begun
		time.Sleep(fullPause / 2) // in virtual time
		f.with(func() {
			if f.reads != 0 {
				t.Errorf("a node without room has read %d times", f.reads)
			}
		})
		third := f.assign(3, freeslot.Job{Service: "s"}) // no read sees it before there is room
		begin = time.Now()
		release <- struct{}{}
		f.end(t, second)
		<-begun
		if took := time.Since(begin); took != 0 {
			t.Errorf("the next job began %s after the one before had ended", took)
		}
		release <- struct{}{}
		f.end(t, third)
	}, func(w *Worker) {
		begun, release = make(chan struct{}), make(chan struct{})
		w.Handle("s", func(ctx context.Context, _ *Job) (any, error) {
			begun <- struct{}{}
			select {
			case <-release:
				return nil, nil
			case <-ctx.Done():
				return nil, ctx.Err()
			}
		})
	})
}

// forgetful is the real cell. It loses answers to every third report, and counts the jobs of the
// stream.
type forgetful struct {
	store
	reports   atomic.Int64
	delivered *atomic.Int64
}

func (f *forgetful) Dispatches(ctx context.Context, node, after string, block time.Duration, limit int) ([]cell.Dispatch, error) {
	entries, err := f.store.Dispatches(ctx, node, after, block, limit)
	f.delivered.Add(int64(len(entries)))
	return entries, err
}

func (f *forgetful) Complete(ctx context.Context, comp cell.Completion) (cell.CompletionOutcome, error) {
	if f.reports.Add(1)%3 != 0 {
		return f.store.Complete(ctx, comp)
	}
	comp.Begun = func([]cell.Dispatch) {}
	if _, err := f.store.Complete(ctx, comp); err != nil {
		return "", err
	}
	return "", errAnswerLost
}

// TestRedisHandOver: with a backlog every job runs once, even if its hand-over is lost, and none
// comes by the stream.
func TestRedisHandOver(t *testing.T) {
	t.Parallel()
	redis := redistest.Shared(t)
	prefix := redis.Prefix(t)
	r := newReplica(t, redis, prefix)
	const jobs, slots = 60, 4 // as startRedisWorker has it
	var delivered atomic.Int64
	runs := make(chan string, 2*jobs)
	startRedisWorker(t, redis, prefix, wrap(func(s store) store { return &forgetful{store: s, delivered: &delivered} }), func(w *Worker) {
		w.Handle("s", func(_ context.Context, job *Job) (any, error) { runs <- job.ID; return nil, nil })
	})
	r.nodes = []string{"node-1"}
	waiting := r.wait("s", jobs)
	r.match() // gives the node its first jobs; the others follow from hand to hand
	r.eachRunsOnce(waiting, runs, func() {})
	if n := delivered.Load(); n > slots {
		t.Errorf("%d jobs came by the stream, expected the first %d at most", n, slots)
	}
}
