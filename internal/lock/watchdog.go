package lock

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"go.uber.org/zap"
)

// Names of the watchdog's checks.
const (
	CheckRenewal    = "renewal"    // the loop of renewals turns, and the lock's renewals are confirmed
	CheckState      = "state"      // Redis agrees with this process about the lock
	CheckHolder     = "holder"     // the holder beats, and has not held the lock for too long
	CheckConnection = "connection" // commands are answered, and grants are heard of
)

// Alarm reports a lock whose checks fail. It is raised after Config.AlertThreshold failed checks in
// a row, and once more, with Over, when all of them succeed again or the hold has ended.
type Alarm struct {
	Key, Check string
	Token      int64
	// Err is what the check found; nil when the alarm is over.
	Err  error
	Over bool
}

const (
	// watchTick is how often the watchdog looks for checks that are due.
	watchTick = 100 * time.Millisecond
	// stalledTicks is the number of ticks after which a loop of renewals that does not move is
	// restarted. Ticks are counted, because the clock would also count time in which the process
	// was stopped.
	stalledTicks = 25
	// probePeriod is how often the connections are checked, even without a hold.
	probePeriod = DefaultWatchdogPeriod
)

// alarms holds the alarms that were raised and have not ended.
type alarms struct {
	mu     sync.Mutex
	raised map[*acquisition]string // guarded by mu; the checks that failed
}

// watch runs the checks of each lock every Config.WatchdogPeriod until ctx ends.
func (m *Manager) watch(ctx context.Context) {
	ticker := time.NewTicker(watchTick)
	defer ticker.Stop()
	var checks sync.WaitGroup
	defer checks.Wait()
	turns, still, restarted := int64(0), 0, false
	probeAt := uptime()
	notes := noter{m: m}
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		if now := m.renewals.turns.Load(); now != turns {
			if restarted {
				m.recovered(restart, true)
			}
			turns, still, restarted = now, 0, false
		} else if still++; still == stalledTicks {
			if restarted {
				m.recovered(restart, false)
			}
			m.restartRenewals()
			still, restarted = 0, true
		}
		due := make(map[*group][]*acquisition)
		now := uptime()
		if now >= probeAt {
			probeAt = now + probePeriod
			for _, g := range m.groups {
				if g.used.Load() || len(m.groups) == 1 {
					g.probes(ctx, &checks)
				}
			}
		}
		m.held(func(a *acquisition) bool {
			// A slow group does not hold up the others.
			if now >= a.checkAt && !a.group.checking.Load() {
				a.checkAt = now + a.cfg.WatchdogPeriod
				due[a.group] = append(due[a.group], a)
			}
			return false
		})
		for g, all := range due {
			g.checking.Store(true)
			checks.Go(func() {
				defer g.checking.Store(false)
				for items := range slices.Chunk(all, callItems) {
					m.checkItems(ctx, g, items)
				}
			})
		}
		notes.look(ctx, &checks)
		m.endAlarms()
	}
}

// probes checks the group's connections in the background, unless the last check is still under
// way.
func (g *group) probes(ctx context.Context, running *sync.WaitGroup) {
	if g.probing.Swap(true) {
		return
	}
	running.Go(func() {
		defer g.probing.Store(false)
		g.probe(ctx)
	})
}

// probe asks Redis whether it answers, and whether this process is subscribed to the group's
// grants. The subscriber ignores the empty message. A group that was not used yet has no
// subscription.
func (g *group) probe(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, g.m.opts.callTimeout)
	defer cancel()
	b, channel := g.m.client.B(), g.keys.wake(g.process)
	cmd := b.Publish().Channel(channel).Message("").Build()
	if g.keys.layout.Sharded {
		cmd = b.Spublish().Channel(channel).Message("").Build()
	}
	receivers, err := g.m.client.Do(ctx, cmd).AsInt64()
	if g.m.ctx.Err() != nil {
		return
	}
	g.connected("commands", err == nil)
	if g.used.Load() {
		g.connected("wakes", err == nil && receivers > 0)
	}
}

// connected sets the gauge of one connection.
func (g *group) connected(connection string, ok bool) {
	g.m.metrics.connected.WithLabelValues(connection, g.keys.layout.Tag).Set(one(ok))
}

