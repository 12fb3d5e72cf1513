package main

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/redis/rueidis"

	"github.com/freeslot/freeslot/bench/measure"
	"github.com/freeslot/freeslot/bench/result"
	"github.com/freeslot/freeslot/bench/system"
	"github.com/freeslot/freeslot/bench/tool"
	redisclient "github.com/freeslot/freeslot/internal/redis/client"
)

// queueTime is how long a waiter is given to stand in the queue.
const queueTime = 10 * time.Millisecond

// libraries take turns within a round; ours comes first.
var libraries = append([]setting{{Library: ours}}, best()...)

func us(d time.Duration) float64 { return float64(d.Nanoseconds()) / 1000 }

// medians collects p50 of each round.
type medians struct{ now, rounds []float64 }

func (m *medians) add(d time.Duration) { m.now = append(m.now, us(d)) }

func (m *medians) endRound() {
	m.rounds = append(m.rounds, measure.Median(m.now))
	m.now = nil
}

func (m *medians) p50() float64 { return measure.Median(m.rounds) }

func runAlone(ctx context.Context, b *tool.Bench, redis *system.Redis, l length) (err error) {
	b.Say("One goroutine runs a bare EVALSHA of `return 1`, by a client with the options of ours, the same by one that pipelines as ours does once it was used by two goroutines at once, and then lock and unlock of each library, for %s; p50 of each of %d rounds, and the median of these. %s.", l.window, l.rounds, versions())
	lockers, closeAll, err := openAll(ctx, redis.Addr(), libraries)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, closeAll()) }()
	client, err := redisclient.Commands(redisclient.Config{URL: redis.URL()})
	if err != nil {
		return err
	}
	defer client.Close()
	script := rueidis.NewLuaScript("return 1")
	mutexes := make([]mutex, len(lockers))
	for i, l := range lockers {
		if mutexes[i], err = l.mutex("alone:" + libraries[i].Library); err != nil {
			return err
		}
	}
	// A client of rueidis that several goroutines have used at once pipelines from then on, as ours
	// does.
	shared, err := redisclient.Commands(redisclient.Config{URL: redis.URL()})
	if err != nil {
		return err
	}
	defer shared.Close()
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for range 100 {
				_ = script.Exec(ctx, shared, []string{"bare"}, nil).Error() // the measured calls would fail, too
			}
		})
	}
	all.Wait()
	var bare, pipelined medians
	locks, unlocks := make([]medians, len(lockers)), make([]medians, len(lockers))
	for range l.rounds {
		round, cancel := context.WithTimeout(ctx, l.window+callLimit)
		defer cancel()
		for begin := time.Now(); time.Since(begin) < l.window; {
			call := time.Now()
			failed := script.Exec(round, client, []string{"bare"}, nil).Error()
			between := time.Now()
			if err := errors.Join(failed, script.Exec(round, shared, []string{"bare"}, nil).Error()); err != nil {
				return err
			}
			bare.add(between.Sub(call))
			pipelined.add(time.Since(between))
			for i, lock := range mutexes {
				call := time.Now()
				h, err := lock(round)
				if err != nil {
					return err
				}
				locked := time.Now()
				if err := h.unlock(); err != nil {
					return err
				}
				locks[i].add(locked.Sub(call))
				unlocks[i].add(time.Since(locked))
			}
		}
		bare.endRound()
		pipelined.endRound()
		for i := range locks {
			locks[i].endRound()
			unlocks[i].endRound()
		}
	}
	t := result.Table{First: "p50 of", Columns: []result.Column{{Name: "lock", Unit: result.Microseconds}, {Name: "unlock", Unit: result.Microseconds}}}
	for i, s := range libraries {
		t.Rows = append(t.Rows, result.Row{Name: s.String(), Figures: result.Figures(measure.FourFigures(locks[i].p50()), measure.FourFigures(unlocks[i].p50()))})
	}
	t.Rows = append(t.Rows,
		result.Row{Name: "a bare EVALSHA", Figures: result.Figures(measure.FourFigures(bare.p50()))},
		result.Row{Name: "a bare EVALSHA, pipelined", Figures: result.Figures(measure.FourFigures(pipelined.p50()))})
	b.Result.Tables = []result.Table{t}
	b.Target("one at a time: p50 of lock / a bare EVALSHA", result.Times, result.AtMost, 1.2, locks[0].p50()/bare.p50())
	note(b, "%.2fx one of a client that pipelines", locks[0].p50()/pipelined.p50())
	b.Target("one at a time: p50 of unlock / a bare EVALSHA", result.Times, result.AtMost, 1.2, unlocks[0].p50()/bare.p50())
	note(b, "%.2fx one of a client that pipelines", unlocks[0].p50()/pipelined.p50())
	return nil
}

