package nodeagent

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/trace/noop"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/node/cgroup"
	"github.com/freeslot/freeslot/internal/testing/redistest"
	"github.com/freeslot/freeslot/worker"
)

// hasV2Controllers reports whether cgroup.Open would move this process.
func hasV2Controllers() bool {
	found, _ := filepath.Glob("/sys/fs/cgroup/cgroup.controllers")
	return len(found) > 0
}

// contained is a command with limits on this machine's cgroups; without them the test is skipped.
func contained(t *testing.T, script string, limits Limits, change ...func(*Command)) *commandExecutor {
	t.Helper()
	if hasV2Controllers() {
		t.Skip("cgroup v2 with controllers: opening it would move the process of the tests")
	}
	e := command(t, script, append(change, func(c *Command) { c.Limits, c.LimitsRequired = &limits, true })...)
	c := newContainment(zap.NewNop())
	if err := c.contain("test", e); err != nil {
		t.Skipf("no limits can be set here: %v", err)
	}
	t.Cleanup(func() {
		if err := c.close(); err != nil {
			t.Error(err)
		}
	})
	return e
}

func TestCommandMemoryLimit(t *testing.T) {
	t.Parallel()
	limits := Limits{MemoryBytes: 32 << 20, PIDs: 100}
	const greedy = "head -c 200000000 /dev/zero | tail"
	for name, script := range map[string]string{"leader": "exec sh -c 'exec tail /dev/zero'", "child": "echo reads >&2; " + greedy + " || exit 3", "last of a pipe": greedy} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := contained(t, script, limits).run(t.Context(), testJob())
			wantCode(t, err, CodeOutOfMemory, "more than its limit of 33554432 bytes of memory")
			wantRetry(t, err, false)
		})
	}
	t.Run("within", func(t *testing.T) {
		t.Parallel()
		result, err := contained(t, "head -c 1000000 /dev/zero | tail | wc -c", limits).run(t.Context(), testJob())
		if err != nil || text(t, result) != "1000000" {
			t.Errorf(`%v %v; want no error, text(t, result) == "1000000"`, result, err)
		}
	})
	t.Run("killed otherwise", func(t *testing.T) {
		t.Parallel()
		_, err := contained(t, "kill -9 $$", limits).run(t.Context(), testJob())
		wantCode(t, err, CodeSignalled, "")
		wantRetry(t, err, true)
	})
}

func TestCommandPIDsLimit(t *testing.T) {
	t.Parallel()
	e := contained(t, `f() { f & f; }; f`, Limits{PIDs: 20}, func(c *Command) { c.Timeout, c.KillGrace = time.Second, 10*time.Millisecond })
	_, err := e.run(t.Context(), testJob())
	var failed *freeslot.JobError
	if !errors.As(err, &failed) { // by fork's failure or by the timeout, as the shell has it
		t.Errorf("error %v", err)
	}
}

// A daemon with a session of its own, which holds the output open too.
func TestCommandDaemonEndsWithItsGroup(t *testing.T) {
	t.Parallel()
	path := fifo(t)
	e := contained(t, `exec 4>"$FIFO"; setsid sh -c 'trap "" TERM; echo $$ >&4; sleep 1000' & read x <"$FIFO.go"; echo 1`, Limits{PIDs: 100},
		func(c *Command) { c.Env = map[string]string{"FIFO": path} })
	if err := exec.Command("mkfifo", path+".go").Run(); err != nil {
		t.Fatal(err)
	}
	type end struct {
		result any
		err    error
	}
	ended := make(chan end, 1)
	go func() {
		result, err := e.run(t.Context(), testJob())
		ended <- end{result, err}
	}()
	f := begin(t, path)
	release(t, path+".go")
	f.ended(t)
	if got := <-ended; got.err != nil || text(t, got.result) != "1" {
		t.Errorf(`%v %v; want no error, text(t, got.result) == "1"`, got.result, got.err)
	}
}

// The processes that a killed agent leaves in its groups end when the next agent starts.
func TestCommandIsInItsGroupAtOnce(t *testing.T) {
	t.Parallel()
	e := contained(t, "cat /proc/self/cgroup", Limits{PIDs: 100})
	result, err := e.run(t.Context(), testJob())
	if err != nil || !strings.Contains(text(t, result), testJob().ID+"-2.1") {
		t.Errorf(`%v %v; want no error, strings.Contains(text(t, result), testJob().ID+"-2.1")`, result, err)
	}
	if err := (*e.groups.Load()).Close(); err != nil {
		t.Error(err)
	}
	_, err = e.run(t.Context(), testJob())
	wantCode(t, err, CodeLimitsFailed, "could not be set")
	wantRetry(t, err, true)
}

