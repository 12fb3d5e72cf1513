package registry

import (
	"testing"
	"time"

	"go.uber.org/zap/zaptest"

	"github.com/freeslot/freeslot/internal/testing/redistest"
)

// TestRedisClockJumps: whether Redis' clock jumps forward or back, no instance is removed, and all
// are healthy again after their next heartbeats.
func TestRedisClockJumps(t *testing.T) {
	t.Parallel()
	redis, ahead := redistest.NewWithClock(t)
	ctx, log := bounded(t), zaptest.NewLogger(t)
	p, err := NewProvider(Options{RedisURL: redis.AdminURL(), StopPause: -1, Logger: log})
	if err != nil {
		t.Fatal(err)
	}
	c, err := NewConsumer(ConsumerOptions{RedisURL: redis.AdminURL(), Timeout: 2 * time.Second, Logger: log})
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Start(ctx); err != nil {
		t.Fatal(err)
	}
	if err := c.Start(ctx); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		for _, err := range []error{p.Stop(bounded(t)), c.Stop(bounded(t))} {
			if err != nil {
				t.Error(err)
			}
		}
	})
	for _, id := range []string{"a", "b", "c"} {
		if err := p.Register(ctx, Registration{Service: "asr", ID: id, Port: 9000, Interval: 200 * time.Millisecond}); err != nil {
			t.Fatal(err)
		}
	}
	store := NewStore(redis.Client(t), DefaultKeyPrefix, false, log)
	for _, jump := range []time.Duration{time.Hour, 0, 3 * time.Hour} { // forward, back, and forward again
		ahead(jump)
		if got, err := store.Cleanup(ctx, "asr"); err != nil || got.Removed != 0 || got.Guard != "" {
			t.Errorf("cleanup after a jump to %s: %+v, %v", jump, got, err)
		}
		// Heartbeats by the new clock come before the look that must find nobody late.
		if _, err := p.HeartbeatAll(ctx); err != nil {
			t.Fatal(err)
		}
		list, err := c.Await(ctx, "asr", func(l *List) bool { return len(l.Healthy().Instances) == 3 && !l.Healthy().Last })
		if err != nil || len(list.Healthy().Instances) != 3 {
			t.Errorf("after a jump to %s: %+v, %v", jump, list, err)
		}
		if looked, err := c.HealthyInstances(ctx, "asr", WithTimeout(2*time.Second)); err != nil || len(looked.Instances) != 3 || looked.Last {
			t.Errorf("a look after a jump to %s: %+v, %v", jump, looked, err)
		}
	}
}
