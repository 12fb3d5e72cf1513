package cell

import (
	"context"
	"encoding/json"
	"errors"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/script"
	"github.com/freeslot/freeslot/internal/testing/redistest"
	"github.com/freeslot/freeslot/internal/testing/waittest"
)

func receive[T any](t *testing.T, c <-chan T) T {
	t.Helper()
	return waittest.Receive(t, "the next signal", c)
}

// slow is a cell on a server that can be paused, and a signal of each call that begins.
type slow struct {
	*Cell
	server *redistest.Server
	reg    *prometheus.Registry
	calls  chan int // items of the call
	epoch  Epoch
}

func newSlow(t *testing.T) *slow {
	t.Helper()
	s := &slow{server: redistest.New(t), reg: prometheus.NewRegistry(), calls: make(chan int, 1000), epoch: NewEpoch()}
	cfg := Config{Layout: Layout{Prefix: s.server.Prefix(t)}, CallTimeout: patience, HeartbeatLimit: time.Hour}
	var err error
	if s.Cell, err = New(cfg, s.server.Client(t), zap.NewNop(), s.reg); err != nil {
		t.Fatal(err)
	}
	s.submits = script.NewBatch(s.runner, watched(s.submitBatch(), s.calls))
	s.completions = script.NewBatch(s.runner, watched(s.completeBatch(), s.calls))
	if err := s.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		s.server.Resume()
		if err := s.Stop(context.Background()); err != nil {
			t.Error(err)
		}
	})
	if _, err := s.Register(t.Context(), testNode("n1", 1000), s.epoch); err != nil {
		t.Fatal(err)
	}
	return s
}

// watched has one call under way at a time, so that it is known what the next call gathers, and tells calls of each.
func watched[In, Out any](cfg script.BatchConfig[In, Out], calls chan<- int) script.BatchConfig[In, Out] {
	run := cfg.Run
	cfg.Name, cfg.Calls, cfg.CallsOfFew = "watched_"+cfg.Name, 1, 1
	cfg.Run = func(ctx context.Context, in []In) ([]Out, error) {
		calls <- len(in)
		return run(ctx, in)
	}
	return cfg
}

// TestStopWaitsForALoneCaller: the cell has not stopped before the call that a caller makes itself is over.
func TestStopWaitsForALoneCaller(t *testing.T) {
	t.Parallel()
	s := newSlow(t)
	s.server.Pause()
	over := make(chan error, 1)
	go func() {
		_, err := s.Submit(t.Context(), submission("", "n1"))
		over <- err
	}()
	if n := receive(t, s.calls); n != 1 {
		t.Fatalf("a call of %d items", n)
	}
	stopped := make(chan error, 1)
	go func() { stopped <- s.Stop(context.Background()) }()
	<-s.stopping
	for range 100_000 {
		runtime.Gosched()
	}
	select {
	case err := <-stopped:
		t.Fatalf("stopped beside a call: %v", err)
	case err := <-over:
		t.Fatalf("submitted while Redis stood still: %v", err)
	default:
	}
	s.server.Resume()
	for _, c := range []chan error{over, stopped} {
		if err := receive(t, c); err != nil {
			t.Error(err)
		}
	}
}

// TestSharedCalls: while Redis is slow callers gather, to submit and to complete.
func TestSharedCalls(t *testing.T) {
	t.Parallel()
	s := newSlow(t)
	const n = 2 * batchItems
	var subs []Submission
	for range n {
		subs = append(subs, submission("", "n1"))
	}
	shared := func(name string, call func(i int) error) {
		t.Helper()
		s.server.Pause()
		var calls sync.WaitGroup
		for i := range n {
			calls.Go(func() {
				if err := call(i); err != nil {
					t.Error(err)
				}
			})
		}
		receive(t, s.calls)
		s.server.Resume()
		calls.Wait()
		if calls, sum := batchCount(t, s.reg, name); calls >= n/2 || sum != n {
			t.Errorf("%s: %d calls carried %d items", name, calls, sum)
		}
	}
	shared("watched_submit", func(i int) error { _, err := s.Submit(t.Context(), subs[i]); return err })
	shared("watched_complete", func(i int) error {
		out, err := s.Complete(t.Context(), succeed("n1", s.epoch, subs[i].JobID))
		if err == nil && out != Completed {
			t.Errorf("outcome %s", out)
		}
		return err
	})
}

// TestCallBytes: what is large counts in a call as many bytes as it has.
func TestCallBytes(t *testing.T) {
	t.Parallel()
	text := `"` + strings.Repeat("x", batchBytes/2) + `"`
	sub := submission("", "n1")
	sub.Job.Payload = json.RawMessage(text)
	comp := succeed("n1", "e1", sub.JobID)
	comp.Result = json.RawMessage(text)
	for what, size := range map[string]int{"submission": submissionSize(encoded(t, sub)[0]), "completion": completionSize(comp)} {
		if size < len(text) || size > len(text)+1000 {
			t.Errorf("a %s with %d bytes counts as %d", what, len(text), size)
		}
	}
}

