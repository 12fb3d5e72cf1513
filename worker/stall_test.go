package worker

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/cell"
)

func wantRetry(t *testing.T, comp cell.Completion, code, says string) {
	t.Helper()
	if comp.State != freeslot.StateFailed || comp.Error == nil || comp.Error.Code != code || comp.Next != cell.Retry || !strings.Contains(comp.Error.Message, says) {
		t.Errorf("%+v with error %v, expected a retry after %s: %s", comp, comp.Error, code, says)
	}
}

func TestStalledHandler(t *testing.T) {
	var causes chan error // made within the bubble, as its time stands still otherwise
	const timeout = 5 * time.Second
	job := func(service string) freeslot.Job {
		return freeslot.Job{Service: service, ProgressTimeoutMS: timeout.Milliseconds()}
	}
	bubble(t, func(t *testing.T, _ *Worker, f *fakeCell) {
		begun := time.Now()
		wantRetry(t, f.end(t, f.assign(1, job("silent"))), freeslot.JobErrorStalled, "no progress for 5s")
		if took := time.Since(begun); took != timeout {
			t.Errorf("stopped after %s", took)
		}
		if cause := <-causes; !errors.Is(cause, ErrStalled) {
			t.Errorf("cause %v", cause)
		}
		wantRetry(t, f.end(t, f.assign(2, job("explains"))), freeslot.JobErrorStalled, "no progress for 5s: camera: no picture")
		if comp := f.end(t, f.assign(3, job("talks"))); comp.State != freeslot.StateSucceeded {
			t.Errorf("%+v of a handler that reported progress in time", comp)
		}
		if comp := f.end(t, f.assign(4, job("saves"))); comp.State != freeslot.StateSucceeded || string(comp.Result) != `"saved"` {
			t.Errorf("%+v of a handler that returned a result", comp)
		}
		if comp := f.end(t, f.assign(5, freeslot.Job{Service: "slow"})); comp.State != freeslot.StateSucceeded {
			t.Errorf("%+v of a job without a progress timeout", comp)
		}
	}, func(*Worker) { causes = make(chan error, 1) }, handle("silent", func(ctx context.Context, _ *Job) (any, error) {
		<-ctx.Done()
		causes <- context.Cause(ctx)
		return nil, ctx.Err()
	}), handle("explains", func(ctx context.Context, _ *Job) (any, error) {
		<-ctx.Done()
		return nil, errors.New("camera: no picture")
	}), handle("talks", func(ctx context.Context, job *Job) (any, error) {
		for range 10 {
			time.Sleep(timeout - time.Millisecond) // virtual time
			if err := errors.Join(ctx.Err(), job.Progress("on")); err != nil {
				return nil, err
			}
		}
		return nil, nil
	}), handle("saves", func(ctx context.Context, _ *Job) (any, error) {
		<-ctx.Done()
		return "saved", nil
	}), handle("slow", func(context.Context, *Job) (any, error) {
		time.Sleep(10 * timeout) // virtual time
		return nil, nil
	}))
}

// After the grace the job of a stuck handler goes on elsewhere. Its slots stay taken here, and jobs
// that wait too long for them are handed back.
func TestStalledHandlerThatDoesNotReturn(t *testing.T) {
	var release chan struct{}
	bubbleWith(t, func(c *Config) { c.Node.MaxConcurrency = 1 }, func(t *testing.T, w *Worker, f *fakeCell) {
		begun := time.Now()
		stuck := f.assign(1, freeslot.Job{Service: "stuck", ProgressTimeoutMS: 1000})
		wantRetry(t, f.end(t, stuck), freeslot.JobErrorStalled, "has not returned")
		if took := time.Since(begun); took != time.Second+stopGrace {
			t.Errorf("given up after %s", took)
		}
		if n := w.slots.InUse(); n != 1 {
			t.Errorf("%d slots in use", n)
		}
		comp := f.end(t, f.assign(2, freeslot.Job{Service: "quick"}))
		if comp.Next != cell.HandBack || !strings.Contains(comp.Error.Message, "did not come free") {
			t.Errorf("%+v, expected the job to be handed back", comp)
		}
		later := f.assign(3, freeslot.Job{Service: "quick"})
		synctest.Wait()
		close(release)
		if comp := f.end(t, later); comp.State != freeslot.StateSucceeded {
			t.Errorf("%+v once the handler has returned", comp)
		}
		if n := w.slots.InUse(); n != 0 {
			t.Errorf("%d slots in use", n)
		}
	}, func(*Worker) { release = make(chan struct{}) }, handle("stuck", func(context.Context, *Job) (any, error) { <-release; return "late", nil }), handle("quick", returns(1, nil)))
}

// The slots of a stuck handler are not offered until it returns.
func TestStuckHandlersAreNotOffered(t *testing.T) {
	var release chan struct{}
	bubbleWith(t, func(c *Config) { c.Node.MaxConcurrency = 3 }, func(t *testing.T, _ *Worker, f *fakeCell) {
		offered := func(slots int, status freeslot.Status) {
			t.Helper()
			f.await(t, "a heartbeat", func() bool {
				return f.size == slots && len(f.beats) > 0 && f.beats[len(f.beats)-1].Status == status
			})
		}
		offered(3, freeslot.StatusOnline)
		f.end(t, f.assign(1, freeslot.Job{Service: "stuck", ProgressTimeoutMS: 1000, Slots: 2}))
		offered(1, freeslot.StatusOnline)
		if comp := f.end(t, f.assign(2, freeslot.Job{Service: "quick"})); comp.State != freeslot.StateSucceeded {
			t.Errorf("%+v on the slot that is left", comp)
		}
		f.end(t, f.assign(3, freeslot.Job{Service: "stuck", ProgressTimeoutMS: 1000}))
		offered(1, freeslot.StatusDraining)
		close(release)
		offered(3, freeslot.StatusOnline)
	}, func(*Worker) { release = make(chan struct{}) }, handle("stuck", func(context.Context, *Job) (any, error) { <-release; return "late", nil }), handle("quick", returns(1, nil)))
}

