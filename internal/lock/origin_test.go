package lock

import (
	"context"
	"strings"
	"testing"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"github.com/freeslot/freeslot/internal/testing/redistest"
)

// TestHeldLong: a hold that outlives ten leases is logged once, with its holder and the line that
// acquired it; one with MaxHold is not.
func TestHeldLong(t *testing.T) {
	t.Parallel()
	redis := redistest.Shared(t)
	core, logs := observer.New(zapcore.WarnLevel)
	m := newManager(t, redis, redis.Prefix(t), func(o *Options) { o.Logger, o.Holder = zap.New(core), "host:7" })
	long := func() []observer.LoggedEntry { return logs.FilterMessage("lock.held_long").All() }
	cfg := Config{Key: "k", Lease: time.Hour, MaxHold: 11 * time.Hour}
	bound := take(t, m, cfg)
	m.tellLong(bound.a, 11*time.Hour)
	if got := long(); len(got) != 0 {
		t.Errorf("a hold with MaxHold is logged: %v", got)
	}
	unlock(bounded(t), t, bound)
	cfg.MaxHold = 0
	l := get(t, m, cfg)
	for name, hold := range map[string]func(f func(*acquisition)){
		"Lock": func(f func(*acquisition)) {
			h, err := l.Lock(bounded(t))
			if err != nil {
				t.Fatal(err)
			}
			f(h.a)
			unlock(bounded(t), t, h)
		},
		"TryLock": func(f func(*acquisition)) {
			h, err := l.TryLock(bounded(t), time.Minute)
			if err != nil {
				t.Fatal(err)
			}
			f(h.a)
			unlock(bounded(t), t, h)
		},
		"Do": func(f func(*acquisition)) {
			err := l.Do(bounded(t), func(ctx context.Context, _ int64) error {
				f(owner(ctx, m, "k"))
				return nil
			})
			if err != nil {
				t.Error(err)
			}
		},
	} {
		hold(func(a *acquisition) {
			confirmed := renewed{sent: uptime(), code: codeDone}
			m.renewedOne(a, confirmed)
			if got := long(); len(got) != 0 {
				t.Errorf("%s: a new hold is logged: %v", name, got)
			}
			a.since -= 10 * time.Hour // no loop looks at it while it is far from its end
			m.renewedOne(a, confirmed)
			m.renewedOne(a, confirmed)
			a.since += 10 * time.Hour
		})
		got := logs.FilterMessage("lock.held_long").TakeAll()
		if len(got) != 1 {
			t.Fatalf("%s: %d lines in the log, expected 1", name, len(got))
		}
		fields := got[0].ContextMap()
		at, _ := fields["acquired_at"].(string)
		if fields["holder"] != "host:7" || fields["lock"] != "k" || !strings.Contains(at, "origin_test.go:") || !strings.Contains(at, "TestHeldLong") {
			t.Errorf("%s: %v, expected the holder host:7 and a line of this test", name, fields)
		}
		logs.TakeAll()
	}
}
