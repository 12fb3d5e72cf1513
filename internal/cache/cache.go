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
	"go.uber.org/zap"

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

// syncRetry is the pause of Sync after a failed comparison.
const syncRetry = 50 * time.Millisecond

// startGrace is how long a start waits for the other cells after one has been loaded. A server that
// is down then keeps out only its own nodes.
const startGrace = 2 * time.Second

// staleAfter is the number of refresh intervals without a successful comparison after which a cell
// is stale.
const staleAfter = 3

// Config configures a cache. The zero value of each field means its default.
type Config struct {
	// Selection says how nodes are chosen until SetConfig replaces it; nil means the zero
	// selection.Config.
	Selection *selection.Config
	// RefreshSize is how many nodes one call of a resynchronisation reads.
	RefreshSize int
	// RefreshInterval is the time between two comparisons of the cache's revisions with Redis'.
	RefreshInterval time.Duration
	// VersionCheckTimeout bounds the comparison of a checked read.
	VersionCheckTimeout time.Duration
	// Mirror gets every change that the cache applies. It may be nil.
	Mirror Mirror
}

// WithDefaults returns a copy of c with zero fields replaced by their defaults.
func (c Config) WithDefaults() Config {
	c.Selection = cmp.Or(c.Selection, new(selection.Config))
	c.RefreshSize = cmp.Or(c.RefreshSize, DefaultRefreshSize)
	c.RefreshInterval = cmp.Or(c.RefreshInterval, DefaultRefreshInterval)
	c.VersionCheckTimeout = cmp.Or(c.VersionCheckTimeout, DefaultVersionCheckTimeout)
	return c
}

// Source reads one cell's nodes from Redis. *cell.Cell implements it.
type Source interface {
	Changes(ctx context.Context, since cell.Revision, limit int) (cell.Changes, error)
	Nodes(ctx context.Context, ids []string) (cell.Changes, error)
	NodeRevision(ctx context.Context, node string) (cell.Revision, error)
	History(ctx context.Context) (string, error)
	Heard(ctx context.Context, sinceMS int64, limit int, quiet cell.Quiet) (cell.Heard, error)
	HeartbeatLimit() time.Duration
}

// Feed says where the cache learns of one cell's nodes.
type Feed struct {
	Source Source
	// Events delivers the cell's events. The cache starts and stops it. If it is nil, the cache
	// sees changes at the next comparison.
	Events *events.Subscriber
	// Watch reports changes that no script announced. It may be nil. The caller owns its tracker.
	Watch Watch
}

// Watch reports changes that no script announced. *events.Watch implements it.
type Watch interface {
	// Changed returns a channel that has a token while there is something to take.
	Changed() <-chan struct{}
	// Take returns the nodes that may have changed, or all = true if any may have.
	Take() (nodes []string, all bool)
	// Connected returns false while changes are missed.
	Connected() bool
	// Supported returns false if the server cannot report changes. Connected then returns false,
	// too.
	Supported() bool
}

// Cache is the lock-free copy of all nodes of all cells. All methods are safe for concurrent
// use.
type Cache struct {
	cfg       Config
	log       *zap.Logger
	metrics   *metrics
	clock     *clock
	followers []*follower // by cell

	// selection says how nodes are chosen; see SetConfig.
	selection atomic.Pointer[selection.Config]
	// share holds the nodes that this replica tries first; see SetShare.
	share   atomic.Pointer[selection.Share]
	nodes   *xsync.MapOf[string, *entry]
	away    awayNodes
	lost    losses
	classes *xsync.MapOf[string, *classList]
	// lookups finds the class of a requirement as stated, without making its canonical form.
	lookups *xsync.MapOf[uint64, *lookup]
	// profiles counts profile changes; class lists are current while it stands still.
	profiles atomic.Uint64
	// listed is about the number of candidates in all class lists.
	listed    atomic.Int64
	listLimit int64
	// age is the age that a used class gets. nextAge is the fill at which the next age begins. Both
	// are written under sweeping.
	age, nextAge atomic.Int64
	sweeping     sync.Mutex
	// failing holds the cells whose last call or comparison failed.
	failing atomic.Uint64
	// refusedUntil holds for each cell the time until which choices skip it after a refused write.
	refusedUntil [selection.MaxCells]atomic.Int64
	quiet        permit
	// onFree is nil without a listener; see OnFree.
	onFree atomic.Pointer[func(*selection.Node)]

	start  sync.Once
	loops  sync.WaitGroup
	done   chan struct{} // closed when all loops have ended
	ctx    context.Context
	cancel context.CancelFunc
}

