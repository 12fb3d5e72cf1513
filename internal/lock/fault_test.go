package lock

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/freeslot/freeslot/internal/script"
	"github.com/freeslot/freeslot/internal/testing/redistest"
	"github.com/freeslot/freeslot/internal/testing/waittest"
)

// unanswered loses the answers of a script's calls while on is set.
type unanswered struct {
	rueidis.Client
	script string
	on     chan struct{} // closed: off
}

func (u *unanswered) around(inner rueidis.Client) rueidis.Client {
	u.Client = inner
	return u
}

func (u *unanswered) Do(ctx context.Context, cmd rueidis.Completed) rueidis.RedisResult {
	c := cmd.Commands()
	is := strings.HasPrefix(c[0], "EVAL") && (c[1] == scripts[u.script].Hash(false) || c[1] == scripts[u.script].Text(false))
	result := u.Client.Do(ctx, cmd)
	select {
	case <-u.on:
		return result
	default:
	}
	if is {
		return rueidis.NewErrorResult(context.DeadlineExceeded)
	}
	return result
}

// TestRedisAway: Lock goes on trying, and ends with both errors; TryLock says what failed; none of
// them has the lock, also not when Redis comes back and carries out what it was sent.
func TestRedisAway(t *testing.T) {
	t.Parallel()
	redis := redistest.New(t)
	ctx, prefix := bounded(t), redis.Prefix(t)
	m := newManager(t, redis.Target, prefix, hurried)
	l := get(t, m, Config{Key: "k", Lease: time.Hour})
	held, err := l.Lock(ctx)
	if err != nil {
		t.Fatal(err)
	}
	redis.Pause()
	short, cancel := context.WithTimeout(ctx, 300*time.Millisecond)
	defer cancel()
	other := get(t, m, Config{Key: "other", Lease: time.Hour})
	if h, err := other.Lock(short); !errors.Is(err, context.DeadlineExceeded) {
		t.Error(h, err)
	}
	if h, err := other.TryLock(ctx, 0); err == nil || errors.Is(err, ErrNotAcquired) {
		t.Error(h, err)
	}
	// An unlock ends the context at once, and says that Redis has not answered, which it still does not.
	if err := held.Unlock(short); err == nil || errors.Is(err, ErrLost) {
		t.Error(err)
	}
	if !errors.Is(context.Cause(held.Context()), ErrUnlocked) {
		t.Error(context.Cause(held.Context()))
	}
	waiter := make(chan *Held, 1)
	go func() {
		h, err := l.Lock(ctx)
		if err != nil {
			t.Error(err)
		}
		waiter <- h
	}()
	redis.Resume()
	if err := receive(t, waiter).Unlock(ctx); err != nil {
		t.Error(err)
	}
	noneHeld(t, redis.Target, prefix)
	redis.Kill()                                   // connections are refused
	waittest.Until(t, "both errors", func() bool { // on a busy machine there may be no time for a try
		short, cancel := context.WithTimeout(ctx, 300*time.Millisecond)
		defer cancel()
		h, err := other.Lock(short)
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Fatal(h, err)
		}
		return len(strings.Split(err.Error(), "\n")) > 1
	})
}

// TestUnlockInDoubt: an unlock whose answer is lost is repeated; "not yours" then means that the
// first try has done it.
func TestUnlockInDoubt(t *testing.T) {
	t.Parallel()
	redis := redistest.Shared(t)
	ctx, prefix := bounded(t), redis.Prefix(t)
	lost := &unanswered{script: "release", on: make(chan struct{})}
	m := newWrapped(t, redis, prefix, lost.around)
	other := newManager(t, redis, prefix)
	held := take(t, m, Config{Key: "k", Lease: time.Hour})
	done := make(chan error, 1)
	go func() { done <- held.Unlock(ctx) }()
	await(t, "the release", func() bool { return len(keysOf(t, redis, prefix)) == 1 })
	next := take(t, other, Config{Key: "k"}) // untouched by the repeated release
	close(lost.on)
	if err := receive(t, done); err != nil {
		t.Error(err)
	}
	if _, err := get(t, m, Config{Key: "k"}).TryLock(ctx, 0); !errors.Is(err, ErrNotAcquired) {
		t.Error(err)
	}
	if err := next.Unlock(ctx); err != nil {
		t.Error(err)
	}
}

