package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/freeslot/freeslot/internal/loopback"
	"github.com/freeslot/freeslot/internal/nodeagent"
	"github.com/freeslot/freeslot/internal/plural"
	"github.com/freeslot/freeslot/internal/process/logging"
	"github.com/freeslot/freeslot/internal/process/systemd"
	"github.com/freeslot/freeslot/internal/process/terminal"
	"github.com/freeslot/freeslot/internal/process/version"
	"github.com/freeslot/freeslot/internal/replica/config"
)

// startTimeout bounds a start that does not wait for Redis or the gateway, up to the registration
// of the node. After this time a service manager gets the message that the agent waits.
const startTimeout = 15 * time.Second

// runCmd holds the settings of the command line.
type runCmd struct {
	Config         string
	Check, Version bool
	// ExitUnreachable ends a start that cannot reach Redis or the gateway.
	ExitUnreachable bool
	// Flags are the flags with names of their own. Set holds the settings of --set, which win.
	Flags, Set []config.Flag
}

// Run runs the agent until a signal stops the process.
func (c *runCmd) Run(env *environment) error {
	cfg, err := c.load(env.environ)
	if err != nil {
		return err
	}
	if c.Check {
		return check(env, &cfg)
	}
	logger, level, err := newLogger(cfg.Log, env.err)
	if err != nil {
		return configError{err}
	}
	err = serve(env, cfg, logging.WithHints(logger, cfg.Denied), func(ctx context.Context, a *nodeagent.Agent) {
		_ = a.Reload(ctx, func() (nodeagent.Config, error) { return c.load(env.environ) }, func(name string) {
			_ = level.UnmarshalText([]byte(name)) // valid
		}) // the agent has logged its error
	})
	if hint := cfg.Denied(err); hint != "" {
		return fmt.Errorf("%w (%s)", err, hint)
	}
	return err
}

// check prints that the configuration is valid and, if there is a gateway, what the token may do.
func check(env *environment, cfg *nodeagent.Config) error {
	for _, w := range cfg.Insecure(env.asRoot) {
		_, _ = fmt.Fprintln(env.err, terminal.Red(env.errTerminal, "nodeagent: "+w.String()))
	}
	if _, err := fmt.Fprintln(env.out, "the configuration is valid"); err != nil || cfg.Gateway == "" {
		return err
	}
	if plain := loopback.Plain(cfg.Gateway); plain != "" && !cfg.GatewayInsecure {
		_, _ = fmt.Fprintln(env.err, terminal.Red(env.errTerminal,
			"nodeagent: the token goes to "+plain+
				" in the clear; use wss://, or gateway_insecure: true where that way is private"))
	}
	ctx, cancel := context.WithTimeout(env.ctx, startTimeout)
	defer cancel()
	rights, err := cfg.CheckGateway(ctx)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintln(env.out, rights)
	return err
}

// newLogger builds a logger whose level can change.
func newLogger(cfg config.Log, w io.Writer) (*zap.Logger, *zap.AtomicLevel, error) {
	logger, err := logging.New(logging.Config{Level: zap.DebugLevel.String(), Format: cfg.Format}, w)
	if err != nil {
		return nil, nil, err
	}
	level, err := zap.ParseAtomicLevel(cfg.Level)
	if err != nil {
		return nil, nil, err
	}
	return logger.WithOptions(zap.IncreaseLevel(level)), &level, nil
}

func (c *runCmd) load(environ []string) (nodeagent.Config, error) {
	cfg, err := nodeagent.Load(config.Options{File: c.Config, Environ: environ, Flags: slices.Concat(c.Flags, c.Set)})
	cfg.ExitUnreachable = c.ExitUnreachable
	switch {
	case err == nil:
		return cfg, nil
	case config.Unreadable(err):
		return nodeagent.Config{}, err
	case c.Config == "":
		hintConfig(err)
	}
	return nodeagent.Config{}, configError{err}
}

// hintConfig adds a hint to the problem that no service is configured.
func hintConfig(err error) {
	problems, ok := errors.AsType[config.Problems](err)
	if !ok {
		return
	}
	for i := range problems {
		if p := &problems[i]; p.Path == "services" && strings.HasPrefix(p.Message, "is empty") {
			p.Message += " (no configuration file is named: --config FILE)"
		}
	}
}

