package main

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/redis/rueidis"
	"go.uber.org/fx"
	"go.uber.org/zap"

	"github.com/freeslot/freeslot/internal/api"
	"github.com/freeslot/freeslot/internal/cache"
	"github.com/freeslot/freeslot/internal/cell"
	"github.com/freeslot/freeslot/internal/config"
	"github.com/freeslot/freeslot/internal/dispatch"
	"github.com/freeslot/freeslot/internal/redisclient"
	"github.com/freeslot/freeslot/internal/session"
	"github.com/freeslot/freeslot/internal/tracing"
	"github.com/freeslot/freeslot/internal/version"
)

// module builds a replica from a config.Replica, a *zap.Logger and *resources.
var module = fx.Options(
	fx.Provide(newRegistry, newCell, newCache, newDispatcher, newAuthenticator, newSessions, newServer),
	fx.Invoke(lifecycle),
)

// resources are what is open before anything is built, and closed last.
type resources struct {
	// commands runs scripts and blocking reads; events subscribes and does nothing else.
	commands rueidis.Client
	events   rueidis.Client
	tracing  *tracing.Tracing
}

// open connects to Redis: a replica without it would have nothing to offer, and
// whoever starts it wants to be told at once.
func open(ctx context.Context, cfg config.Replica) (*resources, error) {
	rc := redisclient.Config{URL: cfg.Redis.URL, Name: "freeslot-" + cfg.ReplicaID, Connections: cfg.Redis.Connections}
	var res resources
	var err error
	if res.commands, err = redisclient.Commands(rc); err != nil {
		return nil, unreachable(cfg.Redis.URL, err)
	}
	if res.events, err = redisclient.Subscriber(rc); err != nil {
		res.close(ctx)
		return nil, unreachable(cfg.Redis.URL, err)
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

func (r *resources) close(ctx context.Context) {
	if r.tracing != nil {
		_ = r.tracing.Close(ctx) // a collector that is away costs spans, nothing else
	}
	for _, c := range []rueidis.Client{r.events, r.commands} {
		if c != nil {
			c.Close()
		}
	}
}

func newRegistry() *prometheus.Registry {
	reg := prometheus.NewRegistry()
	reg.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	reg.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "freeslot_build_info", Help: "Always 1; the version is in the label.", ConstLabels: prometheus.Labels{"version": version.String()},
	}, func() float64 { return 1 }))
	return reg
}

func newCell(cfg config.Replica, res *resources, log *zap.Logger, reg *prometheus.Registry) (*cell.Cell, error) {
	return cell.New(cell.Config{
		Layout: cell.Layout{Prefix: cfg.Redis.KeyPrefix}, HeartbeatLimit: cfg.HeartbeatLimit,
		Retention: cfg.Retention, QueueLimit: cfg.Limits.SubmitQueue,
	}, res.commands, log.Named("cell"), reg)
}

func newCache(cfg config.Replica, c *cell.Cell, res *resources, log *zap.Logger, reg *prometheus.Registry) *cache.Cache {
	return cache.New(cache.Config{
		Pools: cfg.Pools, RefreshSize: cfg.Cache.BatchRefreshSize, RefreshInterval: cfg.Cache.BatchRefreshInterval,
		VersionCheckTimeout: cfg.Cache.VersionCheckTimeout, NoEvents: !cfg.Cache.PubSub,
	}, c, res.events, log.Named("cache"), reg)
}

func newDispatcher(cfg config.Replica, cl *cell.Cell, ca *cache.Cache, log *zap.Logger, reg *prometheus.Registry) (*dispatch.Dispatcher, error) {
	return dispatch.New(dispatch.Config{Replica: cfg.ReplicaID}, cl, ca, log.Named("dispatch"), reg)
}

func newAuthenticator(cfg config.Replica) *api.Authenticator {
	credentials := make([]api.Credential, len(cfg.Tokens))
	for i, t := range cfg.Tokens {
		credentials[i] = api.Credential{Token: t.Token, Tenant: t.Tenant, Operator: t.Role == config.RoleOperator}
	}
	return api.NewAuthenticator(credentials, config.DefaultTenant)
}

func newSessions(cfg config.Replica, d *dispatch.Dispatcher, auth *api.Authenticator, res *resources, log *zap.Logger, reg *prometheus.Registry) (*session.Handler, error) {
	return session.New(session.Config{
		Replica: cfg.ReplicaID, Version: version.String(),
		MaxPayloadBytes: cfg.Limits.MaxPayloadBytes, MaxBatch: cfg.Limits.MaxBatch,
		MaxSessions: cfg.Limits.MaxSessions, MaxJobs: cfg.Limits.MaxOutstandingPerSession,
		QueueMessages: cfg.Limits.SessionQueue, QueueBytes: cfg.Limits.SessionQueueBytes,
		// Both are steps of the drain, which has to end in time.
		CloseTimeout: min(session.DefaultCloseTimeout, cfg.DrainTimeout/4), DrainGrace: min(session.DefaultDrainGrace, cfg.DrainTimeout/4),
		AllowedOrigins: cfg.AllowedOrigins, TracerProvider: res.tracing.Provider(),
	}, d, auth, log.Named("session"), reg)
}