// TestSettle: it waits until Redis has answered to a release. One that is repeated afterwards, in case
// a call in doubt comes late, does not hold it up.
func TestSettle(t *testing.T) {
	t.Parallel()
	redis := redistest.Shared(t)
	ctx := bounded(t)
	lost := &unanswered{script: "release", on: make(chan struct{})}
	m := newWrapped(t, redis, redis.Prefix(t), lost.around, hurried)
	held := take(t, m, Config{Key: "k", Lease: time.Hour})
	held.a.doubt.Store(true)
	if err := held.Unlock(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("unlock: %v, expected that Redis has not answered", err)
	}
	settled := make(chan error, 1)
	go func() { settled <- m.Settle(ctx) }()
	if !m.owes() {
		t.Error("nothing is owed while no answer came")
	}
	close(lost.on)
	if err := receive(t, settled); err != nil {
		t.Error(err)
	}
	held.a.group.debts.mu.Lock()
	defer held.a.group.debts.mu.Unlock()
	if n := len(held.a.group.debts.open); n != 1 {
		t.Errorf("%d releases are repeated, expected the one that is in doubt", n)
	}
}

// TestUnlockOfWhatIsGone: without any doubt it was not held any more; a lock of the next holder is
// not touched.
func TestUnlockOfWhatIsGone(t *testing.T) {
	t.Parallel()
	redis := redistest.Shared(t)
	ctx, prefix := bounded(t), redis.Prefix(t)
	x, y := newManager(t, redis, prefix), newManager(t, redis, prefix)
	held := take(t, x, Config{Key: "k"})
	do(t, redis.Client(t), "DEL", prefix+":held:k")
	next := take(t, y, Config{Key: "k"})
	if err := held.Unlock(ctx); !errors.Is(err, ErrLost) || !errors.Is(err, ErrGone) {
		t.Error(err)
	}
	if err := next.Unlock(ctx); err != nil {
		t.Error(err)
	}
}

// TestUnlockAfterTheEnd: the release arrives when the lease is over.
func TestUnlockAfterTheEnd(t *testing.T) {
	t.Parallel()
	redis := redistest.New(t)
	m := newManager(t, redis.Target, redis.Prefix(t))
	held := take(t, m, Config{Key: "k", Lease: MinLease})
	redis.Pause()
	done := make(chan error, 1)
	go func() { done <- held.Unlock(bounded(t)) }()
	await(t, "the end", held.a.over)
	redis.Resume()
	// Redis may have done it when the lease was over, or find the lock and end it in time.
	if err := receive(t, done); err != nil && !errors.Is(err, ErrExpired) {
		t.Error(err)
	}
}

// TestForeignKeys: keys of other types and layouts are named, and left as they are; other locks go
// on beside them.
func TestForeignKeys(t *testing.T) {
	t.Parallel()
	redistest.Backends(t, func(t *testing.T, redis *redistest.Target) {
		t.Parallel()
		raw := redis.Client(t)
		for name, c := range map[string]struct {
			make func(k keys) []string
			// waits is for what only a waiter comes upon.
			waits, whole bool
		}{
			"held is a string":    {make: func(k keys) []string { return []string{"SET", k.held("k"), "x"} }},
			"held is a hash":      {make: func(k keys) []string { return []string{"HSET", k.held("k"), "token", "1", "user", "me"} }},
			"another layout":      {make: func(k keys) []string { return []string{"HSET", k.held("k"), "layout", "2", "owner", "x"} }},
			"half a lock":         {make: func(k keys) []string { return []string{"HSET", k.held("k"), "layout", "1", "acquisition", "x"} }},
			"queue is a string":   {make: func(k keys) []string { return []string{"SET", k.queue("k"), "x"} }, waits: true},
			"alive is a string":   {make: func(k keys) []string { return []string{"SET", k.alive(), "x"} }, waits: true},
			"token is a list":     {make: func(k keys) []string { return []string{"RPUSH", k.token(), "x"} }, whole: true},
			"token is a text":     {make: func(k keys) []string { return []string{"SET", k.token(), "x"} }, whole: true},
			"token is too large":  {make: func(k keys) []string { return []string{"SET", k.token(), "9223372036854775807"} }, whole: true},
			"token is a fraction": {make: func(k keys) []string { return []string{"SET", k.token(), "1.5"} }, whole: true},
		} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				ctx := bounded(t)
				m := newManager(t, redis, redis.Prefix(t))
				g, err := m.groupOf("k")
				if err != nil {
					t.Fatal(err)
				}
				if c.waits {
					take(t, newManager(t, redis, m.opts.KeyPrefix), Config{Key: "k"})
				}
				command := c.make(g.keys)
				if err := do(t, raw, command...).Error(); err != nil {
					t.Fatal(err)
				}
				dump := func() string {
					text, err := do(t, raw, "DUMP", command[1]).ToString()
					if err != nil {
						t.Error(err)
					}
					return text
				}
				before := dump()
				var bad *KeyError
				for _, fair := range []bool{false, true} {
					for what, try := range map[string]func(*Lock) (*Held, error){
						"Lock":    func(l *Lock) (*Held, error) { return l.Lock(ctx) },
						"TryLock": func(l *Lock) (*Held, error) { return l.TryLock(ctx, 0) },
					} {
						if h, err := try(get(t, m, Config{Key: "k", Fair: fair})); c.waits && what == "TryLock" {
							continue // it need not come upon it
						} else if !errors.As(err, &bad) || !strings.Contains(bad.Text, command[1]) {
							t.Errorf("%s, fair %v: %v, %v", what, fair, h, err)
						}
					}
				}
				if dump() != before {
					t.Errorf("%s was changed", command[1])
				}
				if !c.whole {
					other := "another"
					for script.CellOf(other, len(m.groups)) != script.CellOf("k", len(m.groups)) { // of the same group
						other += "x"
					}
					if err := take(t, m, Config{Key: other}).Unlock(ctx); err != nil {
						t.Error(err)
					}
				}
			})
		}
	})
}

