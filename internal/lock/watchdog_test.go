package lock

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/redis/rueidis"

	"github.com/freeslot/freeslot/internal/script"
	"github.com/freeslot/freeslot/internal/testing/redistest"
)

// alarmed collects alarms.
type alarmed struct {
	mu  sync.Mutex
	all []Alarm // guarded by mu
}

func (a *alarmed) options(o *Options) {
	o.OnAlarm = func(alarm Alarm) {
		a.mu.Lock()
		defer a.mu.Unlock()
		a.all = append(a.all, alarm)
	}
}

func (a *alarmed) has(check string, over bool) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, alarm := range a.all {
		if strings.Contains(alarm.Check, check) && alarm.Over == over && (alarm.Err == nil) == over && alarm.Token > 0 && alarm.Key == "k" {
			return true
		}
	}
	return false
}

func (a *alarmed) count() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return len(a.all)
}

const quick = 100 * time.Millisecond

// TestCheckState: what has become of a lock in Redis ends the hold by the check alone, long before
// a renewal.
func TestCheckState(t *testing.T) {
	t.Parallel()
	redis := redistest.Shared(t)
	raw := redis.Client(t)
	for name, c := range map[string]struct {
		change []string
		want   error
	}{
		"gone":    {[]string{"DEL"}, ErrGone},
		"taken":   {[]string{"HSET", "acquisition", "other:1", "holder", "thief"}, ErrTaken},
		"revoked": {[]string{"HSET", "revoked", "for good"}, ErrRevoked},
		"foreign": {[]string{"HSET", "layout", "9"}, ErrGone},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			prefix := redis.Prefix(t)
			reg := prometheus.NewRegistry()
			m := newManager(t, redis, prefix, func(o *Options) { o.Registerer = reg })
			held := take(t, m, Config{Key: "k", WatchdogPeriod: quick})
			do(t, raw, append([]string{c.change[0], prefix + ":held:k"}, c.change[1:]...)...)
			receive(t, held.Context().Done())
			cause := context.Cause(held.Context())
			if !errors.Is(cause, c.want) {
				t.Error(cause)
			}
			if name == "taken" && !strings.Contains(cause.Error(), "thief") || name == "revoked" && !strings.Contains(cause.Error(), "for good") {
				t.Error(cause)
			}
			if err := held.Unlock(bounded(t)); !errors.Is(err, ErrLost) || !errors.Is(err, c.want) {
				t.Error(err)
			}
			await(t, "the count", func() bool { return testutil.ToFloat64(m.metrics.checks.WithLabelValues(CheckState, "failed")) == 1 })
		})
	}
}

// TestShorterLease: a lease that was cut in Redis moves the end, and is renewed; one without an end
// is left alone.
func TestShorterLease(t *testing.T) {
	t.Parallel()
	redis := redistest.Shared(t)
	ctx, prefix := bounded(t), redis.Prefix(t)
	raw := redis.Client(t)
	m := newManager(t, redis, prefix)
	held := take(t, m, Config{Key: "k", WatchdogPeriod: quick, Lease: time.Hour})
	until := held.a.until.Load()
	do(t, raw, "PEXPIRE", prefix+":held:k", "200000")
	await(t, "the renewal", func() bool {
		left, err := do(t, raw, "PTTL", prefix+":held:k").AsInt64()
		return err == nil && left > 3_500_000 && held.a.until.Load() >= until // the answer comes later
	})
	if err := held.Context().Err(); err != nil {
		t.Error(err)
	}
	if err := held.Unlock(ctx); err != nil {
		t.Error(err)
	}
}

// TestCheckedEnd: where no renewal gets through, the end is that of Redis, if it is surely sooner.
func TestCheckedEnd(t *testing.T) {
	t.Parallel()
	m, err := New(Options{RedisURL: "redis://localhost:1"})
	if err != nil {
		t.Fatal(err)
	}
	a := newHold(t.Context())
	before, now := a.until.Load(), uptime()
	soon := renewed{sent: now, answered: now, code: codeDone, left: time.Second}
	for name, c := range map[string]struct {
		got     renewed
		renewed int64 // until moved meanwhile
		want    int64
	}{
		"sooner":                {got: soon, want: int64(now + time.Second - a.cfg.Margin)},
		"confirmed meanwhile":   {got: soon, renewed: 1, want: before + 1},
		"no end":                {got: renewed{sent: now, answered: now, code: codeDone, left: -1}, want: before},
		"in doubt by the delay": {got: renewed{sent: now, answered: now + 2*time.Second, code: codeDone, left: time.Duration(before) - now + a.cfg.Margin - time.Second}, want: before},
		"later":                 {got: renewed{sent: now, answered: now, code: codeDone, left: 2 * time.Hour}, want: before},
	} {
		a.until.Store(before + c.renewed)
		if err := m.checkState(a, c.got, before); err != nil || a.until.Load() != c.want {
			t.Errorf("%s: ends at %d, expected %d: %v", name, a.until.Load(), c.want, err)
		}
	}
}

