//go:build unix

package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/zap"

	"github.com/freeslot/freeslot/internal/lock"
	"github.com/freeslot/freeslot/internal/testing/redistest"
	"github.com/freeslot/freeslot/internal/testing/waittest"
)

// locking is a Redis with locks.
type locking struct {
	t      *testing.T
	redis  *redistest.Target
	prefix string
	admin  *lock.Admin
	grace  time.Duration // of begin
}

func newLocking(t *testing.T, redis *redistest.Target) *locking {
	t.Helper()
	prefix := redis.Prefix(t)
	return &locking{t: t, grace: time.Minute, redis: redis, prefix: prefix, admin: lock.NewAdmin(redis.Client(t), prefix, redis.IsCluster(), zap.NewNop())}
}

// args are those of lock run, flags and the command.
func (l *locking) args(flags string, argv ...string) []string {
	args := append([]string{"lock", "run", "k", "--redis-url", l.redis.URL(), "--lock-key-prefix", l.prefix}, strings.Fields(flags)...)
	return append(append(args, "--"), argv...)
}

func (l *locking) run(flags string, argv ...string) result {
	l.t.Helper()
	return command(l.t, "", l.args(flags, argv...)...)
}

// begin runs a shell script, which must say something as soon as its traps are set: a signal that
// comes sooner ends it. out is what it has said so far.
func (l *locking) begin(flags, script string) (out *buffer, done <-chan result) {
	l.t.Helper()
	out, ended := &buffer{written: make(chan struct{}, 1)}, make(chan result, 1)
	ctx := waittest.Context(l.t)
	go func() {
		var stderr buffer
		code := run(l.args(flags, "sh", "-c", script), &environment{ctx: ctx, in: strings.NewReader(""), out: out, err: &stderr, grace: l.grace})
		ended <- result{code, out.String(), stderr.String()}
	}()
	select {
	case <-out.written:
	case got := <-ended:
		l.t.Fatalf("%+v", got)
	}
	return out, ended
}

// hold takes the lock as another process does.
func (l *locking) hold() *lock.Held {
	l.t.Helper()
	m, err := lock.New(lock.Options{RedisURL: l.redis.URL(), KeyPrefix: l.prefix, Holder: "somebody"})
	must(l.t, err)
	must(l.t, m.Start(l.t.Context()))
	l.t.Cleanup(func() { must(l.t, m.Stop(context.Background())) })
	lk, err := m.Get(lock.Config{Key: "k"})
	must(l.t, err)
	held, err := lk.Lock(l.t.Context())
	must(l.t, err)
	return held
}

// state is read again if a busy machine takes longer than a call may.
func (l *locking) state() (s lock.State) {
	l.t.Helper()
	var failed error
	err := redistest.Await(func(ctx context.Context) bool {
		s, failed = l.admin.Get(ctx, "k", 10)
		return failed == nil
	})
	if err != nil {
		l.t.Fatal(err, failed)
	}
	return s
}

// forever is a loop that a shell ends at a signal, other than a sleep.
const forever = "while :; do sleep 0.02; done"

// TestLockRun: the command's exit code and output, and the token in its environment.
func TestLockRun(t *testing.T) {
	t.Parallel()
	redistest.Backends(t, func(t *testing.T, redis *redistest.Target) {
		t.Parallel()
		l := newLocking(t, redis)
		first := l.run("", "sh", "-c", `echo "$FREESLOT_LOCK_KEY $FREESLOT_LOCK_TOKEN"; cat; exit 7`).expect(t, 7)
		var key string
		var token, next int64
		if _, err := fmt.Sscan(first.out, &key, &token); err != nil || key != "k" || first.err != "" {
			t.Errorf(`%+v %v; want no error, key == "k", first.err == ""`, first, err)
		}
		if s := l.state(); s.Token != 0 {
			t.Errorf("%+v; want s.Token == 0", s)
		}
		second := l.run("--fair --wait 1h --lease 1h", "sh", "-c", "echo $FREESLOT_LOCK_TOKEN").expect(t, exitOK)
		if _, err := fmt.Sscan(second.out, &next); err != nil || next <= token {
			t.Errorf("token %d after %d: %v", next, token, err)
		}
		l.run("", "sh", "-c", "kill -9 $$").expect(t, 128+9)
		l.run("", "/nowhere/to/be/found").expect(t, exitNotFound, "no such file")
		l.run("", "/dev/null").expect(t, exitNotFound)
	})
}

