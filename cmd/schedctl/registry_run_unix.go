//go:build unix

package main

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"sync"
	"syscall"
	"time"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/process/interrupt"
	"github.com/freeslot/freeslot/internal/process/procgroup"
	"github.com/freeslot/freeslot/internal/registry"
)

// runRegistered runs a command, and keeps it registered until its process group's leader has ended.
func runRegistered(a *app, cmd *exec.Cmd, p *registry.Provider, r registry.Registration, drain time.Duration) error {
	signals := make(chan os.Signal, len(forwarded))
	interrupt.Notify(signals, forwarded...)
	defer signal.Stop(signals)
	cmd.SysProcAttr, cmd.WaitDelay = procgroup.Attr(), pipeDelay
	// The kernel kills the command when the thread that started it ends.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := cmd.Start(); err != nil {
		return exitError{exitCannotRun, err}
	}
	group := cmd.Process.Pid
	ended := make(chan struct{})
	var guard sync.WaitGroup
	var refused error
	guard.Go(func() { refused = guardRegistered(a, p, r, group, drain, signals, ended) })
	procgroup.AwaitExit(group)
	close(ended)
	guard.Wait()
	procgroup.Signal(group, syscall.SIGKILL) // kills what the command left behind
	_ = cmd.Wait()                           // ProcessState tells how it ended
	switch code := exitCode(cmd.ProcessState); {
	case refused != nil:
		return usageError{refused}
	case code != exitOK:
		return exitError{code: code}
	}
	return nil
}

// startError is an error of Redis that keeps a provider from starting.
type startError struct{ error }

// guardRegistered registers the instance, and passes signals on to the group until its leader has
// ended. An instance that cannot be registered at all ends the group. The provider's log has the
// other failures to register.
func guardRegistered(
	a *app, p *registry.Provider, r registry.Registration, group int, drain time.Duration, signals <-chan os.Signal,
	ended <-chan struct{},
) (refused error) {
	say := func(r registry.Registration) error {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(a.ctx), registryCall)
		defer cancel()
		if !p.Running() {
			if err := p.Start(ctx); err != nil {
				return startError{err}
			}
		}
		return p.Register(ctx, r)
	}
	counted := make(chan os.Signal, cap(signals))
	var counting sync.WaitGroup
	defer counting.Wait()
	counting.Go(func() { count(counted, signals, ended) })
	var first os.Signal
	var timer <-chan time.Time
	retry := time.After(0)
	for warned := false; ; {
		select {
		case <-ended:
			return nil
		case <-retry:
			err := say(r)
			switch {
			case err == nil, errors.Is(err, registry.ErrSuperseded):
				retry = nil
			case freeslot.CodeOf(err) == freeslot.CodeInvalidArgument:
				procgroup.Signal(group, syscall.SIGTERM)
				<-ended
				return err
			default:
				if errors.As(err, new(startError)) && !warned {
					a.warn("not registered yet; the command runs: %v (--redis-url)", err)
					warned = true
				}
				retry = time.After(registryRetry)
			}
		case s := <-counted:
			if first != nil || s == syscall.SIGHUP {
				procgroup.Signal(group, s.(syscall.Signal))
				continue
			}
			first, timer = s, time.After(drain)
			r.Draining = true
			if err := say(r); err != nil && !errors.Is(err, registry.ErrSuperseded) {
				a.warn("clients may not know that it ends: %v", err)
			}
		case <-timer:
			procgroup.Signal(group, first.(syscall.Signal))
		}
	}
}

// count passes on each SIGHUP and, of the signals that ask for the end, those that count, until the
// command has ended. It runs apart from everything that may wait for Redis, because the time
// between two signals decides.
func count(counted chan<- os.Signal, signals <-chan os.Signal, ended <-chan struct{}) {
	var counter interrupt.Counter
	for {
		select {
		case <-ended:
			return
		case s := <-signals:
			if s != syscall.SIGHUP && !counter.Counts() {
				continue
			}
			select {
			case counted <- s:
			default: // with that many waiting, one more says nothing
			}
		}
	}
}
