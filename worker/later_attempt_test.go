package worker

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/cell"
)

func wantHandedBack(t *testing.T, comp cell.Completion) {
	t.Helper()
	if comp.State != freeslot.StateFailed || comp.Error == nil || comp.Error.Code != freeslot.JobErrorInterrupted ||
		comp.Next != cell.HandBack || comp.RetryDelay != 0 {
		t.Fatalf("%+v, expected the job to be handed back", comp)
	}
}

func TestRetryableErrorAsksForAnotherAttempt(t *testing.T) {
	bubble(t, func(t *testing.T, w *Worker, f *fakeCell) {
		job := freeslot.Job{Service: "s"}
		first := f.assign(1, job)
		comp := f.end(t, first)
		if comp.State != freeslot.StateFailed || comp.Next != cell.Retry || comp.RetryDelay < 0 || comp.RetryDelay > FirstRetryDelay {
			t.Fatalf("%+v, expected a retry within %s", comp, FirstRetryDelay)
		}
		if comp.Error.Code != "busy" || comp.Error.Message != "try later" {
			t.Fatalf("error %v", comp.Error)
		}
		second := f.assignAgain(next(first), job)
		if comp := f.end(t, second); comp.Next != cell.Retry || comp.RetryDelay != time.Minute {
			t.Fatalf("%+v, expected a retry after a minute", comp)
		}
		if comp := f.end(t, f.assignAgain(next(second), job)); comp.State != freeslot.StateSucceeded || string(comp.Result) != "3" {
			t.Fatalf("%+v, expected the third attempt to succeed", comp)
		}
		synctest.Wait()
		if got := testutil.ToFloat64(w.metrics.jobs.WithLabelValues("s", outcomeRetry)); got != 2 {
			t.Fatalf("%v retries counted", got)
		}
	}, handle("s", func(_ context.Context, job *Job) (any, error) {
		busy := &freeslot.JobError{Code: "busy", Message: "try later"}
		switch job.Attempt {
		case 1:
			return nil, Retryable(busy)
		case 2:
			return nil, RetryAfter(busy, time.Minute)
		default:
			return job.Attempt, nil
		}
	}))
}

// A cancelled job is not retried, even if its handler asks for that.
func TestCancelBeatsRetry(t *testing.T) {
	bubble(t, func(t *testing.T, _ *Worker, f *fakeCell) {
		a := f.assign(1, freeslot.Job{Service: "s"})
		synctest.Wait()
		f.cancel(a)
		if comp := f.end(t, a); comp.State != freeslot.StateCancelled || comp.Next != cell.Never {
			t.Fatalf("%+v, expected cancelled", comp)
		}
	}, handle("s", func(ctx context.Context, _ *Job) (any, error) {
		<-ctx.Done()
		return nil, Retryable(ctx.Err())
	}))
}

func TestInterruptedJobs(t *testing.T) {
	stop := func(c *Config) { c.StopTimeout = time.Second; c.InterruptGrace = 4 * time.Second }
	for name, test := range map[string]struct {
		fn        HandlerFunc
		succeeded bool
	}{
		"an error":           {fn: untilCancelled},
		"a retryable error":  {fn: func(ctx context.Context, _ *Job) (any, error) { <-ctx.Done(); return nil, Retryable(ctx.Err()) }},
		"a result":           {fn: func(ctx context.Context, _ *Job) (any, error) { <-ctx.Done(); return "done", nil }, succeeded: true},
		"a result after 3 s": {fn: afterGrace(3*time.Second, nil), succeeded: true},
		"an error after 3 s": {fn: afterGrace(3*time.Second, errors.New("too bad"))},
	} {
		t.Run(name, func(t *testing.T) {
			bubbleWith(t, stop, func(t *testing.T, w *Worker, f *fakeCell) {
				a := f.assign(1, freeslot.Job{Service: "s"})
				synctest.Wait()
				if err := w.Stop(context.Background()); err != nil {
					t.Fatal(err)
				}
				if comp := f.ended[a]; !test.succeeded {
					wantHandedBack(t, comp)
				} else if comp.State != freeslot.StateSucceeded || string(comp.Result) != `"done"` {
					t.Fatalf("%+v, expected the result", comp)
				}
			}, handle("s", test.fn))
		})
	}
}

// afterGrace is a handler that returns d after the end of its context.
func afterGrace(d time.Duration, err error) HandlerFunc {
	return func(ctx context.Context, _ *Job) (any, error) {
		<-ctx.Done()
		time.Sleep(d) // virtual time
		return "done", err
	}
}

