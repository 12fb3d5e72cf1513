package main

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"strings"
	"time"

	"github.com/bsm/redislock"
	"github.com/go-redsync/redsync/v4"
	goredissync "github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/redis/go-redis/v9"
	"github.com/redis/rueidis"
	"github.com/redis/rueidis/rueidislock"

	"github.com/freeslot/freeslot/bench/tool"
	"github.com/freeslot/freeslot/lock"
)

// The libraries.
const (
	ours        = "freeslot"
	rueidisLock = "rueidislock"
	redisLock   = "redislock"
	redSync     = "redsync"
)

const (
	stopLimit = 5 * time.Second
	// peerValidity is rueidislock's default. The others get the same.
	peerValidity = 5 * time.Second
)

// setting is a library, and the options that differ from its defaults.
type setting struct {
	Library string
	// Validity is the lease; 0 is the default of the library or peerValidity.
	Validity time.Duration
	// Fair is for ours.
	Fair bool
	// Retry is how often those ask that poll: redislock, redsync, and rueidislock without tracking.
	// With tracking it is how long rueidislock's acquire may take.
	Retry time.Duration
	// Tracking is of rueidislock: "on", "noloop" or "off".
	Tracking string
	// Pool is the connections of redislock and redsync; 0 is the default of go-redis.
	Pool int
	// Extend has redislock and redsync keep the lock, as their users must; see keep. Bounded gives
	// each extension the time that is left of the validity.
	Extend  bool
	Bounded bool
}

// swept are the settings of the peers that are tried.
func swept(library string) []setting {
	if library == rueidisLock {
		return []setting{
			{Library: library, Tracking: "on"},
			{Library: library, Tracking: "noloop"},
			{Library: library, Tracking: "noloop", Retry: 200 * time.Millisecond},
			{Library: library, Tracking: "off", Retry: 5 * time.Millisecond},
		}
	}
	return []setting{
		{Library: library, Retry: time.Millisecond},
		{Library: library, Retry: 200 * time.Microsecond, Pool: 64},
		{Library: library, Retry: time.Millisecond, Pool: 64},
		{Library: library, Retry: 5 * time.Millisecond, Pool: 64},
	}
}

// best is a setting of each peer for a part that has no sweep.
func best() []setting {
	return []setting{
		{Library: rueidisLock, Tracking: "noloop"},
		{Library: redisLock, Retry: time.Millisecond},
		{Library: redSync, Retry: time.Millisecond},
	}
}

// String names the options that are not defaults.
func (s setting) String() string {
	var words []string
	add := func(is bool, format string, args ...any) {
		if is {
			words = append(words, fmt.Sprintf(format, args...))
		}
	}
	add(s.Fair, "fair")
	add(s.Tracking != "", "tracking %s", s.Tracking)
	add(s.Retry > 0, "retry %s", s.Retry)
	add(s.Pool > 0, "pool %d", s.Pool)
	add(s.Extend && !s.Bounded, "extensions without a bound")
	add(s.Bounded, "extensions bounded by the validity")
	if len(words) == 0 {
		return s.Library
	}
	return s.Library + ", " + strings.Join(words, ", ")
}

// locker is a library that is connected to Redis.
type locker interface {
	// mutex is a lock for one worker.
	mutex(key string) (mutex, error)
	close() error
}

// mutex waits for the lock until ctx ends.
type mutex func(ctx context.Context) (hold, error)

type hold struct {
	ctx    context.Context // ends with the lock; nil where the library has none
	unlock func() error
}

// open connects to the Redis at addr (host:port).
func open(ctx context.Context, s setting, addr string) (locker, error) {
	switch s.Library {
	case ours:
		return openOurs(ctx, s, addr)
	case rueidisLock:
		l, err := rueidislock.NewLocker(rueidislock.LockerOption{
			ClientOption: rueidis.ClientOption{InitAddress: []string{addr}, DisableCache: s.Tracking == "off"},
			KeyMajority:  1, KeyValidity: s.Validity, TryNextAfter: s.Retry, NoLoopTracking: s.Tracking == "noloop",
		})
		return rueidisLocker{l}, err
	case redisLock, redSync:
		if s.Validity == 0 {
			s.Validity = peerValidity
		}
		return goRedisLocker{s, redis.NewClient(&redis.Options{Addr: addr, PoolSize: s.Pool, ContextTimeoutEnabled: s.Bounded})}, nil
	}
	return nil, fmt.Errorf("library %q is not known", s.Library)
}

type ourLocker struct {
	s setting
	m *lock.Manager
}

func openOurs(ctx context.Context, s setting, addr string) (locker, error) {
	m, err := lock.New(lock.Options{RedisURL: "redis://" + addr})
	if err != nil {
		return nil, err
	}
	return ourLocker{s, m}, m.Start(ctx)
}