// TestRecovery: what becomes of a lock whose holder is stalled or has held it for too long.
func TestRecovery(t *testing.T) {
	t.Parallel()
	redis := redistest.Shared(t)
	raw := redis.Client(t)
	for cause, cfg := range map[error]Config{
		ErrStalled: {BeatTimeout: 50 * time.Millisecond},
		ErrMaxHold: {MaxHold: 150 * time.Millisecond},
	} {
		for _, recovery := range []Recovery{RecoverCancel, RecoverRelease, RecoverAlarm} {
			t.Run(cause.Error()[:16]+" "+string(recovery), func(t *testing.T) {
				t.Parallel()
				ctx, prefix := bounded(t), redis.Prefix(t)
				var alarms alarmed
				m := newManager(t, redis, prefix, alarms.options)
				cfg.Key, cfg.Recovery, cfg.WatchdogPeriod, cfg.AlertThreshold = "k", recovery, quick, 1
				held := take(t, m, cfg)
				exists := func() bool {
					n, err := do(t, raw, "EXISTS", prefix+":held:k").AsInt64()
					return err == nil && n == 1
				}
				await(t, "the alarm", func() bool { return alarms.has(CheckHolder, false) })
				if recovery == RecoverAlarm {
					if held.Context().Err() != nil {
						t.Error(context.Cause(held.Context()))
					}
					if errors.Is(cause, ErrMaxHold) {
						if err := held.Unlock(ctx); err != nil {
							t.Error(err)
						}
					}
					await(t, "the end of the alarm", func() bool {
						held.Beat()
						return alarms.has(CheckHolder, true)
					})
					if n := testutil.ToFloat64(m.metrics.alarms); n != 0 {
						t.Errorf("%v alarms", n)
					}
					return
				}
				receive(t, held.Context().Done())
				if got := context.Cause(held.Context()); !errors.Is(got, cause) {
					t.Error(got)
				}
				if recovery == RecoverRelease {
					await(t, "the release", func() bool { return !exists() })
				} else if !exists() {
					t.Error("the holder has had no time to wind down")
				}
				if err := held.Unlock(ctx); !errors.Is(err, ErrLost) || !errors.Is(err, cause) {
					t.Error(err)
				}
				await(t, "the release", func() bool { return !exists() })
				await(t, "the end of the alarm", func() bool { return alarms.has(CheckHolder, true) })
				await(t, "the count", func() bool {
					return testutil.ToFloat64(m.metrics.recoveries.WithLabelValues(string(recovery), "ok")) == 1
				})
				if n := recoveriesOf(t, m); n != 1 {
					t.Errorf("%v recoveries, expected 1", n)
				}
			})
		}
	}
}