// TestForeignKeyOfWaiters: those that wait already learn of it, and a hold is lost.
func TestForeignKeyOfWaiters(t *testing.T) {
	t.Parallel()
	redis := redistest.Shared(t)
	ctx, prefix := bounded(t), redis.Prefix(t)
	x, y := newManager(t, redis, prefix), newManager(t, redis, prefix)
	raw := redis.Client(t)
	held := take(t, x, Config{Key: "k", Renewal: 50 * time.Millisecond})
	told := make(chan error, 1)
	go func() {
		_, err := get(t, y, Config{Key: "k", Fair: true}).Lock(ctx)
		told <- err
	}()
	await(t, "the waiter", func() bool { return len(y.groups[0].waiting()) == 1 })
	do(t, raw, "SET", prefix+":held:k", "x")
	if err := receive(t, told); !errors.As(err, new(*KeyError)) {
		t.Error(err)
	}
	receive(t, held.Context().Done())
	if err := held.Unlock(ctx); !errors.Is(err, ErrGone) || !errors.As(err, new(*KeyError)) {
		t.Error(err)
	}
}

// TestFullRedis: renewals, releases, hand-overs and beats work where Redis has no memory left; new
// locks are refused, and Lock has its lock once there is some.
func TestFullRedis(t *testing.T) {
	t.Parallel()
	redis := redistest.New(t)
	ctx, prefix := bounded(t), redis.Prefix(t)
	x, y := newManager(t, redis.Target, prefix), newManager(t, redis.Target, prefix)
	raw := redis.Client(t)
	cfg := Config{Key: "k", Fair: true, Lease: time.Hour, Renewal: 50 * time.Millisecond}
	held := take(t, x, cfg)
	second, third := waits(ctx, t, y, cfg), waits(ctx, t, x, cfg)
	do(t, raw, "CONFIG", "SET", "maxmemory", "1")
	if h, err := get(t, y, Config{Key: "new"}).TryLock(ctx, 0); err == nil || !strings.Contains(err.Error(), "OOM") {
		t.Error(h, err)
	}
	before := held.a.renewed.Load()
	await(t, "a renewal", func() bool { return held.a.renewed.Load() > before })
	if err := held.Unlock(ctx); err != nil {
		t.Error(err)
	}
	next := receive(t, second)
	do(t, raw, "DEL", prefix+":held:k") // its end is seen by a beat
	x.groups[0].hurry()
	if h := receive(t, third); h == nil || h.Unlock(ctx) != nil {
		t.Error(h)
	}
	if err := next.Unlock(ctx); !errors.Is(err, ErrLost) {
		t.Error(err)
	}
	late := make(chan error, 1)
	go func() {
		h, err := get(t, y, Config{Key: "new"}).Lock(ctx)
		if err == nil {
			err = h.Unlock(ctx)
		}
		late <- err
	}()
	do(t, raw, "CONFIG", "SET", "maxmemory", "0")
	if err := receive(t, late); err != nil {
		t.Error(err)
	}
	noneHeld(t, redis.Target, prefix)
}

// TestScriptsLostAndReadOnly: a call goes on by itself after SCRIPT FLUSH; a server that has become
// a replica refuses, and Lock has its lock once it is a master again.
func TestScriptsLostAndReadOnly(t *testing.T) {
	t.Parallel()
	redis := redistest.New(t)
	ctx, prefix := bounded(t), redis.Prefix(t)
	m := newManager(t, redis.Target, prefix)
	raw := redis.Client(t)
	held := take(t, m, Config{Key: "k", Renewal: 50 * time.Millisecond})
	do(t, raw, "SCRIPT", "FLUSH")
	before := held.a.renewed.Load()
	await(t, "a renewal", func() bool { return held.a.renewed.Load() > before })
	do(t, raw, "SCRIPT", "FLUSH")
	if err := held.Unlock(ctx); err != nil {
		t.Error(err)
	}
	do(t, raw, "REPLICAOF", "127.0.0.1", "1")
	if h, err := get(t, m, Config{Key: "k"}).TryLock(ctx, 0); err == nil || !strings.Contains(err.Error(), "READONLY") {
		t.Error(h, err)
	}
	late := make(chan error, 1)
	go func() {
		h, err := get(t, m, Config{Key: "k"}).Lock(ctx)
		if err == nil {
			err = h.Unlock(ctx)
		}
		late <- err
	}()
	do(t, raw, "REPLICAOF", "NO", "ONE")
	if err := receive(t, late); err != nil {
		t.Error(err)
	}
	noneHeld(t, redis.Target, prefix)
}

