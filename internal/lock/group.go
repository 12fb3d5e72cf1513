package lock

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"github.com/freeslot/freeslot/internal/events"
	"github.com/freeslot/freeslot/internal/script"
)

// Bounds of calls. A call without an answer in that time is in doubt, and is made again. Unlock
// waits that long for Redis, even if its ctx has ended.
const (
	callTimeout = time.Second
	batchQueue  = 4096
	batchBytes  = 1 << 20
	batchCalls  = 2
)

// group holds what the locks with one hash tag share: the counter of tokens, this process's wake
// channel, its calls and its beats.
type group struct {
	m       *Manager
	keys    keys
	runner  *script.Runner
	process string

	acquires *script.Batch[acquireItem, acquired]
	releases *script.Batch[releaseItem, released]
	wakes    *events.Subscriber

	started sync.Once
	used    atomic.Bool // true once the group is started
	// ready is closed when the subscription is first confirmed.
	ready chan struct{}
	// poke makes the loop beat at once. sooner makes it compute anew when the next beat is due.
	poke, sooner chan struct{}
	// beating holds a token while a call of a beat is under way; see awaitBeat.
	beating chan struct{}
	// checking is true while the watchdog's calls for holds are under way, probing while it checks
	// the connections, noting while it notes locks for listings.
	checking, probing, noting atomic.Bool
	debts                     debts

	mu      sync.Mutex
	waiters map[uint64]*acquisition // guarded by mu; those that wait and may have a ticket in Redis
	soonest time.Duration           // guarded by mu; when the first awaited lock ends, by uptime; 0: unknown
	answers [8]answer               // guarded by mu; a ring
	latest  int                     // guarded by mu; the index of the newest answer
}

// answer records when a call was sent, and the counter of tokens after it.
type answer struct {
	sent    time.Duration
	counter int64
}

func newGroup(m *Manager, runner *script.Runner) *group {
	g := &group{
		m: m, keys: keys{layout: runner.Layout()}, runner: runner, process: m.process,
		beating: make(chan struct{}, 1), poke: make(chan struct{}, 1), sooner: make(chan struct{}, 1),
		ready: make(chan struct{}), waiters: make(map[uint64]*acquisition),
		debts: debts{open: make(map[*acquisition]*debt), more: make(chan struct{}, 1)},
	}
	g.acquires = script.NewBatch(runner, script.BatchConfig[acquireItem, acquired]{
		Name: "lock_acquire", Run: g.acquire, Size: func(it acquireItem) int { return len(it.a.cfg.Key) + 256 },
		Items: callItems, Bytes: batchBytes, Queue: batchQueue, Calls: batchCalls, Timeout: runner.ConfirmTimeout(),
	})
	g.releases = script.NewBatch(runner, script.BatchConfig[releaseItem, released]{
		Name: "lock_release", Run: g.release, Size: func(it releaseItem) int { return len(it.a.cfg.Key) + 512 },
		Items: callItems, Bytes: batchBytes, Queue: batchQueue, Calls: batchCalls, Timeout: m.opts.callTimeout,
	})
	return g
}

// start starts the batches and the loop, once.
func (g *group) start() {
	g.started.Do(func() {
		g.acquires.Start()
		g.releases.Start()
		g.wakes = events.NewSubscriber(g.m.events.For(0), g.keys.wake(g.process), g.keys.layout.Sharded, g.m.log)
		g.wakes.Handle(g.wake, nil)
		g.m.background(func() { g.loop(g.m.ctx) })
		g.used.Store(true)
	})
}

// stop waits for calls under way.
func (g *group) stop(ctx context.Context) error {
	g.started.Do(func() {})
	errs := []error{g.acquires.Stop(ctx), g.releases.Stop(ctx)}
	return errors.Join(errs...)
}

// subscribed reports whether the process hears of grants in this group.
func (g *group) subscribed() bool { return g.wakes != nil && g.wakes.Subscribed() } // nil: stopped before its start

// saw records what an answer proves about the counter of tokens.
func (g *group) saw(sent time.Duration, counter int64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.latest = (g.latest + 1) % len(g.answers)
	g.answers[g.latest] = answer{sent: sent, counter: counter}
}

// sentBefore returns when the newest call was sent whose answer had a counter below token. The
// token was made after that. ok is false if no answer proves it.
func (g *group) sentBefore(token int64) (sent time.Duration, ok bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, a := range g.answers {
		if a.counter > 0 && a.counter < token && (!ok || a.sent > sent) {
			sent, ok = a.sent, true
		}
	}
	return sent, ok
}

// enlist adds an acquisition to the beats, because it may have a ticket from now on. It returns
// false if the acquisition no longer waits.
func (g *group) enlist(a *acquisition) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if a.phase() != waiting { // it was struck, or will be at once
		return false
	}
	a.ticket.Store(true)
	g.waiters[a.number] = a
	return true
}

// strike undoes enlist. The acquisition must no longer wait.
func (g *group) strike(a *acquisition) {
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.waiters, a.number)
}

// awaitBeat waits until the call of a beat that is under way has ended. Such a call may carry an
// acquisition that was struck meanwhile, and would take the lock anew after its release. It returns
// false if ctx ends first.
func (g *group) awaitBeat(ctx context.Context) bool {
	select {
	case g.beating <- struct{}{}:
		<-g.beating
		return true
	case <-ctx.Done():
		return false
	}
}

func (g *group) waiting() []*acquisition {
	g.mu.Lock()
	defer g.mu.Unlock()
	out := make([]*acquisition, 0, len(g.waiters))
	for _, a := range g.waiters {
		out = append(out, a)
	}
	return out
}

// hurry makes the loop beat at once.
func (g *group) hurry() {
	select {
	case g.poke <- struct{}{}:
	default: // it is about to beat anyway
	}
}

func (g *group) logDoubt(event string, err error) {
	if err != nil && !errors.Is(err, context.Canceled) {
		g.m.log.Warn(event, zap.Error(err))
	}
}
