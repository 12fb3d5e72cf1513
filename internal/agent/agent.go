package agent

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/trace"
	"go.uber.org/zap"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/redisclient"
	"github.com/freeslot/freeslot/worker"
)

// endMargin is how long after a command's last grace its end may still take to
// reach the worker.
const endMargin = 2 * time.Second

// Agent is a worker whose handlers are executors. It is for one Start and one Stop.
type Agent struct {
	worker  *worker.Worker
	monitor *monitor // nil when nothing is served
	https   []*httpExecutor
	// severalServers tells where Redis is configured.
	severalServers bool
}

// New builds an agent from a valid configuration and starts nothing. Commands whose
// program does not exist are an error.
func New(cfg Config, log *zap.Logger, reg *prometheus.Registry, tracers trace.TracerProvider) (*Agent, error) {
	node := cfg.Node.profile()
	for _, s := range cfg.Services {
		node.Services = append(node.Services, freeslot.Service{Name: s.Name, Version: s.Version})
	}
	w, err := worker.New(worker.Config{
		RedisURL: cfg.Redis.URL, RedisURLs: cfg.Redis.URLs, Cells: cfg.Redis.Cells, KeyPrefix: cfg.Redis.KeyPrefix, Node: node,
		HeartbeatInterval: cfg.HeartbeatInterval, HeartbeatLimit: cfg.HeartbeatLimit, StopTimeout: cfg.StopTimeout, InterruptGrace: cfg.interruptGrace(),
		MaxResultBytes: cfg.MaxResultBytes, Logger: log, Registerer: reg, TracerProvider: tracers,
	})
	if err != nil {
		return nil, err
	}
	a := &Agent{worker: w, severalServers: len(cfg.Redis.URLs) > 0}
	for i, s := range cfg.Services {
		if s.HTTP != nil {
			e := newHTTP(*s.HTTP, cfg.MaxResultBytes, cfg.Node.MaxConcurrency)
			a.https = append(a.https, e)
			w.Handle(s.Name, e.run)
			continue
		}
		e, err := newCommand(*s.Command, cfg.MaxResultBytes)
		if err != nil {
			return nil, fmt.Errorf("services[%d].command.argv %w", i, err)
		}
		w.Handle(s.Name, e.run)
	}
	if cfg.MetricsListen != "" {
		a.monitor = newMonitor(cfg.MetricsListen, reg, w.Done(), log)
	}
	return a, nil
}

// interruptGrace lets every command have its grace before the worker gives up on it:
// an agent that ended earlier would leave processes behind.
func (c *Config) interruptGrace() time.Duration {
	grace := worker.DefaultInterruptGrace
	for _, s := range c.Services {
		if s.Command != nil {
			grace = max(grace, s.Command.KillGrace+pipeDelay+endMargin)
		}
	}
	return grace
}

// StopLimit is the longest that Stop takes when nobody hurries it.
func (c *Config) StopLimit() time.Duration {
	return c.StopTimeout + c.interruptGrace() + 10*time.Second
}

// Start takes the first jobs once it returns. What was started before a failure is
// stopped again.
func (a *Agent) Start(ctx context.Context) error {
	if a.monitor != nil {
		if err := a.monitor.start(ctx); err != nil {
			return err
		}
	}
	if err := a.worker.Start(ctx); err != nil {
		return errors.Join(a.explain(err), a.close(ctx))
	}
	return nil
}

// explain names the key that says where Redis is, when it could not be reached.
func (a *Agent) explain(err error) error {
	if !errors.As(err, new(*redisclient.UnreachableError)) {
		return err
	}
	if a.severalServers {
		return fmt.Errorf("%w (redis.urls in the configuration)", err)
	}
	return fmt.Errorf("%w (redis.url in the configuration, or --redis-url)", err)
}

// Stop drains; see worker.Worker.Stop, whose bounds are these. A second call with an
// ended context makes the first one interrupt the running jobs.
func (a *Agent) Stop(ctx context.Context) error {
	err := a.worker.Stop(ctx)
	return errors.Join(err, a.close(context.WithoutCancel(ctx)))
}

func (a *Agent) close(ctx context.Context) error {
	for _, e := range a.https {
		e.close()
	}
	if a.monitor == nil {
		return nil
	}
	return a.monitor.stop(ctx)
}

// Done is closed when the agent runs no more jobs, by Stop or by itself.
func (a *Agent) Done() <-chan struct{} { return a.worker.Done() }

// Err says why it ended by itself; nil after Stop.
func (a *Agent) Err() error { return a.worker.Err() }
