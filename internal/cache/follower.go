package cache

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"github.com/freeslot/freeslot/internal/beat"
	"github.com/freeslot/freeslot/internal/cell"
	"github.com/freeslot/freeslot/internal/events"
	"github.com/freeslot/freeslot/internal/process/logging"
	"github.com/freeslot/freeslot/internal/selection"
)

const (
	// calm is the least time between two comparisons caused by events. So a flood of events that
	// cannot be applied (another wire version, a broken profile, a Redis that refuses the
	// comparison) costs some tens of comparisons a second, not one for each event.
	calm = 50 * time.Millisecond
	// gather is the least time between two reads of invalidated nodes.
	gather = 10 * time.Millisecond
	// readyPatience is how long the first load waits until events and invalidations arrive, so that
	// it need not be repeated for changes missed before.
	readyPatience = 100 * time.Millisecond
	// unwatchedEvery is the time after which a whole cell is read again if its server cannot report
	// changes made without a script.
	unwatchedEvery = time.Minute
)

const (
	unsynced = -1
	longAgo  = math.MinInt64
	// atOnce is a revision that no events reach: the next comparison reads at once and awaits no
	// events.
	atOnce = math.MaxUint64
)

// follower keeps one cell's part of the cache. Only its loop writes the cell's nodes. All changes
// of a node pass through it one after the other, so an older state can never overwrite a newer one.
type follower struct {
	cache  *Cache
	index  int
	source Source
	events *events.Subscriber // nil without events
	watch  Watch              // nil without invalidations
	log    *zap.Logger

	revision atomic.Uint64 // of the last applied change; only the loop writes it
	syncedAt atomic.Int64  // of the last successful comparison; unsynced before the first
	// beganAt is the time since which the cell has its records, as far as this cache knows. It is
	// longAgo before the first load, and if the cell does not say.
	beganAt atomic.Int64
	// refusal is the first word of the error in Redis' answer to the last comparison; nil if there
	// was none.
	refusal atomic.Pointer[string]

	syncs chan chan bool // each with room for its answer
	nudge chan struct{}

	// Only the loop uses the fields below.

	timer *time.Timer // of the next comparison
	dueAt int64       // when it fires
	// awaited is the revision that events must have reached by the next comparison of the interval.
	// If they have not, it reads what changed. It is atOnce if that comparison must read anyway.
	awaited cell.Revision
	// calmAt is the time from which an event can cause the next comparison.
	calmAt   int64
	failures int // failed comparisons since the last success
	outage   *logging.Outage
	outages  outages
	// gapAt is the revision before the last counted gap.
	gapAt cell.Revision

	generation string
	// history identifies the server's data that the nodes come from; "" if the server reports none.
	history string
	// clockOffset is the cache's clock minus Redis' clock, in nanoseconds. It is measured against
	// the monotonic clock, so a step of the local wall clock makes no node look dead or alive.
	clockOffset int64
	// subscribed is true after the first subscription. suspect is true from a renewed subscription
	// to the next comparison, and stays true if that finds another history: the server may have
	// come back without its last writes and given their revisions to others. Revisions cannot show
	// this.
	subscribed, suspect bool
	// stale is true if nodes may have changed without a script, so that only a load of everything
	// helps.
	stale bool
	// wholeAt is the time at which lookUnwatched last made the follower read the whole cell.
	wholeAt int64
	// ahead holds the nodes that were read at a revision that is still to come. Their older events
	// are out of date.
	ahead map[string]cell.Revision
	// escaped is the revision up to which a node may have escaped the last load. The next event of
	// such a node may be its first one here.
	escaped cell.Revision

	hearing hearing

	invalid     []string // nodes to be read again
	gatherTimer *time.Timer
	gathering   bool // gatherTimer runs
}

func newFollower(c *Cache, index int, feed Feed) *follower {
	f := &follower{
		cache: c, index: index, source: feed.Source, events: feed.Events, watch: feed.Watch,
		log:   c.log.With(zap.Int("cell", index)),
		syncs: make(chan chan bool), nudge: make(chan struct{}, 1),
		ahead: make(map[string]cell.Revision), awaited: atOnce,
		timer: time.NewTimer(time.Hour), gatherTimer: time.NewTimer(time.Hour),
	}
	every := min(heardEvery, f.source.HeartbeatLimit()/6)
	f.hearing = hearing{timer: time.NewTimer(time.Hour), every: every, doubted: make(map[string]cell.Revision)}
	f.hearing.timer.Stop()
	f.outage = logging.NewOutage(f.log, "redis.cell_lost", "redis.cell_back")
	f.hearing.outage = logging.NewOutage(f.log, "cache.heartbeats_not_read", "cache.heartbeats_read_again")
	f.timer.Stop()
	f.gatherTimer.Stop()
	f.syncedAt.Store(unsynced)
	f.beganAt.Store(longAgo)
	return f
}

