package script

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/rueidis"

	"github.com/freeslot/freeslot/internal/yield"
)

// ErrStopped is returned by calls of a batch that was stopped or never started. Nothing was
// changed.
var ErrStopped = errors.New("cell is stopped")

// BatchConfig describes the operation whose calls a Batch gathers.
type BatchConfig[In, Out any] struct {
	// Name is the operation's label in metrics.
	Name string
	// Run makes one call to Redis for several items. It returns one value for each item, in their
	// order.
	Run func(ctx context.Context, in []In) ([]Out, error)
	// Size returns how many bytes an item adds to a call.
	Size func(In) int
	// Group reports whether two items may share a call; nil means always.
	Group func(a, b In) bool
	// Items is the most items in a call, and Bytes the largest sum of their sizes. A larger item
	// goes alone.
	Items, Bytes int
	// Queue bounds the items that wait for the next call. Further callers wait for room.
	Queue int
	// Calls is how many calls may run at once. With few items it is CallsOfFew if that is more,
	// because there is little to gather then.
	Calls, CallsOfFew int64
	// Timeout bounds a call.
	Timeout time.Duration
	// Yields is for callers that have an alternative: after a call without an answer, the items
	// that are queued get ErrNotSent.
	Yields bool
}

// Batch gathers concurrent calls of one operation into arrays. While calls run, the next one
// collects items. An idle batch sends a single item at once.
//
// A few goroutines run its loop, so that Redis has the next call while the answers of one are
// handed out. If there is no other caller, a caller of Do makes the call itself. Items of one call
// are in the order of arrival. Two calls that run at the same time can be carried out in either
// order. A caller that needs an order must wait for the outcome of the first item before it queues
// the second.
type Batch[In, Out any] struct {
	cfg     BatchConfig[In, Out]
	queue   chan *item[In, Out]
	observe func(items int)
	// turn is held by the loop that waits for items and gathers them. Only this loop sets carry,
	// the item that did not fit the last call.
	turn  sync.Mutex
	carry atomic.Pointer[item[In, Out]]
	// present is the number of items in do; alone is held while a caller makes the call itself.
	present atomic.Int64
	alone   sync.Mutex
	// underWay is the number of running calls. ended gets a token when a call has ended.
	underWay atomic.Int64
	ended    chan struct{}
	// running is the number of loops; the holder of turn reads and sets it.
	running int64
	// sharedAt is the time at which the last call shared by several callers ended, in nanoseconds
	// since 1970.
	sharedAt atomic.Int64
	// ready yields to callers that are about to come.
	ready yield.Yielder

	start, stop sync.Once
	started     atomic.Bool // true once the loops take items
	// stopping is closed by Stop, and stopped once no loop runs any more.
	stopping, stopped chan struct{}
	loops             sync.WaitGroup
}

// NewBatch makes a batch with the metrics of r. It starts nothing.
func NewBatch[In, Out any](r *Runner, cfg BatchConfig[In, Out]) *Batch[In, Out] {
	b := newBatch(cfg)
	b.observe = r.metrics.batched(cfg.Name)
	r.metrics.queued(cfg.Name, b.Queued)
	return b
}

func newBatch[In, Out any](cfg BatchConfig[In, Out]) *Batch[In, Out] {
	return &Batch[In, Out]{
		cfg: cfg, queue: make(chan *item[In, Out], cfg.Queue), observe: func(int) {},
		ended: make(chan struct{}, 1), stopping: make(chan struct{}), stopped: make(chan struct{}),
	}
}

// Queued returns the number of items that wait for the next call.
func (b *Batch[In, Out]) Queued() int { return len(b.queue) }

// Start starts the loops that gather calls. It does no I/O.
func (b *Batch[In, Out]) Start() {
	b.start.Do(func() {
		b.started.Store(true)
		b.running = b.cfg.Calls
		for range b.cfg.Calls {
			b.loops.Go(b.loop)
		}
	})
}

// Stop waits for the running calls and refuses further ones with ErrStopped. It may be called
// twice, and on a batch that was never started.
func (b *Batch[In, Out]) Stop(ctx context.Context) error {
	b.start.Do(func() {}) // a batch that is stopped before its Start never starts
	b.stop.Do(func() {
		close(b.stopping)
		go func() {
			b.loops.Wait()
			b.settled()
			close(b.stopped)
		}()
	})
	select {
	case <-b.stopped:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("stop gathering %s: %w", b.cfg.Name, ctx.Err())
	}
}

// Outcome is the result of one item.
type Outcome[Out any] struct {
	Out Out
	Err error
}