// TestLockRunNotAcquired: what is held by another one is left alone, and its holder is named.
func TestLockRunNotAcquired(t *testing.T) {
	t.Parallel()
	l := newLocking(t, redistest.Shared(t))
	held := l.hold()
	for _, flags := range []string{"", "--wait 50ms", "--wait 50ms --fair"} {
		waittest.Until(t, "the name of the holder, with "+flags, func() bool { // a short wait may be over before Redis answers
			got := l.run(flags, "echo", "ran")
			if got.out != "" || got.code == exitOK {
				t.Fatalf("the command ran: %+v", got)
			}
			return got.code == exitNotAcquired && strings.Contains(got.err, "held by somebody since")
		})
	}
	waits := make(chan result, 1)
	go func() { waits <- l.run("--wait 1h", "echo", "ran") }()
	waittest.Until(t, "the command to wait", func() bool { return l.state().Waiting > 0 })
	must(t, held.Unlock(t.Context()))
	soon(t, waits, "the command").expect(t, exitOK, "ran")
	command(t, "", "lock", "run", "k", "--redis-url", "redis://127.0.0.1:1", "--", "echo", "ran").expect(t, exitUnavailable, "--redis-url")
	for _, wrong := range []string{"--lease 1ms", "--lease 1m --at-least 2m", "--lock-key-prefix {"} {
		l.run(wrong, "echo", "ran").expect(t, exitUsage)
	}
	command(t, "", "lock", "run", "", "--", "true").expect(t, exitUsage, "Key")
	command(t, "", "lock", "run", "k").expect(t, exitUsage, "<command>")
}

// TestLockRunAtLeast: a command that is over at once does not run again at once.
func TestLockRunAtLeast(t *testing.T) {
	t.Parallel()
	l := newLocking(t, redistest.Shared(t))
	l.run("--at-least 1h", "true").expect(t, exitOK)
	l.run("--at-least 1h", "true").expect(t, exitNotAcquired)
	if s := l.state(); !s.Released || s.Left < 50*time.Minute || s.Left > time.Hour {
		t.Errorf("%+v; want s.Released, s.Left >= 50*time.Minute, s.Left <= time.Hour", s)
	}
}

// TestLockRunLost: the command is asked to stop as soon as the lock is gone, and killed when it
// does not.
func TestLockRunLost(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		grace time.Duration
		trap  string
	}{
		"stops":    {time.Minute, `trap "echo stopping; exit 0" TERM; `},
		"does not": {time.Second, `trap "" TERM; `},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := newLocking(t, redistest.Shared(t))
			l.grace = c.grace
			_, done := l.begin("--lease 1h", c.trap+"echo started; "+forever)
			_, err := l.admin.Revoke(t.Context(), lock.Revocation{Key: "k", Reason: "r", Now: true})
			must(t, err)
			got := soon(t, done, "the end").expect(t, exitLost, "the lock was lost while the command ran", "gone")
			if strings.Contains(got.out, "stopping") != (name == "stops") {
				t.Error(got.out)
			}
		})
	}
}

// TestLockRunRevoked: the reason is told, and the next one has the lock when the command has ended,
// and not when the lease is over.
func TestLockRunRevoked(t *testing.T) {
	t.Parallel()
	l := newLocking(t, redistest.Shared(t))
	out, done := l.begin("--lease 1h", `trap "echo stopping; exit 0" TERM; echo started; `+forever)
	token := l.state().Token
	_, err := l.admin.Revoke(t.Context(), lock.Revocation{Key: "k", Reason: "make room", Token: token})
	must(t, err)
	if next := l.hold(); next.Token() <= token { // waits
		t.Error(next.Token(), token)
	}
	if !strings.Contains(out.String(), "stopping") {
		t.Error("another one has the lock, and the command has not ended")
	}
	soon(t, done, "the end").expect(t, exitLost, "revoked", "make room", "stopping")
}

// TestLockRunRedisAway: the command ends with its lease, although Redis never answers.
func TestLockRunRedisAway(t *testing.T) {
	t.Parallel()
	redis := redistest.New(t)
	l := newLocking(t, redis.Target)
	_, done := l.begin("--lease 3s", `trap "" TERM; echo started; `+forever)
	redis.Pause()
	defer redis.Resume()
	soon(t, done, "the end").expect(t, exitLost, "no renewal was confirmed")
}

