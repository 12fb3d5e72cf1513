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

// Bounds of calls. One that gets no answer in that time is in doubt, and is made again. Unlock waits
// as long for Redis, also where its ctx has ended.
const (
	callTimeout = time.Second
	batchQueue  = 4096
	batchBytes  = 1 << 20
	batchCalls  = 2
)

// group is the locks that share a hash tag, hence the counter of tokens and the wake channel of
// this process.
type group struct {
	m       *Manager
	keys    keys
	runner  *script.Runner
	process string

	acquires *script.Batch[acquireItem, acquired]
	releases *script.Batch[releaseItem, released]
	wakes    *events.Subscriber

	started sync.Once
	used    atomic.Bool // true once it is started
	// ready is closed when the subscription stands for the first time.
	ready chan struct{}
	// poke has the loop beat at once, and sooner has it look when the next beat is due.
	poke, sooner chan struct{}
	// beating has a token while a call of a beat is under way; see awaitBeat.
	beating chan struct{}
	// checking is true while the watchdog's calls for holds are under way, and probing while its
	// look at the connections is.
	checking, probing atomic.Bool
	debts             debts

	mu      sync.Mutex
	waiters map[uint64]*acquisition // guarded by mu; those that wait and whose tickets may be in Redis
	soonest time.Duration           // guarded by mu; when the first lock that is waited for ends, by uptime; 0: unknown
	answers [8]answer               // guarded by mu; a ring
	latest  int                     // guarded by mu
}

// answer is one that Redis gave: when its call was sent, and the counter of tokens at its end.
type answer struct {
	sent    time.Duration
	counter int64
}

func newGroup(m *Manager, runner *script.Runner) *group {
	g := &group{
		m: m, keys: keys{layout: runner.Layout()}, runner: runner, process: m.process,
		beating: make(chan struct{}, 1), poke: make(chan struct{}, 1), sooner: make(chan struct{}, 1), ready: make(chan struct{}), waiters: make(map[uint64]*acquisition),
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

// start brings up the batches and the loop, once.
func (g *group) start() {
	g.started.Do(func() {
		g.acquires.Start()
		g.releases.Start()
		g.wakes = events.NewSubscriber(g.m.events.For(0), g.keys.wake(g.process), g.keys.layout.Sharded, g.m.log)
		g.wakes.Handle(g.wake)
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

// subscribed is whether the process hears of grants in this group.
func (g *group) subscribed() bool { return g.wakes != nil && g.wakes.Subscribed() } // nil: stopped before its start

// saw keeps what an answer proves about the counter of tokens.
func (g *group) saw(sent time.Duration, counter int64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.latest = (g.latest + 1) % len(g.answers)
	g.answers[g.latest] = answer{sent: sent, counter: counter}
}

// sentBefore is when the newest call was sent whose answer had a counter below the token: the token
// was made later. It is false where no answer proves that.
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

// enlist has the beats carry an acquisition that may have a ticket from now on. It is false for one
// that waits no more.
func (g *group) enlist(a *acquisition) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if a.phase() != waiting { // it was struck, or is about to be
		return false
	}
	a.ticket.Store(true)
	g.waiters[a.number] = a
	return true
}

// strike ends what enlist began. The acquisition waits no more by then.
func (g *group) strike(a *acquisition) {
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.waiters, a.number)
}

// awaitBeat waits for a call of a beat that is under way: it may carry an acquisition that was
// struck meanwhile, and would take the lock anew after its release. It is false where ctx ends
// before.
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

// hurry has the loop beat at once.
func (g *group) hurry() {
	select {
	case g.poke <- struct{}{}:
	default: // it will
	}
}

func (g *group) logDoubt(what string, err error) {
	if err != nil && !errors.Is(err, context.Canceled) {
		g.m.log.Warn("lock."+what, zap.Error(err))
	}
}
