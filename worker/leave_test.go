package worker

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/cell"
)

// TestLeave: the fleet learns the reason at once, running jobs have the time of Leave and not
// StopTimeout, and the jobs that are handed back tell the reason.
func TestLeave(t *testing.T) {
	bubbleWith(t, func(c *Config) { c.StopTimeout = time.Second }, func(t *testing.T, w *Worker, f *fakeCell) {
		fits := f.assign(1, freeslot.Job{Service: "minute"})
		long := f.assign(2, freeslot.Job{Service: "endless"})
		synctest.Wait()
		begun := time.Now()
		w.Leave("the machine goes away", 2*time.Minute)
		w.Leave("another reason", time.Hour)
		f.await(t, "the reason", func() bool { return leavingOf(t, f) == "the machine goes away" })
		if d := time.Since(begun); d > 2*minBeatGap || !f.drained {
			t.Errorf("the fleet learns the reason after %s, draining %t; want it at once", d, f.drained)
		}
		late := f.assign(3, freeslot.Job{Service: "minute"})
		for _, a := range []cell.Attempt{late, long} {
			comp := f.end(t, a)
			wantHandedBack(t, comp)
			if !strings.Contains(comp.Error.Message, "the machine goes away") {
				t.Errorf("%v is handed back with %q; want the reason", a, comp.Error.Message)
			}
		}
		if d := time.Since(begun); d < 2*time.Minute || d > 2*time.Minute+time.Second {
			t.Errorf("the endless job was interrupted after %s; want 2m", d)
		}
		if comp := f.end(t, fits); comp.State != freeslot.StateSucceeded {
			t.Errorf("%+v; want that the job of a minute succeeds", comp)
		}
		<-w.Done()
		if f.epoch != "" || w.Err() != nil {
			t.Errorf("the node has epoch %q, the worker the error %v; want that it has left in order", f.epoch, w.Err())
		}
	}, handle("endless", untilCancelled), handle("minute", func(context.Context, *Job) (any, error) {
		time.Sleep(time.Minute) // virtual time
		return 1, nil
	}))
}

// leavingOf returns the reason of the last heartbeat that has one. The caller holds f.mu.
func leavingOf(t *testing.T, f *fakeCell) (reason string) {
	t.Helper()
	for _, hb := range f.beats {
		var resources struct{ Leaving string }
		if len(hb.Resources) > 0 {
			if err := json.Unmarshal(hb.Resources, &resources); err != nil {
				t.Fatal(err)
			}
		}
		if resources.Leaving != "" {
			reason = resources.Leaving
		}
	}
	return reason
}

// TestStopAfterLeave: a stop gives the jobs no more than StopTimeout, though Leave gave them
// longer.
func TestStopAfterLeave(t *testing.T) {
	bubbleWith(t, func(c *Config) { c.StopTimeout = 10 * time.Second }, func(t *testing.T, w *Worker, f *fakeCell) {
		a := f.assign(1, freeslot.Job{Service: "s"})
		synctest.Wait()
		w.Leave("the machine goes away", time.Hour)
		synctest.Wait()
		begun := time.Now()
		if err := w.Stop(context.Background()); err != nil {
			t.Fatal(err)
		}
		if d := time.Since(begun); d != 10*time.Second {
			t.Errorf("stopped after %s; want 10s", d)
		}
		wantHandedBack(t, f.ended[a])
	}, handle("s", untilCancelled))
}

// TestLeaveAfterStop changes nothing.
func TestLeaveAfterStop(t *testing.T) {
	bubbleWith(t, func(c *Config) { c.StopTimeout = 10 * time.Second }, func(t *testing.T, w *Worker, f *fakeCell) {
		a := f.assign(1, freeslot.Job{Service: "s"})
		synctest.Wait()
		begun, stopped := time.Now(), make(chan error, 1)
		go func() { stopped <- w.Stop(context.Background()) }()
		synctest.Wait()
		w.Leave("the machine goes away", time.Hour)
		if err := <-stopped; err != nil || time.Since(begun) != 10*time.Second {
			t.Errorf("stopped after %s: %v; want 10s", time.Since(begun), err)
		}
		if comp := f.ended[a]; strings.Contains(comp.Error.Message, "goes away") {
			t.Errorf("handed back with %q; want no reason of Leave", comp.Error.Message)
		}
	}, handle("s", untilCancelled))
}

// TestReasonIsCut: a long reason does not fill heartbeats and errors.
func TestReasonIsCut(t *testing.T) {
	l := leaving{reason: truncate(strings.Repeat("é", maxReasonBytes), maxReasonBytes)}
	if n := len(l.reason); n > maxReasonBytes+len("…") || !strings.HasSuffix(l.reason, "é…") {
		t.Errorf("the reason has %d bytes and ends with %q; want %d, and whole letters", n, l.reason[n-5:], maxReasonBytes)
	}
	if err := l.cause(); !errors.Is(err, ErrStopping) || !strings.Contains(reasonOf(err), l.reason) || reasonOf(ErrSuperseded) != "" {
		t.Errorf("the cause is %v; want ErrStopping with the reason", err)
	}
}

// TestRunTime: heartbeats tell for how long the running jobs have run, added up.
func TestRunTime(t *testing.T) {
	bubble(t, func(t *testing.T, w *Worker, f *fakeCell) {
		f.assign(1, freeslot.Job{Service: "s"})
		synctest.Wait()
		time.Sleep(40 * time.Second) // virtual time, as everywhere here
		f.assign(2, freeslot.Job{Service: "s"})
		synctest.Wait()
		time.Sleep(10 * time.Second)
		if ran := w.ledger.ran(time.Now()); ran != time.Minute {
			t.Errorf("two jobs have run for %s together; want 50s and 10s", ran)
		}
		var sent struct {
			Jobs  int    `json:"current_jobs"`
			RunMS *int64 `json:"run_ms"`
		}
		if err := json.Unmarshal(w.resources(nil, nil), &sent); err != nil || sent.Jobs != 2 || *sent.RunMS != 60_000 {
			t.Errorf("%+v, %v; want 2 jobs and 60000 ms", sent, err)
		}
	}, handle("s", untilCancelled))
}
