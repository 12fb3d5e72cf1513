package nodeagent

import (
	"errors"
	"sync"
	"testing"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/node/cgroup"
	"github.com/freeslot/freeslot/internal/testing/redistest"
)

// brittleGroups support every limit but can make no group. So the end of a job shows whether it was
// to have a group.
type brittleGroups struct{}

func (brittleGroups) Supports(cgroup.Limits) error { return nil }

func (brittleGroups) Create(string, cgroup.Limits) (*cgroup.Group, error) {
	return nil, errors.New("no more groups")
}

func (brittleGroups) Close() error { return nil }

// TestReloadTriesLimitsAgain: limits that could not be set with a configuration are set with the
// next reload, of the same or another configuration, while jobs of the service run.
func TestReloadTriesLimitsAgain(t *testing.T) {
	t.Parallel()
	for name, again := range map[string]func(*Config){
		"unchanged":         func(*Config) {},
		"something changed": func(c *Config) { c.Node.Labels = map[string]string{"zone": "b"} },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			core, log := observer.New(zapcore.InfoLevel)
			redis := redistest.Shared(t)
			cfg := DefaultConfig()
			cfg.Node = Node{ID: "node-1", MaxConcurrency: 2}
			cfg.Redis = Redis{URL: redis.URL(), Cells: 1, KeyPrefix: redis.Prefix(t)}
			cfg.Services = []Service{{Name: "a", Command: &Command{Argv: []string{"cat"}}}}
			cfg.Resolve(func(string) bool { return false }, nil)
			f := startConfig(t, redis, cfg, zap.New(core))
			var mu sync.Mutex // guards busy
			busy := true
			f.agent.limits.open = func() (groups, error) {
				mu.Lock()
				defer mu.Unlock()
				if busy {
					return nil, errors.New("device or resource busy")
				}
				return brittleGroups{}, nil
			}
			run := func() string {
				t.Helper()
				s := f.end(f.submit(freeslot.Job{Service: "a", MaxAttempts: 1}))
				if s.Error != nil {
					return s.Error.Code
				}
				return string(s.State)
			}
			if err := f.reload(func(c *Config) {
				limited := *c.Services[0].Command
				limited.Limits = &Limits{PIDs: 10}
				c.Services[0].Command = &limited
			}); err != nil {
				t.Fatal(err)
			}
			if got := run(); got != string(freeslot.StateSucceeded) || log.FilterMessage("limits.unavailable").Len() != 1 {
				t.Fatalf("%s, logged %v, expected the command to run without its limits", got, log.All())
			}
			// Without groups a reload warns once more, and changes nothing.
			if err := f.reload(); err != nil || log.FilterMessage("limits.unavailable").Len() != 2 {
				t.Errorf("%v, logged %v", err, log.All())
			}
			mu.Lock()
			busy = false
			mu.Unlock()
			// Jobs that begin meanwhile look for their groups at the same time.
			kept, racing := f.agent.services["a"], sync.WaitGroup{}
			for range 4 {
				racing.Go(func() { _, _ = kept.command.group(testJob()) })
			}
			err := f.reload(again)
			racing.Wait()
			if err != nil {
				t.Fatal(err)
			}
			if got := run(); got != CodeLimitsFailed || log.FilterMessage("limits.available").Len() != 1 {
				t.Errorf("%s, logged %v, expected the command to get its limits", got, log.All())
			}
			if f.agent.services["a"] != kept {
				t.Error("the executor was replaced")
			}
			if err := f.reload(); err != nil || log.FilterMessage("limits.available").Len() != 1 || log.FilterMessage("limits.unavailable").Len() != 2 {
				t.Errorf("%v, logged %v, expected limits that are had to be left alone", err, log.All())
			}
		})
	}
}
