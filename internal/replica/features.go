package replica

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"github.com/freeslot/freeslot/internal/dispatch"
	"github.com/freeslot/freeslot/internal/pool"
	"github.com/freeslot/freeslot/internal/process/config"
	"github.com/freeslot/freeslot/internal/replica/feature"
	"github.com/freeslot/freeslot/internal/schedule"
	"github.com/freeslot/freeslot/internal/selection"
)

// newFeatures makes those that work before the dispatcher places jobs, and those that start after it.
func newFeatures(cfg config.Replica, f *fleet, d *dispatch.Dispatcher, conn *connections, log *zap.Logger, reg prometheus.Registerer) (below, above []feature.Feature) {
	below = []feature.Feature{
		newPools(cfg, f, d, conn, log, reg), // no job begins by pools that are not in force
	}
	above = []feature.Feature{
		newSchedules(cfg, f, d, log, reg),
	}
	return below, above
}

// configPatience is how long a start waits for the configuration of pools where the server that has it
// may be down while others serve.
const configPatience = 2 * time.Second

func newPools(cfg config.Replica, f *fleet, d *dispatch.Dispatcher, conn *connections, log *zap.Logger, reg prometheus.Registerer) feature.Feature {
	store := pool.NewStore(f.cells.At(0).Runner())
	follow := pool.Config{File: fileConfig(cfg), NoEvents: !cfg.Cache.PubSub, OnChange: func(next *selection.Config) {
		f.cache.SetConfig(next)
		d.ConfigChanged()
	}}
	if cfg.Redis.Cells > 1 {
		follow.StartPatience = configPatience
	}
	pools := pool.New(follow, store, conn.events.For(0), log.Named("pool"), reg)
	return pool.NewFeature(pools, store, f.cache, d)
}

func newSchedules(cfg config.Replica, f *fleet, d *dispatch.Dispatcher, log *zap.Logger, reg prometheus.Registerer) feature.Feature {
	return schedule.NewFeature(schedule.Config{
		Replica: cfg.ReplicaID, MaxPayloadBytes: cfg.Limits.MaxPayloadBytes, MarkerRetention: cfg.IdempotencyRetention,
	}, f.cells.Runners(), f.cells, d, log.Named("schedule"), reg)
}
