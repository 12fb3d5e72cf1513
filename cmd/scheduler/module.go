package main

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"go.uber.org/fx"
	"go.uber.org/zap"

	"github.com/freeslot/freeslot/internal/api"
	"github.com/freeslot/freeslot/internal/config"
	"github.com/freeslot/freeslot/internal/cron"
	"github.com/freeslot/freeslot/internal/dispatch"
	"github.com/freeslot/freeslot/internal/poolconfig"
	"github.com/freeslot/freeslot/internal/presence"
	"github.com/freeslot/freeslot/internal/session"
	"github.com/freeslot/freeslot/internal/version"
)

// module builds a replica from a config.Replica, a *zap.Logger and *resources.
var module = fx.Options(
	fx.Provide(newRegistry, newFleet, newPoolConfig, newPresence, newDispatcher, newRuns, newAuthenticator, newSessions, newServer),
	fx.Invoke(lifecycle),
)

func newRegistry() *prometheus.Registry {
	reg := prometheus.NewRegistry()
	reg.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	reg.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "freeslot_build_info", Help: "Always 1; the version is in the label.", ConstLabels: prometheus.Labels{"version": version.String()},
	}, func() float64 { return 1 }))
	return reg
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

func newServer(cfg config.Replica, d *dispatch.Dispatcher, f *fleet, pools *poolconfig.Follower, auth *api.Authenticator, sessions *session.Handler,
	res *resources, log *zap.Logger, reg *prometheus.Registry,
) *api.Server {
	return api.New(api.Config{
		Listen: cfg.Listen, Replica: cfg.ReplicaID, Version: version.String(),
		MaxPayloadBytes: cfg.Limits.MaxPayloadBytes, MaxWaits: cfg.Limits.MaxWaits, AllowedOrigins: cfg.AllowedOrigins,
	}, api.Deps{
		Jobs: d, Specs: f.cells, Control: f.cells, Nodes: f.cache, Auth: auth, Sessions: sessions, Checks: append(checks(f.cache, pools), durability(cfg, d)...),
		Config: poolconfig.NewStore(f.cells.At(0)), Pools: pools, Queues: d, Pauses: poolconfig.NewStore(f.cells.At(0)),
		Schedules: cron.NewService(f.cells, cfg.Limits.MaxPayloadBytes),
		Gatherer:  reg, Registerer: reg, TracerProvider: res.tracing.Provider(), Logger: log.Named("api"),
	})
}

// lifecycle is the order of starting, bottom up; stopping is the reverse:
//
//  1. frontend: readiness turns red, submits that wait are answered, clients are
//     told to go elsewhere, the listener closes; then sessions end
//  2. runs of schedules, with which other replicas go on; dispatcher: results that come now stay in their records, where clients
//     that attach at other replicas find them
//  3. presence among the replicas, configuration of pools, verifier, cache, then
//     tracker and cells
//  4. the connections to Redis, and what is left of the traces
func lifecycle(lc fx.Lifecycle, res *resources, f *fleet, pools *poolconfig.Follower, here *presence.Presence, d *dispatch.Dispatcher, runs *cron.Runner,
	sessions *session.Handler, server *api.Server, log *zap.Logger,
) {
	front := &frontend{server: server, sessions: sessions, log: log}
	lc.Append(fx.StopHook(res.close))
	lc.Append(fx.StartHook(func(ctx context.Context) error { return checkRedis(ctx, f, log) }))
	lc.Append(fx.StartStopHook(f.cells.Start, f.cells.Stop))
	lc.Append(fx.StartStopHook(f.tracker.Start, f.tracker.Stop))
	lc.Append(fx.StartStopHook(f.cache.Start, f.cache.Stop))
	lc.Append(fx.StartStopHook(pools.Start, pools.Stop))
	if f.verifier != nil {
		lc.Append(fx.StartStopHook(f.verifier.Start, f.verifier.Stop))
	}
	lc.Append(fx.StartStopHook(here.Start, here.Stop))
	lc.Append(fx.StartStopHook(d.Start, d.Stop))
	lc.Append(fx.StartStopHook(runs.Start, runs.Stop))
	lc.Append(fx.StartStopHook(front.Start, front.Stop))
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
