package lock

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/redis/rueidis"

	"github.com/freeslot/freeslot/internal/script"
	"github.com/freeslot/freeslot/internal/testing/redistest"
	"github.com/freeslot/freeslot/internal/testing/reference"
	"github.com/freeslot/freeslot/internal/testing/waittest"
)

// series reads a counter or gauge, or how often a histogram was observed, of freeslot_lock_<name>,
// which ends with the labels that have a value; ok is false if there is none.
func series(t *testing.T, reg *prometheus.Registry, name string) (value float64, ok bool) {
	t.Helper()
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			var labels []string
			for _, l := range m.GetLabel() {
				if l.GetValue() != "" {
					labels = append(labels, fmt.Sprintf("%s=%q", l.GetName(), l.GetValue()))
				}
			}
			text := f.GetName()
			if len(labels) > 0 {
				text += "{" + strings.Join(labels, ",") + "}"
			}
			if text == "freeslot_lock_"+name {
				return m.GetCounter().GetValue() + m.GetGauge().GetValue() + float64(m.GetHistogram().GetSampleCount()), true
			}
		}
	}
	return 0, false
}

// measured is a manager whose metrics a test reads.
type measured struct {
	*Manager
	t   *testing.T
	reg *prometheus.Registry
}

func newMeasured(t *testing.T, redis *redistest.Target, prefix string, change ...func(*Options)) *measured {
	t.Helper()
	reg := prometheus.NewRegistry()
	m := newManager(t, redis, prefix, append(change, func(o *Options) { o.Registerer = reg })...)
	return &measured{Manager: m, t: t, reg: reg}
}

// become waits until a series has this value.
func (m *measured) become(name string, want float64) {
	m.t.Helper()
	waittest.Until(m.t, fmt.Sprintf("%s to be %v", name, want), func() bool {
		got, ok := series(m.t, m.reg, name)
		return ok && got == want
	}, func() any {
		got, _ := series(m.t, m.reg, name)
		return got
	})
}

// is fails unless each series has its value now.
func (m *measured) is(want map[string]float64) {
	m.t.Helper()
	for name, value := range want {
		if got, ok := series(m.t, m.reg, name); !ok || got != value {
			m.t.Errorf("%s is %v (there: %v), expected %v", name, got, ok, value)
		}
	}
}

// TestMetricsReference: acquisitions, waits, holds, failures and load are counted as they happen.
// The reference has all names.
func TestMetricsReference(t *testing.T) {
	t.Parallel()
	redis := redistest.Shared(t)
	ctx, prefix := bounded(t), redis.Prefix(t)
	raw := redis.Client(t)
	m, other := newMeasured(t, redis, prefix), newManager(t, redis, prefix, patient)
	cfg := func(key string) Config {
		return Config{Key: key, Lease: time.Hour, Renewal: time.Minute, WatchdogPeriod: time.Hour}
	}

	// Acquisitions, waits and load.
	first := take(t, m.Manager, cfg("first"))
	theirs := take(t, other, cfg("second"))
	if _, err := get(t, m.Manager, cfg("second")).TryLock(ctx, 0); err == nil {
		t.Error("a lock of another process was acquired")
	}
	do(t, raw, "SET", prefix+":held:foreign", "x")
	if _, err := get(t, m.Manager, cfg("foreign")).TryLock(ctx, 0); err == nil {
		t.Error("a foreign key was acquired")
	}
	waiter := waits(ctx, t, m.Manager, cfg("second"))
	m.is(map[string]float64{
		`acquires_total{outcome="acquired"}`: 1, `acquires_total{outcome="busy"}`: 1, `acquires_total{outcome="failed"}`: 1,
		"waiting": 1, "held": 1, "wait_seconds": 1, "hold_seconds": 0,
	})
	unlock(ctx, t, theirs)
	second := receive(t, waiter)
	m.is(map[string]float64{`acquires_total{outcome="acquired"}`: 2, "waiting": 0, "held": 2, "wait_seconds": 2, "hold_seconds": 0})

	// Holds, and how they end.
	unlock(ctx, t, first)
	unlock(ctx, t, second)
	m.is(map[string]float64{"held": 0, "hold_seconds": 2, `ends_total{cause="unlocked"}`: 2})

	// Renewals: an answer that ends the hold confirms nothing.
	renewing := cfg("renewing")
	renewing.Renewal = 50 * time.Millisecond
	take(t, m.Manager, renewing)
	await(t, "a renewal", func() bool { n, _ := series(t, m.reg, `renewals_total{outcome="confirmed"}`); return n > 0 })
	lost := 0.0
	for cause, change := range map[string][]string{
		"gone": {"DEL"}, "taken": {"HSET", "acquisition", "other:1"}, "revoked": {"HSET", "revoked", "why"},
	} {
		c := renewing
		c.Key = cause
		held := take(t, m.Manager, c)
		do(t, raw, append([]string{change[0], prefix + ":held:" + cause}, change[1:]...)...)
		receive(t, held.Context().Done())
		lost++
		m.become(fmt.Sprintf("ends_total{cause=%q}", cause), 1)
		m.is(map[string]float64{`renewals_total{outcome="lost"}`: lost})
	}

	// The watchdog.
	stalled := cfg("stalled")
	stalled.WatchdogPeriod, stalled.BeatTimeout, stalled.AlertThreshold, stalled.Recovery = quick, time.Nanosecond, 1, RecoverAlarm
	alarming := take(t, m.Manager, stalled)
	m.become("alarms", 1)
	unlock(ctx, t, alarming)
	m.become("alarms", 0)
	stalled.Recovery = RecoverRelease
	take(t, m.Manager, stalled)
	m.become(`recoveries_total{action="release",outcome="ok"}`, 1)
	m.become(`ends_total{cause="stalled"}`, 1)
	await(t, "the checks", func() bool {
		ok, _ := series(t, m.reg, `checks_total{check="state",outcome="ok"}`)
		failed, _ := series(t, m.reg, `checks_total{check="holder",outcome="failed"}`)
		return ok > 0 && failed >= 2
	})
	m.become(`connected{connection="commands"}`, 1)
	m.become(`connected{connection="wakes"}`, 1)
	reference.Check(t, "metrics.md", "package lock", reference.Metrics(t, m.reg))
}

