//go:build unix

package main

import (
	"context"
	"os"
	"os/exec"
	"syscall"
	"testing"

	"go.uber.org/zap"

	"github.com/freeslot/freeslot/internal/registry"
	"github.com/freeslot/freeslot/internal/testing/redistest"
)

// closedPipe is the writing end of a pipe that nobody reads.
func closedPipe(t *testing.T) *os.File {
	t.Helper()
	reader, writer, err := os.Pipe()
	must(t, err)
	must(t, reader.Close())
	t.Cleanup(func() { _ = writer.Close() })
	return writer
}

// schedctl is the command as a process whose standard output and error nobody reads.
func schedctl(t *testing.T, args ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0], args...)
	cmd.Env = append(os.Environ(), asSchedctl+"=1")
	cmd.Stdout, cmd.Stderr = closedPipe(t), closedPipe(t)
	return cmd
}

// TestClosedPipes: a command that runs another one goes on when nobody reads its warnings. One whose
// output is all that it is for ends by SIGPIPE.
func TestClosedPipes(t *testing.T) {
	t.Parallel()
	redis := redistest.New(t)
	redis.Kill()
	dir := t.TempDir()
	run := schedctl(t, "registry", "run", "shop", "--redis-url", redis.AdminURL(), "--key-prefix", "p", "--port", "8080",
		"--", "sh", "-c", "touch "+dir+"/started; until [ -e "+dir+"/go ]; do sleep 0.02; done; exit 3")
	must(t, run.Start())
	must(t, redistest.Await(func(context.Context) bool {
		_, err := os.Stat(dir + "/started")
		return err == nil
	}))
	redis.Restart() // the first try to register has failed, and was warned of
	store := registry.NewStore(redis.Client(t), "p", false, zap.NewNop())
	must(t, redistest.Await(func(ctx context.Context) bool {
		_, _, err := store.Instance(ctx, "shop", "127.0.0.1:8080")
		return err == nil
	}))
	must(t, os.WriteFile(dir+"/go", nil, 0o600))
	_ = run.Wait()
	if code := run.ProcessState.ExitCode(); code != 3 {
		t.Errorf("registry run ended with %s, expected the command's code 3", run.ProcessState)
	}
	version := schedctl(t, "version")
	_ = version.Run()
	if status := version.ProcessState.Sys().(syscall.WaitStatus); status.Signal() != syscall.SIGPIPE {
		t.Errorf("version ended with %s, expected SIGPIPE", version.ProcessState)
	}
}

// TestLockRunTwoSignalsAtOnce: GNU timeout sends SIGTERM to the process and to its group. The wait
// for a lock ends in order all the same.
func TestLockRunTwoSignalsAtOnce(t *testing.T) {
	t.Parallel()
	l := newLocking(t, redistest.Shared(t))
	held := l.hold()
	cmd := schedctl(t, l.args("--wait 1h", "true")...)
	must(t, cmd.Start())
	must(t, redistest.Await(func(context.Context) bool { return l.state().Waiting == 1 }))
	must(t, cmd.Process.Signal(syscall.SIGTERM))
	must(t, cmd.Process.Signal(syscall.SIGTERM))
	_ = cmd.Wait()
	if code := cmd.ProcessState.ExitCode(); code != exitNotAcquired {
		t.Errorf("ended with %s, expected code 75", cmd.ProcessState)
	}
	must(t, held.Unlock(t.Context()))
}
