package cell

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/freeslot/freeslot/internal/redistest"
)

// calls is a batch of ints whose calls wait until the test lets them go.
type calls struct {
	*batch[int, string]
	t       *testing.T
	started chan []int
	release chan error
	stop    chan struct{}
	stopped chan struct{}
	once    sync.Once
}

func newCalls(t *testing.T, change func(*batch[int, string])) *calls {
	c := &calls{
		t: t, started: make(chan []int), release: make(chan error),
		stop: make(chan struct{}), stopped: make(chan struct{}),
	}
	c.batch = &batch[int, string]{
		queue: make(chan *item[int, string], 100), size: func(n int) int { return n },
		limit: 4, maxBytes: 100, timeout: patience, observe: func(int) {},
		run: func(_ context.Context, in []int) ([]string, error) {
			c.started <- slices.Clone(in)
			if err := <-c.release; err != nil {
				return nil, err
			}
			out := make([]string, len(in))
			for i, n := range in {
				out[i] = fmt.Sprint(n)
			}
			return out, nil
		},
	}
	if change != nil {
		change(c.batch)
	}
	go func() { c.loop(c.stop); close(c.stopped) }()
	t.Cleanup(func() { c.end(); receive(t, c.stopped) })
	return c
}

func (c *calls) end() { c.once.Do(func() { close(c.stop) }) }

func (c *calls) add(ctx context.Context, n int) *item[int, string] {
	return c.submit(ctx, c.stop, n)
}

// starts waits for the next call and fails unless it carries want.
func (c *calls) starts(want ...int) {
	c.t.Helper()
	if got := receive(c.t, c.started); !slices.Equal(got, want) {
		c.t.Errorf("a call carries %v, want %v", got, want)
	}
}

func (c *calls) answer(err error) {
	c.t.Helper()
	select {
	case c.release <- err:
	case <-time.After(patience):
		c.t.Fatal("no call waits for an answer")
	}
}

func (c *calls) wants(it *item[int, string], out string, target error) {
	c.t.Helper()
	got, err := it.wait(c.stopped)
	if got != out || !errors.Is(err, target) {
		c.t.Errorf("item %d came to %q, %v; want %q, %v", it.in, got, err, out, target)
	}
}

func receive[T any](t *testing.T, c <-chan T) (v T) {
	t.Helper()
	select {
	case v = <-c:
	case <-time.After(patience):
		t.Fatal("waited in vain")
	}
	return v
}

func TestBatchGathers(t *testing.T) {
	t.Parallel()
	c := newCalls(t, nil)
	items := []*item[int, string]{c.add(t.Context(), 1)}
	c.starts(1) // an idle batch sends a single item at once
	for n := 2; n <= 8; n++ {
		items = append(items, c.add(t.Context(), n))
	}
	c.answer(nil)
	c.starts(2, 3, 4, 5) // in the order of arrival, up to the limit
	c.answer(nil)
	c.starts(6, 7, 8)
	c.answer(nil)
	for i, it := range items {
		c.wants(it, fmt.Sprint(i+1), nil)
	}
}

func TestBatchBytes(t *testing.T) {
	t.Parallel()
	c := newCalls(t, nil)
	var items []*item[int, string]
	for _, n := range []int{1, 60, 40, 1, 500, 99, 2} {
		items = append(items, c.add(t.Context(), n))
		if n == 1 && len(items) == 1 {
			c.starts(1)
		}
	}
	for _, want := range [][]int{{60, 40}, {1}, {500}, {99}, {2}} { // a larger one goes alone
		c.answer(nil)
		c.starts(want...)
	}
	c.answer(nil)
	for _, it := range items {
		c.wants(it, fmt.Sprint(it.in), nil)
	}
}

func TestBatchGroups(t *testing.T) {
	t.Parallel()
	c := newCalls(t, func(b *batch[int, string]) { b.group = func(a, b int) bool { return a/10 == b/10 } })
	var items []*item[int, string]
	for _, n := range []int{1, 2, 11, 12, 3, 13} {
		items = append(items, c.add(t.Context(), n))
		if n == 1 {
			c.starts(1)
		}
	}
	for _, want := range [][]int{{2}, {11, 12}, {3}, {13}} { // order is kept
		c.answer(nil)
		c.starts(want...)
	}
	c.answer(nil)
	for _, it := range items {
		c.wants(it, fmt.Sprint(it.in), nil)
	}
}