func runNext(ctx context.Context, b *tool.Bench, redis *system.Redis, l length) (err error) {
	turns := max(int(l.window/(20*time.Millisecond)), 3)
	b.Say("This process holds the lock and another one has waited for it for %s to twice of that: from the call of unlock to the return of lock, beside the same from a PUBLISH to the message in a process that only subscribes. %d turns in each of %d rounds, p50 of each round, and the median of these. %s.", queueTime, turns, l.rounds, versions())
	lockers, closeAll, err := openAll(ctx, redis.Addr(), libraries)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, closeAll()) }()
	kinds := append(slices.Clone(libraries), setting{})
	waits := make([]medians, len(kinds))
	var children []*measure.Child
	defer func() { err = errors.Join(err, end(children)) }()
	for _, s := range kinds {
		more, err := startChildren(ctx, 1, spec{Addr: redis.Addr(), Setting: s})
		if err != nil {
			return err
		}
		children = append(children, more...)
	}
	publish := func() error {
		ctx, cancel := context.WithTimeout(ctx, measure.CallTimeout)
		defer cancel()
		return redis.Client.Do(ctx, redis.Client.B().Publish().Channel(bareChannel).Message("m").Build()).Error()
	}
	for range l.rounds {
		for range turns {
			for i, c := range children {
				leave := publish
				if i < len(lockers) {
					h, err := lockNow(ctx, lockers[i], keyName(0))
					if err != nil {
						return err
					}
					if _, err := ask(ctx, c, request{Do: "wait", Workers: 1}); err != nil {
						return err
					}
					leave = h.unlock
				}
				time.Sleep(queueTime + rand.N(queueTime)) // so that those who poll are met at any point
				begin := time.Now()
				if err := leave(); err != nil {
					return err
				}
				a, err := ask(ctx, c, request{Do: "got"})
				if err != nil {
					return err
				}
				waits[i].add(time.Unix(0, a.AtNS[0]).Sub(begin))
			}
		}
		for i := range waits {
			waits[i].endRound()
		}
	}
	t := result.Table{First: "From unlock to the next holder", Columns: []result.Column{{Name: "p50", Unit: result.Microseconds}, {Name: "least and most of the rounds", Unit: result.Microseconds}}}
	for i, s := range kinds {
		name, least, most := s.String(), measure.Quantile(waits[i].rounds, 0), measure.Quantile(waits[i].rounds, 1)
		if name == "" {
			name = "bare PUBLISH to message"
		}
		t.Rows = append(t.Rows, result.Row{Name: name, Figures: []result.Figure{{measure.FourFigures(waits[i].p50())}, {measure.FourFigures(least), measure.FourFigures(most)}}})
	}
	b.Result.Tables = []result.Table{t}
	b.Target("unlock to the next holder in another process: p50 / bare publish to receive", result.Times, result.AtMost, 1.5, waits[0].p50()/waits[len(lockers)].p50())
	return nil
}

// lockNow takes a lock that should soon be free. ctx bounds the hold, too.
func lockNow(ctx context.Context, l locker, key string) (hold, error) {
	m, err := l.mutex(key)
	if err != nil {
		return hold{}, err
	}
	return m(ctx)
}
