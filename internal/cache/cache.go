package cache

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/puzpuzpuz/xsync/v3"
	"github.com/redis/rueidis"
	"go.uber.org/zap"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/cell"
	"github.com/freeslot/freeslot/internal/events"
	"github.com/freeslot/freeslot/internal/selection"
)

// Defaults of Config.
const (
	DefaultRefreshSize         = 100
	DefaultRefreshInterval     = time.Second
	DefaultVersionCheckTimeout = 50 * time.Millisecond
)

// syncRetry is the pause before Sync asks again after a comparison that failed.
const syncRetry = 50 * time.Millisecond

// staleAfter is how many refresh intervals may pass without a successful
// comparison before the cache calls itself stale.
const staleAfter = 3

// Config is how a cache behaves. The zero value of each field means its default.
type Config struct {
	Pools selection.Pools
	// RefreshSize is how many nodes one call of a resynchronisation reads.
	RefreshSize int
	// RefreshInterval is how often the cache compares its revision with Redis'.
	RefreshInterval time.Duration
	// VersionCheckTimeout bounds the comparison of a checked read.
	VersionCheckTimeout time.Duration
	// NoEvents leaves out the subscription: changes are then seen at the next
	// comparison only.
	NoEvents bool
}

// WithDefaults returns c with zero fields replaced.
func (c Config) WithDefaults() Config {
	if c.RefreshSize == 0 {
		c.RefreshSize = DefaultRefreshSize
	}
	if c.RefreshInterval == 0 {
		c.RefreshInterval = DefaultRefreshInterval
	}
	if c.VersionCheckTimeout == 0 {
		c.VersionCheckTimeout = DefaultVersionCheckTimeout
	}
	return c
}

// Source is the truth that the cache follows; *cell.Cell is it.
type Source interface {
	Changes(ctx context.Context, since cell.Revision, limit int) (cell.Changes, error)
	NodeRevision(ctx context.Context, node string) (cell.Revision, error)
	HeartbeatLimit() time.Duration
	Layout() cell.Layout
}

// Cache is the lock-free picture of all nodes. All methods are safe for
// concurrent use.
type Cache struct {
	cfg     Config
	source  Source
	sub     *events.Subscriber // nil without events
	log     *zap.Logger
	metrics *metrics
	origin  time.Time // of Now

	nodes   *xsync.MapOf[string, *entry]
	classes *xsync.MapOf[string, *class]
	// profiles counts profile changes; class lists are current while it stands still.
	profiles atomic.Uint64
	// listed is about the number of candidates in all class lists.
	listed    atomic.Int64
	listLimit int64

	revision atomic.Uint64 // of the last change applied; written by the loop only
	syncedAt atomic.Int64  // Now of the last successful comparison; unsynced before the first
	follow   follow

	syncs    chan chan bool // each with room for its answer
	start    sync.Once
	stop     sync.Once
	stopping chan struct{}
	done     chan struct{}
	ctx      context.Context
	cancel   context.CancelFunc
}

const unsynced = -1

// New makes a cache that follows source, subscribed through subscriber, which
// must do nothing else and stays the caller's. It does no I/O. reg may be nil.
func New(cfg Config, source Source, subscriber rueidis.Client, log *zap.Logger, reg prometheus.Registerer) *Cache {
	ctx, cancel := context.WithCancel(context.Background())
	c := &Cache{
		cfg: cfg.WithDefaults(), source: source, log: log, origin: time.Now(),
		nodes: xsync.NewMapOf[string, *entry](), classes: xsync.NewMapOf[string, *class](),
		listLimit: listLimit,
		syncs:     make(chan chan bool), stopping: make(chan struct{}), done: make(chan struct{}),
		ctx: ctx, cancel: cancel,
	}
	c.syncedAt.Store(unsynced)
	if !cfg.NoEvents {
		c.sub = events.NewSubscriber(subscriber, source.Layout().NodeEvents(), log)
	}
	c.metrics = newMetrics(c, reg)
	return c
}

// Start loads all nodes and follows their changes until Stop. It returns when the
// first load is done; ctx bounds that only. After an error the cache is stopped.
func (c *Cache) Start(ctx context.Context) error {
	var err error
	c.start.Do(func() {
		if c.sub != nil {
			err = c.sub.Start(ctx)
		}
		go c.loop()
	})
	if err == nil {
		err = c.Sync(ctx)
	}
	if err != nil {
		return errors.Join(err, c.Stop(context.WithoutCancel(ctx)))
	}
	return nil
}

// Stop ends the loop and waits for it. It tolerates a cache that was never
// started, and being called twice.
func (c *Cache) Stop(ctx context.Context) error {
	// What is stopped before its Start never starts.
	c.start.Do(func() { close(c.done) })
	c.stop.Do(func() {
		close(c.stopping)
		c.cancel()
	})
	select {
	case <-c.done:
	case <-ctx.Done():
		return fmt.Errorf("stop cache: %w", ctx.Err())
	}
	if c.sub != nil {
		return c.sub.Stop(ctx)
	}
	return nil
}

