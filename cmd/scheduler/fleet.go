package main

import (
	"cmp"
	"context"
	"fmt"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/rueidis"
	"go.uber.org/zap"

	"github.com/freeslot/freeslot/internal/api"
	"github.com/freeslot/freeslot/internal/cache"
	"github.com/freeslot/freeslot/internal/cell"
	"github.com/freeslot/freeslot/internal/config"
	"github.com/freeslot/freeslot/internal/cron"
	"github.com/freeslot/freeslot/internal/dispatch"
	"github.com/freeslot/freeslot/internal/events"
	"github.com/freeslot/freeslot/internal/locked"
	"github.com/freeslot/freeslot/internal/poolconfig"
	"github.com/freeslot/freeslot/internal/presence"
	"github.com/freeslot/freeslot/internal/redisclient"
	"github.com/freeslot/freeslot/internal/selection"
)

// fleet is the cells and what this replica knows of their nodes.
type fleet struct {
	cells   *cell.Set
	gates   []*gate
	tracker *events.Tracker
	cache   *cache.Cache
	// nodes is what choices are made from: the cache, or the lock-based picture that it
	// keeps current.
	nodes    dispatch.Nodes
	verifier *locked.Verifier // nil unless configured
}

func newFleet(cfg config.Replica, res *resources, log *zap.Logger, reg *prometheus.Registry) (*fleet, error) {
	layouts := cell.Layouts(cfg.Redis.KeyPrefix, cfg.Redis.Cells, res.topology.Cluster)
	f := &fleet{tracker: newTracker(cfg, res, layouts, log, reg)}
	cells := make([]*cell.Cell, len(layouts))
	feeds := make([]cache.Feed, len(layouts))
	for i, layout := range layouts {
		c, err := cell.New(cell.Config{
			Layout: layout, Index: i, Cells: len(layouts), Servers: res.topology.Servers,
			HeartbeatLimit: cfg.HeartbeatLimit, Retention: cfg.Retention, RetentionBytes: int64(cfg.RetentionBytes / len(layouts)), QueueLimit: cfg.Limits.SubmitQueue, WaitingLimit: cfg.WaitingLimit, KeyRetention: cfg.IdempotencyRetention,
			Acknowledge: acknowledge(cfg), Scripts: cell.ScriptsKept,
		}, res.commands.For(i), log.Named("cell"), prometheus.WrapRegistererWith(prometheus.Labels{"cell": strconv.Itoa(i)}, reg))
		if err != nil {
			return nil, err
		}
		g := &gate{Cell: c, log: log}
		cells[i], f.gates = c, append(f.gates, g)
		feeds[i] = cache.Feed{Source: g, Watch: f.tracker.Watch(i)}
		if cfg.Cache.PubSub {
			feeds[i].Events = events.NewSubscriber(res.events.For(i), layout.NodeEvents(), layout.Sharded, log.Named("events"))
		}
	}
	f.cells = cell.NewSet(cells...)
	f.open(cfg, feeds, log, reg)
	return f, nil
}

// open makes the cache, and beside it the lock-based picture where that is wanted.
func (f *fleet) open(cfg config.Replica, feeds []cache.Feed, log *zap.Logger, reg *prometheus.Registry) {
	cacheConfig := cache.Config{
		Selection: fileConfig(cfg), RefreshSize: cfg.Cache.BatchRefreshSize, RefreshInterval: cfg.Cache.BatchRefreshInterval,
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
		f.nodes = locked.NewPath(f.cache, state)
	}
	if cfg.Locked.Verify {
		f.verifier = locked.NewVerifier(f.cache, state, 0, log.Named("locked"), reg)
	}
}

// fileConfig is how nodes are chosen while there is no configuration in Redis.
func fileConfig(cfg config.Replica) *selection.Config {
	return &selection.Config{Enabled: len(cfg.Pools) > 0, Pools: cfg.Pools}
}

func newTracker(cfg config.Replica, res *resources, layouts []cell.Layout, log *zap.Logger, reg prometheus.Registerer) *events.Tracker {
	prefix := cfg.Redis.KeyPrefix + ":nodes:"
	tracked := events.TrackerConfig{Prefix: prefix, Cells: make([]events.TrackedCell, len(layouts))}
	for i, l := range layouts {
		slot, _ := l.Slot()
		tracked.Cells[i] = events.TrackedCell{Index: i, Tag: l.Tag, Slot: uint16(slot), Server: strconv.Itoa(res.topology.Server(i))}
	}
	tracked.Open = func(server string, on func([]rueidis.RedisMessage)) (rueidis.Client, error) {
		if res.topology.Cluster {
			return redisclient.Tracker(res.topology.Config(0), server, prefix, on)
		}
		i, err := strconv.Atoi(server)
		if err != nil {
			return nil, fmt.Errorf("server %q: %w", server, err)
		}
		return redisclient.Tracker(res.topology.Config(i), "", prefix, on)
	}
	if res.topology.Cluster {
		tracked.Masters = events.ClusterMasters(res.commands.For(0))
	}
	return events.NewTracker(tracked, log.Named("events"), reg)
}

// gate keeps a cell whose server was down at the start out of the cache until it has
// been checked like the others.
type gate struct {
	*cell.Cell
	log  *zap.Logger
	open atomic.Bool
}

