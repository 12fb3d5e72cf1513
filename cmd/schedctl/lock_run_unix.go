//go:build unix

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"sync"
	"syscall"
	"time"

	"github.com/freeslot/freeslot/internal/lock"
	"github.com/freeslot/freeslot/internal/process/interrupt"
	"github.com/freeslot/freeslot/internal/process/procgroup"
)

const (
	// pipeDelay is how long a process that left the group may hold the command's output open.
	pipeDelay = time.Second
	// goneLimit is how long killed processes may take to end.
	goneLimit = 10 * time.Second
)

// forwarded lists the signals that go on to the command, each of them.
var forwarded = []os.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT}

// runHeld runs the command while the lock is held, and gives the lock back when the command's
// process group has gone. If ctx has ended, an interrupt came before the command was there to get
// it.
func runHeld(ctx context.Context, cmd *exec.Cmd, held *lock.Held, grace time.Duration, stderr io.Writer) error {
	signals := make(chan os.Signal, len(forwarded))
	interrupt.Notify(signals, forwarded...)
	defer signal.Stop(signals)
	cmd.SysProcAttr, cmd.WaitDelay = procgroup.Attr(), pipeDelay
	// The kernel kills the command when the thread that started it ends.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := cmd.Start(); err != nil {
		_ = held.Unlock(context.Background())
		return exitError{exitCannotRun, err}
	}
	group := cmd.Process.Pid
	if ctx.Err() != nil {
		procgroup.Signal(group, syscall.SIGTERM)
	}
	var lost error
	ended := make(chan struct{})
	var guard sync.WaitGroup
	guard.Go(func() { lost = guardHeld(held, group, grace, signals, ended) })
	procgroup.AwaitExit(group)
	close(ended)
	guard.Wait()
	procgroup.Signal(group, syscall.SIGKILL) // kills what the command left behind
	_ = cmd.Wait()                           // ProcessState tells how it ended
	if !procgroup.AwaitGone(group, goneLimit) {
		// Without an unlock the lock runs out.
		return exitError{
			exitFailure,
			errors.New("processes of the command do not end although they were killed; the lock is free when its lease is over"),
		}
	}
	return giveBack(held, exitCode(cmd.ProcessState), lost, stderr)
}

// guardHeld passes signals on to the group until its leader has ended, and ends the group if the
// lock ends. lost is the reason.
func guardHeld(
	held *lock.Held, group int, grace time.Duration, signals <-chan os.Signal, ended <-chan struct{},
) (lost error) {
	left := held.Left()
	end := wallClock().Add(left)
	// A lock that was handed over exists for less than a second, until the first renewal, which
	// follows at once.
	timer := time.NewTimer(left - min(grace, left/2))
	defer timer.Stop()
	for lost == nil {
		select {
		case <-ended:
			if held.Context().Err() != nil {
				lost = context.Cause(held.Context())
			}
			return lost
		case s := <-signals:
			procgroup.Signal(group, s.(syscall.Signal))
		case <-held.Context().Done():
			lost = context.Cause(held.Context())
		case <-timer.C:
			if left = held.Left(); left > grace { // it was renewed
				end = wallClock().Add(left)
				timer.Reset(left - grace)
			} else if lost = context.Cause(held.Context()); lost == nil {
				lost = fmt.Errorf("no renewal was confirmed, and its lease ends in %s", left.Round(time.Millisecond))
			}
		}
	}
	procgroup.Signal(group, syscall.SIGTERM)
	timer.Reset(min(grace, end.Sub(wallClock())))
	select {
	case <-ended:
	case <-timer.C:
		procgroup.Signal(group, syscall.SIGKILL)
		<-ended
	}
	return lost
}

// wallClock returns a time that goes on while the machine sleeps, as the lease does.
func wallClock() time.Time { return time.Now().Round(0) }

// exitCode returns the command's exit code in the form of shells.
func exitCode(state *os.ProcessState) int {
	if state == nil {
		return exitCannotRun // it could not be waited for
	}
	if status, ok := state.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		return 128 + int(status.Signal())
	}
	return state.ExitCode()
}
