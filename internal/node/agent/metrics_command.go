//go:build unix

package agent

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"runtime"
	"time"

	"go.uber.org/zap"

	"github.com/freeslot/freeslot/internal/node/collector"
	"github.com/freeslot/freeslot/internal/process/procgroup"
)

const (
	// metricsOutputBytes is the most that a metrics command may write.
	metricsOutputBytes = 16 << 10
	// metricsKillGrace is from SIGTERM to SIGKILL, short enough for the runner of the
	// collectors to see the end when the agent stops.
	metricsKillGrace = 500 * time.Millisecond
	// metricsPipeDelay is as pipeDelay.
	metricsPipeDelay = 200 * time.Millisecond
)

// commandCollector collects what a program of the operator's writes.
type commandCollector struct {
	name string
	cost collector.Cost
	// exec knows the program and its environment; it runs no job.
	exec *commandExecutor
}

// newCommandCollector makes a collector of a valid configuration. The error continues a
// sentence that begins with the key of argv.
func newCommandCollector(cfg *MetricsCommand) (*commandCollector, error) {
	exec, err := newCommand(cfg.command(), metricsOutputBytes, zap.NewNop())
	if err != nil {
		return nil, err
	}
	return &commandCollector{name: cfg.Name, cost: costs[cfg.Cost], exec: exec}, nil
}

// Type is the configured name.
func (c *commandCollector) Type() string { return c.name }

// Available is true.
func (c *commandCollector) Available(context.Context) bool { return true }

// Cost is the configured one.
func (c *commandCollector) Cost() collector.Cost { return c.cost }

// Collect runs the program, and ends it with all of its process group when ctx does.
func (c *commandCollector) Collect(ctx context.Context) (collector.Metrics, error) {
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	stdout := &capped{limit: metricsOutputBytes, exceeded: func() { stop(errTooLarge) }}
	stderr := &tail{limit: stderrBytes}
	argv := c.exec.cfg.Argv
	cmd := exec.Command(c.exec.path, argv[1:]...)
	cmd.Args[0] = argv[0]
	cmd.Env = c.exec.fixedEnv
	if cmd.Env == nil {
		cmd.Env = []string{} // nil would be all of the agent's
	}
	cmd.Stdout, cmd.Stderr = stdout, stderr
	cmd.WaitDelay = metricsPipeDelay
	cmd.SysProcAttr = procgroup.Attr()
	// See commandExecutor.run.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("the command could not be started: %w", err)
	}
	terminated, err := c.exec.await(ctx, cmd, nil)
	switch {
	case stdout.over:
		return nil, fmt.Errorf("the command wrote more than %d bytes", metricsOutputBytes)
	case terminated:
		return nil, fmt.Errorf("%s: %w", withStderr("the command was ended", stderr), context.Cause(ctx))
	case err != nil:
		return nil, errors.New(withStderr("the command failed: "+err.Error(), stderr))
	}
	figures, err := collector.Parse(stdout.data)
	if err != nil {
		return nil, fmt.Errorf("the command's output: %w", err)
	}
	return figures, nil
}
