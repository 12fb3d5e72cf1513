package worker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/cell"
)

// lines are the progress that the cell has got, as "job number value".
func (f *fakeCell) lines() (out []string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, r := range f.progress {
		out = append(out, fmt.Sprintf("%s %d %s", r.Attempt.Job, r.Seq, r.Value))
	}
	return out
}

func (w *Worker) progressCount(outcome string) float64 {
	return testutil.ToFloat64(w.metrics.progress.WithLabelValues(outcome))
}

// The first value is sent at once, then the latest after each interval.
func TestProgressIsLimited(t *testing.T) {
	bubble(t, func(t *testing.T, w *Worker, f *fakeCell) {
		comp := f.end(t, f.assign(1, freeslot.Job{Service: "s"}))
		if comp.State != freeslot.StateSucceeded {
			t.Fatalf("%+v; want comp.State == freeslot.StateSucceeded", comp)
		}
		synctest.Wait()
		// Reported every 35 ms from 0 on, sent every 100 ms: the numbers 1 (0 ms), 3 (70), 6 (175),
		// 9 (280).
		if got := strings.Join(f.lines(), ", "); got != "0-1 1 0, 0-1 3 2, 0-1 6 5, 0-1 9 8" {
			t.Errorf("sent %s", got)
		}
		sent, replaced, dropped := w.progressCount(progressSent), w.progressCount(progressReplaced), w.progressCount(progressDropped)
		if sent != 4 || replaced != 6 || dropped != 1 {
			t.Errorf("%v sent, %v replaced, %v dropped; expected 4, 6 and 1 of 11", sent, replaced, dropped)
		}
	}, handle("s", func(_ context.Context, job *Job) (any, error) {
		for i := range 11 {
			if err := job.Progress(i); err != nil {
				return nil, err
			}
			if i < 10 {
				time.Sleep(35 * time.Millisecond) // virtual time
			}
		}
		return nil, nil
	}))
}

// During an outage of Redis the latest report of each job is kept. It is sent when Redis is back,
// and no completion waits for it.
func TestProgressWhileRedisIsAway(t *testing.T) {
	var release chan struct{} // made within the bubble, as its time stands still otherwise
	bubble(t, func(t *testing.T, w *Worker, f *fakeCell) {
		f.assign(1, freeslot.Job{Service: "s"})
		synctest.Wait()
		f.with(func() { f.away = true })
		time.Sleep(10 * time.Second) // virtual time
		w.progress.mu.Lock()
		unsent := len(w.progress.unsent)
		w.progress.mu.Unlock()
		if unsent != 1 {
			t.Errorf("%d jobs have something unsent", unsent)
		}
		f.mu.Lock()
		calls := f.progressCalls
		f.mu.Unlock()
		if calls > 20 {
			t.Errorf("%d calls in 10 s that fail", calls)
		}
		f.with(func() { f.away = false })
		time.Sleep(4 * time.Second) // virtual time
		close(release)
		synctest.Wait()
		lines := f.lines()
		last := f.progress[len(f.progress)-1]
		if len(lines) < 2 || last.Seq < 500 {
			t.Errorf("sent %v", lines)
		}
	}, func(*Worker) { release = make(chan struct{}) }, handle("s", func(_ context.Context, job *Job) (any, error) {
		for i := 0; ; i++ {
			_ = job.Progress(i)
			select {
			case <-release:
				return nil, nil
			case <-time.After(20 * time.Millisecond):
			}
		}
	}))
}

// TestProgressAfterAFailedJobLeft: the job whose progress could not be sent ends before it is tried again. The
// progress of the next job goes out at once.
func TestProgressAfterAFailedJobLeft(t *testing.T) {
	var release chan struct{} // made within the bubble
	bubble(t, func(t *testing.T, _ *Worker, f *fakeCell) {
		f.with(func() { f.progressAway = true })
		f.assign(1, freeslot.Job{Service: "short"})
		time.Sleep(8 * time.Second) // virtual time
		f.with(func() { f.progressAway = false })
		time.Sleep(2 * time.Second) // virtual time
		f.assign(2, freeslot.Job{Service: "s"})
		time.Sleep(5 * time.Second) // virtual time
		f.mu.Lock()
		sent := len(f.progress)
		f.mu.Unlock()
		close(release)
		synctest.Wait()
		if sent < 2 {
			t.Errorf("%d reports of the second job in 5 s", sent)
		}
	}, func(*Worker) { release = make(chan struct{}) }, handle("s", func(_ context.Context, job *Job) (any, error) {
		for i := 0; ; i++ {
			_ = job.Progress(i)
			select {
			case <-release:
				return nil, nil
			case <-time.After(20 * time.Millisecond):
			}
		}
	}), handle("short", func(_ context.Context, job *Job) (any, error) {
		_ = job.Progress("begun")
		time.Sleep(time.Second) // virtual time
		return nil, nil
	}))
}