// TestLockRunOutage: Redis that does not answer ends no command whose lease goes on. When the command
// has ended, the lock is given back as soon as Redis answers, and not when the lease is over; a
// signal ends the wait for that.
func TestLockRunOutage(t *testing.T) {
	t.Parallel()
	for _, resume := range []bool{true, false} {
		t.Run(map[bool]string{true: "Redis is back", false: "signal"}[resume], func(t *testing.T) {
			t.Parallel()
			redis := redistest.New(t)
			l := newLocking(t, redis.Target)
			cmd := exec.Command(os.Args[0], l.args("--lease 1h", "sh", "-c", `trap "exit 3" TERM; echo started; `+forever)...)
			cmd.Env = append(os.Environ(), asSchedctl+"=1")
			out, err := cmd.StdoutPipe()
			must(t, err)
			messages, err := cmd.StderrPipe()
			must(t, err)
			must(t, cmd.Start())
			if line, err := bufio.NewReader(out).ReadString('\n'); err != nil || line != "started\n" {
				t.Fatal(line, err)
			}
			redis.Pause()
			defer redis.Resume()
			must(t, cmd.Process.Signal(syscall.SIGTERM)) // the command's
			var said strings.Builder
			for lines := bufio.NewReader(messages); !strings.Contains(said.String(), "as soon as it does"); {
				line, err := lines.ReadString('\n')
				if said.WriteString(line); err != nil {
					t.Fatalf("schedctl says %q, expected that it waits for Redis", said.String())
				}
			}
			if resume {
				redis.Resume()
			} else {
				must(t, cmd.Process.Signal(syscall.SIGTERM))
			}
			var exit *exec.ExitError
			if err := cmd.Wait(); !errors.As(err, &exit) || resume && exit.ExitCode() != 3 {
				t.Errorf("schedctl ends with %v, expected the command's 3 if Redis is back", err)
			}
			redis.Resume()
			if s := l.state(); resume && s.Token != 0 {
				t.Errorf("the lock is %+v, expected free", s)
			}
		})
	}
}

// TestLockRunLeftBehind: what a command leaves behind ends before the lock is given back.
func TestLockRunLeftBehind(t *testing.T) {
	t.Parallel()
	l := newLocking(t, redistest.Shared(t))
	got := l.run("", "sh", "-c", "sleep 1000 >/dev/null 2>&1 & echo $!").expect(t, exitOK)
	pid, err := strconv.Atoi(strings.TrimSpace(got.out))
	must(t, err)
	if err := syscall.Kill(pid, 0); !errors.Is(err, syscall.ESRCH) {
		t.Error(err)
	}
}

// process runs schedctl as a process of its own.
func (l *locking) process(script string) (cmd *exec.Cmd, lines *bufio.Reader) {
	l.t.Helper()
	cmd = exec.Command(os.Args[0], l.args("", "sh", "-c", script)...)
	cmd.Env = append(os.Environ(), asSchedctl+"=1")
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	must(l.t, err)
	must(l.t, cmd.Start())
	lines = bufio.NewReader(out)
	if line, err := lines.ReadString('\n'); err != nil || line != "started\n" {
		l.t.Fatal(line, err)
	}
	return cmd, lines
}

// TestLockRunSignals: a signal is the command's, also a second one; its code is that of schedctl,
// and the lock is free then.
func TestLockRunSignals(t *testing.T) {
	t.Parallel()
	l := newLocking(t, redistest.Shared(t))
	cmd, lines := l.process(`trap "echo got" TERM; trap "exit 9" QUIT; echo started; ` + forever)
	for range 2 {
		must(t, cmd.Process.Signal(syscall.SIGTERM))
		if line, err := lines.ReadString('\n'); err != nil || line != "got\n" {
			t.Fatal(line, err)
		}
	}
	must(t, cmd.Process.Signal(syscall.SIGQUIT))
	var exit *exec.ExitError
	if err := cmd.Wait(); !errors.As(err, &exit) || exit.ExitCode() != 9 {
		t.Error(err)
	}
	if s := l.state(); s.Token != 0 {
		t.Errorf("%+v; want s.Token == 0", s)
	}
}
