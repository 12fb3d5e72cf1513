package nodeagent

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/trace"
	"go.uber.org/zap"

	"github.com/freeslot/freeslot/internal/healthcheck"
	"github.com/freeslot/freeslot/internal/node/cgroup"
	"github.com/freeslot/freeslot/internal/process/logging"
	redisclient "github.com/freeslot/freeslot/internal/redis/client"
	"github.com/freeslot/freeslot/worker"
)

// endMargin is how long the end of a command may take to reach the worker after the command's last
// grace.
const endMargin = 2 * time.Second

// Agent is a worker whose handlers are executors. It is for one Start and one Stop.
type Agent struct {
	worker        *worker.Worker
	metricsServer *metricsServer // nil if nothing is served
	checks        *healthcheck.Group
	announcer     *announcer
	limits        *containment
	log           *zap.Logger
	metrics       *metrics
	// lookout is nil unless the agent looks for interruption notices. Start uses it, then the
	// goroutine of watchNotices, which close ends by endWatch and waits for.
	lookout  *lookout
	endWatch context.CancelFunc // nil before the watch begins; guarded by mu
	watching sync.WaitGroup
	// interrupted is closed, by noticed, after a notice. waits is true while Start waits for the
	// end of one.
	interrupted chan struct{}
	noticed     sync.Once
	waits       atomic.Bool
	// grace is how long the worker waits for handlers that it has interrupted.
	grace time.Duration

	mu       sync.Mutex // guards the fields that follow; held while a configuration is applied
	cfg      Config
	services map[string]*service
	closed   bool
}

// New builds an agent from a valid configuration and starts nothing. A command whose program does
// not exist is an error.
func New(cfg Config, log *zap.Logger, reg *prometheus.Registry, tracers trace.TracerProvider) (*Agent, error) {
	settings := cfg.worker()
	settings.HeartbeatInterval, settings.HeartbeatLimit = cfg.HeartbeatInterval, cfg.HeartbeatLimit
	settings.ExitUnreachable = cfg.ExitUnreachable
	settings.StopTimeout, settings.InterruptGrace = cfg.StopTimeout, cfg.interruptGrace()
	settings.MaxResultBytes, settings.Logger = cfg.MaxResultBytes, log
	settings.Registerer, settings.TracerProvider = reg, tracers
	w, err := cfg.newWorker(settings)
	if err != nil {
		return nil, err
	}
	a := &Agent{
		worker: w, limits: newContainment(log), log: log.With(zap.String(logging.FieldNode, cfg.Node.ID)),
		grace: cfg.interruptGrace(), interrupted: make(chan struct{}),
		cfg: cfg, services: make(map[string]*service, len(cfg.Services)),
	}
	own := prometheus.WrapRegistererWith(prometheus.Labels{"node": cfg.Node.ID}, reg)
	if a.metrics, err = newMetrics(own); err != nil {
		return nil, err
	}
	if a.checks, err = healthcheck.NewGroup(healthcheck.Options{
		Report: a.healthChanged, Log: a.log, Registerer: own,
	}); err != nil {
		return nil, err
	}
	if a.announcer, err = newAnnouncer(&cfg, a.log); err != nil {
		return nil, err
	}
	if cfg.Interruption.enabled() {
		if a.lookout, err = newLookout(cfg.Interruption, a.log); err != nil {
			return nil, err
		}
	}
	for i := range cfg.Services {
		s, err := newService(&cfg, i, a.log)
		if err != nil {
			return nil, err
		}
		a.services[s.name] = s
		w.Handle(s.name, s.run)
	}
	if cfg.MetricsListen != "" {
		a.metricsServer = newMetricsServer(cfg.MetricsListen, reg, w.Done(), log)
	}
	return a, nil
}

// interruptGrace returns a time that is long enough for the grace of every command: an agent that
// ended earlier would leave processes behind.
func (c *Config) interruptGrace() time.Duration {
	grace := worker.DefaultInterruptGrace
	for _, s := range c.Services {
		if s.Command != nil {
			// It includes the time for limits, which a later configuration may bring.
			grace = max(grace, s.Command.KillGrace+pipeDelay+cgroup.EndLimit+endMargin)
		}
	}
	return grace
}

