package cell

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/rueidis"
)

// batch gathers concurrent calls of one operation into arrays. While calls
// run, the next collects; an idle batch sends a single item at once.
//
// A few goroutines, owned by the Cell, run its loop, so that Redis has the next
// call while the answers of one are handed out. A caller of do who finds nobody
// else makes the call instead of waking one of them. Items of one call stand in the
// order of arrival. Items of two calls under way may be carried out in either
// order, so a caller for whom the order counts waits for the outcome of the first
// before it queues the second; of several at once for one job or attempt, the
// scripts let one win and tell the others that it is done.
type batch[In, Out any] struct {
	queue    chan *item[In, Out]
	run      func(ctx context.Context, in []In) ([]Out, error)
	size     func(In) int
	group    func(a, b In) bool // may the two share a call? nil = always
	limit    int                // items a call
	maxBytes int                // sum of size a call; a single larger item goes alone
	timeout  time.Duration
	observe  func(items int)
	// turn is held by the loop that waits for items and gathers them, which alone sets carry: the item that did
	// not fit the last call.
	turn  sync.Mutex
	carry atomic.Pointer[item[In, Out]]
	// yields makes a call that got no answer answer the queue behind it with
	// ErrNotSent: its callers know somewhere else to go.
	yields bool
	// present is how many items are in do; alone is held while a caller makes the call itself.
	present atomic.Int64
	alone   sync.Mutex
	// underWay is how many calls are; ended gets a token when one has ended. The batch has calls of them at a time, and up
	// to callsOfFew while few items are there: then not much can be gathered.
	calls, callsOfFew int64
	underWay          atomic.Int64
	ended             chan struct{}
	// loops is how many run, which who holds turn reads and sets; more begins one more.
	loops int64
	more  func()
	// sharedAt is when the last call ended that several callers shared, in nanoseconds since 1970.
	sharedAt atomic.Int64
}

// item is one caller's part. done is closed after out and err are set.
type item[In, Out any] struct {
	ctx context.Context
	in  In
	// claimed is won once by a compare-and-swap: by the loop, which then sends
	// the item and answers it, or by the caller, who then leaves: a caller who
	// leaves knows that nothing was sent.
	claimed atomic.Bool
	out     Out
	err     error
	done    chan struct{}
}

func newItem[In, Out any](ctx context.Context, in In) *item[In, Out] {
	return &item[In, Out]{ctx: ctx, in: in, done: make(chan struct{})}
}

// do hands items in and waits until they have their outcomes; those that have one
// are passed over. stopping ends the taking of items, stopped the waiting.
func (b *batch[In, Out]) do(stopping, stopped <-chan struct{}, items []*item[In, Out]) {
	n := int64(len(items))
	defer b.present.Add(-n)
	if b.present.Add(n) != n || !b.doAlone(stopping, items) {
		for _, it := range items {
			b.enqueue(stopping, it)
		}
	}
	for _, it := range items {
		it.wait(stopped)
	}
}

// doAlone makes the call in the caller's goroutine: where nobody else is, nothing can
// be gathered, and to wake another goroutine and be woken by it takes longer than
// what a script does. It is false when others are there after all, or the items do not
// fit one call.
func (b *batch[In, Out]) doAlone(stopping <-chan struct{}, items []*item[In, Out]) bool {
	if len(items) > b.limit {
		return false
	}
	bytes := 0
	for _, it := range items {
		bytes += b.size(it.in)
		if b.group != nil && !b.group(items[0].in, it.in) {
			return false
		}
	}
	if bytes > b.maxBytes && len(items) > 1 {
		return false
	}
	if time.Now().UnixNano()-b.sharedAt.Load() < int64(returnTime) {
		runtime.Gosched() // they come first, and share a call
		if b.present.Load() != int64(len(items)) {
			return false
		}
	}
	b.alone.Lock()
	defer b.alone.Unlock()
	select {
	case <-stopping: // or else what stops would not wait for this call
		return false
	default:
	}
	b.underWay.Add(1)
	b.send(slices.Clone(items)) // a call closes up what it leaves out
	return true
}

// enqueue queues an item that has no outcome yet. When the queue is full the caller
// waits for room until its context ends or the batch stops: the back-pressure reaches
// whoever feeds it.
func (b *batch[In, Out]) enqueue(stopping <-chan struct{}, it *item[In, Out]) {
	if it.claimed.Load() {
		return
	}
	select {
	case <-stopping: // there would be room in the queue, but soon nobody who empties it
		it.fail(ErrStopped)
		return
	default:
	}
	select { // nearly always there is room, which is known for less than what a select of three takes
	case b.queue <- it:
		return
	default:
	}
	select {
	case b.queue <- it:
	case <-it.ctx.Done():
		it.fail(notSent(it.ctx))
	case <-stopping:
		it.fail(ErrStopped)
	}
}

func notSent(ctx context.Context) error { return fmt.Errorf("%w: %w", ErrNotSent, ctx.Err()) }

// failed is an item that is never queued.
func failed[In, Out any](err error) *item[In, Out] {
	it := &item[In, Out]{ctx: context.Background(), done: make(chan struct{})}
	it.fail(err)
	return it
}