// New makes a cache that follows the cells of feeds, which are in the order of their indexes. It
// does no I/O. reg may be nil.
func New(cfg Config, feeds []Feed, log *zap.Logger, reg prometheus.Registerer) *Cache {
	ctx, cancel := context.WithCancel(context.Background())
	c := &Cache{
		cfg: cfg.WithDefaults(), log: log, clock: newClock(),
		nodes: xsync.NewMapOf[string, *entry](), classes: xsync.NewMapOf[string, *classList](),
		lookups:   xsync.NewMapOf[uint64, *lookup](),
		listLimit: listLimit,
		done:      make(chan struct{}), ctx: ctx, cancel: cancel,
	}
	for i, feed := range feeds {
		c.followers = append(c.followers, newFollower(c, i, feed))
	}
	c.SetConfig(c.cfg.Selection)
	c.metrics = newMetrics(c, reg)
	return c
}

// Start loads all nodes and follows their changes until Stop. It returns once all cells are loaded,
// or once at least one is loaded and the others have not answered for startGrace. ctx bounds only
// this wait. If Start returns an error, the cache is stopped.
func (c *Cache) Start(ctx context.Context) error {
	var err error
	c.start.Do(func() { err = c.launch(ctx) })
	if err == nil {
		err = c.load(ctx)
	}
	if err != nil {
		return errors.Join(err, c.Stop(context.WithoutCancel(ctx)))
	}
	return nil
}

func (c *Cache) launch(ctx context.Context) error {
	for _, f := range c.followers {
		if f.events != nil {
			if err := f.events.Start(ctx); err != nil {
				close(c.done)
				return err
			}
		}
	}
	c.loops.Go(func() { c.clock.run(c.ctx) })
	for _, f := range c.followers {
		c.loops.Go(f.loop)
	}
	go func() { c.loops.Wait(); close(c.done) }()
	return nil
}

// load waits for the first load.
func (c *Cache) load(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	var syncs sync.WaitGroup
	defer syncs.Wait()
	defer cancel()
	loaded := make(chan error, len(c.followers))
	for _, f := range c.followers {
		syncs.Go(func() { loaded <- f.sync(ctx) })
	}
	var grace <-chan time.Time
	var first error
	for range c.followers {
		select {
		case err := <-loaded:
			if err == nil && grace == nil {
				grace = time.After(startGrace)
			}
			first = cmp.Or(first, err)
		case <-grace:
			c.log.Warn("cache.cells_missing", zap.Ints("cells", c.unloaded()))
			return nil
		}
	}
	if grace != nil {
		return nil
	}
	return first
}

// unloaded returns the cells that were never loaded.
func (c *Cache) unloaded() (cells []int) {
	for i, f := range c.followers {
		if f.syncedAt.Load() == unsynced {
			cells = append(cells, i)
		}
	}
	return cells
}

// Stop ends the loops and waits for them. It may be called twice, and on a cache that was never
// started.
func (c *Cache) Stop(ctx context.Context) error {
	// A cache that is stopped before its Start never starts.
	c.start.Do(func() { close(c.done) })
	c.cancel()
	var err error
	select {
	case <-c.done:
	case <-ctx.Done():
		err = fmt.Errorf("stop cache: %w", ctx.Err())
	}
	for _, f := range c.followers {
		if f.events != nil { // even if ctx has ended, or it would go on subscribing
			err = errors.Join(err, f.events.Stop(ctx))
		}
	}
	return err
}

// errStopped is returned by Sync of a cache that was stopped.
var errStopped = errors.New("cache is stopped")

// Sync waits for a comparison of every cell with Redis that begins after the call. It repeats a
// failed comparison until ctx ends.
func (c *Cache) Sync(ctx context.Context) error {
	errs := make([]error, len(c.followers))
	var all sync.WaitGroup
	for i, f := range c.followers {
		all.Go(func() { errs[i] = f.sync(ctx) })
	}
	all.Wait()
	return errors.Join(errs...)
}

