package main

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/testing/redistest"
)

// asSubreaperEnv makes the test binary a process that orphans are given to, as the first one of a
// container is, before it runs the command.
const asSubreaperEnv = "FREESLOT_TEST_AS_SUBREAPER"

func init() {
	if os.Getenv(asSubreaperEnv) == "" {
		return
	}
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		panic(err)
	}
	_ = os.Unsetenv(asSubreaperEnv)
	panic(syscall.Exec(os.Args[0], os.Args, os.Environ()))
}

// job runs one job of prepare to its success.
func (n *node) job(begun *bufio.Reader) {
	n.t.Helper()
	id := n.submit()
	if _, err := begun.ReadString('\n'); err != nil {
		n.t.Fatal(err)
	}
	if err := os.WriteFile(n.release, []byte("\n"), 0o600); err != nil {
		n.t.Fatal(err)
	}
	if s := n.end(id); s.State != freeslot.StateSucceeded {
		n.t.Errorf("%+v, expected it to succeed", s)
	}
}

// TestClosedStandardError: the agent goes on when nobody reads its log any more.
func TestClosedStandardError(t *testing.T) {
	t.Parallel()
	n, begun, args := prepare(t, "log.level=debug")
	cmd := exec.Command(os.Args[0], args...)
	reader, writer, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Env, cmd.Stderr, cmd.Stdout = append(os.Environ(), asProcessEnv+"=1", "GORACE=atexit_sleep_ms=0"), writer, writer
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill() })
	_ = writer.Close()
	n.cmd, n.log = cmd, bufio.NewScanner(reader)
	n.logged("agent.started")
	_ = reader.Close()
	n.job(begun)
	n.signal()
	if code := n.exit(); code != exitOK {
		t.Errorf("exit code %d (%s), expected 0", code, cmd.ProcessState)
	}
	n.nothingLeft()
}

// TestIgnoredSignals: SIGHUP and SIGINT that were ignored at the start, as by nohup and by shells, do
// nothing, and SIGTERM ends the agent. The agent's jobs have them ignored too.
func TestIgnoredSignals(t *testing.T) {
	t.Parallel()
	n, begun, args := prepare(t)
	n.run(exec.Command("sh", append([]string{"-c", `trap "" HUP INT; exec "$0" "$@"`, os.Args[0]}, args...)...))
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", n.cmd.Process.Pid))
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(status), "SigIgn:\t")
	var ignored uint64
	if _, err := fmt.Sscanf(rest, "%x", &ignored); err != nil {
		t.Fatal(err)
	}
	const hupInt = 1<<(syscall.SIGHUP-1) | 1<<(syscall.SIGINT-1)
	if ignored&hupInt != hupInt {
		t.Errorf("the agent ignores the signals %x, expected %x among them", ignored, hupInt)
	}
	for _, s := range []syscall.Signal{syscall.SIGHUP, syscall.SIGINT, syscall.SIGHUP} {
		n.send(s)
	}
	n.job(begun)
	n.signal()
	if code := n.exit(); code != exitOK {
		t.Errorf("exit code %d, expected 0", code)
	}
}

// TestTwoSignalsAtOnce: GNU timeout sends SIGTERM to the process and to its group. That is one
// signal, so the running job ends in its own time.
func TestTwoSignalsAtOnce(t *testing.T) {
	t.Parallel()
	n, begun := start(t, "stop_timeout=1h")
	job := n.submit()
	if _, err := begun.ReadString('\n'); err != nil {
		t.Fatal(err)
	}
	n.signal()
	n.signal()
	n.send(syscall.SIGINT)
	n.logged("node.draining")
	if err := os.WriteFile(n.release, []byte("\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if s := n.end(job); s.State != freeslot.StateSucceeded {
		t.Errorf("%+v, expected the job to end in its own time", s)
	}
	if code := n.exit(); code != exitOK {
		t.Errorf("exit code %d, expected 0", code)
	}
}

// TestOrphans: an agent that is the first process of a container leaves no zombies, and each job has
// its own end.
func TestOrphans(t *testing.T) {
	t.Parallel()
	n, _, args := prepare(t)
	args = append(args, `--set=services=[{name: wait, command: {argv: [sh, -c, "sleep 1000 & echo 1"]}}]`)
	n.run(exec.Command("env", append([]string{asSubreaperEnv + "=1", os.Args[0]}, args...)...))
	for range 20 {
		if s := n.end(n.submit()); s.State != freeslot.StateSucceeded || strings.TrimSpace(string(s.Result)) != "1" {
			t.Fatalf("%+v, expected the result 1", s)
		}
	}
	var left []string
	if err := redistest.Await(func(context.Context) bool {
		left = childrenOf(n.cmd.Process.Pid)
		return len(left) == 0
	}); err != nil {
		t.Errorf("%q are left: %v", left, err)
	}
	n.signal()
	if code := n.exit(); code != exitOK {
		t.Errorf("exit code %d, expected 0", code)
	}
}

// childrenOf are lines of /proc/PID/stat.
func childrenOf(pid int) (found []string) {
	all, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, file := range all {
		stat, err := os.ReadFile(file)
		if _, rest, ok := strings.Cut(string(stat), ") "); err == nil && ok && strings.Fields(rest)[1] == fmt.Sprint(pid) {
			found = append(found, string(stat))
		}
	}
	return found
}
