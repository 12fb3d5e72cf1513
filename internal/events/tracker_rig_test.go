package events

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"go.uber.org/zap/zaptest"

	redisclient "github.com/freeslot/freeslot/internal/redis/client"
	"github.com/freeslot/freeslot/internal/testing/redistest"
)

const trackedPrefix = "scheduler:nodes:"

// openTracker makes connections that CLIENT LIST shows under name; server is an address.
func openTracker(name string) func(string, func([]rueidis.RedisMessage)) (rueidis.Client, error) {
	return func(server string, onInvalidations func([]rueidis.RedisMessage)) (rueidis.Client, error) {
		return redisclient.Tracker(redisclient.Config{URL: "redis://" + server, Name: name}, server, trackedPrefix, onInvalidations)
	}
}

// track starts a tracker of one untagged cell on one server.
func track(t *testing.T, redis *redistest.Target, name string) (*Tracker, *Watch) {
	t.Helper()
	tracker := NewTracker(TrackerConfig{
		Prefix: trackedPrefix, Cells: []TrackedCell{{Server: redis.Addrs()[0]}}, Open: openTracker(name),
	}, zaptest.NewLogger(t), nil)
	start(t, tracker)
	w := tracker.Watch(0)
	eventually(t, "the connection", w.Connected)
	takeAll(t, w)
	return tracker, w
}

// takeAll waits until everything may have changed.
func takeAll(t *testing.T, w *Watch) {
	t.Helper()
	eventually(t, "a reset", func() bool { _, all := w.Take(); return all })
}

// follower does what a cache does with a Watch: it keeps a copy of one field of each node, reads
// again what the watch returns, and reads nothing otherwise.
type follower struct {
	watch  *Watch
	client rueidis.Client
	keys   []string
	nodes  map[string]int // node -> index in keys

	mu    sync.Mutex
	state map[string]string // guarded by mu; key -> value, absent when there is no key
}

const fleet = 50

// follow starts a follower of the cell's nodes node-0 to node-49 until the end of the test.
func follow(t *testing.T, w *Watch, c rueidis.Client, tag string) *follower {
	f := &follower{watch: w, client: c, nodes: make(map[string]int), state: make(map[string]string)}
	for i := range fleet {
		id := fmt.Sprint("node-", i)
		key := trackedPrefix + id
		if tag != "" {
			key = trackedPrefix + "{" + tag + "}:" + id
		}
		f.nodes[id] = len(f.keys)
		f.keys = append(f.keys, key)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var done sync.WaitGroup
	done.Go(func() { f.run(ctx) })
	t.Cleanup(func() { cancel(); done.Wait() })
	return f
}

func (f *follower) run(ctx context.Context) {
	for {
		select {
		case <-f.watch.Changed():
		case <-ctx.Done():
			return
		}
		nodes, all := f.watch.Take()
		var keys []string
		if all {
			keys = f.keys
		}
		for _, id := range nodes {
			if i, ok := f.nodes[id]; ok {
				keys = append(keys, f.keys[i])
			}
		}
		retry := time.NewTicker(5 * time.Millisecond)
		for !f.read(ctx, keys) && ctx.Err() == nil {
			<-retry.C // the server is away; the keys are still to be read
		}
		retry.Stop()
	}
}

func (f *follower) read(ctx context.Context, keys []string) bool {
	values, ok := readAll(ctx, f.client, keys)
	if !ok {
		return false
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, key := range keys {
		if v, found := values[key]; found {
			f.state[key] = v
		} else {
			delete(f.state, key)
		}
	}
	return true
}

// readAll is the truth about keys.
func readAll(ctx context.Context, c rueidis.Client, keys []string) (map[string]string, bool) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	cmds := make(rueidis.Commands, 0, len(keys))
	for _, key := range keys {
		// Pinned, since rueidis recycles what it asks again while a dying writer reads it.
		cmds = append(cmds, c.B().Hget().Key(key).Field("v").Build().Pin())
	}
	values := make(map[string]string)
	for i, r := range c.DoMulti(ctx, cmds...) {
		v, err := r.ToString()
		switch {
		case err == nil:
			values[keys[i]] = v
		case !rueidis.IsRedisNil(err):
			return nil, false
		}
	}
	return values, true
}

// same reports whether the copy is the truth.
func (f *follower) same(ctx context.Context) bool {
	truth, ok := readAll(ctx, f.client, f.keys)
	f.mu.Lock()
	defer f.mu.Unlock()
	return ok && maps.Equal(truth, f.state)
}

func (f *follower) converges(t *testing.T, after string) {
	t.Helper()
	eventually(t, "convergence after "+after, func() bool { return f.same(t.Context()) })
}

// write changes nodes at random until the returned function is called, which
// reports how many writes Redis accepted. It returns after the first.
func (f *follower) write(t *testing.T) (stop func() int) {
	ctx, cancel := context.WithCancel(t.Context())
	var done sync.WaitGroup
	accepted := 0
	first := make(chan struct{})
	done.Go(func() {
		pace := time.NewTicker(200 * time.Microsecond)
		defer pace.Stop()
		for i := 0; ctx.Err() == nil; i++ {
			limit, release := context.WithTimeout(ctx, time.Second)
			key := f.keys[rand.N(len(f.keys))]
			cmd := f.client.B().Hset().Key(key).FieldValue().FieldValue("v", strconv.Itoa(i)).Build()
			if rand.N(10) == 0 {
				cmd = f.client.B().Del().Key(key).Build()
			}
			if f.client.Do(limit, cmd).Error() == nil {
				if accepted++; accepted == 1 {
					close(first)
				}
			}
			release()
			<-pace.C
		}
	})
	var once sync.Once
	stop = func() int { once.Do(func() { cancel(); done.Wait() }); return accepted }
	t.Cleanup(func() { stop() })
	receive(t, first)
	return stop
}