func (o ourLocker) mutex(key string) (mutex, error) {
	l, err := o.m.Get(lock.Config{Key: key, Fair: o.s.Fair, Lease: o.s.Validity})
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context) (hold, error) {
		h, err := l.Lock(ctx)
		if err != nil {
			return hold{}, err
		}
		return hold{h.Context(), func() error { return h.Unlock(ctx) }}, nil
	}, nil
}

func (o ourLocker) close() error {
	ctx, cancel := context.WithTimeout(context.Background(), stopLimit)
	defer cancel()
	return o.m.Stop(ctx)
}

type rueidisLocker struct{ rueidislock.Locker }

func (r rueidisLocker) mutex(key string) (mutex, error) {
	return func(ctx context.Context) (hold, error) {
		held, cancel, err := r.WithContext(ctx, key)
		return hold{held, func() error { cancel(); return nil }}, err
	}, nil
}

func (r rueidisLocker) close() error { r.Close(); return nil }

// goRedisLocker is redislock or redsync.
type goRedisLocker struct {
	s      setting
	client *redis.Client
}

func (g goRedisLocker) mutex(key string) (mutex, error) {
	if g.s.Library == redisLock {
		return g.redislock(key), nil
	}
	return g.redsync(key), nil
}

func (g goRedisLocker) close() error { return g.client.Close() }

func (g goRedisLocker) redislock(key string) mutex {
	locks := redislock.New(g.client)
	opt := &redislock.Options{RetryStrategy: redislock.LinearBackoff(g.s.Retry)}
	return func(ctx context.Context) (hold, error) {
		l, err := locks.Obtain(ctx, key, g.s.Validity, opt)
		if err != nil {
			return hold{}, err
		}
		h := hold{unlock: func() error { return l.Release(ctx) }}
		if g.s.Extend {
			h = keep(ctx, g.s, h, func(ctx context.Context) error { return l.Refresh(ctx, g.s.Validity, nil) })
		}
		return h, nil
	}
}

func (g goRedisLocker) redsync(key string) mutex {
	locks := redsync.New(goredissync.NewPool(g.client))
	return func(ctx context.Context) (hold, error) {
		m := locks.NewMutex(key, redsync.WithExpiry(g.s.Validity), redsync.WithRetryDelay(g.s.Retry), redsync.WithTries(1<<30))
		if err := m.LockContext(ctx); err != nil {
			return hold{}, err
		}
		h := hold{unlock: func() error { _, err := m.UnlockContext(ctx); return err }}
		if g.s.Extend {
			h = keep(ctx, g.s, h, func(ctx context.Context) error {
				ok, err := m.ExtendContext(ctx)
				if err == nil && !ok {
					err = redsync.ErrExtendFailed
				}
				return err
			})
		}
		return h, nil
	}
}

// keep is what users write where a library has no context: it extends the lock after each half of
// its validity, and ends the context when that fails.
func keep(ctx context.Context, s setting, h hold, extend func(context.Context) error) hold {
	held, cancel := context.WithCancel(ctx)
	ended := make(chan struct{})
	go func() { // ends by unlock
		defer close(ended)
		defer cancel()
		tick := time.NewTicker(s.Validity / 2)
		defer tick.Stop()
		for end := time.Now().Add(s.Validity); ; {
			select {
			case <-held.Done():
				return
			case <-tick.C:
			}
			call, done := held, func() {}
			if s.Bounded {
				call, done = context.WithDeadline(held, end)
			}
			sent := time.Now()
			err := extend(call)
			done()
			if err != nil {
				return
			}
			end = sent.Add(s.Validity)
		}
	}()
	return hold{held, func() error {
		cancel()
		<-ended
		return h.unlock()
	}}
}

// versions names the peers as they were built in.
func versions() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "versions are not known"
	}
	var out []string
	for _, d := range info.Deps {
		switch d.Path {
		case "github.com/redis/rueidis", "github.com/bsm/redislock", "github.com/go-redsync/redsync/v4", "github.com/redis/go-redis/v9":
			out = append(out, strings.TrimPrefix(d.Path, "github.com/")+" "+d.Version)
		}
	}
	return strings.Join(out, ", ")
}

// openAll opens a locker for each setting. The caller closes them by the function.
func openAll(ctx context.Context, addr string, settings []setting) (lockers []locker, closeAll func() error) {
	closeAll = func() error {
		var failed error
		for _, l := range lockers {
			failed = errors.Join(failed, l.close())
		}
		return failed
	}
	for _, s := range settings {
		l, err := open(ctx, s, addr)
		if err != nil {
			tool.Check(errors.Join(fmt.Errorf("open %s: %w", s, err), closeAll()))
		}
		lockers = append(lockers, l)
	}
	return lockers, closeAll
}
