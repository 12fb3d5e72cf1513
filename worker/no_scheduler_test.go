package worker

import (
	"context"
	"testing"
	"testing/synctest"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/testing/redistest"
	"github.com/freeslot/freeslot/internal/testing/waittest"
)

// awaitBeats waits for so many further heartbeats, and for everything that the worker does after
// the last.
func (f *fakeCell) awaitBeats(t *testing.T, count int) {
	t.Helper()
	var from int
	f.with(func() { from = len(f.beats) })
	f.await(t, "heartbeats", func() bool { return len(f.beats) >= from+count })
	synctest.Wait()
}

// A node without any scheduler logs that once, and does not look again.
func TestUnseen(t *testing.T) {
	directOnly(t, "a gateway belongs to a scheduler")
	for _, unserved := range []bool{false, true} {
		core, logs := observer.New(zapcore.WarnLevel)
		bubbleWith(t, func(c *Config) { c.Logger = zap.New(core) }, func(t *testing.T, _ *Worker, f *fakeCell) {
			f.with(func() { f.unserved = unserved })
			f.awaitBeats(t, 1)
			if logs.Len() != 0 || f.looks != 0 {
				t.Errorf("%+v after one heartbeat, %d looks: a scheduler may be just starting", logs.All(), f.looks)
			}
			f.awaitBeats(t, 5)
			if f.looks != 1 {
				t.Errorf("%d looks, expected one", f.looks)
			}
			want := 0
			if unserved {
				want = 1
			}
			if logs.FilterMessage("node.unseen").Len() != want || logs.Len() != want {
				t.Errorf("unserved %t: %+v", unserved, logs.All())
			}
		}, handle("a", echo))
	}
}

// It looks at a key that schedulers write and agents may read.
func TestRedisUnseen(t *testing.T) {
	redis := redistest.Shared(t)
	prefix := redis.Prefix(t)
	r := newReplica(t, redis, prefix)
	unseen := make(chan zapcore.Entry, 1)
	log := zap.NewNop().WithOptions(zap.WrapCore(func(zapcore.Core) zapcore.Core {
		core, _ := observer.New(zapcore.WarnLevel)
		return core
	}), zap.Hooks(func(e zapcore.Entry) error {
		if e.Message == "node.unseen" {
			unseen <- e
		}
		return nil
	}))
	w, err := New(Config{
		RedisURL: redis.URL(), KeyPrefix: prefix, Node: freeslot.Node{ID: "node-1", MaxConcurrency: 1},
		HeartbeatInterval: MinHeartbeatInterval, Collectors: []Collection{}, Logger: log,
	})
	if err != nil {
		t.Fatal(err)
	}
	w.Handle("a", echo)
	if err := w.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := w.Stop(context.Background()); err != nil {
			t.Error(err)
		}
	}()
	waittest.Receive(t, "a warning that no scheduler is there", unseen)
	if err := r.cell.ConfigSeen(t.Context(), 1); err != nil {
		t.Fatal(err)
	}
	if served, err := w.store.Served(t.Context()); err != nil || !served {
		t.Errorf("%t, %v, expected a scheduler", served, err)
	}
}