// An answer about the job counts like the reply to a heartbeat.
func TestProgressTellsOfCancelAndLoss(t *testing.T) {
	var causes chan error
	reporter := func(ctx context.Context, job *Job) (any, error) {
		for {
			_ = job.Progress(nil)
			select {
			case <-ctx.Done():
				causes <- context.Cause(ctx)
				return nil, ctx.Err()
			case <-time.After(time.Second):
			}
		}
	}
	bubbleWith(t, func(c *Config) { c.HeartbeatInterval, c.HeartbeatLimit = 10*time.Hour, 20*time.Hour }, func(t *testing.T, w *Worker, f *fakeCell) {
		lost, cancelled := f.assign(1, freeslot.Job{Service: "s"}), f.assign(2, freeslot.Job{Service: "s"})
		synctest.Wait()
		f.disown(lost)
		if cause := <-causes; !errors.Is(cause, ErrNotOwned) {
			t.Errorf("cause %v", cause)
		}
		f.with(func() { f.owned[cancelled] = true })
		if cause := <-causes; !errors.Is(cause, ErrCancelled) {
			t.Errorf("cause %v", cause)
		}
		if comp := f.end(t, cancelled); comp.State != freeslot.StateCancelled {
			t.Errorf("%+v; want comp.State == freeslot.StateCancelled", comp)
		}
		if n := w.progressCount(progressStale); n != 1 {
			t.Errorf("%v stale", n)
		}
	}, func(*Worker) { causes = make(chan error, 2) }, handle("s", reporter))
}

func TestProgressRefusesValues(t *testing.T) {
	var job Job
	for _, good := range []any{nil, 1, "x", map[string]int{"done": 7}, json.RawMessage(`{"a": 1}`), strings.Repeat("x", freeslot.MaxProgressBytes-2)} {
		if err := job.Progress(good); err != nil {
			t.Errorf("%.20v: %v; want no error", good, err)
		}
	}
	for _, bad := range []any{
		strings.Repeat("x", freeslot.MaxProgressBytes-1), math.NaN(), json.RawMessage(`{`), json.RawMessage("\"\xff\""), func() {},
	} {
		if err := job.Progress(bad); err == nil {
			t.Errorf("%.20v was taken", bad)
		}
	}
	told := 0
	job.report = func(json.RawMessage) { told++ }
	if err := job.Progress(make(chan int)); err == nil || told != 0 {
		t.Errorf("%v; %d were sent", err, told)
	}
}

// Reports of a handler that runs on after its end was decided are dropped.
func TestProgressAfterTheEnd(t *testing.T) {
	p := newProgress(time.Second, must(newMetrics(nil)))
	a := p.begin(id(1))
	p.report(a, json.RawMessage("1"))
	p.end(a)
	p.report(a, json.RawMessage("2"))
	if attempts, _, next := p.ready(time.Now()); len(attempts) != 0 || next != 0 {
		t.Errorf("%d to send, next in %s", len(attempts), next)
	}
}

// One call takes as many reports as it may; the rest comes with the next one.
func TestProgressIsSentInCalls(t *testing.T) {
	p := newProgress(time.Second, must(newMetrics(nil)))
	now := time.Now()
	for i := range cell.MaxProgressItems + 3 {
		p.report(p.begin(id(i)), json.RawMessage("1"))
	}
	attempts, reports, next := p.ready(now)
	if len(attempts) != cell.MaxProgressItems || len(reports) != len(attempts) || next == 0 {
		t.Fatalf("%d in the first call, next in %s", len(attempts), next)
	}
	p.report(attempts[0], json.RawMessage("2")) // while the call is under way
	p.sent(attempts, reports, now)
	if attempts, _, next := p.ready(now); len(attempts) != 3 || next <= 0 || next > time.Second {
		t.Errorf("%d in the second call, next in %s", len(attempts), next)
	}
	p.sent(nil, nil, now)
	if again, _, _ := p.ready(now.Add(time.Second)); len(again) != 4 {
		t.Errorf("%d after the interval, expected the 3 that were not sent and the one with news", len(again))
	}
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}