// fail answers an item that the caller of fail holds alone.
func (it *item[In, Out]) fail(err error) {
	it.claimed.Store(true)
	it.err = err
	close(it.done)
}

// wait ends when the item has its outcome. A caller whose context ends leaves only while
// the item is queued; once it is sent the call's own deadline brings a definite
// answer soon.
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

// loop runs until stop is closed, then answers what is queued with ErrStopped.
func (b *batch[In, Out]) loop(stop <-chan struct{}) {
	for {
		b.turn.Lock()
		b.room(stop)
		first := b.next(stop)
		if first == nil {
			b.turn.Unlock()
			b.refuseQueued()
			return
		}
		// The callers that were just answered have their next items ready soon: a call
		// that takes them along is one call less. It costs nothing when nobody runs.
		runtime.Gosched()
		items := b.gather(first)
		if n := b.underWay.Add(1); n >= b.loops && b.loops < b.callsOfFew {
			b.loops++
			b.more()
		}
		b.turn.Unlock()
		b.send(items)
		if len(items) > 1 {
			b.sharedAt.Store(time.Now().UnixNano())
		}
	}
}

// returnTime is how long after an answer its callers are expected with their next items.
const returnTime = time.Millisecond

// room waits until another call may begin: callers who make theirs themselves count, too.
func (b *batch[In, Out]) room(stop <-chan struct{}) {
	for b.underWay.Load() >= b.allowed() {
		select {
		case <-b.ended:
		case <-stop:
			return
		}
	}
}

// fewItems for each of callsOfFew are so few that it costs little to have more calls instead.
const fewItems = 3

func (b *batch[In, Out]) allowed() int64 {
	if b.present.Load() > fewItems*b.callsOfFew {
		return b.calls
	}
	return max(b.calls, b.callsOfFew)
}

// send is a call that counts as under way already.
func (b *batch[In, Out]) send(items []*item[In, Out]) {
	defer func() {
		b.underWay.Add(-1)
		select {
		case b.ended <- struct{}{}:
		default: // there is a token
		}
	}()
	if err := b.call(items); err != nil && b.yields && !isAnswer(err) {
		b.yield(err)
	}
}

// settled waits for a caller that makes its call alone. Once what stops the batch is closed, no other begins one.
func (b *batch[In, Out]) settled() {
	b.alone.Lock()
	defer b.alone.Unlock()
}

// next is the item that begins the next call: the one that did not fit the last, or
// the first to come. Once stop is closed it is nil; stop goes first, or else callers
// who keep coming could hold it up.
func (b *batch[In, Out]) next(stop <-chan struct{}) *item[In, Out] {
	carry := b.carry.Swap(nil)
	select {
	case <-stop:
		if carry != nil {
			carry.refuse(ErrStopped)
		}
		return nil
	default:
	}
	if carry != nil {
		return carry
	}
	select {
	case it := <-b.queue:
		return it
	case <-stop:
		return nil
	}
}

func (b *batch[In, Out]) gather(first *item[In, Out]) []*item[In, Out] {
	items := append(make([]*item[In, Out], 0, min(len(b.queue)+1, b.limit)), first)
	bytes := b.size(first.in)
	for len(items) < b.limit {
		select {
		case next := <-b.queue:
			bytes += b.size(next.in)
			if bytes > b.maxBytes || b.group != nil && !b.group(first.in, next.in) {
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

// call leaves out items whose caller has gone: they were never sent, so their
// answer is definite.
func (b *batch[In, Out]) call(items []*item[In, Out]) error {
	in := make([]In, 0, len(items))
	live, bytes := items[:0], 0
	for _, it := range items {
		if it.ctx.Err() != nil || !it.claimed.CompareAndSwap(false, true) {
			continue // its caller sees the context's end and leaves
		}
		in = append(in, it.in)
		live = append(live, it)
		bytes += b.size(it.in)
	}
	if len(in) == 0 {
		return nil
	}
	b.observe(len(in))
	// Background, because the call serves many callers: none of them may end it
	// for the others. The deadline ends it.
	ctx, cancel := context.WithTimeout(context.Background(), b.timeout+transfer(bytes))
	defer cancel()
	out, err := b.run(ctx, in)
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

// slowestLink, in bytes a second, is what a link to Redis must carry: a call that has not arrived by its deadline would be
// repeated, and not arrive again.
const slowestLink = 1 << 20

// transfer is how long so many bytes may take on the way.
func transfer(bytes int) time.Duration {
	return time.Duration(bytes) * time.Second / slowestLink
}

// isAnswer reports whether it was Redis that said so.
func isAnswer(err error) bool {
	var answer *rueidis.RedisError
	return errors.As(err, &answer)
}

// yield answers what did not fit the last call and what is queued now.
func (b *batch[In, Out]) yield(cause error) {
	err := fmt.Errorf("%w, behind a call that failed: %w", ErrNotSent, cause)
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

func (b *batch[In, Out]) refuseQueued() {
	for {
		select {
		case it := <-b.queue:
			it.refuse(ErrStopped)
		default:
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
