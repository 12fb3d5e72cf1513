package lock

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/freeslot/freeslot/internal/testing/redistest"
)

// childEnv has the test binary be a process that holds a lock or waits for it: "hold" or "wait",
// URL and key prefix.
const childEnv = "FREESLOT_LOCK_CHILD"

// child is that process. It says what it does, line by line.
func child(what string) {
	words := strings.Fields(what)
	m, err := New(Options{RedisURL: words[1], KeyPrefix: words[2]})
	if err == nil {
		err = m.Start(context.Background())
	}
	if err != nil {
		fmt.Println(err)
		return
	}
	l, _ := m.Get(Config{Key: "k", Fair: true, Lease: MinLease})
	if words[0] == "wait" {
		for range 2 {
			go func() { _, _ = l.Lock(context.Background()) }()
		}
		for g, _ := m.groupOf("k"); ; time.Sleep(time.Millisecond) {
			queued := 0
			for _, a := range g.waiting() {
				if a.inQueue() != "0" {
					queued++
				}
			}
			if queued == 2 {
				break
			}
		}
		fmt.Println("waiting")
		select {}
	}
	held, err := l.Lock(context.Background())
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println("held")
	for {
		until := held.a.until.Load()
		over := int64(uptime()) >= until && held.a.until.Load() == until
		if held.Context().Err() != nil {
			fmt.Println(context.Cause(held.Context()))
			return
		}
		if over {
			fmt.Println("a live context past the end")
			return
		}
	}
}

// childProcess is a child as the test sees it.
type childProcess struct {
	*exec.Cmd
	t     *testing.T
	lines chan string
}

func startChild(t *testing.T, what string, redis *redistest.Target, prefix string) *childProcess {
	t.Helper()
	p := &childProcess{Cmd: exec.Command(os.Args[0]), t: t, lines: make(chan string, 100)}
	p.Env = append(os.Environ(), childEnv+"="+strings.Join([]string{what, redis.URL(), prefix}, " "))
	p.Stderr = os.Stderr
	out, err := p.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
	read := make(chan struct{})
	go func() {
		defer close(read)
		for s := bufio.NewScanner(out); s.Scan(); {
			p.lines <- s.Text()
		}
	}()
	t.Cleanup(func() {
		_ = p.Process.Kill()
		<-read
		_ = p.Wait()
	})
	return p
}

func (p *childProcess) says(want string) {
	p.t.Helper()
	if got := receive(p.t, p.lines); got != want {
		p.t.Fatalf("the process says %q, expected %q", got, want)
	}
}

func (p *childProcess) signal(s syscall.Signal) {
	p.t.Helper()
	if err := p.Process.Signal(s); err != nil {
		p.t.Fatal(err)
	}
}

// TestStoppedHolder: a holder that was stopped for longer than its lease finds its context ended at
// the first look, and another one has the lock meanwhile.
func TestStoppedHolder(t *testing.T) {
	t.Parallel()
	redis := redistest.Shared(t)
	ctx, prefix := bounded(t), redis.Prefix(t)
	// Its beats come too late to be what ends its wait.
	m := newManager(t, redis, prefix, func(o *Options) { o.Liveness = time.Minute })
	p := startChild(t, "hold", redis, prefix)
	p.says("held")
	next := waits(ctx, t, m, Config{Key: "k", Fair: true})
	p.signal(syscall.SIGSTOP)
	held := receive(t, next)
	p.signal(syscall.SIGCONT)
	p.says(ErrExpired.Error())
	if err := held.Unlock(ctx); err != nil {
		t.Error(err)
	}
	noneHeld(t, redis, prefix)
}

// TestDeadAndStoppedWaiters: two waiters of a process in front that was killed cost the next one
// nothing, and of one that was stopped one window together.
func TestDeadAndStoppedWaiters(t *testing.T) {
	t.Parallel()
	redis := redistest.Shared(t)
	raw := redis.Client(t)
	for name, c := range map[string]struct {
		signal   syscall.Signal
		liveness time.Duration
	}{
		// A window would be 42 s, and the next one holds the lock before.
		"killed": {syscall.SIGKILL, time.Minute},
		// A window is 3.5 s, which the test waits for.
		"stopped": {syscall.SIGSTOP, 5 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx, prefix := bounded(t), redis.Prefix(t)
			live := func(o *Options) { o.Liveness = c.liveness }
			x, y := newManager(t, redis, prefix, live), newManager(t, redis, prefix, live)
			held := take(t, x, Config{Key: "k"})
			p := startChild(t, "wait", redis, prefix)
			p.says("waiting")
			next := waits(ctx, t, y, Config{Key: "k", Fair: true})
			p.signal(c.signal)
			if name == "killed" {
				_ = p.Wait()
			}
			if err := held.Unlock(ctx); err != nil {
				t.Fatal(err)
			}
			var h *Held
			windows := make(map[string]bool) // the waiters of the process that the lock was given to
			await(t, "the next one", func() bool {
				owner, err := do(t, raw, "HGET", prefix+":held:k", "acquisition").ToString()
				if err == nil && !strings.HasPrefix(owner, y.process) {
					windows[owner] = true
				}
				select {
				case h = <-next:
					return true
				default:
					return false
				}
			})
			if name == "killed" && len(windows) > 0 || len(windows) > 1 {
				t.Errorf("the lock was given to %v", windows)
			}
			if err := h.Unlock(ctx); err != nil {
				t.Error(err)
			}
		})
	}
}
