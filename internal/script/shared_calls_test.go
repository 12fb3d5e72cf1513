package script

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"github.com/freeslot/freeslot/internal/testing/redistest"
)

// slow is a batch that appends to a list on a server that can be paused, and a signal of each call
// that begins.
type slow struct {
	*Batch[string, int64]
	rig    *rig
	server *redistest.Server
	reg    *prometheus.Registry
	calls  chan int // items of the call
}

func newSlow(t *testing.T) *slow {
	t.Helper()
	s := &slow{server: redistest.New(t), reg: prometheus.NewRegistry(), calls: make(chan int, 1000)}
	s.rig = newRig(t, s.server.Target)
	s.rig.Runner = NewRunner(s.rig.cfg, s.server.Client(t), zap.NewNop(), s.reg)
	s.Batch = NewBatch(s.rig.Runner, BatchConfig[string, int64]{
		Name: "append", Size: func(v string) int { return len(v) }, Items: 64, Bytes: 1 << 20, Queue: 4096, Timeout: patience,
		Calls: 1, CallsOfFew: 1, // so that it is known what the next call gathers
		Run: func(ctx context.Context, in []string) ([]int64, error) {
			s.calls <- len(in)
			length, err := appends(ctx, s.rig.Runner, s.rig.key, in...)
			out := make([]int64, len(in))
			for i := range out {
				out[i] = length - int64(len(in)-1-i)
			}
			return out, err
		},
	})
	s.Start()
	t.Cleanup(func() {
		s.server.Resume()
		if err := s.Stop(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return s
}

// TestStopWaitsForLoneCaller: a batch has not stopped before the call that a caller makes itself is
// over.
func TestStopWaitsForLoneCaller(t *testing.T) {
	t.Parallel()
	s := newSlow(t)
	s.server.Pause()
	over := make(chan error, 1)
	go func() { over <- s.Do(t.Context(), []string{"a"})[0].Err }()
	if n := receive(t, s.calls); n != 1 || s.alone.TryLock() {
		t.Fatalf("a call of %d items, which its caller does not make itself", n)
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
		t.Fatalf("appended while Redis stood still: %v", err)
	default:
	}
	s.server.Resume()
	for _, c := range []chan error{over, stopped} {
		if err := receive(t, c); err != nil {
			t.Error(err)
		}
	}
}

// TestSharedCalls: while Redis is slow callers gather: 1 + 128 items take 3 calls.
func TestSharedCalls(t *testing.T) {
	t.Parallel()
	s := newSlow(t)
	const n = 1 + 2*64
	s.server.Pause()
	var items []*item[string, int64]
	for i := range n {
		items = append(items, s.submit(t.Context(), fmt.Sprint(i)))
		if i == 0 && receive(t, s.calls) != 1 {
			t.Error("the first call has more than one item")
		}
	}
	if got := s.Queued(); got != n-1 {
		t.Errorf("%d items are queued", got)
	}
	s.server.Resume()
	for i, it := range items {
		if at, err := outcome(it, s.stopped); err != nil || at != int64(i+1) { // in the order of arrival
			t.Errorf("item %d: %d, %v", i, at, err)
		}
	}
	if calls, sum := batchCount(t, s.reg, "append"); calls != 3 || sum != n {
		t.Errorf("%d calls carried %d items", calls, sum)
	}
}

// TestNotSent: a caller with that error has left no trace.
func TestNotSent(t *testing.T) {
	t.Parallel()
	s := newSlow(t)
	s.server.Pause()
	first := s.submit(t.Context(), "first")
	receive(t, s.calls)
	ctx, leave := context.WithCancel(t.Context())
	want := []string{"first"}
	errs := make(chan error, 20)
	var wg sync.WaitGroup
	for i := range 20 {
		left, kept := s.submit(ctx, "left"), s.submit(t.Context(), fmt.Sprint(i))
		want = append(want, fmt.Sprint(i))
		wg.Go(func() { _, err := outcome(left, s.stopped); errs <- err })
		wg.Go(func() {
			if _, err := outcome(kept, s.stopped); err != nil {
				t.Error(err)
			}
		})
	}
	leave()
	for range 20 {
		if err := receive(t, errs); !errors.Is(err, ErrNotSent) || !errors.Is(err, context.Canceled) {
			t.Errorf("left while queued: %v", err)
		}
	}
	s.server.Resume()
	wg.Wait()
	if _, err := outcome(first, s.stopped); err != nil {
		t.Error(err)
	}
	if got := s.rig.values(); !slices.Equal(got, want) {
		t.Errorf("%q, expected %q", got, want)
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