// TestBeatInTime: a beat keeps a holder from being stalled, and MaxHold is seen as a deadline.
func TestBeatInTime(t *testing.T) {
	t.Parallel()
	redis := redistest.Shared(t)
	m := newManager(t, redis, redis.Prefix(t))
	held, err := get(t, m, Config{Key: "k", BeatTimeout: time.Hour, WatchdogPeriod: quick, MaxHold: time.Hour}).Lock(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	if end, ok := held.Context().Deadline(); !ok || time.Until(end) > time.Hour || time.Until(end) < 30*time.Minute {
		t.Error(end, ok)
	}
	held.a.lastBeat.Store(int64(uptime() - 30*time.Minute))
	held.Beat()
	if silent := uptime() - time.Duration(held.a.lastBeat.Load()); silent > 10*time.Minute {
		t.Errorf("silent for %s after a beat", silent)
	}
	checked := m.metrics.checks.WithLabelValues(CheckHolder, "ok")
	await(t, "three checks", func() bool { return testutil.ToFloat64(checked) >= 3 })
	if err := held.Context().Err(); err != nil {
		t.Error(context.Cause(held.Context()))
	}
	if err := held.Unlock(bounded(t)); err != nil {
		t.Error(err)
	}
}

// TestCheckRenewal: renewals that are not confirmed, while all else works, raise the alarm. The hold
// ends when its lease is over, and not before, in every mode.
func TestCheckRenewal(t *testing.T) {
	t.Parallel()
	redis := redistest.Shared(t)
	for _, recovery := range []Recovery{RecoverCancel, RecoverRelease, RecoverAlarm} {
		t.Run(string(recovery), func(t *testing.T) {
			t.Parallel()
			var alarms alarmed
			m := newWrapped(t, redis, redis.Prefix(t), func(c rueidis.Client) rueidis.Client { return &noRenewals{c} }, alarms.options)
			held := take(t, m, Config{Key: "k", Lease: time.Hour, Renewal: 50 * time.Millisecond, WatchdogPeriod: quick, AlertThreshold: 2, Recovery: recovery})
			held.a.renewed.Store(int64(uptime() - 45*time.Minute)) // no renewal for half of the lease and more
			await(t, "the alarm", func() bool { return alarms.has(CheckRenewal, false) })
			if err := held.Context().Err(); err != nil {
				t.Errorf("the hold has ended by %v, expected that it lives until its end", context.Cause(held.Context()))
			}
			held.a.until.Store(int64(uptime()))
			receive(t, held.Context().Done())
			if cause := context.Cause(held.Context()); !errors.Is(cause, ErrExpired) || !held.a.over() {
				t.Errorf("ended by %v, past its end: %v, expected %v past its end", cause, held.a.over(), ErrExpired)
			}
			await(t, "the end of the alarm", func() bool { return alarms.has(CheckRenewal, true) })
			if n := alarms.count(); n != 2 {
				t.Errorf("%d alarms, expected its begin and its end", n)
			}
			if n := recoveriesOf(t, m); n != 0 {
				t.Errorf("%v recoveries, expected none", n)
			}
		})
	}
}

// recoveriesOf counts recoveries of all kinds.
func recoveriesOf(t *testing.T, m *Manager) (n float64) {
	t.Helper()
	for _, action := range []string{string(RecoverCancel), string(RecoverRelease), restart} {
		for _, outcome := range []string{"ok", "failed"} {
			n += testutil.ToFloat64(m.metrics.recoveries.WithLabelValues(action, outcome))
		}
	}
	return n
}

// noRenewals is a client whose renewals do not arrive; looks do.
type noRenewals struct{ rueidis.Client }

func (c *noRenewals) Do(ctx context.Context, cmd rueidis.Completed) rueidis.RedisResult {
	if w := cmd.Commands(); strings.HasPrefix(w[0], "EVAL") && len(w) == 8 && w[2] == "1" && w[6] != "0" {
		return rueidis.NewErrorResult(context.DeadlineExceeded)
	}
	return c.Client.Do(ctx, cmd)
}

// TestCheckConnection: Redis that does not answer raises the alarm and ends no hold, in any mode.
// What a state check did not learn is not counted as well.
func TestCheckConnection(t *testing.T) {
	t.Parallel()
	for _, recovery := range []Recovery{RecoverCancel, RecoverRelease, RecoverAlarm} {
		t.Run(string(recovery), func(t *testing.T) {
			t.Parallel()
			redis := redistest.New(t)
			var alarms alarmed
			m := newManager(t, redis.Target, redis.Prefix(t), alarms.options, hurried)
			held := take(t, m, Config{Key: "k", Lease: time.Hour, Renewal: time.Minute, WatchdogPeriod: quick, AlertThreshold: 2, Recovery: recovery})
			state := func(outcome string) float64 {
				return testutil.ToFloat64(m.metrics.checks.WithLabelValues(CheckState, outcome))
			}
			redis.Pause()
			await(t, "a check without an answer", func() bool { return state("unanswered") > 0 })
			ok := state("ok")
			await(t, "the alarm", func() bool { return alarms.has(CheckConnection, false) })
			alarms.mu.Lock()
			if err := alarms.all[0].Err; !errors.Is(err, ErrDisconnected) {
				t.Errorf("the alarm says %v, expected %v", err, ErrDisconnected)
			}
			alarms.mu.Unlock()
			if now := state("ok"); now != ok {
				t.Errorf("%v checks of the state are ok, expected %v as before: none has reached Redis", now, ok)
			}
			redis.Resume()
			await(t, "the end of the alarm", func() bool { return alarms.has(CheckConnection, true) })
			if err := held.Context().Err(); err != nil {
				t.Errorf("the hold has ended by %v, expected that it lives", context.Cause(held.Context()))
			}
			if n := alarms.count(); n != 2 {
				t.Errorf("%d alarms, expected its begin and its end", n)
			}
			if n := recoveriesOf(t, m); n != 0 {
				t.Errorf("%v recoveries, expected none", n)
			}
			unlock(bounded(t), t, held)
		})
	}
}

// TestNoSubscription: where Redis lets nobody subscribe, waiters get their locks by their beats,
// and holders see an alarm and lose nothing.
func TestNoSubscription(t *testing.T) {
	t.Parallel()
	redis := redistest.New(t, redistest.Args("--rename-command", "SUBSCRIBE", ""))
	ctx, prefix := bounded(t), redis.Prefix(t)
	var alarms alarmed
	x, y := newManager(t, redis.Target, prefix, alarms.options), newManager(t, redis.Target, prefix)
	cfg := Config{Key: "k", WatchdogPeriod: quick, AlertThreshold: 1}
	held := take(t, x, cfg)
	own, cancel := context.WithCancel(ctx)
	defer cancel()
	cfg.Fair = true
	second, third := waits(own, t, x, cfg), waits(ctx, t, y, cfg)
	await(t, "the alarm", func() bool { return alarms.has(CheckConnection, false) })
	if err := held.Context().Err(); err != nil {
		t.Error(context.Cause(held.Context()))
	}
	for range 2 { // whose beat comes first
		if err := held.Unlock(ctx); err != nil {
			t.Error(err)
		}
		select {
		case held = <-second:
			second = nil
		case held = <-third:
			third = nil
		}
	}
	await(t, "the end of the alarm", func() bool { return alarms.has(CheckConnection, true) })
	if err := held.Unlock(ctx); err != nil {
		t.Error(err)
	}
}

// TestRecoveryFails: a release that Redis does not answer counts as failed once the lease is over,
// or the manager has stopped, and not before.
func TestRecoveryFails(t *testing.T) {
	t.Parallel()
	redis := redistest.Shared(t)
	for name, lease := range map[string]time.Duration{"lease over": MinLease, "stopped": time.Hour} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			lost := &unanswered{script: "release", on: make(chan struct{})}
			m := newWrapped(t, redis, redis.Prefix(t), lost.around)
			count := func(outcome string) float64 {
				return testutil.ToFloat64(m.metrics.recoveries.WithLabelValues(string(RecoverRelease), outcome))
			}
			held := take(t, m, Config{
				Key: "k", Lease: lease, Renewal: lease / 5, WatchdogPeriod: quick, BeatTimeout: 50 * time.Millisecond, Recovery: RecoverRelease,
			})
			receive(t, held.Context().Done())
			if cause := context.Cause(held.Context()); !errors.Is(cause, ErrStalled) {
				t.Fatal(cause)
			}
			if lease > time.Minute {
				await(t, "the release", func() bool { return held.a.group.owes() })
				if n := count("failed"); n != 0 {
					t.Errorf("%v failed, expected none while it is tried", n)
				}
				if err := m.Stop(bounded(t)); err != nil {
					t.Error(err)
				}
			}
			await(t, "the count", func() bool { return count("failed") == 1 })
			if n := recoveriesOf(t, m); n != 1 {
				t.Errorf("%v recoveries, expected 1", n)
			}
		})
	}
}

