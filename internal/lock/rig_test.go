package lock

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/rueidis"

	redisclient "github.com/freeslot/freeslot/internal/redis/client"
	"github.com/freeslot/freeslot/internal/testing/redistest"
	"github.com/freeslot/freeslot/internal/testing/waittest"
)

// bounded is the context of all calls of a test.
func bounded(t testing.TB) context.Context {
	t.Helper()
	return waittest.Context(t)
}

// unhurried are the options of a manager that a busy machine does not disturb: calls are answered,
// and new owners claim, however long the process stands still.
func unhurried(redis *redistest.Target, prefix string, change []func(*Options)) Options {
	opts := Options{RedisURL: redis.URL(), KeyPrefix: prefix, Liveness: 20 * time.Second, callTimeout: time.Minute}
	for _, c := range change {
		c(&opts)
	}
	return opts
}

// hurried has calls end as soon as in production, for tests of a Redis that does not answer.
func hurried(o *Options) { o.callTimeout = callTimeout }

func newManager(t testing.TB, redis *redistest.Target, prefix string, change ...func(*Options)) *Manager {
	t.Helper()
	m, err := New(unhurried(redis, prefix, change))
	if err != nil {
		t.Fatal(err)
	}
	waittest.Succeeds(t, "the start", func() error { return m.Start(bounded(t)) }) // a dial has 2 s
	stopAfter(t, m)
	return m
}

// patient leaves new owners more time to claim than a machine stands still that has a lot to do.
func patient(o *Options) { o.Liveness = time.Minute }

func stopAfter(t testing.TB, m *Manager) {
	t.Helper()
	t.Cleanup(func() {
		if err := m.Stop(bounded(t)); err != nil {
			t.Error(err)
		}
	})
}

// newWrapped is newManager with a client of its own making for the scripts.
func newWrapped(t testing.TB, redis *redistest.Target, prefix string, wrap func(rueidis.Client) rueidis.Client, change ...func(*Options)) *Manager {
	t.Helper()
	m, err := New(unhurried(redis, prefix, change))
	if err != nil {
		t.Fatal(err)
	}
	var topology *redisclient.Topology
	waittest.Succeeds(t, "Redis", func() (err error) {
		topology, err = redisclient.Inspect(bounded(t), redisclient.Config{URL: redis.URL()})
		return err
	})
	if m.commands, err = topology.Open(redisclient.Commands); err != nil {
		t.Fatal(err)
	}
	if m.events, err = topology.Open(redisclient.Subscriber); err != nil {
		t.Fatal(err)
	}
	m.begin(wrap(m.commands.For(0)), topology.Cluster)
	stopAfter(t, m)
	return m
}

