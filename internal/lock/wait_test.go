package lock

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/freeslot/freeslot/internal/testing/redistest"
	"github.com/freeslot/freeslot/internal/testing/waittest"
)

// TestFairOrder: 16 waiters of 4 processes get the lock 250 times each, in the order in which
// Redis queued them.
func TestFairOrder(t *testing.T) {
	t.Parallel()
	const rounds = 250
	redis := redistest.New(t)
	ctx, prefix := bounded(t), redis.Prefix(t)
	var locks [4]*Lock
	for i := range locks {
		locks[i] = get(t, newManager(t, redis.Target, prefix, patient), Config{Key: "k", Fair: true})
		g, err := locks[i].m.groupOf("k")
		if err != nil {
			t.Fatal(err)
		}
		await(t, "the subscription", g.subscribed)
	}
	reconnected := connected(t, redis.Client(t))
	var waiters sync.WaitGroup
	last, queued := int64(0), 0 // the lock guards them
	var disorder atomic.Pointer[string]
	for _, l := range locks {
		for range 4 {
			waiters.Go(func() {
				for range rounds {
					held, err := l.Lock(ctx)
					if err != nil {
						t.Error(err)
						return
					}
					// One without a place found the lock free, and nobody in the queue.
					place, err := strconv.ParseInt(held.a.inQueue(), 10, 64)
					if err != nil || place != 0 && place <= last {
						text := fmt.Sprintf("place %d after %d: %v", place, last, err)
						disorder.Store(&text)
					}
					if place > 0 {
						last = place
						queued++
					}
					unlock(ctx, t, held)
				}
			})
		}
	}
	waiters.Wait()
	// Whoever lost a connection, as a process does that stood still, is passed over until it is back.
	if text := disorder.Load(); text != nil && reconnected() == 0 {
		t.Error(*text)
	}
	if queued < 15*rounds && !t.Failed() {
		t.Error("the lock was free too often to show anything")
	}
	noneHeld(t, redis.Target, prefix)
}

