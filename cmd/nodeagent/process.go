package main

import (
	"context"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"go.uber.org/dig"
	"go.uber.org/fx"
	"go.uber.org/multierr"
	"go.uber.org/zap"

	"github.com/freeslot/freeslot/internal/node/agent"
	"github.com/freeslot/freeslot/internal/process/tracing"
	"github.com/freeslot/freeslot/internal/process/version"
)

// process is one agent with what it needs, ready to be started once.
type process struct {
	cfg   agent.Config
	log   *zap.Logger
	app   *fx.App
	agent *agent.Agent
}

// module builds an agent from an agent.Config and a *zap.Logger.
var module = fx.Options(fx.Provide(newRegistry, newTracing, newAgent), fx.Invoke(lifecycle))

// newProcess builds everything and starts nothing. The error is one line.
func newProcess(cfg agent.Config, logger *zap.Logger) (*process, error) {
	p := &process{cfg: cfg, log: logger}
	p.app = fx.New(fx.NopLogger, fx.Supply(cfg, logger), module, fx.Populate(&p.agent))
	if err := p.app.Err(); err != nil {
		return nil, rootCause(err)
	}
	return p, nil
}

func newRegistry() *prometheus.Registry {
	reg := prometheus.NewRegistry()
	reg.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	reg.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "freeslot_build_info", Help: "Always 1; the version is in the label.", ConstLabels: prometheus.Labels{"version": version.String()},
	}, func() float64 { return 1 }))
	return reg
}

func newTracing(cfg agent.Config) (*tracing.Tracing, error) {
	return tracing.Open(context.Background(), tracing.Config{
		Endpoint: cfg.Tracing.OTLPEndpoint, SampleRatio: cfg.Tracing.SampleRatio,
		Service: "freeslot-nodeagent", Version: version.String(), Instance: cfg.Node.ID,
	})
}

func newAgent(cfg agent.Config, log *zap.Logger, reg *prometheus.Registry, t *tracing.Tracing) (*agent.Agent, error) {
	return agent.New(cfg, log, reg, t.Provider())
}

// lifecycle closes the tracing last, so that it gets the spans of the drain.
func lifecycle(lc fx.Lifecycle, a *agent.Agent, t *tracing.Tracing) {
	lc.Append(fx.StopHook(func(ctx context.Context) {
		_ = t.Close(ctx) // a collector that is away costs spans, nothing else
	}))
	lc.Append(fx.StartStopHook(a.Start, a.Stop))
}

// rootCause is what a person can act on: fx wraps it into the names of our
// functions, and adds what failed while it stopped the rest.
func rootCause(err error) error {
	errs := multierr.Errors(err)
	if len(errs) == 0 {
		return err
	}
	return dig.RootCause(errs[0])
}
