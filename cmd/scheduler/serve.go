package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/cenkalti/backoff/v5"
	"go.opentelemetry.io/otel"
	"go.uber.org/zap"

	"github.com/freeslot/freeslot/internal/process/logging"
	"github.com/freeslot/freeslot/internal/process/metrics"
	"github.com/freeslot/freeslot/internal/process/systemd"
	"github.com/freeslot/freeslot/internal/process/terminal"
	redisclient "github.com/freeslot/freeslot/internal/redis/client"
	"github.com/freeslot/freeslot/internal/replica"
	"github.com/freeslot/freeslot/internal/replica/config"
)

const (
	// startTimeout bounds one attempt to start, from the first connection to Redis to the open
	// port.
	startTimeout = 15 * time.Second
	// shortestRetry and longestRetry bound the pauses between attempts while Redis is away.
	shortestRetry = 50 * time.Millisecond
	longestRetry  = 2 * time.Second
)

// configFlags are the flags of commands that read the configuration of a replica.
type configFlags struct {
	Config   string   `short:"c" type:"path" env:"FREESLOT_CONFIG" placeholder:"FILE" help:"YAML file, or TOML if it ends in .toml; docs/reference/scheduler-config.md has every key, deploy/scheduler.example.yaml is one."`
	RedisURL string   `name:"redis-url" placeholder:"URL" help:"Where Redis is (redis.url). Default: redis://127.0.0.1:6379."`
	Set      []string `sep:"none" placeholder:"KEY=VALUE" help:"Any other key, such as --set limits.max_batch=500. Can be repeated."`
}

type serveCmd struct {
	configFlags
	Listen          string `placeholder:"HOST:PORT" help:"Address of HTTP and WebSocket (listen). Default: 127.0.0.1:7480."`
	ReplicaID       string `name:"replica-id" placeholder:"NAME" help:"Name of this replica (replica_id). Default: the host's name with a random suffix."`
	LogLevel        string `placeholder:"LEVEL" help:"debug, info, warn or error (log.level)."`
	LogFormat       string `placeholder:"FORMAT" help:"json or console (log.format)."`
	ExitUnreachable bool   `help:"End with code 1 when Redis cannot be reached at the start. By default the replica waits and tries again."`
	Check           bool   `help:"Check the configuration and exit."`
	Strict          bool   `help:"Refuse now an insecure configuration that a later release refuses, such as one without TLS."`
}

// Help is shown below the flags.
func (serveCmd) Help() string {
	return `Flags win over the environment (FREESLOT_REDIS__URL for redis.url), that over the file, that over the defaults.

The first SIGINT, SIGTERM or SIGHUP drains: /readyz turns red, clients go to other replicas, the port is closed, and the
process ends within drain_timeout. A second one, from a second after the first, ends it at once. Jobs go on either way.
SIGHUP and SIGINT do nothing where they are ignored at the start, as by nohup. Nothing is read again: a changed
configuration needs a restart.`
}

// Run serves until a signal stops the process.
func (c *serveCmd) Run(env *environment) error {
	cfg, err := c.load(env.environ)
	if err != nil {
		return err
	}
	if c.Strict && len(cfg.Insecure) > 0 {
		return configError{cfg.Insecure}
	}
	if c.Check {
		return check(env, cfg)
	}
	logger, err := logging.New(logging.Config{Level: cfg.Log.Level, Format: cfg.Log.Format}, env.err)
	if err != nil {
		return configError{err}
	}
	err = serve(env.ctx, cfg, logging.WithHints(logger, cfg.Redis.Denied), c.ExitUnreachable)
	if hint := cfg.Redis.Denied(err); hint != "" {
		return fmt.Errorf("%w (%s)", err, hint)
	}
	return err
}

// check prints whether the configuration is valid.
func check(env *environment, cfg config.Replica) error {
	if err := replica.CheckFiles(cfg); err != nil {
		return configError{err}
	}
	for _, w := range cfg.Warnings {
		_, _ = fmt.Fprintln(env.err, "warning:", w)
	}
	for _, w := range cfg.Insecure {
		line := fmt.Sprint("insecure: ", w, " (a later release refuses this, --strict refuses it now)")
		_, _ = fmt.Fprintln(env.err, terminal.Red(env.errTerminal, line))
	}
	_, err := fmt.Fprintln(env.out, "the configuration is valid")
	return err
}

func (c *serveCmd) load(environ []string) (config.Replica, error) {
	return c.configFlags.load(environ,
		config.Flag{Name: "--listen", Path: "listen", Value: c.Listen},
		config.Flag{Name: "--replica-id", Path: "replica_id", Value: c.ReplicaID},
		config.Flag{Name: "--log-level", Path: "log.level", Value: c.LogLevel},
		config.Flag{Name: "--log-format", Path: "log.format", Value: c.LogFormat},
	)
}

