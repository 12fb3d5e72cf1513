package client

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/rueidis"
)

// lateRetry is the pause between attempts to reach a server that was down at the start.
const lateRetry = 200 * time.Millisecond

// late is a client for a server that was down when the client was opened. Until the server answers,
// a closed client takes its place, whose calls end with rueidis.ErrClosing.
type late struct {
	addr string // the missing server's address
	up   atomic.Bool
	now  atomic.Pointer[rueidis.Client]
	stop context.CancelFunc
	done sync.WaitGroup
}

// newLate needs the configuration of a server that is up: without one it cannot make even a closed
// client.
func newLate(role Role, missing, alive Config) (*late, error) {
	standIn, err := role(alive)
	if err != nil {
		return nil, err
	}
	standIn.Close()
	ctx, cancel := context.WithCancel(context.Background())
	l := &late{addr: missing.addr(), stop: cancel}
	l.now.Store(&standIn)
	l.done.Go(func() { l.connect(ctx, role, missing) })
	return l, nil
}

func (l *late) connect(ctx context.Context, role Role, c Config) {
	tick := time.NewTicker(lateRetry)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		client, err := role(c)
		if err == nil {
			l.now.Store(&client)
			l.up.Store(true)
			return
		}
	}
}

func (l *late) client() rueidis.Client { return *l.now.Load() }

// Close ends the attempts. It waits for a dial under way.
func (l *late) Close() {
	l.stop()
	l.done.Wait()
	l.client().Close()
}

func (l *late) B() rueidis.Builder { return l.client().B() }

func (l *late) Do(ctx context.Context, cmd rueidis.Completed) rueidis.RedisResult {
	return l.client().Do(ctx, cmd)
}

func (l *late) DoMulti(ctx context.Context, multi ...rueidis.Completed) []rueidis.RedisResult {
	return l.client().DoMulti(ctx, multi...)
}

func (l *late) DoCache(ctx context.Context, cmd rueidis.Cacheable, ttl time.Duration) rueidis.RedisResult {
	return l.client().DoCache(ctx, cmd, ttl)
}

func (l *late) DoMultiCache(ctx context.Context, multi ...rueidis.CacheableTTL) []rueidis.RedisResult {
	return l.client().DoMultiCache(ctx, multi...)
}

func (l *late) DoStream(ctx context.Context, cmd rueidis.Completed) rueidis.RedisResultStream {
	return l.client().DoStream(ctx, cmd)
}

func (l *late) DoMultiStream(ctx context.Context, multi ...rueidis.Completed) rueidis.MultiRedisResultStream {
	return l.client().DoMultiStream(ctx, multi...)
}

func (l *late) Receive(ctx context.Context, subscribe rueidis.Completed, fn func(rueidis.PubSubMessage)) error {
	return l.client().Receive(ctx, subscribe, fn)
}

func (l *late) Dedicated(fn func(rueidis.DedicatedClient) error) error {
	return l.client().Dedicated(fn)
}

func (l *late) Dedicate() (rueidis.DedicatedClient, func()) { return l.client().Dedicate() }

// Nodes names the missing server, not the server of the closed client.
func (l *late) Nodes() map[string]rueidis.Client {
	if !l.up.Load() {
		return map[string]rueidis.Client{l.addr: l.client()}
	}
	return l.client().Nodes()
}

func (l *late) Mode() rueidis.ClientMode { return l.client().Mode() }
