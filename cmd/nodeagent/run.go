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

	"github.com/freeslot/freeslot/internal/node/agent"
	"github.com/freeslot/freeslot/internal/process/config"
	"github.com/freeslot/freeslot/internal/process/logging"
	"github.com/freeslot/freeslot/internal/process/systemd"
	"github.com/freeslot/freeslot/internal/process/version"
)

// startTimeout bounds a start, up to the registration of the node.
const startTimeout = 15 * time.Second

// runCmd is what the command line sets.
type runCmd struct {
	Config         string
	Check, Version bool
	// Set is what --set gives, which wins over Flags, the flags with names of their own.
	Flags, Set []config.Flag
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
	logger, level, err := newLogger(cfg.Log, env.err)
	if err != nil {
		return configError{err}
	}
	denied := func(err error) string { return cfg.Redis.Denied(err, cfg.Node.ID) }
	err = serve(env, cfg, logging.WithHints(logger, denied), func(ctx context.Context, a *agent.Agent) {
		_ = a.Reload(ctx, func() (agent.Config, error) { return c.load(env.environ) }, func(name string) {
			_ = level.UnmarshalText([]byte(name)) // valid
		}) // the agent has told of its error
	})
	if hint := denied(err); hint != "" {
		return fmt.Errorf("%w (%s)", err, hint)
	}
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

func (c *runCmd) load(environ []string) (agent.Config, error) {
	cfg, err := agent.Load(config.Options{File: c.Config, Environ: environ, Flags: slices.Concat(c.Flags, c.Set)})
	switch {
	case err == nil:
		return cfg, nil
	case config.Unreadable(err):
		return agent.Config{}, err
	case c.Config == "":
		hintConfig(err)
	}
	return agent.Config{}, configError{err}
}

// hintConfig has the problem that no service is configured say where one would be.
func hintConfig(err error) {
	var problems config.Problems
	if !errors.As(err, &problems) {
		return
	}
	for i := range problems {
		if p := &problems[i]; p.Path == "services" && strings.HasPrefix(p.Message, "is empty") {
			p.Message += " (no configuration file is named: --config FILE)"
		}
	}
}

// serve runs one agent until env's context ends or the agent does. reload is called after
// each SIGHUP.
func serve(env *environment, cfg agent.Config, logger *zap.Logger, reload func(context.Context, *agent.Agent)) error {
	p, err := newProcess(cfg, logger)
	if err != nil {
		return err
	}
	startCtx, cancel := context.WithTimeout(env.ctx, startTimeout)
	defer cancel()
	return p.serve(startCtx, env, reload)
}

// serve is the function serve once everything has been built. startCtx bounds the start.
func (p *process) serve(startCtx context.Context, env *environment, reload func(context.Context, *agent.Agent)) error {
	cfg, logger := p.cfg, p.log
	if err := p.app.Start(startCtx); err != nil {
		// What began the start does not wait for it, so the node may be registered all the same, or be just about to be.
		if env.ctx.Err() != nil { // told to stop on the way up
			p.stop(env.hurry, p.agent.Stop)
			return nil
		}
		p.stop(startCtx, p.agent.Stop) // a start whose time is over hands back at once what has come in
		return rootCause(err)
	}
	notify := systemd.New(env.environ)
	told := func(err error) {
		if err != nil {
			logger.Warn("agent.systemd", zap.Error(err))
		}
	}
	var watching sync.WaitGroup
	defer watching.Wait()
	watchCtx, endWatch := context.WithCancel(context.Background())
	defer endWatch()
	watching.Go(func() { notify.Watch(watchCtx, p.agent.Alive) })
	told(errors.Join(notify.Status(status(cfg.Node.ID, len(cfg.Services))), notify.Ready()))
	logger.Info("agent.started", zap.String(logging.FieldNode, cfg.Node.ID), zap.String("key_prefix", cfg.Redis.KeyPrefix),
		zap.Int("services", len(cfg.Services)), zap.String("version", version.String()))
	for running := true; running; {
		select {
		case <-env.ctx.Done():
			running = false
		case <-p.agent.Done():
			running = false
		case <-env.reload:
			told(notify.Reloading())
			reload(env.ctx, p.agent)
			told(errors.Join(notify.Status(status(cfg.Node.ID, p.agent.Services())), notify.Ready()))
		}
	}
	told(errors.Join(notify.Stopping(), notify.Status("running jobs end, for up to "+cfg.StopTimeout.String())))
	p.stop(env.hurry, p.app.Stop)
	return p.agent.Err()
}

// status is what systemctl shows of an agent.
func status(node string, services int) string {
	return fmt.Sprintf("node %s, %d services", node, services)
}

// stop drains by end, and interrupts what still runs when hurry ends.
func (p *process) stop(hurry context.Context, end func(context.Context) error) {
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
	if err := end(ctx); err != nil {
		p.log.Warn("agent.stop_incomplete", zap.String(logging.FieldNode, p.cfg.Node.ID), zap.Error(err))
	}
	close(stopped)
	hurrying.Wait()
}
