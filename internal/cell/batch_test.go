package cell

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/rueidis"
	"go.uber.org/zap"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/redistest"
)

// calls is a batch of ints whose calls wait until the test lets them go.
type calls struct {
	*batch[int, string]
	t       *testing.T
	started chan []int
	release chan error
	stop    chan struct{}
	looped  chan struct{} // closed when the loop has ended
	stopped chan struct{}
	once    sync.Once
}

func newCalls(t *testing.T, change func(*batch[int, string])) *calls {
	c := &calls{
		t: t, started: make(chan []int), release: make(chan error),
		stop: make(chan struct{}), looped: make(chan struct{}), stopped: make(chan struct{}),
	}
	c.batch = &batch[int, string]{
		queue: make(chan *item[int, string], 100), calls: 2, ended: make(chan struct{}, 1), size: func(n int) int { return n },
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
	go func() { c.loop(c.stop); close(c.looped); c.settled(); close(c.stopped) }()
	t.Cleanup(func() { c.end(); receive(t, c.stopped) })
	return c
}

func (c *calls) end() { c.once.Do(func() { close(c.stop) }) }

// submit queues in.
func (b *batch[In, Out]) submit(ctx context.Context, stopping <-chan struct{}, in In) *item[In, Out] {
	it := newItem[In, Out](ctx, in)
	b.enqueue(stopping, it)
	return it
}

func outcome[In, Out any](it *item[In, Out], stopped <-chan struct{}) (Out, error) {
	it.wait(stopped)
	return it.out, it.err
}

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
	got, err := outcome(it, c.stopped)
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

// TestBatchCarry: what does not fit a call that is under way waits for no loop but the first that is free.
func TestBatchCarry(t *testing.T) {
	t.Parallel()
	c := newCalls(t, nil)
	var other sync.WaitGroup
	items := []*item[int, string]{c.add(t.Context(), 1)}
	c.starts(1)
	items = append(items, c.add(t.Context(), 60), c.add(t.Context(), 50))
	other.Go(func() { c.loop(c.stop) })
	c.starts(60)
	c.answer(nil)
	c.starts(50)
	c.answer(nil)
	c.answer(nil)
	for _, it := range items {
		c.wants(it, fmt.Sprint(it.in), nil)
	}
	c.end()
	other.Wait()
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
	if out, err := outcome(queued, c.stopped); out != "" || !errors.Is(err, ErrNotSent) || !errors.Is(err, context.Canceled) {
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

// together hands items in by one do, and tells on the channel when it is over.
func (c *calls) together(items ...*item[int, string]) <-chan struct{} {
	over := make(chan struct{})
	go func() { defer close(over); c.do(c.stop, c.stopped, items) }()
	return over
}

// rests is time enough for what must not happen.
func (c *calls) rests() {
	for range 10_000 {
		runtime.Gosched()
	}
}

// TestBatchAlone: a caller who finds nobody makes the call, of which others take no notice: they have the loop.
func TestBatchAlone(t *testing.T) {
	t.Parallel()
	c := newCalls(t, nil)
	left, leave := context.WithCancel(t.Context())
	leave()
	refused, gone := failed[int, string](errors.New("refused")), newItem[int, string](left, 5)
	first := []*item[int, string]{newItem[int, string](t.Context(), 1), refused, gone, newItem[int, string](t.Context(), 2)}
	over := c.together(first...)
	c.starts(1, 2)
	if c.alone.TryLock() {
		t.Error("the first caller has not made its call itself")
	}
	second := newItem[int, string](t.Context(), 3)
	overToo := c.together(second)
	c.starts(3)
	c.answer(nil)
	c.answer(nil)
	receive(t, over)
	receive(t, overToo)
	for i, want := range []string{"1", "", "", "2"} {
		if first[i].out != want || (want == "") != (first[i].err != nil) {
			t.Errorf("item %d came to %q, %v", i, first[i].out, first[i].err)
		}
	}
	if second.out != "3" || !errors.Is(gone.err, ErrNotSent) || errors.Is(refused.err, ErrNotSent) {
		t.Errorf("%q, %v, %v", second.out, gone.err, refused.err)
	}
}

// TestBatchAloneTooMuch: what does not fit a call goes to the loop, which splits it.
func TestBatchAloneTooMuch(t *testing.T) {
	t.Parallel()
	for name, of := range map[string][]int{"items": {1, 1, 1, 1, 1}, "bytes": {60, 60}, "groups": {1, 11}} {
		c := newCalls(t, func(b *batch[int, string]) { b.group = func(a, b int) bool { return a/10 == b/10 } })
		var items []*item[int, string]
		for _, n := range of {
			items = append(items, newItem[int, string](t.Context(), n))
		}
		over := c.together(items...)
		for left := len(items); left > 0; {
			left -= len(receive(t, c.started))
			if !c.alone.TryLock() {
				t.Fatalf("%s: too much for a call was sent by its caller", name)
			}
			c.alone.Unlock()
			c.answer(nil)
		}
		receive(t, over)
	}
}

// TestBatchAloneStop: what stops a batch waits for the call that a caller makes itself, and there is none after it.
func TestBatchAloneStop(t *testing.T) {
	t.Parallel()
	c := newCalls(t, nil)
	it := newItem[int, string](t.Context(), 1)
	over := c.together(it)
	c.starts(1)
	c.end()
	receive(t, c.looped)
	c.rests()
	select {
	case <-c.stopped:
		t.Error("the batch has stopped beside a call")
	default:
	}
	c.answer(nil)
	receive(t, over)
	receive(t, c.stopped)
	late := newItem[int, string](t.Context(), 2)
	c.do(c.stop, c.stopped, []*item[int, string]{late})
	if it.out != "1" || !errors.Is(late.err, ErrStopped) {
		t.Errorf("%q, %v; then %v", it.out, it.err, late.err)
	}
}

// TestBatchAloneCounts: a call that its caller makes is one of those that may be under way.
func TestBatchAloneCounts(t *testing.T) {
	t.Parallel()
	var underWay, most atomic.Int64
	c := newCalls(t, func(b *batch[int, string]) {
		run := b.run
		b.calls, b.run = 2, func(ctx context.Context, in []int) ([]string, error) {
			n := underWay.Add(1)
			defer underWay.Add(-1)
			most.Store(max(most.Load(), n))
			return run(ctx, in)
		}
	})
	var other sync.WaitGroup
	other.Go(func() { c.loop(c.stop) })
	over := []<-chan struct{}{c.together(newItem[int, string](t.Context(), 1))}
	c.starts(1)
	over = append(over, c.together(newItem[int, string](t.Context(), 2)))
	c.starts(2)
	third := c.add(t.Context(), 3)
	c.rests()
	c.answer(nil)
	c.starts(3)
	c.answer(nil)
	c.answer(nil)
	c.wants(third, "3", nil)
	for _, o := range over {
		receive(t, o)
	}
	if n := most.Load(); n != 2 {
		t.Errorf("%d calls were under way at once", n)
	}
	c.end()
	other.Wait()
}

// TestBatchAloneYields: who makes the call itself tells the queue behind it of a Redis that does not answer.
func TestBatchAloneYields(t *testing.T) {
	t.Parallel()
	c := newCalls(t, func(b *batch[int, string]) { b.yields = true })
	over := c.together(newItem[int, string](t.Context(), 1))
	c.starts(1)
	sent := c.add(t.Context(), 2)
	c.starts(2)
	queued := c.add(t.Context(), 3)
	c.answer(errors.New("broken"))
	c.answer(errors.New("broken"))
	receive(t, over)
	c.wants(queued, "", ErrNotSent)
	if _, err := outcome(sent, c.stopped); err == nil || errors.Is(err, ErrNotSent) {
		t.Errorf("sent: %v", err)
	}
}

// TestBatchCallsOfFew: while calls carry few items more of them are under way than else, by loops that come when they
// are needed.
func TestBatchCallsOfFew(t *testing.T) {
	t.Parallel()
	var underWay, atStart atomic.Int64 // atStart is how many calls there were when the last one began, itself included
	var more sync.WaitGroup
	var c *calls
	c = newCalls(t, func(b *batch[int, string]) {
		b.limit, b.callsOfFew, b.loops = 64, 4, 1
		b.more = func() { more.Go(func() { c.loop(c.stop) }) }
		b.size = func(int) int { return 1 }
		run := b.run
		b.run = func(ctx context.Context, in []int) ([]string, error) {
			atStart.Store(underWay.Add(1))
			defer underWay.Add(-1)
			return run(ctx, in)
		}
	})
	begins := func(atMost int64, want ...int) {
		t.Helper()
		c.starts(want...)
		if n := atStart.Load(); n > atMost {
			t.Errorf("%d calls were under way when the one of %d items began, expected at most %d", n, len(want), atMost)
		}
	}
	var items []*item[int, string]
	var over []<-chan struct{}
	add := func(numbers ...int) {
		var of []*item[int, string]
		for _, n := range numbers {
			of = append(of, newItem[int, string](t.Context(), n))
		}
		items, over = append(items, of...), append(over, c.together(of...))
	}
	for n := 1; n <= 4; n++ {
		add(n)
		begins(4, n)
	}
	var many []int
	for n := 5; n <= 5+fewItems*4; n++ {
		many = append(many, n)
	}
	add(many...)
	for range 3 {
		c.rests()
		c.answer(nil)
	}
	begins(2, many...)
	c.answer(nil)
	c.answer(nil)
	for _, o := range over {
		receive(t, o)
	}
	for i, it := range items {
		c.wants(it, fmt.Sprint(i+1), nil)
	}
	c.end()
	more.Wait()
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

// TestBatchStress: whatever callers do, each gets one answer, no item is sent twice or sent after its caller was
// told that it was not, and no more calls are under way than may be, those included that callers make themselves.
func TestBatchStress(t *testing.T) {
	t.Parallel()
	const callers, each = 32, 200
	var mu sync.Mutex
	var underWay, most atomic.Int64
	sent := make(map[int]bool)
	b := &batch[int, string]{
		queue: make(chan *item[int, string], 8), calls: batchLoops, ended: make(chan struct{}, 1), size: func(int) int { return 1 },
		limit: 16, maxBytes: 10, timeout: patience, observe: func(int) {},
		group: func(a, b int) bool { return a%3 == b%3 },
		run: func(_ context.Context, in []int) ([]string, error) {
			n := underWay.Add(1)
			defer underWay.Add(-1)
			runtime.Gosched()
			mu.Lock()
			defer mu.Unlock()
			most.Store(max(most.Load(), n))
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
	var loops, wg sync.WaitGroup
	for range batchLoops {
		loops.Go(func() { b.loop(stop) })
	}
	go func() { loops.Wait(); b.settled(); close(stopped) }()
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
				it := newItem[int, string](ctx, n)
				b.do(stop, stopped, []*item[int, string]{it})
				out, err := it.out, it.err
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
	if n := most.Load(); n > batchLoops {
		t.Errorf("%d calls were under way at once, expected at most %d", n, batchLoops)
	}
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
	cfg := Config{Layout: Layout{Prefix: s.server.Prefix(t)}, CallTimeout: patience}
	var err error
	if s.Cell, err = New(cfg, s.server.Client(t), zap.NewNop(), s.reg); err != nil {
		t.Fatal(err)
	}
	s.loopCount, s.submits.callsOfFew = 1, 1 // so that it is known what the next call gathers
	submits, completions := s.submits.observe, s.completions.observe
	s.submits.observe = func(n int) { submits(n); s.calls <- n }
	s.completions.observe = func(n int) { completions(n); s.calls <- n }
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

func (s *slow) queue(t *testing.T, sub Submission) *item[encodedSubmission, Placement] {
	t.Helper()
	return s.queueOf(t.Context(), sub)
}

// queueOf queues a submission, and does not wait for its outcome.
func (s *slow) queueOf(ctx context.Context, sub Submission) *item[encodedSubmission, Placement] {
	it := s.submission(ctx, &sub, 1)
	s.submits.enqueue(s.stopping, it)
	return it
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
	if n := receive(t, s.calls); n != 1 || s.submits.alone.TryLock() {
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

// TestSharedCalls: while Redis is slow callers gather: 1 + 128 jobs take 3 calls, to
// submit and to complete.
func TestSharedCalls(t *testing.T) {
	t.Parallel()
	s := newSlow(t)
	const n = 1 + 2*batchItems
	s.server.Pause()
	var subs []Submission
	var items []*item[encodedSubmission, Placement]
	for i := range n {
		subs = append(subs, submission("", "n1"))
		items = append(items, s.queue(t, subs[i]))
		if i == 0 && receive(t, s.calls) != 1 {
			t.Error("the first call has more than one item")
		}
	}
	s.server.Resume()
	for i, it := range items {
		p, err := outcome(it, s.stopped)
		if err != nil || p.Used != i+1 { // in the order of arrival
			t.Errorf("job %d: %+v, %v", i, p, err)
		}
	}
	if calls, sum := batchCount(t, s.reg, "submit"); calls != 3 || sum != n {
		t.Errorf("%d calls carried %d jobs", calls, sum)
	}
	for len(s.calls) > 0 {
		<-s.calls
	}
	s.server.Pause()
	outcomes := make(chan CompletionOutcome, n)
	var ends []*item[Completion, CompletionOutcome]
	for i := range n {
		ends = append(ends, s.completions.submit(t.Context(), s.stopping, succeed("n1", s.epoch, subs[i].JobID)))
		if i == 0 && receive(t, s.calls) != 1 {
			t.Error("the first call has more than one item")
		}
	}
	s.server.Resume()
	for _, it := range ends {
		out, err := outcome(it, s.stopped)
		if err != nil {
			t.Error(err)
		}
		outcomes <- out
	}
	for range n {
		if out := <-outcomes; out != Completed {
			t.Errorf("outcome %s", out)
		}
	}
	if calls, sum := batchCount(t, s.reg, "complete"); calls != 3 || sum != n {
		t.Errorf("%d calls carried %d completions", calls, sum)
	}
}

// TestCallBytes: jobs that are large together do not share a call.
func TestCallBytes(t *testing.T) {
	t.Parallel()
	s := newSlow(t)
	s.server.Pause()
	first := s.queue(t, submission("", "n1"))
	receive(t, s.calls)
	items := []*item[encodedSubmission, Placement]{first}
	for _, size := range []int{batchBytes / 2, batchBytes/2 - 1000, 2000, 2 * batchBytes, 10} {
		sub := submission("", "n1")
		sub.Job.Payload = json.RawMessage(`"` + strings.Repeat("x", size) + `"`)
		items = append(items, s.queue(t, sub))
	}
	s.server.Resume()
	for _, want := range []int{2, 1, 1, 1} {
		if got := receive(t, s.calls); got != want {
			t.Errorf("a call carries %d jobs, want %d", got, want)
		}
	}
	for i, it := range items {
		if p, err := outcome(it, s.stopped); err != nil || !p.Assigned {
			t.Errorf("job %d: %+v, %v", i, p, err)
		}
	}
}

// TestNotSent: who is told so has left no trace.
func TestNotSent(t *testing.T) {
	t.Parallel()
	s := newSlow(t)
	s.server.Pause()
	first := s.queue(t, submission("", "n1"))
	receive(t, s.calls)
	ctx, leave := context.WithCancel(t.Context())
	var stays, leaves []Submission
	errs := make(chan error, 20)
	var wg sync.WaitGroup
	for range 20 {
		a, b := submission("", "n1"), submission("", "n1")
		stays, leaves = append(stays, a), append(leaves, b)
		left, kept := s.queueOf(ctx, b), s.queue(t, a)
		wg.Go(func() { _, err := outcome(left, s.stopped); errs <- err })
		wg.Go(func() {
			if p, err := outcome(kept, s.stopped); err != nil || !p.Assigned {
				t.Errorf("%+v, %v", p, err)
			}
		})
	}
	leave()
	for range leaves {
		if err := receive(t, errs); !errors.Is(err, ErrNotSent) || !errors.Is(err, context.Canceled) {
			t.Errorf("left while queued: %v", err)
		}
	}
	s.server.Resume()
	wg.Wait()
	if _, err := outcome(first, s.stopped); err != nil {
		t.Error(err)
	}
	for i := range leaves {
		_, err := s.Job(t.Context(), "", leaves[i].JobID)
		wantErr(t, err, freeslot.CodeNotFound)
		if _, err := s.Job(t.Context(), "", stays[i].JobID); err != nil {
			t.Error(err)
		}
	}
}

// TestStopUnderLoad: every caller is answered; those told that the cell is stopped
// have left no trace, all others are placed.
func TestStopUnderLoad(t *testing.T) {
	t.Parallel()
	redis := redistest.Shared(t)
	cfg := Config{Layout: Layout{Prefix: redis.Prefix(t)}, CallTimeout: patience, QueueLimit: 16}
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
		c, err := New(Config{Layout: layout, CallTimeout: patience}, client, zap.NewNop(), nil)
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

// TestBatchYields: who is queued behind a call that gets no answer learns at once
// that nothing was sent, and can go elsewhere; an error that Redis answers with is
// no reason.
func TestBatchYields(t *testing.T) {
	t.Parallel()
	c := newCalls(t, func(b *batch[int, string]) { b.yields = true })
	broken := errors.New("broken")
	a := c.add(t.Context(), 1)
	c.starts(1)
	b, carried, queued := c.add(t.Context(), 60), c.add(t.Context(), 500), c.add(t.Context(), 7)
	ctx, leave := context.WithCancel(t.Context())
	left := c.add(ctx, 8)
	leave()
	c.wants(left, "", context.Canceled)
	c.answer(fmt.Errorf("wrapped: %w", new(rueidis.RedisError)))
	c.starts(60)
	c.answer(broken)
	if _, err := outcome(b, c.stopped); !errors.Is(err, broken) || errors.Is(err, ErrNotSent) {
		t.Errorf("sent: %v", err)
	}
	for _, it := range []*item[int, string]{carried, queued} {
		c.wants(it, "", ErrNotSent)
		c.wants(it, "", broken)
	}
	d := c.add(t.Context(), 9)
	c.starts(9)
	c.answer(nil)
	c.wants(d, "9", nil)
	if _, err := outcome(a, c.stopped); err == nil || errors.Is(err, ErrNotSent) {
		t.Errorf("refused by Redis: %v", err)
	}
}

// TestBatchYieldsOfSeveralLoops: loops whose calls fail at the same time share out the
// queue behind them, and none waits for an item that another has answered.
func TestBatchYieldsOfSeveralLoops(t *testing.T) {
	t.Parallel()
	const rounds, loopCount, queued = 200, 4, 64
	broken := errors.New("broken")
	for range rounds {
		var calls, loops sync.WaitGroup
		calls.Add(loopCount)
		b := &batch[int, string]{
			queue: make(chan *item[int, string], queued), calls: loopCount, ended: make(chan struct{}, 1), size: func(int) int { return 1 },
			limit: 1, maxBytes: 100, timeout: patience, observe: func(int) {}, yields: true,
		}
		b.run = func(context.Context, []int) ([]string, error) {
			calls.Done()
			calls.Wait() // each loop has one call, and all fail at once
			return nil, broken
		}
		stop, stopped := make(chan struct{}), make(chan struct{})
		items := make([]*item[int, string], queued)
		for i := range items {
			items[i] = b.submit(t.Context(), stop, i)
		}
		for range loopCount {
			loops.Go(func() {
				b.yield(b.call(b.gather(b.next(stop))))
			})
		}
		go func() { loops.Wait(); close(stopped) }()
		receive(t, stopped)
		for i, it := range items {
			if _, err := outcome(it, stopped); !errors.Is(err, broken) {
				t.Errorf("%d: %v", i, err)
			}
		}
	}
}

// What takes long to send has longer to be answered.
func TestCallOfManyBytesHasLonger(t *testing.T) {
	t.Parallel()
	for _, bytes := range []int{1, 16 << 20} {
		left := make(chan time.Duration, 1)
		c := newCalls(t, func(b *batch[int, string]) {
			b.timeout, b.maxBytes = time.Hour, 1
			b.run = func(ctx context.Context, _ []int) ([]string, error) {
				deadline, _ := ctx.Deadline()
				left <- time.Until(deadline)
				return []string{""}, nil
			}
		})
		c.add(t.Context(), bytes)
		want := time.Hour + time.Duration(bytes/slowestLink)*time.Second
		if got := receive(t, left); got > want+time.Second || got < want-time.Minute/2 {
			t.Errorf("%d bytes have %s, expected %s", bytes, got, want)
		}
	}
}