// The slots are not offered either when Redis has given the attempt to another node, and so does
// not count the handler.
func TestStuckHandlersOfLostAttemptsAreNotOffered(t *testing.T) {
	var release chan struct{}
	bubbleWith(t, func(c *Config) { c.Node.MaxConcurrency = 3 }, func(t *testing.T, w *Worker, f *fakeCell) {
		lost := f.assign(1, freeslot.Job{Service: "stuck", Slots: 2})
		synctest.Wait()
		begun := time.Now()
		f.disown(lost)
		f.await(t, "a smaller node", func() bool { return f.size == 1 })
		if took := time.Since(begun); took < stopGrace {
			t.Errorf("given up after %s", took)
		}
		if comp := f.end(t, f.assign(2, freeslot.Job{Service: "quick"})); comp.State != freeslot.StateSucceeded {
			t.Errorf("%+v on the slot that is left", comp)
		}
		close(release)
		f.await(t, "all slots", func() bool { return f.size == 3 })
		if _, ok := f.ended[lost]; ok || w.slots.InUse() != 0 {
			t.Errorf("reported: %t, %d slots in use", ok, w.slots.InUse())
		}
	}, func(*Worker) { release = make(chan struct{}) }, handle("stuck", func(context.Context, *Job) (any, error) { <-release; return "late", nil }), handle("quick", returns(1, nil)))
}

// The same when the handler was stopped before: a job whose deadline has passed is cancelled first,
// and taken from the node when it does not end.
func TestStuckHandlersOfCancelledAttemptsAreNotOffered(t *testing.T) {
	var release chan struct{}
	bubbleWith(t, func(c *Config) { c.Node.MaxConcurrency = 3 }, func(t *testing.T, w *Worker, f *fakeCell) {
		lost := f.assign(1, freeslot.Job{Service: "stuck", Slots: 2})
		synctest.Wait()
		f.cancel(lost)
		told := time.Now()
		f.await(t, "heartbeats", func() bool { return time.Since(told) > stopGrace })
		if f.size != 3 {
			t.Fatalf("%d slots while the node owns the attempt", f.size)
		}
		f.disown(lost)
		begun := time.Now()
		f.await(t, "a smaller node", func() bool { return f.size == 1 })
		if took := time.Since(begun); took > stopGrace/2 {
			t.Errorf("given up %s after it was lost, expected the grace to have begun with the cancel", took)
		}
		close(release)
		f.await(t, "all slots", func() bool { return f.size == 3 })
		if _, ok := f.ended[lost]; ok || w.slots.InUse() != 0 {
			t.Errorf("reported: %t, %d slots in use", ok, w.slots.InUse())
		}
	}, func(*Worker) { release = make(chan struct{}) }, handle("stuck", func(context.Context, *Job) (any, error) { <-release; return "late", nil }), handle("quick", returns(1, nil)))
}

// A node that another process has taken waits for its handlers for InterruptGrace. That may be
// longer than the grace of a lost attempt: an executor may have a process to end.
func TestSupersededWaitsForHandlers(t *testing.T) {
	const grace = 2 * stopGrace
	var took time.Duration
	bubbleWith(t, func(c *Config) { c.InterruptGrace = grace }, func(t *testing.T, w *Worker, f *fakeCell) {
		f.assign(1, freeslot.Job{Service: "slow"})
		synctest.Wait()
		f.with(func() { f.epoch = "another" })
		begun := time.Now()
		<-w.Done()
		took = time.Since(begun)
		if !errors.Is(w.Err(), ErrSuperseded) {
			t.Errorf("ended with %v", w.Err())
		}
	}, handle("slow", func(ctx context.Context, _ *Job) (any, error) {
		<-ctx.Done()
		time.Sleep(grace - time.Second) // virtual time
		return nil, ctx.Err()
	}))
	if took < grace-2*time.Second || took > grace+3*time.Second {
		t.Errorf("ended after %s, expected to wait for the handler, %s", took, grace-time.Second)
	}
}

// A job that is cancelled, or whose node stops, does not stall as well: the first reason counts.
func TestStallGivesWay(t *testing.T) {
	bubble(t, func(t *testing.T, _ *Worker, f *fakeCell) {
		a := f.assign(1, freeslot.Job{Service: "s", ProgressTimeoutMS: 1000})
		synctest.Wait()
		f.cancel(a)
		if comp := f.end(t, a); comp.State != freeslot.StateCancelled {
			t.Errorf("%+v, expected cancelled", comp)
		}
	}, handle("s", func(ctx context.Context, _ *Job) (any, error) {
		<-ctx.Done()
		time.Sleep(time.Minute) // virtual time
		return nil, ctx.Err()
	}))
}
