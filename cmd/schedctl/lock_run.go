package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"time"

	"github.com/freeslot/freeslot/internal/lock"
)

// Exit codes of lock run, in addition to the command's.
const (
	exitUnavailable = 69  // EX_UNAVAILABLE of sysexits.h: Redis does not answer, or refuses
	exitNotAcquired = 75  // EX_TEMPFAIL of sysexits.h: try again later
	exitLost        = 76  // the lock was lost while the command ran
	exitCannotRun   = 126 // as shells have it
	exitNotFound    = 127
)

const (
	// lockStart bounds the time until Redis answers.
	lockStart = 10 * time.Second
	// lockSettle is how long Redis has to answer to the end of a hold before a message is printed.
	lockSettle = time.Second
	// mostGrace is the time from SIGTERM to SIGKILL, and before the end of a lock that is no longer
	// renewed.
	mostGrace = 5 * time.Second
)

type lockRunCmd struct {
	Key     string        `arg:"" name:"key" help:"Name of the lock."`
	Command []string      `arg:"" name:"command" help:"Command with its arguments, behind --."`
	Wait    time.Duration `least:"0s" placeholder:"TIME" help:"Wait so long for the lock; without it, look once."`
	Fair    bool          `help:"Serve those that wait in order; everybody who takes the lock should say so."`
	AtLeast time.Duration `least:"0s" placeholder:"TIME" help:"Keep the lock at least so long, also when the command ends sooner: what several machines start at once runs on one of them."`
	Lease   time.Duration `placeholder:"TIME" help:"Time after which the lock of a machine that has died is free (default: 30s, or --at-least if that is more)."`
	redisFlags
	lockPrefix
}

// Help is shown below the flags.
func (lockRunCmd) Help() string {
	return `Examples:
  schedctl lock run backup -- ./backup.sh
  schedctl lock run report --at-least 1m -- ./report.sh     from cron, on several machines
  schedctl lock run deploy --wait 10m --fair -- make deploy

The command runs in a process group of its own and has the fencing token as FREESLOT_LOCK_TOKEN, the name as
FREESLOT_LOCK_KEY. Signals go on to the group. Where the lock is lost the group gets SIGTERM, and SIGKILL 5 s later: while Redis is
away, in time before another machine can have the lock. What the command leaves behind in its group is killed when it
ends; then the lock is given back. If Redis is away then, schedctl waits until it answers, the lease is over, or a signal
comes.

Ends with the code of the command, 128 + N where signal N ended it; 69 where Redis is away, 75 where the lock was not
got, 76 where it was lost. Without a scheduler: it talks to Redis, the first of several.`
}

// Run takes the lock and runs the command.
func (c *lockRunCmd) Run(a *app) error {
	if c.Lease == 0 {
		c.Lease = max(lock.DefaultLease, c.AtLeast)
	}
	m, err := newLockManager(&c.redisFlags, c.LockKeyPrefix)
	if err != nil {
		return err
	}
	l, err := m.Get(lock.Config{Key: c.Key, Lease: c.Lease, Fair: c.Fair, AtLeast: c.AtLeast})
	if err != nil {
		return usageError{err}
	}
	path, err := exec.LookPath(c.Command[0])
	if err != nil {
		return exitError{exitNotFound, err}
	}
	defer stopLockManager(m)
	held, err := c.take(a, m, l)
	if err != nil {
		if errors.Is(err, lock.ErrNotAcquired) || errors.Is(err, lock.ErrQueueFull) || a.ctx.Err() != nil {
			return exitError{exitNotAcquired, err}
		}
		return exitError{exitUnavailable, err}
	}
	cmd := exec.Command(path, c.Command[1:]...)
	cmd.Args[0] = c.Command[0]
	cmd.Env = append(os.Environ(), "FREESLOT_LOCK_KEY="+c.Key, "FREESLOT_LOCK_TOKEN="+strconv.FormatInt(held.Token(), 10))
	cmd.Stdin, cmd.Stdout, cmd.Stderr = a.in, file(a.out), a.err
	err = runHeld(a.ctx, cmd, held, min(cmp.Or(a.grace, mostGrace), c.Lease/4), a.err)
	a.awaitGivenBack(m)
	return err
}

// awaitGivenBack waits until Redis has answered to the end of a hold, or the lease is over: the
// lock may be taken until then. A signal ends the wait.
func (a *app) awaitGivenBack(m *lock.Manager) {
	ctx := a.ctx
	if ctx.Err() != nil {
		ctx = context.WithoutCancel(ctx) // that signal was the command's; the next one ends the process
	}
	short, cancel := context.WithTimeout(ctx, lockSettle)
	defer cancel()
	if m.Settle(short) == nil {
		return
	}
	if ctx.Err() == nil {
		a.warn("Redis does not answer: the lock is given back as soon as it does; a signal ends the wait")
	}
	if m.Settle(ctx) != nil {
		a.warn("the lock was not given back: it is free when its lease is over")
	}
}

// newLockManager makes a manager of locks on the first Redis that the flags name.
func newLockManager(f *redisFlags, prefix string) (*lock.Manager, error) {
	if len(f.RedisURL) == 0 {
		return nil, usage("--redis-url is missing")
	}
	m, err := lock.New(lock.Options{RedisURL: f.RedisURL[0], Access: f.config().Access, KeyPrefix: prefix})
	if err != nil {
		return nil, usageError{err}
	}
	return m, nil
}

// startLockManager names the flag to change if Redis cannot be used.
func startLockManager(ctx context.Context, m *lock.Manager) error {
	ctx, cancel := context.WithTimeout(ctx, lockStart)
	defer cancel()
	if err := m.Start(ctx); err != nil {
		return fmt.Errorf("%w (--redis-url)", err)
	}
	return nil
}

func stopLockManager(m *lock.Manager) {
	ctx, cancel := context.WithTimeout(context.Background(), lockStart)
	defer cancel()
	settling, done := context.WithTimeout(ctx, lockSettle)
	defer done()
	_ = m.Settle(settling) // a lock that is not given back by then runs out
	_ = m.Stop(ctx)
}

// take waits for the lock until the command is interrupted. An interrupt that comes later is for
// the command and does not end the hold.
func (c *lockRunCmd) take(a *app, m *lock.Manager, l *lock.Lock) (*lock.Held, error) {
	if err := startLockManager(a.ctx, m); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(a.ctx))
	stop := context.AfterFunc(a.ctx, cancel)
	held, err := l.TryLock(ctx, c.Wait)
	if err == nil && !stop() {
		err = errors.Join(a.ctx.Err(), held.Unlock(ctx))
	}
	if err != nil {
		cancel()
		return nil, err
	}
	return held, nil
}

// giveBack unlocks a lock that the command no longer uses. code is the command's exit code, and
// lost the reason that the lock was lost.
func giveBack(held *lock.Held, code int, lost error, stderr io.Writer) error {
	err := held.Unlock(context.Background())
	switch {
	case lost == nil && errors.Is(err, lock.ErrLost):
		lost = err
	case lost == nil && err != nil:
		_, _ = fmt.Fprintf(stderr, "schedctl: the lock is not given back yet: %s\n", clean(err.Error()))
	}
	if lost != nil {
		return exitError{exitLost, fmt.Errorf("the lock was lost while the command ran: %w", lost)}
	}
	if code != exitOK {
		return exitError{code: code}
	}
	return nil
}