// checkItems runs the checks for holds of one group: renewal, state, holder, connection. Recovery
// follows.
func (m *Manager) checkItems(ctx context.Context, g *group, items []*acquisition) {
	ctx, cancel := context.WithTimeout(ctx, m.opts.callTimeout)
	defer cancel()
	expected := make([]int64, len(items))
	for i, a := range items {
		expected[i] = a.until.Load()
	}
	answers, err := g.renew(ctx, items, true)
	if m.ctx.Err() != nil {
		return
	}
	g.connected("commands", err == nil)
	heard := len(g.waiting()) == 0 || g.subscribed()
	for i, a := range items {
		failed := make(map[string]error)
		switch {
		case err != nil:
			failed[CheckConnection] = fmt.Errorf("%w: %w", ErrDisconnected, err)
		case !heard:
			failed[CheckConnection] = errNotSubscribed
		}
		if err == nil {
			if loss := m.checkState(a, answers[i], expected[i]); loss != nil {
				failed[CheckState] = loss
				m.lose(a, loss)
			}
		}
		now := uptime()
		// A hold that ended with its caller's context is no longer renewed.
		if late := now - time.Duration(a.renewed.Load()); a.ctx.Err() == nil && late > a.cfg.Lease/2+a.cfg.Renewal {
			failed[CheckRenewal] = fmt.Errorf(
				"renewals are not confirmed: the last confirmed one was sent %s ago", late.Round(time.Millisecond),
			)
		}
		if silent := now - time.Duration(a.lastBeat.Load()); a.cfg.BeatTimeout > 0 && silent > a.cfg.BeatTimeout {
			failed[CheckHolder] = fmt.Errorf("%w: silent for %s", ErrStalled, silent.Round(time.Millisecond))
		} else if age := now - a.since; a.cfg.MaxHold > 0 && age > a.cfg.MaxHold {
			failed[CheckHolder] = fmt.Errorf("%w of %s", ErrMaxHold, a.cfg.MaxHold)
		}
		for _, check := range []string{CheckRenewal, CheckState, CheckHolder, CheckConnection} {
			switch {
			case check == CheckState && err != nil:
				m.metrics.checked(check, "unanswered")
			default:
				m.metrics.checked(check, outcome(failed[check] == nil))
			}
		}
		m.tally(a, failed)
		m.recover(a, failed[CheckHolder])
	}
}

var errNotSubscribed = errors.New("the subscription to wake-ups does not stand")

// checkState compares Redis' state with ours. If the lease is surely shorter in Redis, the end
// moves and the hold is renewed at once. expected is the end before the call.
func (m *Manager) checkState(a *acquisition, got renewed, expected int64) error {
	if got.code != codeDone {
		return a.loss(got)
	}
	if latest := got.answered + got.left - a.cfg.Margin; got.left >= 0 && int64(latest) < expected {
		// If a renewal was confirmed meanwhile, it has moved the end, and the new end stays.
		a.until.CompareAndSwap(expected, int64(got.sent+got.left-a.cfg.Margin))
		m.renewLater(a, 0)
	}
	return nil
}

// recover applies Config.Recovery to a holder that is stalled, or has held the lock for too long. A
// lost state has ended the hold already. Failed renewals and connections end no hold: the lock is
// the holder's until its end, and they are tried again meanwhile.
func (m *Manager) recover(a *acquisition, cause error) {
	if cause == nil || a.cfg.Recovery == RecoverAlarm || !m.lose(a, cause) {
		return
	}
	if a.cfg.Recovery == RecoverRelease {
		a.group.owe(releaseItem{a: a, reason: "lost", keep: a.keep(), recovers: true})
		return
	}
	m.recovered(string(a.cfg.Recovery), true)
}

// restart names the recovery of a stalled loop of renewals, in metrics and logs.
const restart = "restart_renewals"

func (m *Manager) restartRenewals() {
	number := m.renewals.loop.Add(1)
	m.log.Error("lock.renewals_stalled", zap.Int64("restart", number))
	m.background(func() { m.renewLoop(m.ctx, number) })
}

// recovered counts the outcome of a recovery.
func (m *Manager) recovered(action string, ok bool) {
	m.metrics.recoveries.WithLabelValues(action, outcome(ok)).Inc()
	if !ok {
		m.log.Warn("lock.recovery_failed", zap.String("action", action))
	}
}

// tally counts failed checks in a row, and raises and ends the alarm of a lock.
func (m *Manager) tally(a *acquisition, failed map[string]error) {
	if len(failed) == 0 {
		a.failures = 0
		m.endAlarm(a)
		return
	}
	if a.failures++; a.failures < a.cfg.AlertThreshold {
		return
	}
	checks := slices.Sorted(maps.Keys(failed))
	m.alarms.mu.Lock()
	_, raised := m.alarms.raised[a]
	if !raised {
		m.alarms.raised[a] = strings.Join(checks, ",")
	}
	m.alarms.mu.Unlock()
	if !raised {
		m.metrics.alarms.Inc()
		m.tell(Alarm{
			Key: a.cfg.Key, Check: strings.Join(checks, ","), Token: a.token,
			Err: errors.Join(slices.Collect(maps.Values(failed))...),
		})
	}
}

// endAlarm reports that the alarm of a lock is over, if one was raised.
func (m *Manager) endAlarm(a *acquisition) {
	m.alarms.mu.Lock()
	checks, raised := m.alarms.raised[a]
	delete(m.alarms.raised, a)
	m.alarms.mu.Unlock()
	if raised {
		m.metrics.alarms.Dec()
		m.tell(Alarm{Key: a.cfg.Key, Check: checks, Token: a.token, Over: true})
	}
}

// endAlarms ends the alarms of holds that have ended.
func (m *Manager) endAlarms() {
	var over []*acquisition
	m.alarms.mu.Lock()
	for a := range m.alarms.raised {
		if !a.live() {
			over = append(over, a)
		}
	}
	m.alarms.mu.Unlock()
	for _, a := range over {
		m.endAlarm(a)
	}
}

func (m *Manager) tell(alarm Alarm) {
	m.log.Warn(
		"lock.alarm", zap.String("lock", alarm.Key), zap.String("check", alarm.Check), zap.Bool("over", alarm.Over),
		zap.Error(alarm.Err),
	)
	if m.opts.OnAlarm != nil {
		m.opts.OnAlarm(alarm)
	}
}

func one(ok bool) float64 {
	if ok {
		return 1
	}
	return 0
}