func (f *follower) loop() {
	defer f.timer.Stop()
	defer f.gatherTimer.Stop()
	defer f.hearing.timer.Stop()
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
	f.hearing.timer.Reset(f.hearing.every)
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
			f.tick()
		case <-f.hearing.timer.C:
			f.listen()
		case answer := <-f.syncs:
			f.answer(answer)
		case <-f.nudge:
			f.resync("call failed")
		case <-f.cache.ctx.Done():
			return
		}
	}
}

// tick makes the comparison of the interval, and reads heartbeats while it is awake.
func (f *follower) tick() {
	f.applyQueued()
	f.scheduleNext() // first, because a failed comparison sets an earlier one
	f.lookUnwatched()
	f.compare("interval")
	f.listen()
}

// ready waits until events and invalidations arrive, or for readyPatience.
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
				f.watch.Take() // the load reads what was missed until now
				tracked = true
			}
		case <-patience.C:
			return
		case <-f.cache.ctx.Done():
			return
		}
	}
}

// lookUnwatched makes the follower read the whole cell each minute if the server cannot report
// changes made without a script.
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

// scheduleNext sets the next comparison to a beat about the interval from now. The time varies, so
// that replicas that were started together do not compare together.
func (f *follower) scheduleNext() {
	interval := f.cache.cfg.RefreshInterval
	f.schedule(beat.Pause(interval*7/8 + rand.N(interval/4+1)))
}

// applyQueued applies the queued events before a comparison, which would otherwise read the same
// changes. If a comparison takes longer than the interval, the next one follows at once: without
// this, events would wait until their queue overflows.
func (f *follower) applyQueued() {
	if f.events == nil {
		return
	}
	messages := f.events.Messages()
	for range len(messages) {
		f.receive(<-messages)
	}
}

// hasten makes the next comparison come within wait, and await no events.
func (f *follower) hasten(wait time.Duration) {
	f.awaited = atOnce
	if f.cache.clock.now()+int64(wait) < f.dueAt {
		f.schedule(wait)
	}
}

// reset compares because the subscription is new or renewed.
func (f *follower) reset(messages <-chan string) {
	// The messages received so far are older than the result of the comparison, and can belong to a
	// history that the server has lost.
	for range len(messages) {
		<-messages
	}
	f.suspect = f.suspect || f.subscribed || f.syncedAt.Load() != unsynced
	f.subscribed = true
	f.awaited = atOnce
	f.compare("subscribed")
}

// sync waits for a comparison that begins after the call. It repeats a failed comparison until ctx
// ends.
func (f *follower) sync(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(f.cache.ctx, func() { cancel(errStopped) })()
	for {
		answer := make(chan bool, 1)
		select {
		case f.syncs <- answer:
		case <-ctx.Done():
			return fmt.Errorf("synchronise cell %d: %w", f.index, context.Cause(ctx))
		}
		select {
		case done := <-answer:
			if done {
				return nil
			}
		case <-ctx.Done():
		}
		select {
		case <-time.After(syncRetry):
		case <-ctx.Done():
		}
	}
}

// answer makes one comparison for all callers that wait in sync.
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
	// A start calls sync while the first comparison is due: this one replaces it.
	if f.dueAt <= f.cache.clock.now() {
		f.scheduleNext()
		f.lookUnwatched()
	}
	done := f.resync("asked")
	for _, w := range waiting {
		w <- done
	}
}

// localNow converts a time of Redis' clock to the cache's clock.
func (f *follower) localNow(redisMS int64) int64 {
	return min(redisMS*int64(time.Millisecond)+f.clockOffset, f.cache.clock.now())
}

// mask returns the set that holds only this follower's cell.
func (f *follower) mask() uint64 { return uint64(selection.CellMask(0).With(f.index)) }