// Jobs that arrive before Redis knows that the node stops are handed back only after that.
// Otherwise Redis would fill their slots again, perhaps with the same jobs.
func TestHandBackWaitsForTheFleetToKnow(t *testing.T) {
	const lost = 3 // answers to heartbeats
	bubble(t, func(t *testing.T, w *Worker, f *fakeCell) {
		f.assign(1, freeslot.Job{Service: "s", Slots: 4})
		synctest.Wait()
		waits := f.assign(2, freeslot.Job{Service: "s"})
		synctest.Wait()
		var refused int
		var handedBack time.Time
		f.with(func() {
			f.onHeartbeat = func(int) error {
				if refused++; refused <= lost {
					f.drained = false // as if it had not arrived
					return errRedisAway
				}
				return nil
			}
			f.onComplete = func(int) error { handedBack = time.Now(); return nil }
		})
		begun := time.Now()
		go func() { _ = w.Stop(context.Background()) }()
		wantHandedBack(t, f.end(t, waits))
		if f.rash != 0 || refused <= lost {
			t.Fatalf("handed back after %d heartbeats, %d without the fleet's knowledge", refused, f.rash)
		}
		if d := handedBack.Sub(begun); d > drainingTimeout {
			t.Fatalf("handed back after %s", d)
		}
	}, handle("s", untilCancelled))
}

func TestHandBackDoesNotWaitForever(t *testing.T) {
	bubble(t, func(t *testing.T, w *Worker, f *fakeCell) {
		f.assign(1, freeslot.Job{Service: "s", Slots: 4})
		synctest.Wait()
		waits := f.assign(2, freeslot.Job{Service: "s"})
		synctest.Wait()
		f.with(func() { f.onHeartbeat = func(int) error { return errRedisAway } })
		begun := time.Now()
		go func() { _ = w.Stop(context.Background()) }()
		wantHandedBack(t, f.end(t, waits))
		// A heartbeat that is repeated after a random pause may be under way by then.
		if d := time.Since(begun); d < drainingTimeout || d > drainingTimeout+DefaultHeartbeatInterval {
			t.Fatalf("handed back after %s, expected %s, and at most a heartbeat's interval more", d, drainingTimeout)
		}
	}, handle("s", untilCancelled))
}

// A job comes back while the handler of its earlier attempt has not noticed that the job was taken
// away. Both run side by side, and only the later one counts.
func TestLaterAttemptBesideOneThatRuns(t *testing.T) {
	var release chan struct{}
	var ran atomic.Int32
	bubble(t, func(t *testing.T, w *Worker, f *fakeCell) {
		release = make(chan struct{})
		job := freeslot.Job{Service: "s"}
		first := f.assign(1, job)
		synctest.Wait()
		second := f.assignAgain(next(first), job)
		if comp := f.end(t, second); string(comp.Result) != "2" {
			t.Fatalf(`%+v; want string(comp.Result) == "2"`, comp)
		}
		third := f.assignAgain(next(second), freeslot.Job{Service: "wait"})
		f.with(func() { f.beats = nil })
		f.await(t, "a heartbeat that names the last attempt alone", func() bool {
			return len(f.beats) > 0 && slices.Equal(f.beats[len(f.beats)-1].Running, []cell.Attempt{third})
		})
		close(release)
		synctest.Wait()
		if _, ok := f.ended[first]; ok || f.stale != 0 || ran.Load() != 2 {
			t.Fatalf("%d stale completions, %d handlers", f.stale, ran.Load())
		}
		if got := testutil.ToFloat64(w.metrics.jobs.WithLabelValues("s", outcomeDropped)); got != 1 {
			t.Fatalf("%v dropped jobs counted", got)
		}
	}, handle("s", func(_ context.Context, job *Job) (any, error) {
		ran.Add(1)
		if job.Attempt == 1 {
			<-release
		}
		return job.Attempt, nil
	}), handle("wait", untilCancelled))
}

// A job comes back while the end of its earlier attempt is still being reported.
func TestLaterAttemptBesideOneThatIsReported(t *testing.T) {
	bubble(t, func(t *testing.T, _ *Worker, f *fakeCell) {
		job := freeslot.Job{Service: "s"}
		lossy := true
		f.with(func() {
			f.onComplete = func(int) error {
				if lossy {
					return errRedisAway // applied, and the answer lost
				}
				return nil
			}
		})
		first := f.assign(1, job)
		if comp := f.end(t, first); comp.Next != cell.Retry {
			t.Fatalf("%+v, expected a retry", comp)
		}
		second := f.assignAgain(next(first), job)
		f.await(t, "a heartbeat that names both", func() bool {
			running := f.beats[max(len(f.beats)-1, 0):]
			return len(running) == 1 && slices.Contains(running[0].Running, first) && slices.Contains(running[0].Running, second)
		})
		f.with(func() { lossy = false })
		if comp := f.end(t, second); comp.State != freeslot.StateSucceeded {
			t.Fatalf("%+v; want comp.State == freeslot.StateSucceeded", comp)
		}
		f.await(t, "a heartbeat that names none", func() bool { return len(f.beats[len(f.beats)-1].Running) == 0 })
		synctest.Wait()
		before := f.completes
		time.Sleep(time.Minute) // virtual time
		if f.completes != before || f.repeats == 0 || f.stale != 0 {
			t.Fatalf("%d completions after the last, %d repeated, %d stale", f.completes-before, f.repeats, f.stale)
		}
	}, handle("s", func(_ context.Context, job *Job) (any, error) {
		if job.Attempt == 1 {
			return nil, Retryable(errors.New("no luck"))
		}
		return job.Attempt, nil
	}))
}