// load reads the configuration, with flags that a command has in addition.
func (c *configFlags) load(environ []string, more ...config.Flag) (config.Replica, error) {
	opts := config.Options{File: c.Config, Environ: environ}
	for _, f := range append(more, config.Flag{Name: "--redis-url", Path: "redis.url", Value: c.RedisURL}) {
		if f.Value != "" {
			opts.Flags = append(opts.Flags, f)
		}
	}
	for _, s := range c.Set {
		path, value, ok := strings.Cut(s, "=")
		if !ok || path == "" {
			return config.Replica{}, usageError{fmt.Errorf("--set %s: expected KEY=VALUE such as --set limits.max_batch=500", s)}
		}
		opts.Flags = append(opts.Flags, config.Flag{Name: "--set " + path, Path: path, Value: value})
	}
	cfg, err := config.LoadReplica(opts)
	switch {
	case err == nil:
		cfg.ReadTokens = config.TokensReader(cfg.Tokens, opts)
		return cfg, nil
	case config.Unreadable(err):
		return config.Replica{}, err
	default:
		return config.Replica{}, configError{err}
	}
}

// checkListen finds a taken port before anything is started and logged.
func checkListen(ctx context.Context, addr string) error {
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "tcp", addr)
	if err == nil {
		return l.Close()
	}
	hint := "choose another address with --listen (listen in the configuration)"
	if errors.Is(err, syscall.EADDRINUSE) {
		hint = "stop what listens there, or " + hint
	}
	if op, ok := errors.AsType[*net.OpError](err); ok {
		err = op.Err
	}
	return fmt.Errorf("cannot listen on %s: %w: %s", addr, err, hint)
}

// start starts a replica. While Redis cannot be reached it tries again, unless exitUnreachable is
// set, and calls waits after the first failure. An event is logged in one attempt only. Nothing
// listens until the replica serves.
func start(
	ctx context.Context, cfg config.Replica, logger *zap.Logger, exitUnreachable bool, waits func(),
) (*replica.Replica, error) {
	pauses := backoff.NewExponentialBackOff()
	pauses.InitialInterval, pauses.MaxInterval = shortestRetry, longestRetry
	attempts, quiet := logging.NewAttempts(logger, "replica.connect_failed", "replica.connected")
	for first := true; ; first = false {
		r := replica.New(cfg, quiet, metrics.NewRegistry())
		startCtx, cancel := context.WithTimeout(ctx, startTimeout)
		err := r.Start(startCtx)
		cancel()
		switch {
		case err == nil:
			attempts.Over()
			return r, nil
		case ctx.Err() != nil || exitUnreachable || !redisclient.IsAway(err):
			return nil, err
		case first:
			waits()
		}
		attempts.Failed(err, zap.String(logging.FieldReason, "the replica does not serve yet, and tries again until it does"))
		select {
		case <-time.After(pauses.NextBackOff()):
		case <-ctx.Done():
			return nil, err
		}
	}
}

// serve runs one replica until ctx ends.
func serve(ctx context.Context, cfg config.Replica, logger *zap.Logger, exitUnreachable bool) error {
	// Logs errors of the trace collector in the format of the log. The handler is global to the
	// process, so it is set here.
	otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) { logger.Warn("tracing.export_failed", zap.Error(err)) }))
	if err := checkListen(ctx, cfg.Listen); err != nil {
		return err
	}
	restoreGC := relaxGC()
	defer restoreGC()
	notify := systemd.New(os.Environ())
	logFailed := func(err error) {
		if err != nil {
			logger.Warn("replica.systemd", zap.Error(err))
		}
	}
	var watching sync.WaitGroup
	defer watching.Wait()
	watchCtx, endWatch := context.WithCancel(context.WithoutCancel(ctx))
	defer endWatch()
	var serving atomic.Pointer[replica.Replica]
	watching.Go(func() {
		notify.Watch(watchCtx, func() bool { r := serving.Load(); return r == nil || r.Alive() })
	})
	r, err := start(ctx, cfg, logger, exitUnreachable, func() {
		// A manager that waits for the replica would kill it, and hold up the services that come
		// after it.
		logFailed(errors.Join(notify.Status("waits for Redis"), notify.Ready()))
	})
	if err != nil {
		if ctx.Err() != nil {
			return nil // stopped on the way up
		}
		return err
	}
	restoreGC()
	serving.Store(r)
	logFailed(errors.Join(notify.Status("serves at "+r.Addr()), notify.Ready()))
	select {
	case <-ctx.Done():
	case <-r.Done():
	}
	logFailed(errors.Join(notify.Stopping(), notify.Status("drains, for up to "+cfg.DrainTimeout.String())))
	stopCtx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cfg.DrainTimeout)
	defer cancel()
	if err := r.Stop(stopCtx); err != nil {
		// Nothing is lost: the jobs of the sessions are in Redis.
		logger.Warn("replica.stop_incomplete", zap.String(logging.FieldReplica, cfg.ReplicaID), zap.Error(err))
	}
	return r.Err()
}
