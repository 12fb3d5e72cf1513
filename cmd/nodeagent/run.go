package main

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/alecthomas/kong"
	"go.uber.org/zap"

	"github.com/freeslot/freeslot/internal/agent"
	"github.com/freeslot/freeslot/internal/config"
	"github.com/freeslot/freeslot/internal/logging"
	"github.com/freeslot/freeslot/internal/version"
)

// startTimeout bounds a start, up to the registration of the node.
const startTimeout = 15 * time.Second

type runCmd struct {
	Config         string   `short:"c" type:"path" env:"FREESLOT_CONFIG" placeholder:"FILE" help:"YAML file; docs/nodeagent.md has every key, deploy/nodeagent.example.yaml is one."`
	RedisURL       string   `name:"redis-url" placeholder:"URL" help:"Where Redis is (redis.url). Default: redis://127.0.0.1:6379."`
	NodeID         string   `name:"node-id" placeholder:"NAME" help:"Name of this node in the fleet (node.id). Default: the host's name."`
	MaxConcurrency *int     `placeholder:"N" help:"Slots of the node (node.max_concurrency). Default: 1."`
	MetricsListen  string   `placeholder:"HOST:PORT" help:"Serve /metrics and /healthz there (metrics_listen). Off unless set."`
	LogLevel       string   `placeholder:"LEVEL" help:"debug, info, warn or error (log.level)."`
	LogFormat      string   `placeholder:"FORMAT" help:"json or console (log.format)."`
	Set            []string `sep:"none" placeholder:"KEY=VALUE" help:"Any other key, such as --set stop_timeout=5m. Can be repeated."`
	Check          bool     `help:"Check the configuration and exit."`

	Version kong.VersionFlag `help:"Print the version and exit."`
}

// Run runs the agent until the process is told to stop.
func (c *runCmd) Run(env *environment) error {
	cfg, err := c.load(env.environ)
	if err != nil {
		return err
	}
	if c.Check {
		_, err := fmt.Fprintln(env.out, "the configuration is valid")
		return err
	}
	logger, err := logging.New(logging.Config{Level: cfg.Log.Level, Format: cfg.Log.Format}, env.err)
	if err != nil {
		return usageError{err}
	}
	return serve(env, cfg, logger)
}

func (c *runCmd) load(environ []string) (agent.Config, error) {
	opts := config.Options{File: c.Config, Environ: environ}
	slots := ""
	if c.MaxConcurrency != nil {
		slots = strconv.Itoa(*c.MaxConcurrency)
	}
	for _, f := range []config.Flag{
		{Name: "--redis-url", Path: "redis.url", Value: c.RedisURL},
		{Name: "--node-id", Path: "node.id", Value: c.NodeID},
		{Name: "--max-concurrency", Path: "node.max_concurrency", Value: slots},
		{Name: "--metrics-listen", Path: "metrics_listen", Value: c.MetricsListen},
		{Name: "--log-level", Path: "log.level", Value: c.LogLevel},
		{Name: "--log-format", Path: "log.format", Value: c.LogFormat},
	} {
		if f.Value != "" {
			opts.Flags = append(opts.Flags, f)
		}
	}
	for _, s := range c.Set {
		path, value, ok := strings.Cut(s, "=")
		if !ok || path == "" {
			return agent.Config{}, usageError{fmt.Errorf("--set %s: expected KEY=VALUE such as --set stop_timeout=5m", s)}
		}
		opts.Flags = append(opts.Flags, config.Flag{Name: "--set " + path, Path: path, Value: value})
	}
	cfg, err := agent.Load(opts)
	if err != nil {
		return agent.Config{}, usageError{err}
	}
	return cfg, nil
}

// serve runs one agent until env's context ends or the agent does.
func serve(env *environment, cfg agent.Config, logger *zap.Logger) error {
	p, err := newProcess(cfg, logger)
	if err != nil {
		return err
	}
	startCtx, cancel := context.WithTimeout(env.ctx, startTimeout)
	defer cancel()
	if err := p.app.Start(startCtx); err != nil {
		if env.ctx.Err() != nil {
			return nil // told to stop on the way up
		}
		return rootCause(err)
	}
	logger.Info("agent.started", zap.String(logging.FieldNode, cfg.Node.ID), zap.String("key_prefix", cfg.Redis.KeyPrefix),
		zap.Int("services", len(cfg.Services)), zap.String("version", version.String()))
	select {
	case <-env.ctx.Done():
	case <-p.agent.Done():
	}
	p.stop(env.hurry)
	return p.agent.Err()
}

// stop drains, and interrupts what still runs when hurry ends.
func (p *process) stop(hurry context.Context) {
	stopped := make(chan struct{})
	var hurrying sync.WaitGroup
	hurrying.Go(func() {
		select {
		case <-stopped:
		case <-hurry.Done():
			_ = p.agent.Stop(hurry) // what it says, the other call says too
		}
	})
	ctx, cancel := context.WithTimeout(context.Background(), p.cfg.StopLimit())
	defer cancel()
	if err := p.app.Stop(ctx); err != nil {
		p.log.Warn("agent.stop_incomplete", zap.String(logging.FieldNode, p.cfg.Node.ID), zap.Error(err))
	}
	close(stopped)
	hurrying.Wait()
}
