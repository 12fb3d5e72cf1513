package cache

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"github.com/freeslot/freeslot/internal/cell"
	"github.com/freeslot/freeslot/internal/events"
	"github.com/freeslot/freeslot/internal/process/logging"
	"github.com/freeslot/freeslot/internal/selection"
)

const (
	// calm is the least time from one comparison that an event caused to the next.
	// A flood of events that cannot be applied (another wire version, a node whose
	// profile is broken, a Redis that refuses the comparison) then costs some tens of
	// comparisons a second, not one for each event.
	calm = 50 * time.Millisecond
	// gather is the least time from one reading of invalidated nodes to the next.
	gather = 10 * time.Millisecond
	// readyPatience is how long the first load waits for events and invalidations to
	// be on, so that it need not be repeated for what was missed before they were.
	readyPatience = 100 * time.Millisecond
)

// unwatchedEvery is how often a cell is read anew whose server cannot tell of changes behind the scripts' back.
const unwatchedEvery = time.Minute

const unsynced = -1

// follower keeps one cell's part of the cache. Its loop is the only writer of the
// cell's nodes: everything that changes one comes through there one after the
// other, so that an older state can never overwrite a newer one.
type follower struct {
	cache  *Cache
	index  int
	source Source
	events *events.Subscriber // nil without events
	watch  Watch              // nil without invalidations
	log    *zap.Logger

	revision atomic.Uint64 // of the last change applied; written by the loop only
	syncedAt atomic.Int64  // of the last successful comparison; unsynced before the first
	// refusal is the word by which Redis refused the last comparison; nil where it did not.
	refusal atomic.Pointer[string]

	syncs chan chan bool // each with room for its answer
	nudge chan struct{}

	// What follows is the loop's, and nobody else's.

	timer *time.Timer // of the next comparison
	dueAt int64       // when it fires
	// calmAt is when an event may cause a comparison again.
	calmAt   int64
	failures int // comparisons that failed since the last that did not
	outage   *logging.Outage
	// gapAt is the revision behind which a gap was counted last.
	gapAt cell.Revision

	generation string
	// history is the server's whose nodes these are; "" when it does not tell.
	history string
	// clockOffset is the cache's clock minus Redis', in nanoseconds. It is measured
	// against the monotonic clock, so a step of the local wall clock makes no node
	// look dead or alive.
	clockOffset int64
	// subscribed is true once the subscription stood. suspect is true from a renewed
	// one to the next comparison, and where that finds another history: the server may
	// have come back without its last writes and given their revisions to others, which
	// revisions cannot show.
	subscribed, suspect bool
	// stale is true when nodes may have changed behind the scripts' back, so that only
	// a replacing load will do.
	stale bool
	// wholeAt is when lookUnwatched had the whole cell read last.
	wholeAt int64
	// ahead are the nodes that were read at a revision that is still to come: older
	// events say less than is known.
	ahead map[string]cell.Revision
	// escaped is up to which revision a node can have escaped from the last load: its next
	// event may be the first that is heard of it.
	escaped cell.Revision

	invalid     []string // nodes to be read again
	gatherTimer *time.Timer
	gathering   bool // gatherTimer runs
}

func newFollower(c *Cache, index int, feed Feed) *follower {
	f := &follower{
		cache: c, index: index, source: feed.Source, events: feed.Events, watch: feed.Watch,
		log:   c.log.With(zap.Int("cell", index)),
		syncs: make(chan chan bool), nudge: make(chan struct{}, 1),
		ahead: make(map[string]cell.Revision),
		timer: time.NewTimer(time.Hour), gatherTimer: time.NewTimer(time.Hour),
	}
	f.outage = logging.NewOutage(f.log, "redis.cell_lost", "redis.cell_back")
	f.timer.Stop()
	f.gatherTimer.Stop()
	f.syncedAt.Store(unsynced)
	return f
}

