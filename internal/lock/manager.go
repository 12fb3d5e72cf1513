package lock

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/rueidis"
	"go.uber.org/zap"

	"github.com/freeslot/freeslot/internal/process/ending"
	redisclient "github.com/freeslot/freeslot/internal/redis/client"
	"github.com/freeslot/freeslot/internal/script"
)

// Manager makes locks, and renews and watches those that are held. Its methods are safe for
// concurrent use.
type Manager struct {
	opts    Options
	log     *zap.Logger
	metrics *metrics
	// process identifies this start of the process to Redis: 128 random bits.
	process string
	number  atomic.Uint64 // number of the last acquisition

	// Set by Start.
	commands, events *redisclient.Clients
	client           rueidis.Client
	groups           []*group

	ctx    context.Context // ends with Stop
	cancel context.CancelFunc
	loops  sync.WaitGroup
	start  sync.Mutex // held by Start
	begun  atomic.Bool
	stop   sync.Once

	mu      sync.Mutex
	stopped bool                      // guarded by mu; loops takes no more
	locals  map[string]*local         // guarded by mu; only of unfair locks
	holds   map[*acquisition]struct{} // guarded by mu; those that have not ended

	renewals renewals
	alarms   alarms
}

// New makes a manager. It does no I/O. Errors: an *freeslot.Error that names every bad option.
func New(opts Options) (*Manager, error) {
	opts = opts.WithDefaults()
	if err := opts.Validate(); err != nil {
		return nil, err
	}
	var id [16]byte
	_, _ = rand.Read(id[:]) // it never fails
	m := &Manager{
		opts: opts, log: opts.Logger, metrics: newMetrics(opts.Registerer), process: hex.EncodeToString(id[:]),
		locals: make(map[string]*local), holds: make(map[*acquisition]struct{}),
	}
	m.ctx, m.cancel = context.WithCancel(context.Background())
	m.renewals.changed = make(chan struct{}, 1)
	m.alarms.raised = make(map[*acquisition]string)
	return m, nil
}

// Get makes a lock. It does no I/O. Errors: an *freeslot.Error that names every bad field.
func (m *Manager) Get(cfg Config) (*Lock, error) {
	cfg = cfg.WithDefaults()
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	return &Lock{m: m, cfg: cfg}, nil
}

// Start connects to Redis and checks it. ctx bounds only the start. It can be called again after an
// error. It fails if Redis does not answer, is older than 7.0, or evicts keys, and with ErrClosed
// after Stop.
func (m *Manager) Start(ctx context.Context) (err error) {
	m.start.Lock()
	defer m.start.Unlock()
	switch {
	case m.ctx.Err() != nil:
		return ErrClosed
	case m.begun.Load():
		return errors.New("lock manager was started before")
	}
	topology, err := redisclient.Inspect(
		ctx, redisclient.Config{URL: m.opts.RedisURL, Access: m.opts.Access, Name: "freeslot-lock"},
	)
	if err != nil {
		return fmt.Errorf("start lock manager: %w", err)
	}
	commands, err := topology.Open(redisclient.Commands)
	if err != nil {
		return fmt.Errorf("start lock manager: %w", err)
	}
	events, err := topology.Open(redisclient.Subscriber)
	if err != nil {
		commands.Close()
		return fmt.Errorf("start lock manager: %w", err)
	}
	if err := check(ctx, commands.For(0), m.log); err != nil {
		commands.Close()
		events.Close()
		return fmt.Errorf("start lock manager: %w", err)
	}
	m.commands, m.events = commands, events
	m.begin(commands.For(0), topology.Cluster)
	return nil
}

// begin starts the loops, whose calls go to client.
func (m *Manager) begin(client rueidis.Client, cluster bool) {
	m.client = client
	for _, layout := range layouts(m.opts.KeyPrefix, cluster) {
		runner := script.NewRunner(script.Config{
			Layout: layout, CallTimeout: m.opts.callTimeout,
			Acknowledge: script.Acknowledge{Replicas: m.opts.Replicas, Timeout: m.opts.ReplicationTimeout},
		}, client, m.log, nil)
		m.groups = append(m.groups, newGroup(m, runner))
	}
	m.begun.Store(true)
	m.background(func() { m.renewLoop(m.ctx, 0) })
	m.background(func() { m.watch(m.ctx) })
}

