package replica

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"github.com/freeslot/freeslot/internal/api"
	"github.com/freeslot/freeslot/internal/audit"
	"github.com/freeslot/freeslot/internal/console"
	"github.com/freeslot/freeslot/internal/demand"
	"github.com/freeslot/freeslot/internal/dispatch"
	"github.com/freeslot/freeslot/internal/feature"
	"github.com/freeslot/freeslot/internal/finding"
	"github.com/freeslot/freeslot/internal/history"
	"github.com/freeslot/freeslot/internal/identity"
	"github.com/freeslot/freeslot/internal/listener"
	"github.com/freeslot/freeslot/internal/presence"
	"github.com/freeslot/freeslot/internal/process/version"
	"github.com/freeslot/freeslot/internal/replica/config"
	"github.com/freeslot/freeslot/internal/session"
	"github.com/freeslot/freeslot/internal/tenant"
)

// front holds what clients see. The port stays open until the sessions have drained, so that a load
// balancer that asks /readyz meanwhile sees it red.
type front struct {
	server   *api.Server
	sessions *session.Handler
	door     *door
	findings *finding.Board
	console  *console.Console // nil unless it is served
	// sources is what the console's topics are made from.
	sources console.Sources
	log     *zap.Logger
}

func newFront(cfg config.Replica, f *fleet, d *dispatch.Dispatcher, present *presence.Presence, parts feature.Parts,
	past *history.History, needs *demand.Watch, self *selfStatus, replicas *presence.Store, door *door,
	auth *identity.Authenticator,
	changes *audit.Log, conn *connections, log *zap.Logger, reg prometheus.Registerer, served prometheus.Gatherer,
) (*front, error) {
	sessions, err := newSessions(cfg, d, auth, changes, conn, log, reg)
	if err != nil {
		return nil, err
	}
	checks, routes := f.checks(present), []api.Routes{
		past.Routes, past.StatusRoutes(replicas.Statuses), tenant.NewLister(cfg, f.cells, replicas.Statuses).Routes,
		needs.Routes,
	}
	for _, p := range parts.All() {
		checks, routes = append(checks, p.Checks...), append(routes, p.Routes...)
	}
	checks = slices.Concat(checks, []api.Check{
		{Name: "writes", Ready: d.Writable}, {Name: "record", Ready: d.Recorded}, {Name: "tokens", Ready: auth.Ready},
	}, durability(cfg, d), door.checks())
	self.checks.Store(&checks)
	own := newTLS("tls", cfg.TLS, log, reg)
	peers := newPeers(cfg.Findings, past, replicas)
	board := finding.New(sources(
		cfg, conn, f, d, peers, parts, checks, listed(auth, door), own, door.certificate(),
	), log.Named("findings"))
	pages, err := newConsole(cfg, f, auth, changes, log, reg)
	if err != nil {
		return nil, err
	}
	deps := api.Deps{
		Jobs: d, Specs: f.cells, Queues: d, Control: f.cells, Nodes: f.cache, Links: f.cells, Auth: auth, Sessions: sessions,
		Routes: routes, Audit: changes,
		Checks: checks, Findings: board,
		Doctor: finding.New([]finding.Source{
			serversSource(cfg, conn), agentsSource(peers, cachedAgents(f.cache)),
		}, log.Named("findings")),
		TLS: own, Gatherer: served, Registerer: reg,
		TracerProvider: conn.tracing.Provider(), Logger: log.Named("api"),
	}
	if door != nil {
		deps.GatewayTokens = door.listTokens
		if door.listener == nil {
			deps.Gateway = door.handler
		}
	}
	if pages != nil {
		deps.Console = pages
	}
	server := api.New(api.Config{
		Listen: cfg.Listen, Replica: cfg.ReplicaID, Version: version.String(),
		MaxPayloadBytes: cfg.Limits.MaxPayloadBytes, MaxWaits: cfg.Limits.MaxWaits, AllowedOrigins: cfg.AllowedOrigins,
		MetricsListen: cfg.MetricsListen, MetricsAuth: cfg.Auth.Metrics,
		HidePayloads: !cfg.Console.Payloads,
		LinkTimeout:  cfg.Cache.VersionCheckTimeout, Proxies: cfg.Proxies(),
	}, deps)
	return &front{
		server: server, sessions: sessions, door: door, findings: board, console: pages,
		sources: consoleSources(cfg, f, past, board, server), log: log,
	}, nil
}