// Changes is the first that the cache asks of a cell.
func (g *gate) Changes(ctx context.Context, since cell.Revision, limit int) (cell.Changes, error) {
	if !g.open.Load() {
		warnings, err := g.Check(ctx)
		if err != nil {
			return cell.Changes{}, fmt.Errorf("check cell %d: %w", g.Index(), err)
		}
		for _, w := range warnings {
			g.log.Warn("redis.warning", zap.String("warning", w))
		}
		g.log.Info("redis.cell_up", zap.Int("cell", g.Index()))
		g.open.Store(true)
	}
	return g.Cell.Changes(ctx, since, limit)
}

// configPatience is how long a start waits for the configuration where the server that
// has it may be down while others serve.
const configPatience = 2 * time.Second

func newDispatcher(cfg config.Replica, f *fleet, log *zap.Logger, reg *prometheus.Registry) (*dispatch.Dispatcher, error) {
	grace := cfg.MoveGrace
	if grace == 0 {
		grace = -1 // never
	}
	return dispatch.New(dispatch.Config{Replica: cfg.ReplicaID, Weight: cfg.TenantWeight, MoveGrace: grace, Limits: tenantLimits(cfg), Rates: submitRates(cfg)}, f.cells, f.nodes, log.Named("dispatch"), reg)
}

// tenantLimits are looked up for every job.
func tenantLimits(cfg config.Replica) func(string) dispatch.Limits {
	all := make(map[string]dispatch.Limits)
	for name, t := range cfg.Tenants {
		if t.MaxRunning > 0 || t.MaxWaiting > 0 {
			all[name] = dispatch.Limits{Running: t.MaxRunning, Waiting: t.MaxWaiting}
		}
	}
	if len(all) == 0 {
		return nil
	}
	return func(tenant string) dispatch.Limits { return all[tenant] }
}

func newPoolConfig(cfg config.Replica, f *fleet, d *dispatch.Dispatcher, res *resources, log *zap.Logger, reg *prometheus.Registry) *poolconfig.Follower {
	first := f.cells.At(0)
	follow := poolconfig.Config{File: fileConfig(cfg), NoEvents: !cfg.Cache.PubSub, OnChange: func(next *selection.Config) {
		f.cache.SetConfig(next)
		d.ConfigChanged()
	}}
	if cfg.Redis.Cells > 1 {
		follow.StartPatience = configPatience
	}
	return poolconfig.New(follow, first, first.Layout().ConfigEvents(), res.events.For(0), log.Named("poolconfig"), reg)
}

// newRuns makes the runs of schedules.
func newRuns(cfg config.Replica, f *fleet, d *dispatch.Dispatcher, log *zap.Logger, reg *prometheus.Registry) *cron.Runner {
	return cron.NewRunner(cron.Config{
		Replica: cfg.ReplicaID, MaxPayloadBytes: cfg.Limits.MaxPayloadBytes, MarkerRetention: cfg.IdempotencyRetention,
	}, f.cells, d, log.Named("cron"), reg)
}

// newPresence has choices try this replica's share of the fleet first, and this replica
// match free nodes of its share with jobs that wait.
func newPresence(cfg config.Replica, f *fleet, d *dispatch.Dispatcher, runs *cron.Runner, log *zap.Logger) *presence.Presence {
	return presence.New(presence.Config{Replica: cfg.ReplicaID, OnChange: func(replicas []string) {
		f.cache.SetShare(selection.NewShare(cfg.ReplicaID, replicas))
		d.SetReplicas(replicas)
		runs.SetReplicas(replicas)
	}}, f.cells.At(0), log.Named("presence"))
}

// checks read what is known; none of them asks Redis. Whatever a part of the fleet
// lacks is told beside a readiness that stays, because the rest is served.
func checks(c *cache.Cache, pools *poolconfig.Follower) []api.Check {
	return []api.Check{
		{Name: "cache", Ready: func() (bool, string) {
			if !c.Health().Synced {
				return false, "the nodes have not been loaded yet"
			}
			return true, ""
		}},
		{Name: "redis", Ready: func() (bool, string) { return redisReady(c.Health()) }},
		{Name: "pools", Ready: pools.Ready},
	}
}

func redisReady(h cache.Health) (ok bool, detail string) {
	var stale, away, untracked, unable, unsubscribed int
	refusal := ""
	for _, c := range h.Cells {
		refusal = cmp.Or(refusal, c.Refusal)
		if c.Stale {
			stale++
		}
		if c.Stale || c.Unreachable {
			away++
		}
		switch {
		case c.Untrackable:
			unable++
		case c.Untracked:
			untracked++
		}
		if c.Unsubscribed {
			unsubscribed++
		}
	}
	answered := "answered"
	if refusal != "" { // which is an answer, but of no use
		answered, refusal = "answered this replica's questions", ", but says "+refusal
	}
	switch {
	case h.Synced && stale == len(h.Cells):
		return false, fmt.Sprintf("Redis has not %s for %s%s", answered, h.Age.Round(time.Second/10), refusal)
	case away > 0:
		return true, fmt.Sprintf("degraded: %d of %d cells have not %s for up to %s%s", away, len(h.Cells), answered, h.Age.Round(time.Second/10), refusal)
	case unsubscribed > 0:
		return true, fmt.Sprintf("degraded: the events of %d of %d cells are not heard, for a reason that the log has; what changes is seen a second later", unsubscribed, len(h.Cells))
	case unable > 0:
		return true, fmt.Sprintf("degraded: Redis cannot tell of edits made by hand (client-side caching) in %d of %d cells; such edits are seen within a minute", unable, len(h.Cells))
	case untracked > 0:
		return true, fmt.Sprintf("degraded: the connection that tells of edits made by hand in Redis (client-side caching) is away for %d of %d cells; "+
			"such edits are seen once it is back", untracked, len(h.Cells))
	default:
		return true, ""
	}
}
