package worker

import (
	"cmp"
	"context"
	"errors"
	"net/url"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/rueidis"
	"go.uber.org/zap"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/cell"
	redisclient "github.com/freeslot/freeslot/internal/redis/client"
	"github.com/freeslot/freeslot/internal/script"
)

// redisStore is the store of a node that is connected to Redis.
type redisStore struct{ *cell.Cell }

// Spec returns the job.
func (s redisStore) Spec(ctx context.Context, jobID string) (*freeslot.Job, string, error) {
	ctx, cancel := context.WithTimeout(ctx, specTimeout)
	defer cancel()
	return s.Cell.Spec(ctx, jobID)
}

// openRedis connects to the Redis of the node's cell and starts the cell. The returned function
// stops the cell and closes the client.
func openRedis(ctx context.Context, cfg Config, reg prometheus.Registerer) (store, func(context.Context) error, error) {
	topology, err := redisclient.Inspect(ctx, redisclient.Config{
		URL: cfg.RedisURL, URLs: cfg.RedisURLs, Access: cfg.RedisAccess.internal(), Name: "freeslot-agent-" + cfg.Node.ID,
	})
	if err != nil {
		return nil, nil, unreachable(cmp.Or(cfg.RedisURL, strings.Join(cfg.RedisURLs, " ")), err)
	}
	index := cell.NodeCell(cfg.Node.ID, cfg.Cells)
	p := &place{cfg: cfg, topology: topology, cell: cell.Config{
		Layout: cell.Layouts(cfg.KeyPrefix, cfg.Cells, topology.Cluster)[index],
		Index:  index, Cells: cfg.Cells, Servers: topology.Servers,
		HeartbeatLimit: cfg.HeartbeatLimit, Scripts: script.Await,
	}}
	if topology.Cluster {
		if err := p.checkCluster(ctx); err != nil {
			return nil, nil, err
		}
	}
	client, err := p.connect(ctx)
	if err != nil {
		return nil, nil, err
	}
	c, err := p.open(ctx, client, reg)
	if err != nil {
		client.Close()
		return nil, nil, err
	}
	return redisStore{c}, func(ctx context.Context) error {
		defer client.Close()
		return c.Stop(ctx)
	}, nil
}

// place tells where the node's cell is.
type place struct {
	cfg      Config
	topology *redisclient.Topology
	cell     cell.Config
}

func (p *place) connect(ctx context.Context) (rueidis.Client, error) {
	slot, _ := p.cell.Layout.Slot()
	client, err := p.topology.Agent(ctx, p.cell.Index, slot)
	if err != nil {
		return nil, unreachable(p.topology.Config(p.topology.Server(p.cell.Index)).URL, err)
	}
	return client, nil
}

// checkCluster compares the number of cells over a client of its own: the record can be on any
// server of the cluster, and the agent must keep no connection there.
func (p *place) checkCluster(ctx context.Context) error {
	client, err := p.connect(ctx)
	if err != nil {
		return err
	}
	defer client.Close()
	c, err := cell.New(p.cell, client, p.cfg.Logger, nil)
	if err != nil {
		return err
	}
	return c.CheckRecord(ctx)
}

// open checks the server first: an agent of another release must not touch keys that it does not
// understand. Warnings are logged at debug, since the schedulers log them for their operators.
func (p *place) open(ctx context.Context, client rueidis.Client, reg prometheus.Registerer) (*cell.Cell, error) {
	c, err := cell.New(p.cell, client, p.cfg.Logger, reg)
	if err != nil {
		return nil, err
	}
	if !p.topology.Cluster {
		warnings, err := c.CheckServers(ctx)
		if err != nil {
			return nil, err
		}
		if err := c.CheckRecord(ctx); err != nil {
			return nil, err
		}
		for _, w := range warnings {
			p.cfg.Logger.Debug("redis.warning", zap.String("warning", w))
		}
	}
	return c, c.Start(ctx)
}

// unreachable returns an error that names the Redis, but never the password.
func unreachable(rawURL string, err error) error {
	u, parseErr := url.Parse(rawURL)
	if parseErr != nil || errors.As(err, new(*url.Error)) {
		return errors.New("redis_url is not a URL, expected redis://[user:password@]host:port[/db]")
	}
	return &redisclient.UnreachableError{Addr: u.Host + u.Path, Err: err}
}