// TestStalledLoop: another loop takes over from one that stands still, which ends when it can. One
// that stands still, too, is a recovery that failed.
func TestStalledLoop(t *testing.T) {
	t.Parallel()
	redis := redistest.Shared(t)
	m := newManager(t, redis, redis.Prefix(t))
	count := func(outcome string) float64 {
		return testutil.ToFloat64(m.metrics.recoveries.WithLabelValues(restart, outcome))
	}
	m.renewals.mu.Lock() // where the loop looks
	await(t, "a third loop", func() bool { return m.renewals.loop.Load() == 2 })
	m.renewals.mu.Unlock()
	held := take(t, m, Config{Key: "k", Lease: time.Hour, Renewal: 50 * time.Millisecond})
	before := held.a.renewed.Load()
	await(t, "a renewal", func() bool { return held.a.renewed.Load() > before })
	await(t, "the count", func() bool { return count("ok") == 1 })
	if n := count("failed"); n != 1 || m.renewals.loop.Load() != 2 {
		t.Errorf("%v failed restarts and loop %d, expected one and 2", n, m.renewals.loop.Load())
	}
	unlock(bounded(t), t, held)
}

// TestSlowGroup: locks whose master does not answer hold up neither the checks nor the renewals of
// others.
func TestSlowGroup(t *testing.T) {
	t.Parallel()
	redis := redistest.Cluster(t)
	ctx, prefix := bounded(t), redis.Prefix(t)
	slow := &slowTag{}
	m := newWrapped(t, redis, prefix, slow.around)
	cfg := Config{Key: "slow", WatchdogPeriod: quick, Renewal: 50 * time.Millisecond}
	stuck := take(t, m, cfg)
	cfg.Key = "fast"
	for script.CellOf(cfg.Key, tags) == script.CellOf("slow", tags) {
		cfg.Key += "x"
	}
	held := take(t, m, cfg)
	g, err := m.groupOf("slow")
	if err != nil {
		t.Fatal(err)
	}
	slow.hang(t, g.keys.layout.TagPart())
	await(t, "a check that hangs", g.checking.Load)
	do(t, redis.Client(t), "DEL", held.a.group.keys.held(cfg.Key))
	receive(t, held.Context().Done())
	if err := held.Unlock(ctx); !errors.Is(err, ErrGone) {
		t.Error(err)
	}
	if stuck.Context().Err() != nil {
		t.Error(context.Cause(stuck.Context()))
	}
}