// serve runs an agent until env's context ends or the agent does. It calls reload after each
// SIGHUP. After an interruption notice it runs another agent, whose start waits until the notice is
// withdrawn: a process that ended would be started again at once, or never.
func serve(
	env *environment, cfg nodeagent.Config, logger *zap.Logger, reload func(context.Context, *nodeagent.Agent),
) error {
	for _, w := range cfg.Insecure(env.asRoot) {
		logger.Warn("config.insecure", zap.String("key", w.Path), zap.String("meaning", w.Message))
	}
	for {
		p, err := newProcess(cfg, logger)
		if err != nil {
			return err
		}
		if err := p.serveOnce(env, reload); err != nil || !p.interrupted() || env.ctx.Err() != nil {
			return err
		}
		cfg = p.agent.Config()
	}
}

func (p *process) serveOnce(env *environment, reload func(context.Context, *nodeagent.Agent)) error {
	startCtx, cancel := context.WithCancel(env.ctx)
	if p.cfg.ExitUnreachable {
		startCtx, cancel = context.WithTimeout(env.ctx, startTimeout)
	}
	defer cancel()
	return p.serve(startCtx, env, reload)
}

// interrupted reports whether an interruption notice has come.
func (p *process) interrupted() bool {
	select {
	case <-p.agent.Interrupted():
		return true
	default:
		return false
	}
}

// serve runs a process that has been built. startCtx bounds the start.
func (p *process) serve(
	startCtx context.Context, env *environment, reload func(context.Context, *nodeagent.Agent),
) error {
	cfg, logger := p.cfg, p.log
	notify := systemd.New(env.environ)
	logFailed := func(err error) {
		if err != nil {
			logger.Warn("agent.systemd", zap.Error(err))
		}
	}
	var watching sync.WaitGroup
	defer watching.Wait()
	watchCtx, endWatch := context.WithCancel(context.Background())
	defer endWatch()
	registered := make(chan struct{})
	watching.Go(func() {
		select {
		case <-registered:
		case <-time.After(startTimeout):
			// A manager that waits for the agent would kill it, and hold up the services that come
			// after it.
			reason := "waits for Redis or the gateway"
			if p.agent.Waits() {
				reason = "waits until the interruption notice is withdrawn"
			}
			logFailed(errors.Join(notify.Status(reason), notify.Ready()))
		case <-watchCtx.Done():
			return
		}
		notify.Watch(watchCtx, p.agent.Alive)
	})
	if err := p.start(startCtx); err != nil {
		if env.ctx.Err() != nil { // stopped on the way up
			p.stop(env.hurry)
			return nil
		}
		p.stop(startCtx) // a start that took too long hands back at once the jobs that have come
		return err
	}
	close(registered)
	logFailed(errors.Join(notify.Status(status(cfg.Node.ID, len(cfg.Services))), notify.Ready()))
	to := zap.String("key_prefix", cfg.Redis.KeyPrefix)
	if cfg.Gateway != "" {
		to = zap.String("gateway", cfg.Gateway)
	}
	logger.Info("agent.started", zap.String(logging.FieldNode, cfg.Node.ID), to,
		zap.Int("services", len(cfg.Services)), zap.String("version", version.String()))
	p.run(env, reload, notify, logFailed)
	if !p.interrupted() || env.ctx.Err() != nil { // otherwise the process goes on
		text := "running jobs end, for up to " + cfg.StopTimeout.String()
		logFailed(errors.Join(notify.Stopping(), notify.Status(text)))
	}
	p.stop(env.hurry)
	return p.agent.Err()
}

// run returns when the agent is to stop, or has stopped by itself.
func (p *process) run(
	env *environment, reload func(context.Context, *nodeagent.Agent), notify *systemd.Notifier, logFailed func(error),
) {
	noticed := p.agent.Interrupted()
	for {
		select {
		case <-env.ctx.Done():
			return
		case <-p.agent.Done():
			return
		case <-noticed:
			noticed = nil
			logFailed(notify.Status("drains after an interruption notice, and waits until that is withdrawn"))
		case <-env.reload:
			logFailed(notify.Reloading())
			reload(env.ctx, p.agent)
			logFailed(errors.Join(notify.Status(status(p.cfg.Node.ID, p.agent.Services())), notify.Ready()))
		}
	}
}

// status returns the line that systemctl shows for an agent.
func status(node string, services int) string {
	return fmt.Sprintf("node %s, %s", node, plural.Of(services, "service", "services"))
}