// SetShare replaces the part of the fleet that choices try first; nil means none. Lists that are
// built from now on use it.
func (c *Cache) SetShare(share *selection.Share) {
	c.share.Store(share)
	c.profiles.Add(1)
}

// SetConfig replaces how nodes are chosen. Lists that are built from now on use it. cfg must be
// valid, and must not change any more.
func (c *Cache) SetConfig(cfg *selection.Config) {
	c.selection.Store(cfg)
	c.profiles.Add(1)
	if c.cfg.Mirror != nil {
		c.cfg.Mirror.SetConfig(cfg)
	}
}

// Config returns the last argument of SetConfig. It is never nil.
func (c *Cache) Config() *selection.Config { return c.selection.Load() }

// Epoch returns the incarnation of a node's agent; "" for an unknown node.
func (c *Cache) Epoch(id string) cell.Epoch {
	if e, ok := c.nodes.Load(id); ok {
		return e.incarnation.Load().epoch
	}
	return ""
}

// ConfigVersion returns the version of Config; 0 means none. For a moment a list can have an older
// version: use a class's own ConfigVersion for conclusions from the class.
func (c *Cache) ConfigVersion() uint64 { return c.selection.Load().Version }

// Now returns the time by the monotonic clock of the nodes' figures. It is up to 20 ms late, and may
// step back by that much: every choice reads it, and under load it is a copy of the clock.
func (c *Cache) Now() int64 { return c.clock.coarse() }

// SilenceLimit returns how long a node may be silent and still be chosen.
func (c *Cache) SilenceLimit() time.Duration { return c.followers[0].source.HeartbeatLimit() }

// Node returns the live figures of a node.
func (c *Cache) Node(id string) (*selection.Node, bool) {
	e, ok := c.nodes.Load(id)
	if !ok {
		return nil, false
	}
	return e.node, true
}

// Size returns the number of known nodes.
func (c *Cache) Size() int { return c.nodes.Size() }

// AllNodes returns the live figures of every known node, ordered by id.
func (c *Cache) AllNodes() []*selection.Node {
	out := make([]*selection.Node, 0, c.nodes.Size())
	for _, e := range c.nodes.Range {
		out = append(out, e.node)
	}
	slices.SortFunc(out, func(a, b *selection.Node) int { return cmp.Compare(a.ID(), b.ID()) })
	return out
}

// States returns every known node, ordered by id.
func (c *Cache) States() []cell.NodeState {
	out := make([]cell.NodeState, 0, c.nodes.Size())
	for _, e := range c.nodes.Range {
		out = append(out, e.state())
	}
	slices.SortFunc(out, func(a, b cell.NodeState) int { return cmp.Compare(a.Node.ID, b.Node.ID) })
	return out
}

// State returns one node as the cache knows it.
func (c *Cache) State(id string) (cell.NodeState, bool) {
	e, ok := c.nodes.Load(id)
	if !ok {
		return cell.NodeState{}, false
	}
	return e.state(), true
}

// CheckedState compares the node's revision with Redis first, and catches up if they differ. If
// that takes longer than the version check timeout, it counts this and returns the cached state
// with checked false. Do not use it to place a job: it is slow.
func (c *Cache) CheckedState(ctx context.Context, id string) (state cell.NodeState, found, checked bool) {
	ctx, cancel := context.WithTimeout(ctx, c.cfg.VersionCheckTimeout)
	defer cancel()
	f := c.followers[cell.NodeCell(id, len(c.followers))]
	current, err := f.source.NodeRevision(ctx, id)
	if err == nil {
		e, ok := c.nodes.Load(id)
		if ok && e.revision.Load() == current {
			c.metrics.hits.Inc()
			return e.state(), true, true
		}
		c.metrics.misses.Inc()
		err = f.sync(ctx)
	}
	if err != nil {
		c.metrics.checkTimeouts.Inc()
	}
	state, found = c.State(id)
	return state, found, err == nil
}

// Refused applies the fresh state that came with a refusal.
func (c *Cache) Refused(r cell.Refusal) {
	node, ok := c.Node(r.Node)
	if !ok {
		return
	}
	switch r.Reason {
	case cell.RefusedFull:
		before := c.takes(node)
		node.SetUsed(r.Used)
		c.freed(node, before)
	case cell.RefusedDraining:
		node.SetDraining(true)
	case cell.RefusedSilent, cell.RefusedGone:
		node.MarkSilent()
	}
}
