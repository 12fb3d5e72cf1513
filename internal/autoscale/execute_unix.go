//go:build unix

package autoscale

import (
	"context"
	"errors"
	"io"
	"os/exec"
	"runtime"
	"syscall"
	"time"

	"github.com/freeslot/freeslot/internal/process/procgroup"
)

// pipeDelay is how long a process that left the group may hold the output open after the command
// has ended.
const pipeDelay = time.Second

// execute runs a command. When ctx ends it ends the command's process group: by SIGTERM, after Grace
// by SIGKILL. A process of the group that outlives the command is killed, too.
func execute(ctx context.Context, argv, env []string, output io.Writer) error {
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Env, cmd.Stdout, cmd.Stderr = env, output, output
	cmd.SysProcAttr, cmd.WaitDelay = procgroup.Attr(), pipeDelay
	// The kernel kills the command when the thread that started it ends.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := cmd.Start(); err != nil {
		return err
	}
	group := cmd.Process.Pid
	ended, killed := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(killed)
		select {
		case <-ctx.Done():
		case <-ended:
			return
		}
		procgroup.Signal(group, syscall.SIGTERM)
		grace := time.NewTimer(Grace)
		defer grace.Stop()
		select {
		case <-grace.C:
			procgroup.Signal(group, syscall.SIGKILL)
		case <-ended:
		}
	}()
	procgroup.AwaitExit(group)
	close(ended)
	<-killed
	procgroup.Signal(group, syscall.SIGKILL) // kills what the command left behind
	if err := cmd.Wait(); !errors.Is(err, exec.ErrWaitDelay) {
		return err
	}
	return nil // it succeeded, and left a process in another group
}