// A cancel that arrives late for one attempt does not touch the next one.
func TestLateCancelOfAnEarlierAttempt(t *testing.T) {
	var release chan struct{}
	bubble(t, func(t *testing.T, _ *Worker, f *fakeCell) {
		release = make(chan struct{})
		job := freeslot.Job{Service: "s"}
		first := f.assign(1, job)
		synctest.Wait()
		second := f.assignAgain(next(first), job)
		f.with(func() { f.add(cell.Dispatch{Attempt: first, Cancel: true}) })
		synctest.Wait()
		close(release)
		if comp := f.end(t, second); comp.State != freeslot.StateSucceeded {
			t.Fatalf("%+v; want comp.State == freeslot.StateSucceeded", comp)
		}
	}, handle("s", func(ctx context.Context, job *Job) (any, error) {
		if job.Attempt == 1 {
			return untilCancelled(ctx, job)
		}
		select {
		case <-release:
			return job.Attempt, nil
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}))
}

// A node cannot reach Redis for so long that it is reaped. Its jobs go on, and one of them comes
// back to it.
func TestGivenUpForDeadWhileCutOff(t *testing.T) {
	var release chan struct{}
	var causes chan error
	bubble(t, func(t *testing.T, w *Worker, f *fakeCell) {
		release, causes = make(chan struct{}), make(chan error, 2)
		ended := f.assign(1, freeslot.Job{Service: "released"})
		runs, elsewhere := f.assign(2, freeslot.Job{Service: "s"}), f.assign(3, freeslot.Job{Service: "s"})
		synctest.Wait()
		f.with(func() { f.away = true })
		close(release)
		time.Sleep(time.Minute) // virtual time; the first job's end cannot be reported
		f.with(func() {         // as reap leaves it
			f.away, f.epoch, f.stream = false, "", nil
			clear(f.owned)
		})
		epoch := w.epoch
		f.await(t, "the registration", func() bool { return f.registered == 2 && f.epoch == epoch })
		back := f.assignAgain(next(runs), freeslot.Job{Service: "echo"})
		if comp := f.end(t, back); comp.State != freeslot.StateSucceeded {
			t.Fatalf("%+v; want comp.State == freeslot.StateSucceeded", comp)
		}
		for range 2 {
			if cause := <-causes; !errors.Is(cause, ErrNotOwned) {
				t.Fatalf("cause %v", cause)
			}
		}
		f.await(t, "a heartbeat that names none", func() bool { return len(f.beats[len(f.beats)-1].Running) == 0 })
		synctest.Wait()
		before := f.completes
		time.Sleep(time.Hour) // virtual time
		for _, a := range []cell.Attempt{ended, runs, elsewhere} {
			if _, ok := f.ended[a]; ok {
				t.Errorf("attempt %v was ended although it was not owned", a)
			}
		}
		if f.completes != before || f.stale > 1 || f.registered != 2 || w.Err() != nil {
			t.Fatalf("%d completions in an hour of nothing to do, %d stale, %d registrations, %v", f.completes-before, f.stale, f.registered, w.Err())
		}
		if dropped, stale := w.metrics.jobs.WithLabelValues("s", outcomeDropped), w.metrics.jobs.WithLabelValues("released", outcomeStale); testutil.ToFloat64(dropped) != 2 || testutil.ToFloat64(stale) != 1 {
			t.Fatalf("%v dropped, %v stale", testutil.ToFloat64(dropped), testutil.ToFloat64(stale))
		}
	}, handle("released", func(context.Context, *Job) (any, error) { <-release; return 1, nil }), handle("echo", echo),
		handle("s", func(ctx context.Context, _ *Job) (any, error) {
			<-ctx.Done()
			causes <- context.Cause(ctx)
			return nil, ctx.Err()
		}))
}

// A handler whose job was handed back may still run; then Stop returns an error.
func TestGivenUpHandlersJobIsHandedBack(t *testing.T) {
	var stuck chan struct{}
	bubbleWith(t, func(c *Config) { c.StopTimeout = time.Second; c.InterruptGrace = time.Second }, func(t *testing.T, w *Worker, f *fakeCell) {
		stuck = make(chan struct{})
		a := f.assign(1, freeslot.Job{Service: "s"})
		synctest.Wait()
		if err := w.Stop(context.Background()); err == nil || w.handling.Load() != 1 {
			t.Fatalf("%v, %d handlers", err, w.handling.Load())
		}
		wantHandedBack(t, f.ended[a])
		if !strings.Contains(f.ended[a].Error.Message, "did not return") {
			t.Fatalf("message %q", f.ended[a].Error.Message)
		}
		close(stuck)
	}, handle("s", func(context.Context, *Job) (any, error) { <-stuck; return nil, nil }))
}