// Do queues items and waits for their outcomes, which are in the order of in. Errors: from Run;
// ErrStopped; and ErrNotSent, joined with the error of ctx if it ended while the item was queued,
// or with the error of the call before if the batch yields.
func (b *Batch[In, Out]) Do(ctx context.Context, in []In) []Outcome[Out] {
	items := make([]*item[In, Out], len(in))
	for i := range in {
		items[i] = newItem[In, Out](ctx, in[i])
		if !b.started.Load() {
			items[i].fail(ErrStopped)
		}
	}
	b.do(items)
	out := make([]Outcome[Out], len(in))
	for i, it := range items {
		out[i] = Outcome[Out]{Out: it.out, Err: it.err}
	}
	return out
}

// DoOne is Do for one item, and avoids the slices.
func (b *Batch[In, Out]) DoOne(ctx context.Context, in In) (Out, error) {
	it := newItem[In, Out](ctx, in)
	if !b.started.Load() {
		it.fail(ErrStopped)
	}
	b.do([]*item[In, Out]{it})
	return it.out, it.err
}

// item is one caller's part of a call. done is closed after out and err are set.
type item[In, Out any] struct {
	ctx context.Context
	in  In
	// claimed is won once by a compare-and-swap: by the loop, which then sends and answers the
	// item, or by the caller, which then leaves. So a caller that leaves knows that nothing was
	// sent.
	claimed atomic.Bool
	out     Out
	err     error
	done    chan struct{}
}

func newItem[In, Out any](ctx context.Context, in In) *item[In, Out] {
	return &item[In, Out]{ctx: ctx, in: in, done: make(chan struct{})}
}

// do waits until the items have their outcomes. It does not queue items that have one already.
func (b *Batch[In, Out]) do(items []*item[In, Out]) {
	n := int64(len(items))
	defer b.present.Add(-n)
	if b.present.Add(n) != n || !b.doAlone(items) {
		for _, it := range items {
			b.enqueue(it)
		}
	}
	for _, it := range items {
		it.wait(b.stopped)
	}
}

// doAlone makes the call in the caller's goroutine: without other callers there is nothing to
// gather, and two switches of goroutines take longer than a script. It returns false if others have
// come, or if the items do not fit one call.
func (b *Batch[In, Out]) doAlone(items []*item[In, Out]) bool {
	if len(items) > b.cfg.Items {
		return false
	}
	bytes := 0
	for _, it := range items {
		bytes += b.cfg.Size(it.in)
		if b.cfg.Group != nil && !b.cfg.Group(items[0].in, it.in) {
			return false
		}
	}
	if bytes > b.cfg.Bytes && len(items) > 1 {
		return false
	}
	if time.Now().UnixNano()-b.sharedAt.Load() < int64(returnTime) {
		b.ready.Yield(func() int { return int(b.present.Load()) }) // let that call's callers come first, and share a call
		if b.present.Load() != int64(len(items)) {
			return false
		}
	}
	b.alone.Lock()
	defer b.alone.Unlock()
	select {
	case <-b.stopping: // Stop would not wait for this call
		return false
	default:
	}
	b.underWay.Add(1)
	b.send(slices.Clone(items)) // call changes the slice
	return true
}

// enqueue queues an item that has no outcome yet. If the queue is full, the caller waits for room
// until its context ends or the batch stops. So the source of the items feels the back-pressure.
func (b *Batch[In, Out]) enqueue(it *item[In, Out]) {
	if it.claimed.Load() {
		return
	}
	select {
	case <-b.stopping: // there may be room in the queue, but no loop will empty it
		it.fail(ErrStopped)
		return
	default:
	}
	select {
	case b.queue <- it:
		return
	default: // the queue is full
	}
	select {
	case b.queue <- it:
	case <-it.ctx.Done():
		it.fail(notSent(it.ctx))
	case <-b.stopping:
		it.fail(ErrStopped)
	}
}

func notSent(ctx context.Context) error { return fmt.Errorf("%w: %w", ErrNotSent, ctx.Err()) }

// fail answers an item that only the caller of fail holds.
func (it *item[In, Out]) fail(err error) {
	it.claimed.Store(true)
	it.err = err
	close(it.done)
}

// wait ends when the item has its outcome. A caller whose context ends leaves only while the item
// is queued. Once it is sent, the call's own deadline brings a definite answer soon.
func (it *item[In, Out]) wait(stopped <-chan struct{}) {
	select {
	case <-it.done:
		return
	case <-it.ctx.Done():
		if it.claimed.CompareAndSwap(false, true) {
			it.err = notSent(it.ctx)
			return
		}
	case <-stopped:
		if it.claimed.CompareAndSwap(false, true) {
			it.err = ErrStopped
			return
		}
	}
	<-it.done
}

// loop runs until the batch stops, and then answers the queue with ErrStopped.
func (b *Batch[In, Out]) loop() {
	for {
		b.turn.Lock()
		b.room()
		first := b.next()
		if first == nil {
			b.turn.Unlock()
			b.refuseQueued(ErrStopped)
			return
		}
		// The callers that were just answered will have their next items soon. Taking these along
		// saves a call.
		b.ready.Yield(b.Queued)
		items := b.gather(first)
		if n := b.underWay.Add(1); n >= b.running && b.running < b.cfg.CallsOfFew {
			b.running++
			b.loops.Go(b.loop)
		}
		b.turn.Unlock()
		b.send(items)
		if len(items) > 1 {
			b.sharedAt.Store(time.Now().UnixNano())
		}
	}
}