// TestConnected: the gauges are current without a hold, and nothing is connected after Stop.
func TestConnected(t *testing.T) {
	t.Parallel()
	redis := redistest.New(t, redistest.AppendOnly("always"))
	m := newMeasured(t, redis.Target, redis.Prefix(t), hurried)
	m.become(`connected{connection="commands"}`, 1) // also before the first lock
	unlock(bounded(t), t, take(t, m.Manager, Config{Key: "k"}))
	m.become(`connected{connection="wakes"}`, 1)
	redis.Kill()
	m.become(`connected{connection="commands"}`, 0)
	m.become(`connected{connection="wakes"}`, 0)
	redis.Restart()
	m.become(`connected{connection="commands"}`, 1)
	m.become(`connected{connection="wakes"}`, 1)
	if err := m.Stop(bounded(t)); err != nil {
		t.Error(err)
	}
	if n, ok := series(t, m.reg, `connected{connection="commands"}`); ok {
		t.Errorf("after Stop it is %v, expected no series", n)
	}
}

// TestConnectedGroups: on a cluster each group of locks that was used has its own gauges.
func TestConnectedGroups(t *testing.T) {
	t.Parallel()
	redis := redistest.Cluster(t)
	refuses := &refusedTag{}
	m := newWrapped(t, redis, redis.Prefix(t), refuses.around)
	gauge := func(connection string, g *group) float64 {
		return testutil.ToFloat64(m.metrics.connected.WithLabelValues(connection, g.keys.layout.Tag))
	}
	x, y := m.groups[script.CellOf("x", tags)], m.groups[script.CellOf("y", tags)]
	if x == y {
		t.Fatal("the locks have one group, choose others")
	}
	unlock(bounded(t), t, take(t, m, Config{Key: "x"}))
	unlock(bounded(t), t, take(t, m, Config{Key: "y"}))
	if n := testutil.CollectAndCount(m.metrics.connected); n > 4 {
		t.Errorf("%d series, expected those of two groups", n)
	}
	for _, g := range []*group{x, y} {
		await(t, "its connections", func() bool { return gauge("commands", g) == 1 && gauge("wakes", g) == 1 })
	}
	tag := x.keys.layout.TagPart()
	refuses.tag.Store(&tag)
	await(t, "the gauges of the group", func() bool { return gauge("commands", x) == 0 && gauge("wakes", x) == 0 })
	if gauge("commands", y) != 1 || gauge("wakes", y) != 1 {
		t.Error("the other group is not connected, expected that it is")
	}
}

// refusedTag is a client whose calls for one hash tag fail.
type refusedTag struct {
	rueidis.Client
	tag atomic.Pointer[string]
}

func (r *refusedTag) around(inner rueidis.Client) rueidis.Client {
	r.Client = inner
	return r
}

func (r *refusedTag) Do(ctx context.Context, cmd rueidis.Completed) rueidis.RedisResult {
	if tag := r.tag.Load(); tag != nil && strings.Contains(strings.Join(cmd.Commands(), " "), *tag) {
		return rueidis.NewErrorResult(context.DeadlineExceeded)
	}
	return r.Client.Do(ctx, cmd)
}
