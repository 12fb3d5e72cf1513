package script

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/rueidis"

	"github.com/freeslot/freeslot/internal/testing/waittest"
)

// calls is a batch of ints whose calls wait until the test lets them go.
type calls struct {
	*Batch[int, string]
	t       *testing.T
	started chan []int
	release chan error
	looped  chan struct{} // closed when the loop has ended
	once    sync.Once
}

func newCalls(t *testing.T, change func(*BatchConfig[int, string])) *calls {
	c := &calls{t: t, started: make(chan []int), release: make(chan error), looped: make(chan struct{})}
	cfg := BatchConfig[int, string]{
		Queue: 100, Calls: 2, Size: func(n int) int { return n }, Items: 4, Bytes: 100, Timeout: patience,
		Run: func(_ context.Context, in []int) ([]string, error) {
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
		change(&cfg)
	}
	c.Batch = newBatch(cfg)
	c.running = 1
	go func() { c.loop(); close(c.looped); c.settled(); close(c.stopped) }()
	t.Cleanup(func() { c.end(); receive(t, c.stopped) })
	return c
}

func (c *calls) end() { c.once.Do(func() { close(c.stopping) }) }

// submit queues in.
func (b *Batch[In, Out]) submit(ctx context.Context, in In) *item[In, Out] {
	it := newItem[In, Out](ctx, in)
	b.enqueue(it)
	return it
}

func outcome[In, Out any](it *item[In, Out], stopped <-chan struct{}) (Out, error) {
	it.wait(stopped)
	return it.out, it.err
}

func (c *calls) add(ctx context.Context, n int) *item[int, string] {
	return c.submit(ctx, n)
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
	waittest.Until(c.t, "a call that waits for an answer", func() bool {
		select {
		case c.release <- err:
			return true
		default:
			return false
		}
	})
}

func (c *calls) wants(it *item[int, string], out string, target error) {
	c.t.Helper()
	got, err := outcome(it, c.stopped)
	if got != out || !errors.Is(err, target) {
		c.t.Errorf("item %d came to %q, %v; want %q, %v", it.in, got, err, out, target)
	}
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
	c := newCalls(t, func(b *BatchConfig[int, string]) { b.Group = func(a, b int) bool { return a/10 == b/10 } })
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

// TestBatchCarry: what does not fit a call that is under way waits for no loop but the first that
// is free.
func TestBatchCarry(t *testing.T) {
	t.Parallel()
	c := newCalls(t, nil)
	var other sync.WaitGroup
	items := []*item[int, string]{c.add(t.Context(), 1)}
	c.starts(1)
	items = append(items, c.add(t.Context(), 60), c.add(t.Context(), 50))
	other.Go(c.loop)
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

// together queues items by one do, and signals on the channel when it is over.
func (c *calls) together(items ...*item[int, string]) <-chan struct{} {
	over := make(chan struct{})
	go func() { defer close(over); c.do(items) }()
	return over
}

// rests is time enough for what must not happen.
func (c *calls) rests() {
	for range 10_000 {
		runtime.Gosched()
	}
}

// TestBatchAlone: a caller without others makes the call itself. Later callers are not affected:
// they have the loop.
func TestBatchAlone(t *testing.T) {
	t.Parallel()
	c := newCalls(t, nil)
	left, leave := context.WithCancel(t.Context())
	leave()
	refused, gone := newItem[int, string](t.Context(), 0), newItem[int, string](left, 5)
	refused.fail(errors.New("refused"))
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
		t.Errorf(`%q, %v, %v; want second.out == "3", errors.Is(gone.err, ErrNotSent), not errors.Is(refused.err, ErrNotSent)`, second.out, gone.err, refused.err)
	}
}

// TestBatchAloneTooMuch: what does not fit a call goes to the loop, which splits it.
func TestBatchAloneTooMuch(t *testing.T) {
	t.Parallel()
	for name, of := range map[string][]int{"items": {1, 1, 1, 1, 1}, "bytes": {60, 60}, "groups": {1, 11}} {
		c := newCalls(t, func(b *BatchConfig[int, string]) { b.Group = func(a, b int) bool { return a/10 == b/10 } })
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

// TestBatchAloneStop: what stops a batch waits for the call that a caller makes itself, and there
// is none after it.
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
	c.do([]*item[int, string]{late})
	if it.out != "1" || !errors.Is(late.err, ErrStopped) {
		t.Errorf("%q, %v; then %v", it.out, it.err, late.err)
	}
}

// TestBatchAloneCounts: a call that its caller makes is one of those that may be under way.
func TestBatchAloneCounts(t *testing.T) {
	t.Parallel()
	var underWay, most atomic.Int64
	c := newCalls(t, func(b *BatchConfig[int, string]) {
		run := b.Run
		b.Calls, b.Run = 2, func(ctx context.Context, in []int) ([]string, error) {
			n := underWay.Add(1)
			defer underWay.Add(-1)
			most.Store(max(most.Load(), n))
			return run(ctx, in)
		}
	})
	var other sync.WaitGroup
	other.Go(c.loop)
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

// TestBatchAloneYields: when the call of a lone caller gets no answer, the queue behind it is
// refused.
func TestBatchAloneYields(t *testing.T) {
	t.Parallel()
	c := newCalls(t, func(b *BatchConfig[int, string]) { b.Yields = true })
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

// TestBatchCallsOfFew: while calls carry few items more of them are under way than else, by loops
// that come when they are needed.
func TestBatchCallsOfFew(t *testing.T) {
	t.Parallel()
	var underWay, atStart atomic.Int64 // atStart is how many calls there were when the last one began, itself included
	c := newCalls(t, func(b *BatchConfig[int, string]) {
		b.Items, b.CallsOfFew = 64, 4
		b.Size = func(int) int { return 1 }
		run := b.Run
		b.Run = func(ctx context.Context, in []int) ([]string, error) {
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
	c.loops.Wait()
}

// TestBatchFull: callers beyond the queue wait for room, their context or the end.
func TestBatchFull(t *testing.T) {
	t.Parallel()
	c := newCalls(t, func(b *BatchConfig[int, string]) { b.Queue, b.Items = 1, 1 })
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

// TestBatchStress: for any calls, each caller gets one answer, no item is sent twice, or after its
// caller learned that it was not sent, and no more calls run than may, including the ones that
// callers make themselves.
func TestBatchStress(t *testing.T) {
	t.Parallel()
	const callers, each = 32, 200
	var mu sync.Mutex
	var underWay, most atomic.Int64
	sent := make(map[int]bool)
	b := newBatch(BatchConfig[int, string]{
		Queue: 8, Calls: 2, Size: func(int) int { return 1 },
		Items: 16, Bytes: 10, Timeout: patience,
		Group: func(a, b int) bool { return a%3 == b%3 },
		Run: func(_ context.Context, in []int) ([]string, error) {
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
	})
	b.Start()
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
				o := b.Do(ctx, []int{n})[0]
				out, err := o.Out, o.Err
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
	if err := b.Stop(t.Context()); err != nil {
		t.Error(err)
	}
	wg.Wait()
	if n := most.Load(); n > b.cfg.Calls {
		t.Errorf("%d calls were under way at once, expected at most %d", n, b.cfg.Calls)
	}
}

// TestBatchYields: who is queued behind a call that gets no answer learns at once
// that nothing was sent, and can go elsewhere; an error that Redis answers with is
// no reason.
func TestBatchYields(t *testing.T) {
	t.Parallel()
	c := newCalls(t, func(b *BatchConfig[int, string]) { b.Yields = true })
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
		b := newBatch(BatchConfig[int, string]{
			Queue: queued, Calls: loopCount, Size: func(int) int { return 1 }, Items: 1, Bytes: 100, Timeout: patience, Yields: true,
			Run: func(context.Context, []int) ([]string, error) {
				calls.Done()
				calls.Wait() // each loop has one call, and all fail at once
				return nil, broken
			},
		})
		items := make([]*item[int, string], queued)
		for i := range items {
			items[i] = b.submit(t.Context(), i)
		}
		for range loopCount {
			loops.Go(func() {
				items := b.gather(b.next())
				b.underWay.Add(1)
				b.send(items)
			})
		}
		go func() { loops.Wait(); close(b.stopped) }()
		receive(t, b.stopped)
		for i, it := range items {
			if _, err := outcome(it, b.stopped); !errors.Is(err, broken) {
				t.Errorf("%d: %v; want errors.Is(err, broken)", i, err)
			}
		}
	}
}

// A call gets more time the larger it is.
func TestCallOfManyBytesHasLonger(t *testing.T) {
	t.Parallel()
	synctest.Test(t, callOfManyBytesHasLonger)
}

func callOfManyBytesHasLonger(t *testing.T) {
	for _, bytes := range []int{1, 16 << 20} {
		left := make(chan time.Duration, 1)
		c := newCalls(t, func(b *BatchConfig[int, string]) {
			b.Timeout, b.Bytes = time.Hour, 1
			b.Run = func(ctx context.Context, _ []int) ([]string, error) {
				deadline, _ := ctx.Deadline()
				left <- time.Until(deadline)
				return []string{""}, nil
			}
		})
		c.add(t.Context(), bytes)
		want := time.Hour + time.Duration(bytes/slowestConnection)*time.Second
		if got := receive(t, left); got < want || got > want+time.Second { // in virtual time
			t.Errorf("%d bytes have %s, expected %s", bytes, got, want)
		}
	}
}