func get(t testing.TB, m *Manager, cfg Config) *Lock {
	t.Helper()
	l, err := m.Get(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// take is a lock that must be free. A call that a busy machine broke off is made again.
func take(t testing.TB, m *Manager, cfg Config) (held *Held) {
	t.Helper()
	ctx, l, doubt := bounded(t), get(t, m, cfg), false
	waittest.Succeeds(t, "the lock "+cfg.Key, func() (err error) {
		if held, err = l.TryLock(ctx, 0); errors.Is(err, ErrNotAcquired) && !doubt {
			t.Fatalf("expected the lock %s to be free: %v", cfg.Key, err)
		}
		doubt = err != nil
		return err
	})
	return held
}

// waits begins to wait for a lock, and returns when its ticket is in Redis. The channel delivers
// what comes of it.
func waits(ctx context.Context, t testing.TB, m *Manager, cfg Config) <-chan *Held {
	t.Helper()
	out := make(chan *Held, 1)
	l, number := get(t, m, cfg), m.number.Load()
	go func() {
		defer close(out)
		if held, err := l.Lock(ctx); err == nil {
			out <- held
		} else if ctx.Err() == nil {
			t.Error(err)
		}
	}()
	await(t, "the ticket", func() bool {
		g, err := m.groupOf(cfg.Key)
		return err != nil || slices.ContainsFunc(g.waiting(), func(a *acquisition) bool {
			return a.number > number && a.cfg.Key == cfg.Key && a.inQueue() != "0"
		})
	})
	return out
}

// await polls what nothing signals.
func await(t testing.TB, what string, cond func() bool) {
	t.Helper()
	waittest.Until(t, what, cond)
}

func receive[T any](t testing.TB, c <-chan T) T {
	t.Helper()
	return waittest.Receive(t, "a value", c)
}

// keysOf are the names of all keys under a prefix, without it.
func keysOf(t testing.TB, redis *redistest.Target, prefix string) (out []string) {
	t.Helper()
	for _, node := range redis.Client(t).Nodes() {
		for cursor, done := uint64(0), false; !done; done = cursor == 0 {
			e, err := node.Do(bounded(t), node.B().Scan().Cursor(cursor).Match(prefix+":*").Count(10_000).Build()).AsScanEntry()
			if err != nil {
				t.Fatal(err)
			}
			for _, key := range e.Elements {
				out = append(out, strings.TrimPrefix(key, prefix+":"))
			}
			cursor = e.Cursor
		}
	}
	slices.Sort(out)
	return slices.Compact(out) // replicas have them, too
}

// unlock gives back a hold. On a busy machine that may go on in the background.
func unlock(ctx context.Context, t testing.TB, held *Held) {
	t.Helper()
	if err := held.Unlock(ctx); err != nil && !errors.Is(err, context.DeadlineExceeded) {
		t.Error(err)
	}
}

// tries calls try with ever longer waits until its error matches all of want: on a busy machine a
// short one is over before Redis has answered.
func tries(t testing.TB, what string, try func(wait time.Duration) error, want ...error) {
	t.Helper()
	var last error
	wait := 20 * time.Millisecond
	waittest.Until(t, what, func() bool {
		last = try(wait)
		wait *= 2
		return last == nil || !slices.ContainsFunc(want, func(w error) bool { return !errors.Is(last, w) })
	}, func() any { return wait })
	if last == nil {
		t.Errorf("no error, expected %s", what)
	}
}

// noneHeld waits until no key of a lock or queue is left.
func noneHeld(t testing.TB, redis *redistest.Target, prefix string) {
	t.Helper()
	var left []string
	waittest.Until(t, "no lock or queue to be left", func() bool {
		left = slices.DeleteFunc(keysOf(t, redis, prefix), func(key string) bool {
			return !strings.HasPrefix(key, "held:") && !strings.HasPrefix(key, "queue:")
		})
		return len(left) == 0
	}, func() any { return left })
}

// do is one command on the raw client.
func do(t testing.TB, c rueidis.Client, args ...string) rueidis.RedisResult {
	t.Helper()
	cmd := c.B().Arbitrary(args[0])
	if len(args) > 1 {
		cmd = cmd.Keys(args[1]).Args(args[2:]...)
	}
	return c.Do(bounded(t), cmd.Build())
}

// chaos is a client whose calls of scripts do not arrive, whose answers are lost, or that are
// carried out late.
type chaos struct {
	rueidis.Client
	// share is how many in a hundred calls have each of these fates.
	share atomic.Int64
	late  time.Duration
}

func (c *chaos) around(inner rueidis.Client) rueidis.Client {
	c.Client = inner
	return c
}

func (c *chaos) Do(ctx context.Context, cmd rueidis.Completed) rueidis.RedisResult {
	unanswered := rueidis.NewErrorResult(context.DeadlineExceeded)
	share := c.share.Load()
	if share == 0 || !strings.HasPrefix(cmd.Commands()[0], "EVAL") {
		return c.Client.Do(ctx, cmd)
	}
	cmd = cmd.Pin()
	switch fate := rand.Int64N(100); {
	case fate < share:
		return unanswered
	case fate < 2*share:
		c.Client.Do(ctx, cmd)
		return unanswered
	case fate < 3*share:
		time.AfterFunc(rand.N(c.late), func() { c.Client.Do(context.WithoutCancel(ctx), cmd) })
		return unanswered
	}
	return c.Client.Do(ctx, cmd)
}

// slowTag is a client whose calls for one hash tag hang.
type slowTag struct {
	rueidis.Client
	tag  atomic.Pointer[string]
	over chan struct{} // closed at the end of the test
}

func (s *slowTag) around(inner rueidis.Client) rueidis.Client {
	s.Client = inner
	return s
}

// hang lets the calls of a tag hang until the end of the test, longer than anything may wait.
func (s *slowTag) hang(t testing.TB, tag string) {
	s.over = make(chan struct{})
	t.Cleanup(func() { close(s.over) })
	s.tag.Store(&tag)
}

func (s *slowTag) Do(ctx context.Context, cmd rueidis.Completed) rueidis.RedisResult {
	if tag := s.tag.Load(); tag != nil && strings.Contains(strings.Join(cmd.Commands(), " "), *tag) {
		<-s.over
		return rueidis.NewErrorResult(context.DeadlineExceeded)
	}
	return s.Client.Do(ctx, cmd)
}
