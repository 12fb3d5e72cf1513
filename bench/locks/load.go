package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/HdrHistogram/hdrhistogram-go"

	"github.com/freeslot/freeslot/bench/measure"
	"github.com/freeslot/freeslot/bench/result"
	"github.com/freeslot/freeslot/bench/system"
	"github.com/freeslot/freeslot/bench/tool"
)

// shape is a load of many processes.
type shape struct{ processes, workers, keys int }

// entrant is a setting whose rounds are collected.
type entrant struct {
	setting
	children              []*measure.Child
	rate, mean, p99, p999 []float64 // of the rounds; times in us
	redis, process        []float64 // processor time of a lock and unlock, in us
	stuck                 int64     // workers, in all rounds
}

func (e *entrant) round(ctx context.Context, redis *system.Redis, s shape, l length) error {
	before, usedBefore, err := usage(ctx, redis, e.children...)
	if err != nil {
		return err
	}
	answers, err := askAll(ctx, e.children, request{Do: "load", Keys: s.keys, Workers: s.workers, Window: l.window})
	if err != nil {
		return err
	}
	after, used, err := usage(ctx, redis, e.children...)
	if err != nil {
		return err
	}
	locked, pairs, waits := int64(0), int64(0), measure.NewHistogram()
	for _, a := range answers {
		locked += a.Locked
		pairs += a.All
		e.stuck += a.Stuck
		waits.Merge(hdrhistogram.Import(a.Waits))
	}
	all := measure.Summary(waits)
	e.rate = append(e.rate, float64(locked)/l.window.Seconds())
	e.redis = append(e.redis, 1e6*(after.CPUSeconds-before.CPUSeconds)/float64(pairs))
	e.process = append(e.process, 1e6*(used-usedBefore)/float64(pairs))
	e.mean = append(e.mean, all.Mean)
	e.p99, e.p999 = append(e.p99, float64(all.P99)), append(e.p999, float64(all.P999))
	return nil
}

// sweep finds the setting with which a library locks most often. The table gets all of them.
func sweep(ctx context.Context, redis *system.Redis, settings []setting, s shape, l length, t *result.Table) (setting, error) {
	var first setting
	most := -1.0
	for _, tried := range settings {
		e := &entrant{setting: tried}
		var err error
		if e.children, err = startChildren(ctx, s.processes, spec{Addr: redis.Addr(), Setting: tried}); err != nil {
			return first, err
		}
		if err := errors.Join(e.round(ctx, redis, s, l), end(e.children)); err != nil {
			return first, err
		}
		t.Rows = append(t.Rows, result.Row{Name: tried.String(), Figures: result.Figures(measure.FourFigures(e.rate[0]), e.p99[0], float64(e.stuck))})
		if e.rate[0] > most {
			first, most = tried, e.rate[0]
		}
	}
	return first, nil
}

// compare sweeps the peers and runs the rounds. The table has a row for each entrant; ours come
// first, in their order.
func compare(ctx context.Context, b *tool.Bench, redis *system.Redis, s shape, l length, own ...setting) (entrants []*entrant, err error) {
	tried := result.Table{Title: "The sweep, a window each", First: "Setting", Columns: []result.Column{
		{Name: "lock and unlock", Unit: result.PerSecond},
		{Name: "p99 of waiting", Unit: result.Microseconds},
		{Name: "waiters never woken"},
	}}
	for _, library := range []string{rueidisLock, redisLock, redSync} {
		settings := swept(library)
		first, err := sweep(ctx, redis, tool.Sized(b, settings, settings[:1]), s, l, &tried)
		if err != nil {
			return nil, err
		}
		own = append(own, first)
	}
	for _, o := range own {
		e := &entrant{setting: o}
		if e.children, err = startChildren(ctx, s.processes, spec{Addr: redis.Addr(), Setting: o}); err != nil {
			return nil, err
		}
		defer func() { err = errors.Join(err, end(e.children)) }()
		entrants = append(entrants, e)
	}
	for round := range l.rounds {
		for i := range entrants {
			if err := entrants[(i+round)%len(entrants)].round(ctx, redis, s, l); err != nil {
				return nil, err
			}
		}
		b.Progress("round %d of %d", round+1, l.rounds)
	}
	t := result.Table{Title: "Medians of the rounds", First: "Library", Columns: []result.Column{
		{Name: "lock and unlock", Unit: result.PerSecond},
		{Name: "least and most", Unit: result.PerSecond},
		{Name: "waiting: mean", Unit: result.Microseconds},
		{Name: "p99", Unit: result.Microseconds},
		{Name: "p99.9", Unit: result.Microseconds},
		{Name: "Redis' CPU a lock", Unit: result.Microseconds},
		{Name: "the processes'", Unit: result.Microseconds},
		{Name: "waiters never woken"},
	}}
	for _, e := range entrants {
		f := result.Figures(measure.Median(e.rate), 0, measure.Median(e.mean), measure.Median(e.p99), measure.Median(e.p999), measure.Median(e.redis), measure.Median(e.process), float64(e.stuck))
		f[1] = result.Figure{measure.Quantile(e.rate, 0), measure.Quantile(e.rate, 1)}
		t.Rows = append(t.Rows, result.Row{Name: e.String(), Figures: f})
		if e.Library == ours {
			b.Failed += e.stuck
		}
	}
	b.Result.Tables = append(b.Result.Tables, t, tried)
	return entrants, nil
}

