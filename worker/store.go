package worker

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/rueidis"
	"go.uber.org/zap"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/cell"
	"github.com/freeslot/freeslot/internal/redisclient"
)

// store is what a worker asks of its cell.
type store interface {
	Register(ctx context.Context, node freeslot.Node, epoch cell.Epoch) (cell.Registration, error)
	Heartbeat(ctx context.Context, hb cell.Heartbeat) (cell.HeartbeatReply, error)
	Deregister(ctx context.Context, node string, epoch cell.Epoch) ([]string, error)
	Complete(ctx context.Context, comp cell.Completion) (cell.CompletionOutcome, error)
	Dispatches(ctx context.Context, node, after string, block time.Duration, limit int) ([]cell.Dispatch, error)
	Spec(ctx context.Context, jobID string) (*freeslot.Job, string, error)
}

// openStore connects to Redis and starts the cell. The returned function stops
// the cell and closes the client.
func openStore(ctx context.Context, cfg Config, reg prometheus.Registerer) (store, func(context.Context) error, error) {
	client, err := redisclient.Agent(redisclient.Config{URL: cfg.RedisURL, Name: "freeslot-agent-" + cfg.Node.ID})
	if err != nil {
		return nil, nil, unreachable(cfg.RedisURL, err)
	}
	c, err := openCell(ctx, cfg, client, reg)
	if err != nil {
		client.Close()
		return nil, nil, err
	}
	return c, func(ctx context.Context) error {
		defer client.Close()
		return c.Stop(ctx)
	}, nil
}

// openCell checks the server first: an agent of another release must not touch
// keys that it does not understand. The warnings are for the schedulers' operators,
// who get them there.
func openCell(ctx context.Context, cfg Config, client rueidis.Client, reg prometheus.Registerer) (*cell.Cell, error) {
	layout := cell.Layout{Prefix: cfg.KeyPrefix}
	warnings, err := cell.Check(ctx, client, layout)
	if err != nil {
		return nil, err
	}
	for _, w := range warnings {
		cfg.Logger.Debug("redis.warning", zap.String("warning", w))
	}
	c, err := cell.New(cell.Config{Layout: layout}, client, cfg.Logger, reg)
	if err != nil {
		return nil, err
	}
	return c, c.Start(ctx)
}

// unreachable says which Redis it was, and never the password.
func unreachable(rawURL string, err error) error {
	u, parseErr := url.Parse(rawURL)
	if parseErr != nil || errors.As(err, new(*url.Error)) {
		return errors.New("redis_url is not a URL, expected redis://[user:password@]host:port[/db]")
	}
	return fmt.Errorf("redis at %s cannot be used: %w", u.Host+u.Path, err)
}