func (f *follower) loop() {
	defer f.timer.Stop()
	defer f.gatherTimer.Stop()
	var messages <-chan string
	var resets, changed <-chan struct{}
	if f.events != nil {
		messages, resets = f.events.Messages(), f.events.Resets()
	}
	if f.watch != nil {
		changed = f.watch.Changed()
	}
	f.ready(resets)
	f.schedule(0)
	for {
		select {
		case m := <-messages:
			f.receive(m)
		case <-resets:
			f.reset(messages)
		case <-changed:
			f.changed()
		case <-f.gatherTimer.C:
			f.gathering = false
			f.reread()
		case <-f.timer.C:
			// First, because a comparison that fails wants an earlier one.
			f.scheduleNext()
			f.lookUnwatched()
			f.resync("interval")
		case answer := <-f.syncs:
			f.answer(answer)
		case <-f.nudge:
			f.resync("call failed")
		case <-f.cache.stopping:
			return
		}
	}
}

// ready waits until events and invalidations are on, or for readyPatience.
func (f *follower) ready(resets <-chan struct{}) {
	patience := time.NewTimer(readyPatience)
	defer patience.Stop()
	look := time.NewTicker(readyPatience / 50)
	defer look.Stop()
	tracked := f.watch == nil
	for resets != nil || !tracked {
		select {
		case <-resets:
			f.subscribed, resets = true, nil
		case <-look.C:
			if !tracked && (f.watch.Connected() || !f.watch.Supported()) {
				f.watch.Take() // what was missed until now is about to be read
				tracked = true
			}
		case <-patience.C:
			return
		case <-f.cache.stopping:
			return
		}
	}
}

// lookUnwatched has the whole cell read now and then where the server cannot tell of changes behind the scripts' back.
func (f *follower) lookUnwatched() {
	now := f.cache.clock.now()
	if f.watch == nil || f.watch.Supported() || now-f.wholeAt < int64(unwatchedEvery) {
		return
	}
	f.wholeAt, f.stale = now, true
}

func (f *follower) schedule(wait time.Duration) {
	f.dueAt = f.cache.clock.now() + int64(wait)
	f.timer.Reset(wait)
}

// scheduleNext has the next comparison made after the interval. Jitter keeps replicas that were started together from
// asking together.
func (f *follower) scheduleNext() {
	interval := f.cache.cfg.RefreshInterval
	f.schedule(interval*3/4 + rand.N(interval/2+1))
}

// hasten has the next comparison made after wait at the latest.
func (f *follower) hasten(wait time.Duration) {
	if f.cache.clock.now()+int64(wait) < f.dueAt {
		f.schedule(wait)
	}
}

// reset takes in that the subscription stands (again).
func (f *follower) reset(messages <-chan string) {
	// What was received before the comparison begins is older than what it brings,
	// and may be of a history that the server has lost.
	for range len(messages) {
		<-messages
	}
	f.suspect = f.suspect || f.subscribed || f.syncedAt.Load() != unsynced
	f.subscribed = true
	f.resync("subscribed")
}

// sync waits for a comparison that begins after the call. While Redis does not
// answer it goes on trying until ctx ends.
func (f *follower) sync(ctx context.Context) error {
	for {
		answer := make(chan bool, 1)
		select {
		case f.syncs <- answer:
		case <-ctx.Done():
			return fmt.Errorf("synchronise cell %d: %w", f.index, ctx.Err())
		case <-f.cache.stopping:
			return errStopped
		}
		select {
		case done := <-answer:
			if done {
				return nil
			}
		case <-ctx.Done():
			return fmt.Errorf("synchronise cell %d: %w", f.index, ctx.Err())
		case <-f.cache.stopping:
			return errStopped
		}
		select {
		case <-time.After(syncRetry):
		case <-ctx.Done():
		case <-f.cache.stopping:
		}
	}
}

// answer serves everybody who waits in sync with one comparison.
func (f *follower) answer(first chan bool) {
	waiting := []chan bool{first}
	for more := true; more; {
		select {
		case next := <-f.syncs:
			waiting = append(waiting, next)
		default:
			more = false
		}
	}
	// A start asks while the first comparison is due: this one is it.
	if f.dueAt <= f.cache.clock.now() {
		f.scheduleNext()
		f.lookUnwatched()
	}
	done := f.resync("asked")
	for _, w := range waiting {
		w <- done
	}
}

// localNow converts Redis' clock to the cache's.
func (f *follower) localNow(redisMS int64) int64 {
	return min(redisMS*int64(time.Millisecond)+f.clockOffset, f.cache.clock.now())
}

// mask is the set of this follower's cell.
func (f *follower) mask() uint64 { return uint64(selection.CellMask(0).With(f.index)) }
