//go:build unix

package nodeagent

import (
	"fmt"
	"sync"

	"go.uber.org/zap"

	"github.com/freeslot/freeslot/internal/node/cgroup"
	"github.com/freeslot/freeslot/internal/process/logging"
	"github.com/freeslot/freeslot/worker"
)

// groups makes and removes the cgroups of commands; see [cgroup.Manager].
type groups interface {
	Supports(limits cgroup.Limits) error
	Create(name string, limits cgroup.Limits) (*cgroup.Group, error)
	Close() error
}

// containment opens the system's cgroups for the first command with limits. It is safe for
// concurrent use.
type containment struct {
	log  *zap.Logger
	open func() (groups, error)

	mu      sync.Mutex // guards the rest
	manager groups
}

func newContainment(log *zap.Logger) *containment {
	return &containment{log: log, open: func() (groups, error) { return cgroup.Open() }}
}

// contain prepares the limits of a service's executor. Limits that are required but cannot be set
// are an error. Otherwise they cause a warning, and the command runs without them.
func (c *containment) contain(service string, e *commandExecutor) error {
	if e.cfg.Limits == nil {
		return nil
	}
	manager, err := c.get()
	if err == nil {
		err = manager.Supports(e.cfg.Limits.group())
	}
	switch {
	case err == nil:
		e.groups.Store(&manager)
	case e.cfg.LimitsRequired:
		return fmt.Errorf("the limits of service %s cannot be set: %w", service, err)
	default:
		c.log.Warn("limits.unavailable", zap.String("service", service), zap.Error(err))
	}
	return nil
}

// get opens the groups, and tries again after a failure: with cgroup v2 opening fails while
// commands run beside the agent.
func (c *containment) get() (groups, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.manager == nil {
		manager, err := c.open()
		if err != nil {
			return nil, err
		}
		c.manager = manager
	}
	return c.manager, nil
}

// close removes the groups; commands must have ended. It tolerates a second call.
func (c *containment) close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.manager == nil {
		return nil
	}
	return c.manager.Close()
}

// group makes the group of one job; nil for a command without limits.
func (c *commandExecutor) group(job *worker.Job) (*cgroup.Group, error) {
	made := c.groups.Load()
	if made == nil {
		return nil, nil //nolint:nilnil // no group is no failure
	}
	group, err := (*made).Create(fmt.Sprintf("%s-%d", job.ID, job.Attempt), c.cfg.Limits.group())
	if err != nil {
		return nil, limitsFailed(err)
	}
	return group, nil
}

func (c *commandExecutor) remove(group *cgroup.Group, job *worker.Job) {
	if err := group.Remove(); err != nil {
		c.log.Warn("limits.group_left", zap.String(logging.FieldJob, job.ID), zap.Error(err))
	}
}

// limitsFailed returns a retryable error: the command has not run, and only this node is to blame.
func limitsFailed(err error) error {
	return worker.Retryable(jobError(CodeLimitsFailed, "the command's limits could not be set: "+err.Error()))
}
