package main

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/dig"
	"go.uber.org/fx"
	"go.uber.org/multierr"
	"go.uber.org/zap"

	"github.com/freeslot/freeslot/internal/api"
	"github.com/freeslot/freeslot/internal/config"
	"github.com/freeslot/freeslot/internal/logging"
	"github.com/freeslot/freeslot/internal/poolconfig"
	"github.com/freeslot/freeslot/internal/version"
)

// replica is one scheduler replica, ready to be started. It is for one Start and
// one Stop.
type replica struct {
	cfg    config.Replica
	log    *zap.Logger
	app    *fx.App
	server *api.Server
	fleet  *fleet
	pools  *poolconfig.Follower
	// metrics are what /metrics serves.
	metrics *prometheus.Registry
}

// newReplica connects to Redis and builds everything; it starts nothing. The
// error is one line that says what to do.
func newReplica(ctx context.Context, cfg config.Replica, logger *zap.Logger) (*replica, error) {
	res, err := open(ctx, cfg)
	if err != nil {
		return nil, err
	}
	r := &replica{cfg: cfg, log: logger}
	r.app = fx.New(fx.NopLogger, fx.Supply(cfg, logger, res), module, fx.Populate(&r.server, &r.fleet, &r.pools, &r.metrics), fx.StopTimeout(cfg.DrainTimeout))
	if err := r.app.Err(); err != nil {
		res.close(ctx)
		return nil, rootCause(err)
	}
	return r, nil
}

// Start starts everything and returns once clients are served. What was started
// before a failure is stopped again.
func (r *replica) Start(ctx context.Context) error {
	if err := r.app.Start(ctx); err != nil {
		return rootCause(err)
	}
	r.log.Info("replica.started",
		zap.String(logging.FieldReplica, r.cfg.ReplicaID),
		zap.String(logging.FieldAddress, r.server.Addr()),
		zap.Strings("redis", redisHosts(r.cfg.Redis)),
		zap.Int("cells", r.cfg.Redis.Cells),
		zap.String("key_prefix", r.cfg.Redis.KeyPrefix),
		zap.String("version", version.String()),
		zap.Bool("tokens", len(r.cfg.Tokens) > 0),
	)
	return nil
}

// Stop drains and stops everything; see lifecycle for the order. When ctx ends,
// what is left is cut off.
func (r *replica) Stop(ctx context.Context) error {
	r.log.Info("replica.draining", zap.String(logging.FieldReplica, r.cfg.ReplicaID))
	err := r.app.Stop(ctx)
	r.log.Info("replica.stopped", zap.String(logging.FieldReplica, r.cfg.ReplicaID))
	return err
}

// Alive is true, and comes to an end, unless a part of the replica is stuck with what the others need; an outage of
// Redis does not make it so.
func (r *replica) Alive() bool {
	for _, c := range checks(r.fleet.cache, r.pools) {
		c.Ready()
	}
	return true
}

// Done is closed when a started replica serves no more, by Stop or by itself.
func (r *replica) Done() <-chan struct{} { return r.server.Done() }

// Err says why it stopped serving by itself; nil after Stop.
func (r *replica) Err() error { return r.server.Err() }

// Addr is where a started replica listens.
func (r *replica) Addr() string { return r.server.Addr() }

// rootCause is what a person can act on: fx wraps it into the names of our
// functions, and adds what failed while it stopped the rest.
func rootCause(err error) error {
	errs := multierr.Errors(err)
	if len(errs) == 0 {
		return err
	}
	return dig.RootCause(errs[0])
}

// redisHost is a URL without its credentials.
func redisHost(rawURL string) string {
	u, err := url.Parse(rawURL)
	if err != nil || u.Host == "" && u.Path == "" {
		return "?"
	}
	if u.Host == "" {
		return u.Path
	}
	return u.Host
}

// redisHosts are the servers without their credentials.
func redisHosts(r config.Redis) []string {
	if r.URL != "" {
		return []string{redisHost(r.URL)}
	}
	hosts := make([]string, len(r.URLs))
	for i, u := range r.URLs {
		hosts[i] = redisHost(u)
	}
	return hosts
}

// unreachable says which Redis it was, and never the password.
func unreachable(r config.Redis, err error) error {
	var urlError *url.Error
	if errors.As(err, &urlError) {
		return errors.New("redis.url is not a URL")
	}
	where := "redis.url in the configuration, or --redis-url"
	if r.URL == "" {
		where = "redis.urls in the configuration"
	}
	return fmt.Errorf("redis at %s cannot be used: %w (%s)", strings.Join(redisHosts(r), ", "), err, where)
}