func newAudit(cfg config.Replica, f *fleet, log *zap.Logger, reg prometheus.Registerer) *audit.Log {
	return audit.New(audit.Config{
		Replica: cfg.ReplicaID, Required: cfg.Audit.Required, Entries: cfg.Audit.Entries,
	}, f.cells.Runners()[0], log.Named("audit"), reg)
}

func newTLS(setting string, t config.ListenTLS, log *zap.Logger, reg prometheus.Registerer) *listener.TLS {
	files := listener.Files{Cert: t.CertFile, Key: t.KeyFile, ClientCA: t.ClientCAFile}
	return listener.NewTLS(setting, files, log, reg)
}

func newSessions(
	cfg config.Replica, d *dispatch.Dispatcher, auth *identity.Authenticator, changes *audit.Log, conn *connections,
	log *zap.Logger,
	reg prometheus.Registerer,
) (*session.Handler, error) {
	return session.New(session.Config{
		Replica: cfg.ReplicaID, Version: version.String(),
		MaxPayloadBytes: cfg.Limits.MaxPayloadBytes, MaxBatch: cfg.Limits.MaxBatch,
		MaxSessions: cfg.Limits.MaxSessions, MaxTenantSessions: maxTenantSessions(cfg),
		MaxJobs:       cfg.Limits.MaxOutstandingPerSession,
		PingInterval:  cfg.Session.PingInterval,
		QueueMessages: cfg.Limits.SessionQueue, QueueBytes: cfg.Limits.SessionQueueBytes,
		// Both times are parts of the drain, which has to end in time.
		CloseTimeout:   min(session.DefaultCloseTimeout, cfg.DrainTimeout/4),
		DrainGrace:     min(session.DefaultDrainGrace, cfg.DrainTimeout/4),
		AllowedOrigins: cfg.AllowedOrigins, Audit: changes, TracerProvider: conn.tracing.Provider(),
	}, d, auth, log.Named("session"), reg)
}

// maxTenantSessions returns the share of one tenant; 0 for a tenant that is alone.
func maxTenantSessions(cfg config.Replica) int {
	if !cfg.SeveralTenants() {
		return 0
	}
	return (cfg.Limits.MaxSessions + 1) / 2
}

// Start opens the ports. It is the last step of a start.
func (f *front) Start(ctx context.Context) error {
	if err := f.door.start(ctx); err != nil {
		return err
	}
	if f.console != nil {
		f.console.Start(f.sources)
	}
	err := f.server.Start(ctx)
	if err != nil {
		_ = f.stopConsole(ctx)
		_ = f.door.stopListener(ctx) // the caller gets the error of the start
		_ = f.door.stop(ctx)
	}
	return err
}

// Stop takes at most three quarters of the time that ctx leaves. The rest is for the steps that
// stop after it.
func (f *front) Stop(ctx context.Context) error {
	deadline, ok := ctx.Deadline()
	if ok {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, time.Until(deadline)*3/4)
		defer cancel()
	}
	f.server.Drain()
	drainCtx, cancel := ctx, context.CancelFunc(func() {})
	if ok {
		// The time that is left after that is for closing the sessions that stay.
		drainCtx, cancel = context.WithTimeout(ctx, time.Until(deadline)/2)
	}
	defer cancel()
	// Both at the same time, here and below, so that neither uses up the other's time.
	if err := together(drainCtx, f.sessions.Drain, f.door.drain); err != nil {
		f.log.Info("sessions.drain_incomplete", zap.Error(err))
	}
	return together(ctx, f.sessions.Stop, f.stopConsole, f.door.stop, f.server.Stop, f.door.stopListener)
}

func (f *front) stopConsole(ctx context.Context) error {
	if f.console == nil {
		return nil
	}
	return f.console.Stop(ctx)
}

// together runs all at the same time, and returns once all have returned.
func together(ctx context.Context, all ...func(context.Context) error) error {
	errs := make([]error, len(all))
	var running sync.WaitGroup
	for i, f := range all {
		running.Go(func() { errs[i] = f(ctx) })
	}
	running.Wait()
	return errors.Join(errs...)
}