// bestOf is the peer with the highest (or lowest) median of a figure.
func bestOf(peers []*entrant, figure func(*entrant) []float64, lowest bool) (value float64, library string) {
	for _, e := range peers {
		if m := measure.Median(figure(e)); library == "" || m > value != lowest {
			value, library = m, e.Library
		}
	}
	return value, library
}

func rates(e *entrant) []float64 { return e.rate }

func note(b *tool.Bench, format string, args ...any) {
	b.Result.Targets[len(b.Result.Targets)-1].Note = fmt.Sprintf(format, args...)
}

func runKeys(ctx context.Context, b *tool.Bench, redis *system.Redis, l length) error {
	s := shape{processes: 1, workers: 64, keys: 64}
	b.Say("One process with 64 workers, each with a key of its own, which lock and unlock for %s; medians of %d rounds, in which the libraries take turns. %s.", l.window, l.rounds, versions())
	entrants, err := compare(ctx, b, redis, s, l, setting{Library: ours})
	if err != nil {
		return err
	}
	peer, name := bestOf(entrants[1:], rates, false)
	have := measure.Median(entrants[0].rate)
	b.Target("64 keys, 64 workers: lock and unlock, against the best peer", result.Times, result.AtLeast, 1.5, have/peer)
	note(b, "%s/s, %s %s/s", measure.Thousands(have), name, measure.Thousands(peer))
	return nil
}

func runOne(ctx context.Context, b *tool.Bench, redis *system.Redis, l length) error {
	s := shape{processes: 4, workers: 4, keys: 1}
	b.Say("Four processes of four workers, which lock and unlock the same key for %s; medians of %d rounds, in which the libraries take turns. %s.", l.window, l.rounds, versions())
	b.Say("Out of order: in a further window of the fair lock Redis' MONITOR shows each ticket and each grant. A grant counts that passes a ticket that was queued before.")
	entrants, err := compare(ctx, b, redis, s, l, setting{Library: ours}, setting{Library: ours, Fair: true})
	if err != nil {
		return err
	}
	unfair, fair, peers := entrants[0], entrants[1], entrants[2:]
	peer, name := bestOf(peers, rates, false)
	have := measure.Median(unfair.rate)
	b.Target("one key, unfair: lock and unlock, against the best peer", result.Times, result.AtLeast, 1.2, have/peer)
	note(b, "%s/s, %s %s/s", measure.Thousands(have), name, measure.Thousands(peer))
	least, name := bestOf(peers, func(e *entrant) []float64 { return e.p99 }, true)
	b.Target("one key, unfair: p99 of waiting, against the least of all peers", result.Times, result.AtMost, 1, measure.Median(unfair.p99)/least)
	note(b, "%s, %s %s", measure.Micros(int64(measure.Median(unfair.p99))), name, measure.Micros(int64(least)))
	b.Target("one key, unfair: p99.9 of waiting", result.Milliseconds, result.AtMost, 20, measure.Median(unfair.p999)/1000)
	have = measure.Median(fair.rate)
	b.Target("one key, fair: p99 of waiting / mean", result.Times, result.AtMost, 2, measure.Median(fair.p99)/measure.Median(fair.mean))
	b.Target("one key, fair: lock and unlock, against the best peer", result.Times, result.AtLeast, 0.5, have/peer)
	note(b, "%s/s", measure.Thousands(have))
	grants, passed, err := outOfOrder(ctx, redis, s, l)
	if err != nil {
		return err
	}
	b.Target("one key, fair: grants out of order", result.Number, result.Exactly, 0, float64(passed))
	note(b, "of %s", measure.Thousands(float64(grants)))
	return nil
}