// TestServersThatAreRefused before anything is locked.
func TestServersThatAreRefused(t *testing.T) {
	t.Parallel()
	redis := redistest.New(t, redistest.Args("--maxmemory-policy", "volatile-lru"))
	m, err := New(Options{RedisURL: redis.URL()})
	if err != nil {
		t.Fatal(err)
	}
	if err := m.Start(bounded(t)); err == nil || !strings.Contains(err.Error(), "CONFIG SET maxmemory-policy noeviction") {
		t.Error(err)
	}
	do(t, redis.Client(t), "CONFIG", "SET", "maxmemory-policy", "noeviction")
	if err := m.Start(bounded(t)); err != nil { // a start that failed can be made again
		t.Error(err)
	}
	stopAfter(t, m)
	for info, want := range map[string]string{
		"redis_version:6.2.14\r\nmaxmemory_policy:noeviction\r\n": `version "6.2.14", expected 7.0`,
		"maxmemory_policy:noeviction\r\n":                         "expected 7.0",
		"redis_version:7.0.0\r\nmaxmemory_policy:allkeys-lfu\r\n": "allkeys-lfu",
		"redis_version:7.0.15\r\nmaxmemory_policy:noeviction\r\n": "",
		"redis_version:10.1.0\r\n":                                "",
	} {
		if err := checkServer("a:1", info); (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf(`%q: %v; want (err == nil) == (want == ""), no error or strings.Contains(err.Error(), want)`, info, err)
		}
	}
	gone := redistest.New(t)
	gone.Kill()
	m, err = New(Options{RedisURL: gone.URL()})
	if err != nil {
		t.Fatal(err)
	}
	if err := m.Start(bounded(t)); err == nil {
		t.Error("started without Redis")
	}
	if err := m.Stop(bounded(t)); err != nil {
		t.Error(err)
	}
}

// TestTokensSurvive what takes the counter away.
func TestTokensSurvive(t *testing.T) {
	t.Parallel()
	redis := redistest.New(t)
	ctx, prefix := bounded(t), redis.Prefix(t)
	m := newManager(t, redis.Target, prefix)
	raw := redis.Client(t)
	l := get(t, m, Config{Key: "k"})
	last := int64(0)
	for what, lose := range map[string]func(){
		"nothing":  func() {},
		"DEL":      func() { do(t, raw, "DEL", prefix+":token") },
		"FLUSHALL": func() { do(t, raw, "FLUSHALL") },
		"restart":  redis.Restart, // without its data
	} {
		lose()
		held, err := l.Lock(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if held.Token() <= last {
			t.Errorf("%s: token %d after %d", what, held.Token(), last)
		}
		last = held.Token()
		if err := held.Unlock(ctx); err != nil {
			t.Error(err)
		}
	}
	// Redis' clock was ahead once.
	ahead := "8000000000000000"
	await(t, "the new connection", func() bool { return do(t, raw, "SET", prefix+":token", ahead).Error() == nil })
	for i := range int64(3) {
		held := take(t, m, Config{Key: "k"})
		if held.Token() != 8e15+1+i {
			t.Errorf("token %d", held.Token())
		}
		if err := held.Unlock(ctx); err != nil {
			t.Error(err)
		}
	}
}

// TestRefusedByAccessControl: Lock does not go on asking for what it may not do.
func TestRefusedByAccessControl(t *testing.T) {
	t.Parallel()
	redis := redistest.New(t)
	do(t, redis.Client(t), "ACL", "SETUSER", "few", "on", "nopass", "allchannels", "~none:*", "+@all")
	url := strings.Replace(redis.AdminURL(), "redis://", "redis://few:x@", 1)
	m, err := New(Options{RedisURL: url})
	if err != nil {
		t.Fatal(err)
	}
	if err := m.Start(bounded(t)); err != nil {
		t.Fatal(err)
	}
	stopAfter(t, m)
	if h, err := get(t, m, Config{Key: "k"}).Lock(bounded(t)); err == nil || !strings.Contains(err.Error(), "NOPERM") {
		t.Error(h, err)
	}
}