// connected returns a function that counts the connections which Redis has taken since.
func connected(t *testing.T, raw rueidis.Client) func() int {
	t.Helper()
	count := func() int {
		text, err := do(t, raw, "INFO", "stats").ToString()
		if err != nil {
			t.Fatal(err)
		}
		_, rest, _ := strings.Cut(text, "total_connections_received:")
		text, _, _ = strings.Cut(rest, "\r")
		n, err := strconv.Atoi(text)
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	before := count()
	return func() int { return count() - before }
}

// TestOneWakeUp: a release beside many waiters of many processes publishes one grant and one
// notice.
func TestOneWakeUp(t *testing.T) {
	t.Parallel()
	redis := redistest.New(t)
	ctx, prefix := bounded(t), redis.Prefix(t)
	// The holder's limit decides whose beats are too old.
	holder := newManager(t, redis.Target, prefix, patient)
	held := take(t, holder, Config{Key: "k"})
	waiting, leave := context.WithCancel(ctx)
	var others sync.WaitGroup
	defer others.Wait()
	defer leave()
	cfg := Config{Key: "k", Fair: true}
	first := newManager(t, redis.Target, prefix, patient)
	var all []<-chan *Held
	for range 5 {
		all = append(all, waits(waiting, t, first, cfg))
	}
	for range 20 {
		l := get(t, newManager(t, redis.Target, prefix, patient), cfg)
		for range 50 {
			others.Go(func() {
				if h, err := l.Lock(waiting); err == nil {
					t.Error("one of the others got it:", h.Unlock(ctx))
				}
			})
		}
	}
	raw := redis.Client(t)
	await(t, "the tickets", func() bool {
		n, err := do(t, raw, "ZCARD", prefix+":queue:k").AsInt64()
		return err == nil && n == 1005
	})
	reconnected := connected(t, raw)
	heard, stands := make(chan rueidis.PubSubMessage, 1000), make(chan struct{})
	listening, end := context.WithCancel(ctx)
	defer end()
	others.Go(func() {
		listening := rueidis.WithOnSubscriptionHook(listening, func(rueidis.PubSubSubscription) { close(stands) })
		_ = raw.Receive(listening, raw.B().Psubscribe().Pattern(prefix+":*").Build(), func(m rueidis.PubSubMessage) { heard <- m })
	})
	waittest.Receive(t, "the subscription", stands)
	// published returns how many messages were published since the last call, except the empty ones
	// by which the watchdogs check their subscriptions.
	published := func() (n int) {
		if err := do(t, raw, "PUBLISH", prefix+":mark", "mark").Error(); err != nil {
			t.Fatal(err)
		}
		for {
			switch m := receive(t, heard); m.Message {
			case "mark":
				return n
			case "":
			default:
				n++
			}
		}
	}
	for i, waiter := range all {
		published()
		if err := held.Unlock(ctx); err != nil {
			t.Fatal(err)
		}
		held = receive(t, waiter)
		// What a process that lost its connection asks for again may cost further messages.
		if n := published(); held == nil || n != 2 && reconnected() == 0 {
			t.Fatalf("release %d published %d messages, expected a grant and a notice", i, n)
		}
	}
}

// TestNotice: outsiders hear of a release.
func TestNotice(t *testing.T) {
	t.Parallel()
	redistest.Backends(t, func(t *testing.T, redis *redistest.Target) {
		t.Parallel()
		ctx, prefix := bounded(t), redis.Prefix(t)
		m := newManager(t, redis, prefix, func(o *Options) { o.Holder = `a "b"` })
		raw := redis.Client(t)
		heard, stands := make(chan string, 1), make(chan struct{})
		listening, end := context.WithCancel(ctx)
		defer end()
		go func() {
			listening := rueidis.WithOnSubscriptionHook(listening, func(rueidis.PubSubSubscription) { close(stands) })
			_ = raw.Receive(listening, raw.B().Subscribe().Channel(prefix+`:release:k"1`).Build(), func(m rueidis.PubSubMessage) { heard <- m.Message })
		}()
		receive(t, stands)
		held := take(t, m, Config{Key: `k"1`})
		if err := held.Unlock(ctx); err != nil {
			t.Fatal(err)
		}
		want := fmt.Sprintf(`{"lockKey":"k\"1","releaseTime":%%d,"holder":"a \"b\"","token":"%d","reason":"unlocked"}`, held.Token())
		var at int64
		if got := receive(t, heard); !strings.HasPrefix(got, `{"lockKey":"k\"1"`) {
			t.Error(got)
		} else if _, err := fmt.Sscanf(got, want, &at); err != nil || time.Since(time.UnixMilli(at)).Abs() > time.Hour {
			t.Errorf("%s, expected %s: %v", got, want, err)
		}
	})
}

// TestIdleLocksKeepNoKeys: locks by the thousand, taken and dropped, leave the counter.
func TestIdleLocksKeepNoKeys(t *testing.T) {
	t.Parallel()
	const locks = 20_000
	redis := redistest.Shared(t)
	ctx, prefix := bounded(t), redis.Prefix(t)
	m := newManager(t, redis, prefix)
	var workers sync.WaitGroup
	for worker := range 64 {
		workers.Go(func() {
			for i := worker; i < locks; i += 64 {
				l, err := m.Get(Config{Key: strconv.Itoa(i), Fair: i%2 == 0})
				if err != nil {
					t.Error(err)
					return
				}
				held, err := l.Lock(ctx)
				if err != nil {
					t.Error(err)
					return
				}
				unlock(ctx, t, held)
			}
		})
	}
	workers.Wait()
	if err := m.Settle(ctx); err != nil {
		t.Error(err)
	}
	if keys := keysOf(t, redis, prefix); len(keys) != 1 || keys[0] != "token" {
		t.Errorf("left: %q", keys)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.locals) != 0 || len(m.holds) != 0 || len(m.renewals.index) != 0 || len(m.groups[0].waiting()) != 0 {
		t.Errorf("the process keeps %d locals, %d holds, %d renewals", len(m.locals), len(m.holds), len(m.renewals.index))
	}
}

// TestHeldByAnother: who has it, since when, and for how long; by one look, after waiting in Redis,
// and after waiting behind another one of the process.
func TestHeldByAnother(t *testing.T) {
	t.Parallel()
	redis := redistest.Shared(t)
	ctx, prefix := bounded(t), redis.Prefix(t)
	x := newManager(t, redis, prefix, func(o *Options) { o.Holder = "x:1" })
	y := newManager(t, redis, prefix)
	held := take(t, x, Config{Key: "k", Lease: time.Hour})
	contender := waits(ctx, t, y, Config{Key: "k"})
	for what, try := range map[string]func(wait time.Duration) (*Held, error){
		"one look":  func(time.Duration) (*Held, error) { return get(t, y, Config{Key: "k"}).TryLock(ctx, 0) },
		"fair look": func(time.Duration) (*Held, error) { return get(t, y, Config{Key: "k", Fair: true}).TryLock(ctx, -1) },
		"in Redis": func(wait time.Duration) (*Held, error) {
			return get(t, y, Config{Key: "k", Fair: true}).TryLock(ctx, wait)
		},
		"behind waiter": func(wait time.Duration) (*Held, error) { return get(t, y, Config{Key: "k"}).TryLock(ctx, wait) },
		"behind holder": func(wait time.Duration) (*Held, error) { return get(t, x, Config{Key: "k"}).TryLock(ctx, wait) },
		"no own context": func(wait time.Duration) (*Held, error) {
			return get(t, x, Config{Key: "k"}).TryLock(WithoutOwner(held.Context()), wait)
		},
	} {
		var err error
		tries(t, what, func(wait time.Duration) error { _, err = try(wait); return err }, ErrNotAcquired)
		var busy *HeldError
		if !errors.As(err, &busy) || busy.Holder != "x:1" || busy.Key != "k" ||
			time.Since(busy.Since) > time.Hour || busy.Left <= 0 || busy.Left > time.Hour {
			t.Errorf(`%s: %v; want errors.As(err, &busy), busy.Holder == "x:1", busy.Key == "k", time.Since(busy.Since) <= time.Hour, busy.Left > 0, busy.Left <= time.Hour`, what, err)
		}
	}
	tries(t, "the deadline, and who has it", func(wait time.Duration) error {
		short, cancel := context.WithTimeout(ctx, wait)
		defer cancel()
		_, err := get(t, y, Config{Key: "k", Fair: true}).Lock(short)
		return err
	}, context.DeadlineExceeded, ErrNotAcquired)
	if err := held.Unlock(ctx); err != nil {
		t.Fatal(err)
	}
	if err := receive(t, contender).Unlock(ctx); err != nil {
		t.Error(err)
	}
	noneHeld(t, redis, prefix)
}

// TestContenderGivesUp: the next waiter of the process takes its place at once, also while Redis
// does not answer to the release of the first.
func TestContenderGivesUp(t *testing.T) {
	t.Parallel()
	redis := redistest.Shared(t)
	ctx, prefix := bounded(t), redis.Prefix(t)
	holder := newManager(t, redis, prefix)
	client := &chaos{}
	m := newWrapped(t, redis, prefix, client.around)
	held := take(t, holder, Config{Key: "k"})
	giving, giveUp := context.WithCancel(ctx)
	first := waits(giving, t, m, Config{Key: "k"})
	second := make(chan *Held, 1)
	go func() {
		h, err := get(t, m, Config{Key: "k"}).Lock(ctx)
		if err != nil {
			t.Error(err)
		}
		second <- h
	}()
	await(t, "the second", func() bool { return behind(m, "k") == 1 })
	client.share.Store(100) // no call arrives
	giveUp()
	receive(t, first)
	await(t, "its promotion", func() bool { return behind(m, "k") == 0 })
	client.share.Store(0)
	if err := held.Unlock(ctx); err != nil {
		t.Fatal(err)
	}
	if err := receive(t, second).Unlock(ctx); err != nil {
		t.Error(err)
	}
	noneHeld(t, redis, prefix)
}

// TestHeirGivesUp: waiters whose time is up while a release names them. None of them keeps the
// lock, or a beat that takes it again and again.
func TestHeirGivesUp(t *testing.T) {
	t.Parallel()
	redis := redistest.Shared(t)
	ctx, prefix := bounded(t), redis.Prefix(t)
	m := newManager(t, redis, prefix)
	l := get(t, m, Config{Key: "k", Lease: time.Hour})
	for round := range 200 {
		held, err := l.Lock(ctx)
		if err != nil {
			t.Fatal(err)
		}
		giving, giveUp := context.WithCancel(ctx)
		gave := make(chan struct{})
		var heirs sync.WaitGroup
		for range 3 {
			heirs.Go(func() {
				if h, err := l.Lock(giving); err == nil {
					_ = h.Unlock(ctx)
				}
			})
		}
		for behind(m, "k") < 2 && ctx.Err() == nil {
			runtime.Gosched()
		}
		go func() {
			defer close(gave)
			for range round * 50 { // now before, now after the release
			}
			giveUp()
		}()
		if err := held.Unlock(ctx); err != nil {
			t.Fatal(err)
		}
		heirs.Wait()
		receive(t, gave)
	}
	noneHeld(t, redis, prefix)
	if n := len(m.groups[0].waiting()); n != 0 {
		t.Errorf("beats carry %d that wait no more", n)
	}
}

// TestManyDeadTickets: those of a process that has gone do not let a newcomer pass a live waiter
// behind them.
func TestManyDeadTickets(t *testing.T) {
	t.Parallel()
	redis := redistest.Shared(t)
	ctx, prefix := bounded(t), redis.Prefix(t)
	x, y := newManager(t, redis, prefix, patient), newManager(t, redis, prefix, patient)
	raw := redis.Client(t)
	for i := range 200 {
		do(t, raw, "ZADD", prefix+":queue:k", strconv.Itoa(1000+i), "dead:"+strconv.Itoa(i)+" 1000 h")
		do(t, raw, "ZADD", prefix+":queue:k", strconv.Itoa(2000+i), "stopped:"+strconv.Itoa(i)+" 1000 h")
	}
	conn, release := raw.Dedicate()
	defer release()
	if err := conn.Do(ctx, conn.B().Subscribe().Channel(prefix+":wake:stopped").Build()).Error(); err != nil { // as a stopped process is
		t.Fatal(err)
	}
	do(t, raw, "ZADD", prefix+":queue:k", "999", "what is this")
	held := take(t, x, Config{Key: "k"}) // not fair: it takes what is free
	waiter := waits(ctx, t, y, Config{Key: "k", Fair: true})
	do(t, raw, "DEL", prefix+":held:k")
	newcomer := get(t, x, Config{Key: "k", Fair: true})
	await(t, "the hand-over", func() bool { // each call looks at some of the tickets
		if h, err := newcomer.TryLock(ctx, 0); !errors.Is(err, ErrNotAcquired) {
			t.Fatal(h, err)
		}
		select {
		case h := <-waiter:
			unlock(ctx, t, h)
			return true
		default:
			return false
		}
	})
	if err := held.Unlock(ctx); !errors.Is(err, ErrGone) {
		t.Error(err)
	}
	noneHeld(t, redis, prefix)
}

// TestQueueFull: beyond 10,000 tickets there is an answer at once.
func TestQueueFull(t *testing.T) {
	t.Parallel()
	redis := redistest.Shared(t)
	ctx, prefix := bounded(t), redis.Prefix(t)
	x, y := newManager(t, redis, prefix), newManager(t, redis, prefix)
	held := take(t, x, Config{Key: "k"})
	fill := `for i = 1, 10000 do redis.call('ZADD', KEYS[1], i, 'p:' .. i .. ' 1000 h') end`
	if err := do(t, redis.Client(t), "EVAL", fill, "1", prefix+":queue:k").NonRedisError(); err != nil {
		t.Fatal(err)
	}
	for _, fair := range []bool{true, false} {
		if _, err := get(t, y, Config{Key: "k", Fair: fair}).Lock(ctx); !errors.Is(err, ErrQueueFull) || !errors.Is(err, ErrNotAcquired) {
			t.Error(err)
		}
	}
	if err := held.Unlock(ctx); err != nil {
		t.Error(err)
	}
}

// TestWakesThatProveNothing: a grant is acted upon only where an answer proves how old it can be.
func TestWakesThatProveNothing(t *testing.T) {
	t.Parallel()
	m, err := New(Options{RedisURL: "redis://localhost:1", Liveness: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	now := uptime()
	for _, c := range []struct {
		name     string
		answers  []answer
		replicas int
		acts     bool
	}{
		{name: "nothing known"},
		{name: "a young answer before", answers: []answer{{now, 99}}, acts: true},
		{name: "the newest counts", answers: []answer{{now - time.Second, 50}, {now, 99}}, acts: true},
		{name: "made before the answer", answers: []answer{{now, 100}}},
		{name: "an old answer", answers: []answer{{now - 40*time.Second, 99}}},
		{name: "a counter that was lost", answers: []answer{{now, 0}}},
		{name: "replicas must have it", answers: []answer{{now, 99}}, replicas: 1},
	} {
		g := &group{m: m, waiters: make(map[uint64]*acquisition), poke: make(chan struct{}, 1)}
		m.opts.Replicas = c.replicas
		a := newAcquisition(g, Config{Key: "k", Lease: time.Hour}.WithDefaults(), 7, "h")
		g.enlist(a)
		for _, answer := range c.answers {
			g.saw(answer.sent, answer.counter)
		}
		g.wake("7 100 k")
		if acts := len(a.grants) == 1; acts != c.acts || len(g.poke) == 1 == acts {
			t.Errorf("%s: acts %v, asks %v", c.name, acts, len(g.poke) == 1)
		} else if acts {
			if got := <-a.grants; got.claimed || got.token != 100 || got.until != now+42*time.Second-MinMargin {
				t.Errorf("%s: %+v", c.name, got)
			}
		}
		for _, message := range []string{"8 100 k", "", "x"} { // nobody's, a question, and rubbish
			g.wake(message)
		}
		if len(a.grants) != 0 {
			t.Errorf("%s: a grant of another one", c.name)
		}
	}
}