// Stop ends the contexts of all holds with ErrClosed, and wakes all waiters with it. It gives no
// lock back, because the holders may still be at work: the leases run out. It can be called on a
// manager that was never started, and twice.
func (m *Manager) Stop(ctx context.Context) error {
	var failed error
	m.stop.Do(func() {
		m.cancel()
		m.start.Lock() // a Start under way ends first
		defer m.start.Unlock()
		m.mu.Lock()
		m.stopped = true
		m.mu.Unlock()
		for _, a := range m.held(func(*acquisition) bool { return true }) {
			m.lose(a, ErrClosed)
		}
		failed = ending.Await(ctx, "stop lock manager", m.loops.Wait)
		for _, g := range m.groups {
			failed = errors.Join(failed, g.stop(ctx))
			g.forgive()
		}
		m.endAlarms()
		m.metrics.connected.Reset()
		if m.commands != nil {
			m.commands.Close()
			m.events.Close()
		}
	})
	return failed
}

// groupOf returns the group of a lock, ready for calls.
func (m *Manager) groupOf(key string) (*group, error) {
	switch {
	case m.ctx.Err() != nil:
		return nil, ErrClosed
	case !m.begun.Load():
		return nil, ErrNotStarted
	}
	g := m.groups[script.CellOf(key, len(m.groups))]
	g.start()
	return g, nil
}

// attach gives an acquisition this process's record of the lock.
func (m *Manager) attach(a *acquisition) {
	if a.cfg.Fair {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	l := m.locals[a.cfg.Key]
	if l == nil {
		l = &local{}
		m.locals[a.cfg.Key] = l
	}
	l.users++
	a.local = l
}

// detach undoes attach.
func (m *Manager) detach(a *acquisition) {
	if a.local == nil {
		return
	}
	a.local.leave(a)
	m.mu.Lock()
	defer m.mu.Unlock()
	if a.local.users--; a.local.users == 0 {
		delete(m.locals, a.cfg.Key)
	}
}

// took begins to keep a hold.
func (m *Manager) took(a *acquisition, waited time.Duration) {
	a.group.strike(a)
	if a.local != nil {
		a.local.took(a)
	}
	m.mu.Lock()
	m.holds[a] = struct{}{}
	a.checkAt = a.since + a.cfg.WatchdogPeriod
	m.mu.Unlock()
	next := a.since + a.cfg.Renewal
	if !a.claimed.Load() {
		next = a.since + claimAfter
	}
	m.renewals.add(a, next)
	m.metrics.acquired(nil, waited)
	if m.ctx.Err() != nil {
		m.lose(a, ErrClosed)
	}
}

// gaveUp takes an acquisition that did not get its lock out of the queue, and passes on a grant
// that it may still get.
func (m *Manager) gaveUp(a *acquisition, after time.Duration, err error) {
	m.metrics.acquired(err, after)
	a.abandon()
	a.group.strike(a)
	m.detach(a)
	if a.ticket.Load() || a.doubt.Load() {
		a.group.owe(releaseItem{a: a, reason: "left"})
	}
}

// lose ends a hold that was lost, or whose context ended. It returns false if the hold had ended
// already.
func (m *Manager) lose(a *acquisition, cause error) bool {
	if !a.end(cause) {
		return false
	}
	m.forget(a, cause)
	m.detach(a)
	m.log.Warn("lock.lost", zap.String("lock", a.cfg.Key), zap.Int64("token", a.token), zap.Error(cause))
	return true
}

// forget stops keeping a hold that has ended.
func (m *Manager) forget(a *acquisition, cause error) {
	m.mu.Lock()
	delete(m.holds, a)
	m.mu.Unlock()
	m.renewals.remove(a)
	m.metrics.ended(cause, uptime()-a.since)
}

// held returns the holds that satisfy is.
func (m *Manager) held(is func(a *acquisition) bool) (out []*acquisition) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for a := range m.holds {
		if is(a) {
			out = append(out, a)
		}
	}
	return out
}

// background runs f in a goroutine that Stop waits for. After Stop it returns false and does not
// run f.
func (m *Manager) background(f func()) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.stopped {
		m.loops.Go(f)
	}
	return !m.stopped
}