// returnTime is the time within which callers usually come back with their next items.
const returnTime = time.Millisecond

// room waits until another call can begin. Callers that make their call themselves count too.
func (b *Batch[In, Out]) room() {
	for b.underWay.Load() >= b.allowed() {
		select {
		case <-b.ended:
		case <-b.stopping:
			return
		}
	}
}

// fewItems, times CallsOfFew, is the number of items up to which more calls cost little.
const fewItems = 3

func (b *Batch[In, Out]) allowed() int64 {
	if b.present.Load() > fewItems*b.cfg.CallsOfFew {
		return b.cfg.Calls
	}
	return max(b.cfg.Calls, b.cfg.CallsOfFew)
}

// send makes a call that is counted in underWay already.
func (b *Batch[In, Out]) send(items []*item[In, Out]) {
	defer func() {
		b.underWay.Add(-1)
		select {
		case b.ended <- struct{}{}:
		default: // there is a token already
		}
	}()
	if err := b.call(items); err != nil && b.cfg.Yields && !isAnswer(err) {
		b.refuseQueued(fmt.Errorf("%w, behind a call that failed: %w", ErrNotSent, err))
	}
}

// settled waits for a caller that makes its call alone. Once stopping is closed, no other caller
// starts one.
func (b *Batch[In, Out]) settled() {
	b.alone.Lock()
	defer b.alone.Unlock()
}

// next returns the item that begins the next call: the one that did not fit the last call, or the
// first in the queue. It returns nil once the batch stops. That is checked first, because callers
// that keep coming could delay the stop.
func (b *Batch[In, Out]) next() *item[In, Out] {
	select {
	case <-b.stopping:
		return nil
	default:
	}
	if carry := b.carry.Swap(nil); carry != nil {
		return carry
	}
	select {
	case it := <-b.queue:
		return it
	case <-b.stopping:
		return nil
	}
}

func (b *Batch[In, Out]) gather(first *item[In, Out]) []*item[In, Out] {
	items := append(make([]*item[In, Out], 0, min(len(b.queue)+1, b.cfg.Items)), first)
	bytes := b.cfg.Size(first.in)
	for len(items) < b.cfg.Items {
		select {
		case next := <-b.queue:
			bytes += b.cfg.Size(next.in)
			if bytes > b.cfg.Bytes || b.cfg.Group != nil && !b.cfg.Group(first.in, next.in) {
				b.carry.Store(next)
				return items
			}
			items = append(items, next)
		default:
			return items
		}
	}
	return items
}

// call makes the call. It leaves out items whose caller has left: they were never sent, so their
// outcome is definite.
func (b *Batch[In, Out]) call(items []*item[In, Out]) error {
	in := make([]In, 0, len(items))
	live, bytes := items[:0], 0
	for _, it := range items {
		if it.ctx.Err() != nil || !it.claimed.CompareAndSwap(false, true) {
			continue // its caller sees the end of its context and leaves
		}
		in = append(in, it.in)
		live = append(live, it)
		bytes += b.cfg.Size(it.in)
	}
	if len(in) == 0 {
		return nil
	}
	b.observe(len(in))
	// The call serves many callers, so the context of one must not end it. The deadline does.
	ctx, cancel := context.WithTimeout(
		context.Background(), b.cfg.Timeout+time.Duration(bytes)*time.Second/slowestConnection,
	)
	defer cancel()
	out, err := b.cfg.Run(ctx, in)
	for i, it := range live {
		if err != nil {
			it.err = err
		} else {
			it.out = out[i]
		}
		close(it.done)
	}
	return err
}

// slowestConnection is the least bytes a second that a connection to Redis must carry. A larger
// call gets more time: otherwise its transfer alone could use up the time, and repeating it would
// fail again.
const slowestConnection = 1 << 20

// isAnswer reports whether Redis answered with this error.
func isAnswer(err error) bool {
	var answer *rueidis.RedisError
	return errors.As(err, &answer)
}

// refuseQueued answers the carried item and the items in the queue.
func (b *Batch[In, Out]) refuseQueued(err error) {
	if carry := b.carry.Swap(nil); carry != nil {
		carry.refuse(err)
	}
	for range len(b.queue) {
		select {
		case it := <-b.queue:
			it.refuse(err)
		default: // another loop took the rest
			return
		}
	}
}

// refuse answers an item that will not be sent, unless its caller has left.
func (it *item[In, Out]) refuse(err error) {
	if it.claimed.CompareAndSwap(false, true) {
		it.err = err
		close(it.done)
	}
}
