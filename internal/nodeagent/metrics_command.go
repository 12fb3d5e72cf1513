//go:build unix

package nodeagent

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.uber.org/zap"

	"github.com/freeslot/freeslot/internal/node/collector"
)

const (
	// metricsOutputBytes is the size of the largest output of a metrics command.
	metricsOutputBytes = 16 << 10
	// metricsKillGrace is the time from SIGTERM to SIGKILL. It is short, so that the collectors'
	// runner sees the end when the agent stops.
	metricsKillGrace = 500 * time.Millisecond
	// metricsPipeDelay is pipeDelay for metrics commands.
	metricsPipeDelay = 200 * time.Millisecond
)

// commandCollector collects the figures that an operator's program writes.
type commandCollector struct {
	name string
	cost collector.Cost
	// exec knows the program and its environment; it runs no job.
	exec *commandExecutor
}

// newCommandCollector makes a collector of a valid configuration. The error continues a sentence
// that begins with the key of argv.
func newCommandCollector(cfg *MetricsCommand) (*commandCollector, error) {
	exec, err := newCommand(cfg.command(), metricsOutputBytes, zap.NewNop())
	if err != nil {
		return nil, err
	}
	return &commandCollector{name: cfg.Name, cost: costs[cfg.Cost], exec: exec}, nil
}

// Type returns the configured name.
func (c *commandCollector) Type() string { return c.name }

// Available returns true.
func (c *commandCollector) Available(context.Context) bool { return true }

// Cost returns the configured cost.
func (c *commandCollector) Cost() collector.Cost { return c.cost }

// Collect runs the program. When ctx ends it ends the program with its whole process group.
func (c *commandCollector) Collect(ctx context.Context) (collector.Metrics, error) {
	cmd := c.exec.command(c.exec.cfg.Argv[1:], c.exec.fixedEnv)
	cmd.WaitDelay = metricsPipeDelay
	done, err := c.exec.execute(ctx, cmd, nil, func() {})
	switch {
	case err != nil:
		return nil, err
	case done.stdout.over:
		return nil, fmt.Errorf("the command wrote more than %d bytes", metricsOutputBytes)
	case done.terminated:
		return nil, fmt.Errorf("%s: %w", done.withStderr("the command was ended"), context.Cause(ctx))
	case done.err != nil:
		return nil, errors.New(done.withStderr("the command failed: " + done.err.Error()))
	}
	figures, err := collector.Parse(done.stdout.data)
	if err != nil {
		return nil, fmt.Errorf("the command's output: %w", err)
	}
	return figures, nil
}