func newServer(cfg config.Replica, d *dispatch.Dispatcher, ca *cache.Cache, auth *api.Authenticator, sessions *session.Handler,
	res *resources, log *zap.Logger, reg *prometheus.Registry,
) *api.Server {
	return api.New(api.Config{
		Listen: cfg.Listen, Replica: cfg.ReplicaID, Version: version.String(),
		MaxPayloadBytes: cfg.Limits.MaxPayloadBytes, MaxWaits: cfg.Limits.MaxWaits, AllowedOrigins: cfg.AllowedOrigins,
	}, api.Deps{
		Jobs: d, Nodes: ca, Auth: auth, Sessions: sessions, Checks: checks(ca),
		Gatherer: reg, Registerer: reg, TracerProvider: res.tracing.Provider(), Logger: log.Named("api"),
	})
}

// checks read what the cache knows; none of them asks Redis.
func checks(c *cache.Cache) []api.Check {
	return []api.Check{
		{Name: "cache", Ready: func() (bool, string) {
			if !c.Health().Synced {
				return false, "the nodes have not been loaded yet"
			}
			return true, ""
		}},
		{Name: "redis", Ready: func() (bool, string) {
			if h := c.Health(); h.Synced && h.Stale {
				return false, "Redis has not answered for " + h.Age.Round(time.Second/10).String()
			}
			return true, ""
		}},
	}
}

// lifecycle is the order of starting, bottom up; stopping is the reverse:
//
//  1. frontend: readiness turns red, submits that wait are answered, clients are
//     told to go elsewhere, the listener closes; then sessions end
//  2. dispatcher: results that come now stay in their records, where clients
//     that attach at other replicas find them
//  3. cache, then cell
//  4. the connections to Redis, and what is left of the traces
func lifecycle(lc fx.Lifecycle, res *resources, cl *cell.Cell, ca *cache.Cache, d *dispatch.Dispatcher,
	sessions *session.Handler, server *api.Server, log *zap.Logger,
) {
	front := &frontend{server: server, sessions: sessions, log: log}
	lc.Append(fx.StopHook(res.close))
	lc.Append(fx.StartHook(func(ctx context.Context) error { return checkRedis(ctx, res.commands, cl.Layout(), log) }))
	lc.Append(fx.StartStopHook(cl.Start, cl.Stop))
	lc.Append(fx.StartStopHook(ca.Start, ca.Stop))
	lc.Append(fx.StartStopHook(d.Start, d.Stop))
	lc.Append(fx.StartStopHook(front.Start, front.Stop))
}

func checkRedis(ctx context.Context, client rueidis.Client, layout cell.Layout, log *zap.Logger) error {
	warnings, err := cell.Check(ctx, client, layout)
	for _, w := range warnings {
		log.Warn("redis.warning", zap.String("warning", w))
	}
	return err
}

// frontend is what faces clients. The port stays open until the sessions have
// drained, so that whoever asks /readyz in the meantime sees it red.
type frontend struct {
	server   *api.Server
	sessions *session.Handler
	log      *zap.Logger
}

// Start opens the port, the last step of a start.
func (f *frontend) Start(ctx context.Context) error { return f.server.Start(ctx) }

// Stop takes at most three quarters of the time that ctx leaves; the rest is for
// what stops after it.
func (f *frontend) Stop(ctx context.Context) error {
	deadline, ok := ctx.Deadline()
	if ok {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, time.Until(deadline)*3/4)
		defer cancel()
	}
	f.server.Drain()
	drainCtx, cancel := ctx, context.CancelFunc(func() {})
	if ok {
		// What is left after that is for closing the sessions that stay.
		drainCtx, cancel = context.WithTimeout(ctx, time.Until(deadline)/2)
	}
	defer cancel()
	if err := f.sessions.Drain(drainCtx); err != nil {
		f.log.Info("sessions.drain_incomplete", zap.Error(err))
	}
	// Side by side, because neither may take the other's time.
	var serverErr error
	var server sync.WaitGroup
	server.Go(func() { serverErr = f.server.Stop(ctx) })
	err := f.sessions.Stop(ctx)
	server.Wait()
	return errors.Join(err, serverErr)
}