func TestLimitsThatCannotBeHad(t *testing.T) {
	t.Parallel()
	core, logs := observer.New(zap.WarnLevel)
	opened := 0
	c := newContainment(zap.New(core))
	c.open = func() (groups, error) { opened++; return nil, errors.New("read-only file system") }
	limits := func(c *Command) { c.Limits = &Limits{PIDs: 10} }
	for range 2 {
		e := command(t, "echo 1", limits)
		if err := c.contain("a", e); err != nil {
			t.Fatal(err)
		}
		if result, err := e.run(t.Context(), testJob()); err != nil || text(t, result) != "1" {
			t.Errorf(`%v %v; want no error, text(t, result) == "1"`, result, err)
		}
	}
	if opened != 2 || logs.Len() != 2 || logs.All()[0].Message != "limits.unavailable" {
		t.Errorf("opened %d times, logged %v", opened, logs.All())
	}
	err := c.contain("b", command(t, "", limits, func(c *Command) { c.LimitsRequired = true }))
	if err == nil || err.Error() != "the limits of service b cannot be set: read-only file system" {
		t.Errorf("error %v", err)
	}
	if err := c.contain("c", command(t, "")); err != nil {
		t.Errorf("without limits: %v", err)
	}
	if err := c.close(); err != nil {
		t.Error(err)
	}
}

// An agent whose limits are required does not start without them.
func TestAgentNeedsItsLimits(t *testing.T) {
	t.Parallel()
	cfg := DefaultConfig()
	cfg.Node.ID = "node-1"
	cfg.Redis = Redis{URL: redistest.Shared(t).URL(), Cells: 1, KeyPrefix: redistest.Shared(t).Prefix(t)}
	cfg.Services = []Service{{Name: "a", Command: &Command{Argv: []string{"cat"}, Limits: &Limits{PIDs: 10}, LimitsRequired: true}}}
	cfg.Resolve(nil, nil)
	a, err := New(cfg, zap.NewNop(), prometheus.NewRegistry(), noop.NewTracerProvider())
	if err != nil {
		t.Fatal(err)
	}
	a.limits.open = func() (groups, error) { return nil, cgroup.ErrUnsupported }
	if err := a.Start(t.Context()); err == nil || err.Error() != "the limits of service a cannot be set: limits are not supported on this system" {
		t.Errorf("error %v", err)
	}
	if err := a.Stop(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestLimitsLeaveTimeToEnd(t *testing.T) {
	t.Parallel()
	cfg := DefaultConfig()
	cfg.Services = []Service{{Name: "a", Command: &Command{KillGrace: time.Minute, Limits: &Limits{}}}}
	if got := cfg.interruptGrace(); got < time.Minute+pipeDelay+cgroup.EndLimit || got < worker.DefaultInterruptGrace {
		t.Errorf("%s; want got >= time.Minute+pipeDelay+cgroup.EndLimit, got >= worker.DefaultInterruptGrace", got)
	}
}

// groupVariable names the FIFO that the command of TestAgentWithGroups opens.
const groupVariable = "FREESLOT_TEST_AGENT_GROUP_FIFO"

// TestAgentWithGroups is not a test but the process that TestLeftoversOfAKilledAgent kills.
func TestAgentWithGroups(t *testing.T) {
	path := os.Getenv(groupVariable)
	if path == "" {
		t.Skip("only run by TestLeftoversOfAKilledAgent")
	}
	e := contained(t, `exec 4>"$FIFO"; setsid sh -c 'trap "" TERM HUP; echo $$ >&4; sleep 1000' & wait`, Limits{PIDs: 100}, func(c *Command) { c.Env = map[string]string{"FIFO": path} })
	_, err := e.run(t.Context(), testJob())
	t.Fatalf("the command ended by itself: %v", err)
}

// Processes outside the process group of a killed agent's command live until the next agent starts,
// and no longer.
func TestLeftoversOfAKilledAgent(t *testing.T) {
	t.Parallel()
	contained(t, "", Limits{PIDs: 100}) // or skipped
	path := fifo(t)
	agent := exec.Command(os.Args[0], "-test.run=^TestAgentWithGroups$", "-test.timeout=1m")
	agent.Env = append(os.Environ(), groupVariable+"="+path)
	if err := agent.Start(); err != nil {
		t.Fatal(err)
	}
	f := begin(t, path)
	if err := agent.Process.Kill(); err != nil {
		t.Error(err)
	}
	_ = agent.Wait() // it was killed
	if _, err := os.Stat("/proc/" + strconv.Itoa(f.grandchild)); err != nil {
		t.Errorf("the daemon has ended by itself: %v", err)
	}
	contained(t, "", Limits{PIDs: 100})
	f.ended(t)
}
