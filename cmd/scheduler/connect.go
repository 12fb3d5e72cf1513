package main

import (
	"context"

	"go.uber.org/zap"

	"github.com/freeslot/freeslot/internal/config"
	"github.com/freeslot/freeslot/internal/redisclient"
	"github.com/freeslot/freeslot/internal/tracing"
	"github.com/freeslot/freeslot/internal/version"
)

// resources are what is open before anything is built, and closed last.
type resources struct {
	topology *redisclient.Topology
	// commands run scripts and blocking reads; events subscribe and do nothing else.
	commands *redisclient.Clients
	events   *redisclient.Clients
	tracing  *tracing.Tracing
}

// open connects to Redis: a replica without it would have nothing to offer, and
// whoever starts it wants to be told at once. Of several servers one must be there.
func open(ctx context.Context, cfg config.Replica) (*resources, error) {
	var res resources
	var err error
	if res.topology, err = redisclient.Inspect(ctx, redisConfig(cfg)); err != nil {
		return nil, unreachable(cfg.Redis, err)
	}
	if res.commands, err = res.topology.Open(redisclient.Commands); err != nil {
		return nil, unreachable(cfg.Redis, err)
	}
	if res.events, err = res.topology.Open(redisclient.Subscriber); err != nil {
		res.close(ctx)
		return nil, unreachable(cfg.Redis, err)
	}
	res.tracing, err = tracing.Open(ctx, tracing.Config{
		Endpoint: cfg.Tracing.OTLPEndpoint, SampleRatio: cfg.Tracing.SampleRatio,
		Service: "freeslot-scheduler", Version: version.String(), Instance: cfg.ReplicaID,
	})
	if err != nil {
		res.close(ctx)
		return nil, err
	}
	return &res, nil
}

func redisConfig(cfg config.Replica) redisclient.Config {
	return redisclient.Config{
		URL: cfg.Redis.URL, URLs: cfg.Redis.URLs, Access: cfg.Redis.Access(),
		Name: "freeslot-" + cfg.ReplicaID, Connections: cfg.Redis.Connections,
	}
}

func (r *resources) close(ctx context.Context) {
	if r.tracing != nil {
		_ = r.tracing.Close(ctx) // a collector that is away costs spans, nothing else
	}
	for _, c := range []*redisclient.Clients{r.events, r.commands} {
		if c != nil {
			c.Close()
		}
	}
}

// checkRedis looks at every server that answers. Cells that do not are looked at
// when they come up; see gate.
func checkRedis(ctx context.Context, f *fleet, log *zap.Logger) error {
	warnings, down, err := f.cells.Check(ctx)
	for _, w := range warnings {
		log.Warn("redis.warning", zap.String("warning", w))
	}
	for i, err := range down {
		log.Warn("redis.cell_down", zap.Int("cell", i), zap.Error(err))
	}
	if err != nil {
		return err
	}
	for i, g := range f.gates {
		g.open.Store(down[i] == nil)
	}
	return nil
}
