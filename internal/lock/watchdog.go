package lock

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"go.uber.org/zap"
)

// Names of the watchdog's checks (seed section 16.2).
const (
	CheckRenewal    = "renewal"    // the loop of renewals turns, and the lock's renewals are confirmed
	CheckState      = "state"      // Redis has the lock as this process does
	CheckHolder     = "holder"     // the holder beats, and has not held the lock for too long
	CheckConnection = "connection" // commands are answered, and grants are heard of
)

// Alarm is a lock whose checks fail. It is raised after Config.AlertThreshold failed checks in a row, and once more, with Over,
// when all of them succeed again or the hold has ended.
type Alarm struct {
	Key, Check string
	Token      int64
	// Err is what the check found; nil when the alarm is over.
	Err  error
	Over bool
}

// watchTick is how often the watchdog looks whose check is due.
const watchTick = 50 * time.Millisecond

// watch runs the checks of each lock every Config.WatchdogPeriod until ctx ends.
func (m *Manager) watch(ctx context.Context) {
	ticker := time.NewTicker(watchTick)
	defer ticker.Stop()
	next := make(map[*acquisition]time.Duration)
	alarmed := make(map[*acquisition]string)
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		now := uptime()
		byGroup := make(map[*group][]*acquisition)
		current := make(map[*acquisition]bool)
		for _, a := range m.held() {
			current[a] = true
			if _, ok := next[a]; !ok {
				next[a] = now + a.cfg.WatchdogPeriod
			}
			if now >= next[a] {
				next[a] = now + a.cfg.WatchdogPeriod
				byGroup[a.group] = append(byGroup[a.group], a)
			}
		}
		for a := range next {
			if !current[a] {
				delete(next, a)
				m.alarm(alarmed, a, "", nil)
			}
		}
		if len(byGroup) > 0 {
			m.restartRenewals(now)
		}
		for g, all := range byGroup {
			for items := range slices.Chunk(all, callItems) {
				m.checkItems(ctx, g, items, alarmed)
			}
		}
	}
}

// checkItems makes the five checks for holds of one group: renewal, state, holder, connection; recovery follows.
func (m *Manager) checkItems(ctx context.Context, g *group, items []*acquisition, alarmed map[*acquisition]string) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	answers, err := g.renew(ctx, items, true)
	if ctx.Err() != nil && errors.Is(err, context.Canceled) {
		return
	}
	m.metrics.connected.WithLabelValues("commands").Set(one(err == nil))
	heard := len(g.waiting()) == 0 || g.subscribed()
	m.metrics.connected.WithLabelValues("wakes").Set(one(heard))
	for i, a := range items {
		failed := make(map[string]error)
		if err != nil {
			failed[CheckConnection] = err
		} else if !heard {
			failed[CheckConnection] = errors.New("the subscription to wake-ups does not stand")
		}
		if err == nil {
			if loss := m.checkState(a, answers[i]); loss != nil {
				failed[CheckState] = loss
				m.lose(a, loss)
			}
		}
		now := uptime()
		if late := now - time.Duration(a.renewed.Load()); late > a.cfg.Lease/2+a.cfg.Renewal {
			failed[CheckRenewal] = fmt.Errorf("the last confirmed renewal was sent %s ago", late.Round(time.Millisecond))
		}
		if silent := now - time.Duration(a.lastBeat.Load()); a.cfg.BeatTimeout > 0 && silent > a.cfg.BeatTimeout {
			failed[CheckHolder] = fmt.Errorf("%w: silent for %s", ErrStalled, silent.Round(time.Millisecond))
		} else if age := now - a.since; a.cfg.MaxHold > 0 && age > a.cfg.MaxHold {
			failed[CheckHolder] = fmt.Errorf("%w of %s", ErrMaxHold, a.cfg.MaxHold)
		}
		for _, check := range []string{CheckRenewal, CheckState, CheckHolder, CheckConnection} {
			m.metrics.checked(check, failed[check] == nil)
		}
		m.recover(a, failed)
		m.tally(a, failed, alarmed)
	}
}

// checkState is check 2. A lease that is shorter in Redis than here moves the end, and is renewed at once.
func (m *Manager) checkState(a *acquisition, got renewed) error {
	if got.code != codeDone {
		return got.loss()
	}
	if until := got.sent + got.left - a.cfg.Margin; until < time.Duration(a.until.Load()) && got.left < a.cfg.Lease-2*a.cfg.Renewal {
		a.until.Store(int64(until))
		m.renewals.add(a, uptime())
	}
	return nil
}

// recover is check 5: what Config.Recovery says about failed checks 1, 3 and 4. A lost state has ended the hold already.
func (m *Manager) recover(a *acquisition, failed map[string]error) {
	if failed[CheckConnection] != nil {
		a.group.hurry()
	}
	var cause error
	switch {
	case failed[CheckHolder] != nil:
		cause = failed[CheckHolder]
	case failed[CheckRenewal] != nil && int(a.failures.Load())+1 >= a.cfg.AlertThreshold:
		cause = fmt.Errorf("%w: %w", ErrExpired, failed[CheckRenewal])
	case failed[CheckConnection] != nil && int(a.failures.Load())+1 >= a.cfg.AlertThreshold:
		cause = fmt.Errorf("%w: %w", ErrDisconnected, failed[CheckConnection])
	}
	if cause == nil || a.cfg.Recovery == RecoverAlarm || !a.live() {
		return
	}
	m.lose(a, cause)
	if a.cfg.Recovery == RecoverRelease {
		m.giveBackLost(a)
	}
	m.metrics.recovered(string(a.cfg.Recovery), !a.live())
}

// restartRenewals is the recovery of a loop of renewals that stands still.
func (m *Manager) restartRenewals(now time.Duration) {
	silent := now - time.Duration(m.renewals.turned.Load())
	if silent < 10*clockPeriod {
		return
	}
	m.log.Error("lock.renewals_stalled", zap.Duration("for", silent))
	m.renewals.turned.Store(int64(now))
	m.background(func() { m.renewLoop(m.ctx) })
	m.metrics.recovered("restart_renewals", true)
}

// tally raises and ends the alarm of a lock.
func (m *Manager) tally(a *acquisition, failed map[string]error, alarmed map[*acquisition]string) {
	if len(failed) == 0 {
		a.failures.Store(0)
		m.alarm(alarmed, a, "", nil)
		return
	}
	if int(a.failures.Add(1)) >= a.cfg.AlertThreshold {
		var checks []string
		var errs []error
		for check, err := range failed {
			checks, errs = append(checks, check), append(errs, err)
		}
		slices.Sort(checks)
		m.alarm(alarmed, a, strings.Join(checks, ","), errors.Join(errs...))
	}
}

// alarm raises an alarm once, and ends it once: with an empty check.
func (m *Manager) alarm(alarmed map[*acquisition]string, a *acquisition, check string, err error) {
	before, raised := alarmed[a]
	switch {
	case check == "" && raised:
		delete(alarmed, a)
		m.metrics.alarms.Dec()
		m.tell(Alarm{Key: a.cfg.Key, Check: before, Token: a.token, Over: true})
	case check != "" && !raised:
		alarmed[a] = check
		m.metrics.alarms.Inc()
		m.tell(Alarm{Key: a.cfg.Key, Check: check, Token: a.token, Err: err})
	}
}

func (m *Manager) tell(alarm Alarm) {
	m.log.Warn("lock.alarm", zap.String("lock", alarm.Key), zap.String("check", alarm.Check), zap.Bool("over", alarm.Over), zap.Error(alarm.Err))
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