func TestBatchError(t *testing.T) {
	t.Parallel()
	c := newCalls(t, nil)
	broken := errors.New("broken")
	a := c.add(t.Context(), 1)
	c.starts(1)
	b, d := c.add(t.Context(), 2), c.add(t.Context(), 3)
	c.answer(nil)
	c.starts(2, 3)
	e := c.add(t.Context(), 4)
	c.answer(broken)
	c.starts(4)
	c.answer(nil)
	c.wants(a, "1", nil)
	c.wants(b, "", broken)
	c.wants(d, "", broken)
	c.wants(e, "4", nil)
}

// TestBatchCallerLeaves: who leaves while queued is never sent and knows it; who
// leaves later gets the call's answer.
func TestBatchCallerLeaves(t *testing.T) {
	t.Parallel()
	c := newCalls(t, nil)
	sentCtx, leaveSent := context.WithCancel(t.Context())
	sent := c.add(sentCtx, 1)
	c.starts(1)
	ctx, leave := context.WithCancel(t.Context())
	queued, kept := c.add(ctx, 2), c.add(t.Context(), 3)
	leave()
	leaveSent()
	if out, err := queued.wait(c.stopped); out != "" || !errors.Is(err, ErrNotSent) || !errors.Is(err, context.Canceled) {
		t.Errorf("left while queued: %q, %v", out, err)
	}
	// A context that ended before it was noticed is not sent either.
	late := c.add(ctx, 4)
	c.answer(nil)
	c.starts(3)
	c.answer(nil)
	c.wants(sent, "1", nil)
	c.wants(kept, "3", nil)
	c.wants(late, "", ErrNotSent)
}

// TestBatchFull: callers beyond the queue wait for room, their context or the end.
func TestBatchFull(t *testing.T) {
	t.Parallel()
	c := newCalls(t, func(b *batch[int, string]) { b.queue, b.limit = make(chan *item[int, string], 1), 1 })
	first := c.add(t.Context(), 1)
	c.starts(1)
	second := c.add(t.Context(), 2)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	c.wants(c.add(ctx, 3), "", ErrNotSent)
	room := make(chan *item[int, string])
	go func() { room <- c.add(t.Context(), 4) }()
	c.answer(nil)
	c.starts(2)
	fourth := receive(t, room)
	c.answer(nil)
	c.starts(4)
	fifth := c.add(t.Context(), 5)
	go func() { room <- c.add(t.Context(), 6) }()
	c.end()
	c.wants(receive(t, room), "", ErrStopped)
	c.answer(nil)
	c.wants(first, "1", nil)
	c.wants(second, "2", nil)
	c.wants(fourth, "4", nil)
	c.wants(fifth, "", ErrStopped)
}

// TestBatchStop: the call under way is finished, everything else is answered, the
// one that did not fit the last call included.
func TestBatchStop(t *testing.T) {
	t.Parallel()
	c := newCalls(t, nil)
	first := c.add(t.Context(), 1)
	c.starts(1)
	second, carried, queued := c.add(t.Context(), 2), c.add(t.Context(), 99), c.add(t.Context(), 3)
	c.answer(nil)
	c.starts(2) // 99 is carried over
	c.end()
	c.answer(nil)
	receive(t, c.stopped)
	c.wants(first, "1", nil)
	c.wants(second, "2", nil)
	c.wants(carried, "", ErrStopped)
	c.wants(queued, "", ErrStopped)
	c.wants(c.add(t.Context(), 4), "", ErrStopped)
}

