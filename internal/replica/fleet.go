package replica

import (
	"context"
	"fmt"
	"strconv"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/rueidis"
	"go.uber.org/zap"

	"github.com/freeslot/freeslot/internal/cache"
	"github.com/freeslot/freeslot/internal/cache/locked"
	"github.com/freeslot/freeslot/internal/cell"
	"github.com/freeslot/freeslot/internal/dispatch"
	"github.com/freeslot/freeslot/internal/events"
	redisclient "github.com/freeslot/freeslot/internal/redis/client"
	"github.com/freeslot/freeslot/internal/replica/config"
	"github.com/freeslot/freeslot/internal/script"
)

// fleet holds the cells, and what this replica knows of their nodes.
type fleet struct {
	log     *zap.Logger
	cells   *cell.Set
	late    []*lateCell
	tracker *events.Tracker
	cache   *cache.Cache
	// nodes is what the dispatcher chooses from: the cache, or the lock-based picture that the
	// cache keeps current.
	nodes    dispatch.Nodes
	verifier *locked.Verifier // nil unless configured
}

func newFleet(cfg config.Replica, conn *connections, log *zap.Logger, reg prometheus.Registerer) (*fleet, error) {
	layouts := cell.Layouts(cfg.Redis.KeyPrefix, cfg.Redis.Cells, conn.topology.Cluster)
	f := &fleet{log: log, tracker: newTracker(cfg, conn, layouts, log, reg)}
	cells := make([]*cell.Cell, len(layouts))
	feeds := make([]cache.Feed, len(layouts))
	for i, layout := range layouts {
		c, err := cell.New(cell.Config{
			Layout: layout, Index: i, Cells: len(layouts), Servers: conn.topology.Servers,
			HeartbeatLimit: cfg.HeartbeatLimit, Retention: cfg.Retention,
			RetentionBytes: int64(cfg.RetentionBytes / len(layouts)), DeadRetention: cfg.DeadRetention,
			DeadLimit: cfg.DeadLimit, QueueLimit: cfg.Limits.SubmitQueue, WaitingLimit: cfg.WaitingLimit,
			KeyRetention: cfg.IdempotencyRetention, Acknowledge: acknowledge(cfg), Scripts: script.Keep,
		}, conn.commands.For(i), log.Named("cell"),
			prometheus.WrapRegistererWith(prometheus.Labels{"cell": strconv.Itoa(i)}, reg))
		if err != nil {
			return nil, err
		}
		late := &lateCell{Cell: c, log: log}
		cells[i], f.late = c, append(f.late, late)
		feeds[i] = cache.Feed{Source: late, Watch: f.tracker.Watch(i)}
		if cfg.Cache.PubSub {
			feeds[i].Events = events.NewSubscriber(conn.events.For(i), layout.NodeEvents(), layout.Sharded, log.Named("events"))
		}
	}
	f.cells = cell.NewSet(cells...)
	f.open(cfg, feeds, log, reg)
	return f, nil
}

// open makes the cache, and the lock-based picture beside it if that is configured.
func (f *fleet) open(cfg config.Replica, feeds []cache.Feed, log *zap.Logger, reg prometheus.Registerer) {
	cacheConfig := cache.Config{
		Selection: cfg.Selection(), RefreshSize: cfg.Cache.BatchRefreshSize, RefreshInterval: cfg.Cache.BatchRefreshInterval,
		VersionCheckTimeout: cfg.Cache.VersionCheckTimeout,
	}
	var state *locked.State
	if cfg.Locked.Mirror {
		state = locked.New(locked.Config{Cells: len(feeds), Selection: cacheConfig.Selection})
		cacheConfig.Mirror = state
	}
	f.cache = cache.New(cacheConfig, feeds, log.Named("cache"), reg)
	f.nodes = f.cache
	if cfg.Locked.Enabled {
		f.nodes = locked.NewAdapter(f.cache, state)
	}
	if cfg.Locked.Verify {
		f.verifier = locked.NewVerifier(f.cache, state, 0, log.Named("locked"), reg)
	}
}

func newTracker(
	cfg config.Replica, conn *connections, layouts []cell.Layout, log *zap.Logger, reg prometheus.Registerer,
) *events.Tracker {
	prefix := cfg.Redis.KeyPrefix + ":nodes:"
	tracked := events.TrackerConfig{Prefix: prefix, Cells: make([]events.TrackedCell, len(layouts))}
	for i, l := range layouts {
		slot, _ := l.Slot()
		tracked.Cells[i] = events.TrackedCell{
			Index: i, Tag: l.Tag, Slot: uint16(slot), Server: strconv.Itoa(conn.topology.Server(i)),
		}
	}
	tracked.Open = func(server string, on func([]rueidis.RedisMessage)) (rueidis.Client, error) {
		if conn.topology.Cluster {
			return redisclient.Tracker(conn.topology.Config(0), server, prefix, on)
		}
		i, err := strconv.Atoi(server)
		if err != nil {
			return nil, fmt.Errorf("server %q: %w", server, err)
		}
		return redisclient.Tracker(conn.topology.Config(i), "", prefix, on)
	}
	if conn.topology.Cluster {
		tracked.Masters = events.ClusterMasters(conn.commands.For(0))
	}
	return events.NewTracker(tracked, log.Named("events"), reg)
}

// check checks every server that answers. A lateCell checks its own server when that comes up.
func (f *fleet) check(ctx context.Context) error {
	warnings, down, err := f.cells.Check(ctx)
	for _, w := range warnings {
		f.log.Warn("redis.warning", zap.String("warning", w))
	}
	for i, err := range down {
		f.log.Warn("redis.cell_down", zap.Int("cell", i), zap.Error(err))
	}
	if err != nil {
		return err
	}
	for i, late := range f.late {
		late.checked.Store(down[i] == nil)
	}
	return nil
}

// lateCell keeps a cell whose server is down at the start out of the cache until the cell has been
// checked like the others.
type lateCell struct {
	*cell.Cell
	log     *zap.Logger
	checked atomic.Bool
}

// Changes is the first call that the cache makes to a cell.
func (l *lateCell) Changes(ctx context.Context, since cell.Revision, limit int) (cell.Changes, error) {
	if !l.checked.Load() {
		warnings, err := l.Check(ctx)
		if err != nil {
			return cell.Changes{}, fmt.Errorf("check cell %d: %w", l.Index(), err)
		}
		for _, w := range warnings {
			l.log.Warn("redis.warning", zap.String("warning", w))
		}
		l.log.Info("redis.cell_up", zap.Int("cell", l.Index()))
		l.checked.Store(true)
	}
	return l.Cell.Changes(ctx, since, limit)
}