// StopLimit returns the longest time that Stop takes if its context does not end.
func (c *Config) StopLimit() time.Duration {
	return c.StopTimeout + c.interruptGrace() + 10*time.Second
}

// Start starts the agent. While Redis or the gateway cannot be reached it waits, unless the
// configuration has ExitUnreachable. Services with a check get no jobs before its first success.
// After an error everything is stopped again.
func (a *Agent) Start(ctx context.Context) error {
	if err := a.start(ctx); err != nil {
		return errors.Join(err, a.close(ctx))
	}
	return nil
}

func (a *Agent) start(ctx context.Context) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, s := range a.services {
		if err := s.contain(a.limits); err != nil {
			return err
		}
	}
	if a.metricsServer != nil {
		if err := a.metricsServer.start(ctx); err != nil {
			return err
		}
	}
	if err := a.awaitNoNotice(ctx); err != nil {
		return err
	}
	for i := range a.cfg.Services {
		s := &a.cfg.Services[i]
		if s.Check == nil {
			continue
		}
		if err := a.worker.SetHealthy(s.Name, false); err != nil {
			return err
		}
		a.announcer.setHealthy(s.Name, false)
		a.checks.Start(s.Name, s.Check, false)
	}
	if err := a.worker.Start(ctx); err != nil {
		return a.explain(err)
	}
	if a.metricsServer != nil {
		close(a.metricsServer.registered)
	}
	a.announcer.set(a.cfg.announced())
	if a.lookout != nil {
		var watchCtx context.Context
		watchCtx, a.endWatch = context.WithCancel(context.Background())
		a.watching.Go(func() { a.watchNotices(watchCtx) })
	}
	return nil
}

// healthChanged takes in the changes that the checks report.
func (a *Agent) healthChanged(service string, failure error) {
	a.announcer.setHealthy(service, failure == nil)
	// A service that the node no longer has is not a failure: its check is about to end.
	if err := a.worker.SetHealthy(service, failure == nil); err != nil {
		a.log.Debug("service.unknown", zap.String("service", service), zap.Error(err))
	}
}

// explain names the key with Redis' address if Redis could not be reached.
func (a *Agent) explain(err error) error {
	if !errors.As(err, new(*redisclient.UnreachableError)) {
		return err
	}
	if len(a.cfg.Redis.URLs) > 0 {
		return fmt.Errorf("%w (redis.urls in the configuration)", err)
	}
	return fmt.Errorf("%w (redis.url in the configuration, or --redis-url)", err)
}

// Stop drains. It has the bounds of worker.Worker.Stop. A second call with an ended context makes
// the first one interrupt the running jobs.
func (a *Agent) Stop(ctx context.Context) error {
	a.checks.Close() // a node that stops offers nothing
	a.announcer.drain()
	err := a.worker.Stop(ctx)
	return errors.Join(err, a.close(context.WithoutCancel(ctx)))
}

func (a *Agent) close(ctx context.Context) error {
	a.checks.Close()
	a.mu.Lock()
	defer a.mu.Unlock()
	a.closed = true
	if a.endWatch != nil {
		a.endWatch()
	}
	a.watching.Wait()
	if a.lookout != nil {
		a.lookout.close()
	}
	for _, s := range a.services {
		s.retire()
	}
	err := errors.Join(a.limits.close(), a.announcer.close(ctx))
	if a.metricsServer == nil {
		return err
	}
	return errors.Join(err, a.metricsServer.stop(ctx))
}

// Config returns the configuration in force.
func (a *Agent) Config() Config {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.cfg
}

// Services returns the number of the agent's services.
func (a *Agent) Services() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return len(a.services)
}

// Alive reports whether the agent goes on; see worker.Worker.Alive.
func (a *Agent) Alive() bool { return a.worker.Alive() }

// Done returns a channel that is closed when the agent runs no more jobs, by Stop or by itself.
func (a *Agent) Done() <-chan struct{} { return a.worker.Done() }

// Err returns the reason that the agent ended by itself; nil after Stop.
func (a *Agent) Err() error { return a.worker.Err() }