// TestBatchStress: whatever callers do, each gets one answer, and no item is sent
// twice or sent after its caller was told that it was not.
func TestBatchStress(t *testing.T) {
	t.Parallel()
	const callers, each = 32, 200
	var mu sync.Mutex
	sent := make(map[int]bool)
	b := &batch[int, string]{
		queue: make(chan *item[int, string], 8), size: func(int) int { return 1 },
		limit: 16, maxBytes: 10, timeout: patience, observe: func(int) {},
		group: func(a, b int) bool { return a%3 == b%3 },
		run: func(_ context.Context, in []int) ([]string, error) {
			mu.Lock()
			defer mu.Unlock()
			out := make([]string, len(in))
			for i, n := range in {
				if sent[n] {
					t.Errorf("%d was sent twice", n)
				}
				sent[n], out[i] = true, fmt.Sprint(n)
			}
			return out, nil
		},
	}
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() { b.loop(stop); close(stopped) }()
	var wg sync.WaitGroup
	halfway := make(chan struct{})
	for i := range callers {
		wg.Go(func() {
			for k := range each {
				if i == 0 && k == each/2 {
					close(halfway)
				}
				n := i*each + k
				ctx, cancel := context.WithCancel(t.Context())
				if n%4 == 0 {
					go cancel()
				}
				out, err := b.submit(ctx, stop, n).wait(stopped)
				cancel()
				mu.Lock()
				switch {
				case err == nil && (out != fmt.Sprint(n) || !sent[n]):
					t.Errorf("%d came to %q", n, out)
				case err != nil && sent[n]:
					t.Errorf("%d was sent, its caller got %v", n, err)
				case err != nil && !errors.Is(err, ErrNotSent) && !errors.Is(err, ErrStopped):
					t.Errorf("%d: %v", n, err)
				}
				mu.Unlock()
			}
		})
	}
	<-halfway
	close(stop)
	receive(t, stopped)
	wg.Wait()
}

// TestSubmitSharesCalls: while Redis is slow, callers gather: 1 + 128 jobs take 3 calls.
func TestSubmitSharesCalls(t *testing.T) {
	t.Parallel()
	server := redistest.New(t)
	client := server.Client(t)
	reg := prometheus.NewRegistry()
	cfg := Config{Layout: Layout{Prefix: server.Prefix(t)}, CallTimeout: patience}
	c, err := New(cfg, client, nil, reg)
	if err != nil {
		t.Fatal(err)
	}
	calling := make(chan int, 10)
	observe := c.submits.observe
	c.submits.observe = func(n int) { observe(n); calling <- n }
	if err := c.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Stop(context.Background()) })
	if _, err := c.Register(t.Context(), testNode("n1", 1000), "e1"); err != nil {
		t.Fatal(err)
	}
	server.Pause()
	var items []*item[encodedSubmission, Placement]
	add := func() {
		s, err := encodeSubmission(submission("", "n1"))
		if err != nil {
			t.Fatal(err)
		}
		items = append(items, c.submits.submit(t.Context(), c.stopping, s))
	}
	add()
	if n := receive(t, calling); n != 1 {
		t.Errorf("the first call has %d items", n)
	}
	for range 2 * batchItems {
		add()
	}
	server.Resume()
	for i, it := range items {
		p, err := it.wait(c.stopped)
		if err != nil || p.Used != i+1 { // in the order of arrival
			t.Errorf("job %d: %+v, %v", i, p, err)
		}
	}
	if calls, sum := batchCount(t, reg, "submit"); calls != 3 || sum != 1+2*batchItems {
		t.Errorf("%d calls carried %d items", calls, sum)
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
	c := open(t, server.Target, func(cfg *Config) { cfg.CallTimeout = 50 * time.Millisecond })
	epoch := NewEpoch()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if _, err := c.Register(ctx, testNode("n1", 2), epoch); err != nil {
		t.Fatal(err)
	}
	s := submission("", "n1")
	server.Pause()
	_, err := c.Submit(ctx, s)
	if !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, ErrNotSent) {
		t.Errorf("submit: %v", err)
	}
	if _, err := c.Complete(ctx, succeed("n1", epoch, s.JobID)); err == nil || errors.Is(err, ErrNotSent) {
		t.Errorf("complete: %v", err)
	}
	server.Resume()
	// It was applied all the same, once: who repeats learns of it. A call that
	// Redis has in its buffers comes before this one.
	p, err := repeat(ctx, func() (Placement, error) { return c.Submit(ctx, s) })
	if err != nil || !p.Assigned || p.Node != "n1" {
		t.Errorf("repeated submit: %+v, %v", p, err)
	}
	out, err := repeat(ctx, func() (CompletionOutcome, error) { return c.Complete(ctx, succeed("n1", epoch, s.JobID)) })
	if err != nil || out == CompletedStale {
		t.Errorf("repeated complete: %v, %v", out, err)
	}
	status, err := c.Job(ctx, "", s.JobID)
	if err != nil || !status.State.Terminal() {
		t.Errorf("%+v, %v", status, err)
	}
}

// repeat calls f until it brings an answer.
func repeat[T any](ctx context.Context, f func() (T, error)) (v T, err error) {
	for {
		if v, err = f(); err == nil || ctx.Err() != nil {
			return v, err
		}
	}
}