// TestStopUnderLoad: every caller is answered; those told that the cell is stopped
// have left no trace, all others are placed.
func TestStopUnderLoad(t *testing.T) {
	t.Parallel()
	redis := redistest.Shared(t)
	cfg := Config{Layout: Layout{Prefix: redis.Prefix(t)}, CallTimeout: patience, HeartbeatLimit: time.Hour, QueueLimit: 16}
	c, err := New(cfg, redis.Client(t), zap.NewNop(), nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Register(t.Context(), testNode("n1", freeslot.MaxConcurrencyLimit), "e1"); err != nil {
		t.Fatal(err)
	}
	const callers, enough = 50, 200
	var mu sync.Mutex
	answers := make(map[string]error)
	begun := make(chan struct{})
	var wg sync.WaitGroup
	for range callers {
		wg.Go(func() {
			for {
				s := submission("", "n1")
				_, err := c.Submit(t.Context(), s)
				mu.Lock()
				answers[s.JobID] = err
				if len(answers) == enough {
					close(begun)
				}
				mu.Unlock()
				if err != nil {
					return
				}
			}
		})
	}
	receive(t, begun)
	together(3, func(int) {
		if err := c.Stop(t.Context()); err != nil {
			t.Error(err)
		}
	})
	wg.Wait()
	stopped := 0
	for job, err := range answers {
		_, found := c.Job(t.Context(), "", job)
		switch {
		case err == nil && found != nil:
			t.Errorf("an accepted job: %v", found)
		case err != nil && !errors.Is(err, ErrStopped):
			t.Error(err)
		case err != nil:
			stopped++
			wantErr(t, found, freeslot.CodeNotFound)
		}
	}
	if stopped != callers {
		t.Errorf("%d callers were stopped", stopped)
	}
}

// TestStartStopStress: Start, Stop and Submit in any order and at once.
func TestStartStopStress(t *testing.T) {
	t.Parallel()
	redis := redistest.Shared(t)
	client := redis.Client(t)
	layout := Layout{Prefix: redis.Prefix(t)}
	for range 100 {
		c, err := New(Config{Layout: layout, CallTimeout: patience, HeartbeatLimit: time.Hour}, client, zap.NewNop(), nil)
		if err != nil {
			t.Fatal(err)
		}
		together(6, func(i int) {
			switch i {
			case 0, 1:
				if err := c.Start(t.Context()); err != nil {
					t.Error(err)
				}
			case 2, 3:
				if err := c.Stop(t.Context()); err != nil {
					t.Error(err)
				}
			default:
				if p, err := c.Submit(t.Context(), submission("", "gone")); err != nil && !errors.Is(err, ErrStopped) || p.Assigned {
					t.Errorf("%+v, %v", p, err)
				}
			}
		})
		if err := c.Stop(t.Context()); err != nil {
			t.Error(err)
		}
	}
}

// batchCount reads the histogram of items a call.
func batchCount(t *testing.T, reg *prometheus.Registry, call string) (calls, items int) {
	t.Helper()
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() != "freeslot_redis_batch_items" {
			continue
		}
		for _, m := range f.GetMetric() {
			if m.GetLabel()[0].GetValue() == call {
				h := m.GetHistogram()
				return int(h.GetSampleCount()), int(h.GetSampleSum())
			}
		}
	}
	return 0, 0
}

// TestSubmitUnanswered: the caller of a call that Redis did not answer must be able
// to tell it from one that was never sent.
func TestSubmitUnanswered(t *testing.T) {
	t.Parallel()
	server := redistest.New(t)
	r := newRig(t, server.Target)
	c := open(t, server.Target, func(cfg *Config) { cfg.Layout, cfg.CallTimeout = r.l, 50*time.Millisecond })
	epoch, ctx := r.register(testNode("n1", 2)), r.ctx()
	s := submission("", "n1")
	server.Pause()
	// On a busy machine the time can be over before the call is sent, and then it says so.
	waittest.Succeeds(t, "a submit that was sent", func() error {
		_, err := c.Submit(ctx, s)
		if errors.Is(err, ErrNotSent) {
			return err
		}
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("submit: %v", err)
		}
		return nil
	})
	waittest.Succeeds(t, "an end that was sent", func() error {
		_, err := c.Complete(ctx, succeed("n1", epoch, s.JobID))
		if errors.Is(err, ErrNotSent) {
			return err
		}
		if err == nil {
			t.Error("complete: no error")
		}
		return nil
	})
	server.Resume()
	// It was applied all the same, once: who repeats learns of it. A call that
	// Redis has in its buffers comes before this one.
	p, err := r.Submit(ctx, s)
	if err != nil || !p.Assigned || p.Node != "n1" {
		t.Errorf("repeated submit: %+v, %v", p, err)
	}
	out, err := r.Complete(ctx, succeed("n1", epoch, s.JobID))
	if err != nil || out == CompletedStale {
		t.Errorf("repeated complete: %v, %v", out, err)
	}
	status, err := r.Job(ctx, "", s.JobID)
	if err != nil || !status.State.Terminal() {
		t.Errorf("%+v, %v; want no error, status.State.Terminal()", status, err)
	}
}
