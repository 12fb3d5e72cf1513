package logging

import (
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"
)

// TestOutage: many failures are one WARN, a second one after a minute, and one INFO.
func TestOutage(t *testing.T) {
	t.Parallel()
	core, logs := observer.New(zapcore.InfoLevel)
	o := NewOutage(zap.New(core), "redis.lost", "redis.back")
	clock := time.Unix(1000, 0)
	o.now = func() time.Time { return clock }
	step := func(d time.Duration, fails bool) {
		clock = clock.Add(d)
		if fails {
			o.Failed(errors.New("refused"))
		} else {
			o.Over()
		}
	}
	said := func(want ...string) {
		t.Helper()
		var got []string
		for _, e := range logs.TakeAll() {
			away, _ := e.ContextMap()["away"].(time.Duration)
			got = append(got, e.Level.String()+" "+e.Message+" "+away.String())
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Error(diff)
		}
	}
	step(0, false)
	said()
	for range 90 {
		step(time.Second, true)
	}
	said("warn redis.lost 0s", "warn redis.lost 1m0s")
	step(time.Second, false)
	step(time.Second, false)
	said("info redis.back 1m30s")

	step(10*time.Second, true) // the next one is news
	step(time.Second, false)
	said("warn redis.lost 0s", "info redis.back 1s")

	for range 100 { // flapping: ten seconds
		step(50*time.Millisecond, true)
		step(50*time.Millisecond, false)
	}
	if n := len(logs.TakeAll()); n < 2 || n > 6 {
		t.Errorf("flapping for 10 s makes %d lines", n)
	}

	step(10*time.Second, true)
	step(time.Second, false)
	step(time.Second, true) // soon after: logged while it lasts
	logs.TakeAll()
	for range 6 {
		step(time.Second, true)
	}
	step(time.Second, false)
	said("warn redis.lost 3s", "info redis.back 7s")
}