// errStopped is returned by Sync of a cache that was stopped.
var errStopped = errors.New("cache is stopped")

// Sync waits until the cache has compared itself with Redis after the call began.
// While Redis does not answer it goes on trying until ctx ends.
func (c *Cache) Sync(ctx context.Context) error {
	for {
		answer := make(chan bool, 1)
		select {
		case c.syncs <- answer:
		case <-ctx.Done():
			return fmt.Errorf("synchronise node cache: %w", ctx.Err())
		case <-c.stopping:
			return errStopped
		}
		select {
		case done := <-answer:
			if done {
				return nil
			}
		case <-ctx.Done():
			return fmt.Errorf("synchronise node cache: %w", ctx.Err())
		case <-c.stopping:
			return errStopped
		}
		select {
		case <-time.After(syncRetry):
		case <-ctx.Done():
		case <-c.stopping:
		}
	}
}

// Now is the present on the monotonic clock that the nodes' figures use.
func (c *Cache) Now() int64 { return int64(time.Since(c.origin)) }

// SilenceLimit is how long a node may be silent and still be chosen.
func (c *Cache) SilenceLimit() time.Duration { return c.source.HeartbeatLimit() }

// Node returns the live figures of a node.
func (c *Cache) Node(id string) (*selection.Node, bool) {
	e, ok := c.nodes.Load(id)
	if !ok {
		return nil, false
	}
	return e.node.Load(), true
}

// Size is the number of nodes known.
func (c *Cache) Size() int { return c.nodes.Size() }

// States returns every node known, ordered by id.
func (c *Cache) States() []cell.NodeState {
	out := make([]cell.NodeState, 0, c.nodes.Size())
	c.nodes.Range(func(_ string, e *entry) bool {
		out = append(out, e.state())
		return true
	})
	slices.SortFunc(out, func(a, b cell.NodeState) int { return cmp.Compare(a.Node.ID, b.Node.ID) })
	return out
}

// State returns one node as the cache has it.
func (c *Cache) State(id string) (cell.NodeState, bool) {
	e, ok := c.nodes.Load(id)
	if !ok {
		return cell.NodeState{}, false
	}
	return e.state(), true
}

// CheckedState compares the node's revision with Redis first and catches up when
// they differ. When that takes longer than the version check timeout the cached
// state is returned and counted; checked is then false. Not for the path of a job.
func (c *Cache) CheckedState(ctx context.Context, id string) (state cell.NodeState, found, checked bool) {
	ctx, cancel := context.WithTimeout(ctx, c.cfg.VersionCheckTimeout)
	defer cancel()
	current, err := c.source.NodeRevision(ctx, id)
	if err == nil {
		e, ok := c.nodes.Load(id)
		if ok && e.revision.Load() == current {
			c.metrics.hits.Inc()
			return e.state(), true, true
		}
		c.metrics.misses.Inc()
		err = c.Sync(ctx)
	}
	if err != nil {
		c.metrics.checkTimeouts.Inc()
	}
	state, found = c.State(id)
	return state, found, err == nil
}

// Health is what is known of the cache itself.
type Health struct {
	// Synced is true after the first load.
	Synced bool
	// Stale is true when no comparison has succeeded for three intervals.
	Stale bool
	// Age is the time since the last successful comparison.
	Age      time.Duration
	Revision cell.Revision
	Nodes    int
}

// Health reports the state of the cache.
func (c *Cache) Health() Health {
	at := c.syncedAt.Load()
	h := Health{Synced: at != unsynced, Revision: c.revision.Load(), Nodes: c.nodes.Size()}
	if h.Synced {
		h.Age = time.Duration(c.Now() - at)
	}
	h.Stale = !h.Synced || h.Age > staleAfter*c.cfg.RefreshInterval
	return h
}

// Refused takes over the fresh state that came with a refusal.
func (c *Cache) Refused(r cell.Refusal) {
	node, ok := c.Node(r.Node)
	if !ok {
		return
	}
	switch r.Reason {
	case cell.RefusedFull:
		node.SetUsed(r.Used)
	case cell.RefusedDraining:
		node.SetDraining(true)
	case cell.RefusedSilent, cell.RefusedGone:
		node.MarkSilent()
	}
}

// localNow converts Redis' clock to Now; owned by the loop.
func (c *Cache) localNow(redisMS int64) int64 {
	return min(redisMS*int64(time.Millisecond)+c.follow.clockOffset, c.Now())
}

// validProfile guards the cache against a profile that an operator broke by hand.
func validProfile(n *freeslot.Node) bool { return n.Validate("node") == nil }
