package main

import (
	"context"

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
	*tool.Children
	rate, mean, p99, p999 []float64 // of the rounds; times in us
	redis, process        []float64 // processor time of a lock and unlock, in us
	stuck                 int64     // workers, in all rounds
}

func newEntrant(ctx context.Context, redis *system.Redis, s shape, tried setting) *entrant {
	return &entrant{setting: tried, Children: startChildren(ctx, s.processes, spec{Addr: redis.Addr(), Setting: tried})}
}

func (e *entrant) round(ctx context.Context, redis *system.Redis, s shape, l tool.Length) {
	var pids []int
	for _, c := range *e.Children {
		pids = append(pids, c.PID())
	}
	m := tool.Must(system.NewMeter(ctx, redis, pids...))
	r := request{Do: "load", Keys: s.keys, Workers: s.workers, Window: l.Window}
	answers := tool.AskAll[answer](ctx, *e.Children, l.Window, r)
	used := tool.Must(m.Spent(ctx))
	locked, pairs, waits := int64(0), int64(0), measure.NewHistogram()
	for _, a := range answers {
		locked += a.Locked
		pairs += a.All
		e.stuck += a.Stuck
		waits.Merge(hdrhistogram.Import(a.Waits))
	}
	all := measure.Summary(waits)
	e.rate = append(e.rate, float64(locked)/l.Window.Seconds())
	e.redis = append(e.redis, 1e6*used.Redis/float64(pairs))
	e.process = append(e.process, 1e6*used.Processes/float64(pairs))
	e.mean = append(e.mean, all.Mean)
	e.p99, e.p999 = append(e.p99, float64(all.P99)), append(e.p999, float64(all.P999))
}

// sweep finds the setting with which a library locks most often. The table gets all of them.
func sweep(ctx context.Context, redis *system.Redis, settings []setting, s shape, l tool.Length, t *result.Table) setting {
	var first setting
	most := -1.0
	for _, tried := range settings {
		e := newEntrant(ctx, redis, s, tried)
		func() {
			defer tool.End(e.End)
			e.round(ctx, redis, s, l)
		}()
		t.Add(tried.String(), e.rate[0], int64(e.p99[0]), e.stuck)
		if e.rate[0] > most {
			first, most = tried, e.rate[0]
		}
	}
	return first
}

// compare sweeps the peers and runs the rounds. The table has a row for each entrant; ours come
// first, in their order.
func compare(ctx context.Context, b *tool.Bench, redis *system.Redis, s shape, l tool.Length, own ...setting) (entrants []*entrant) {
	tried := result.NewTable("Setting", "lock and unlock [/s]", "p99 of waiting [us]", "waiters never woken")
	tried.Title = "The sweep, a window each"
	for _, library := range []string{rueidisLock, redisLock, redSync} {
		settings := swept(library)
		own = append(own, sweep(ctx, redis, tool.Sized(b, settings, settings[:1]), s, l, &tried))
	}
	for _, o := range own {
		e := newEntrant(ctx, redis, s, o)
		defer tool.End(e.End)
		entrants = append(entrants, e)
	}
	tool.InTurns(b, l.Rounds, entrants, func(e *entrant, _ int) { e.round(ctx, redis, s, l) })
	t := result.NewTable("Library", "lock and unlock [/s]", "least and most [/s]", "waiting: mean [us]", "p99 [us]",
		"p99.9 [us]", "Redis' CPU a lock [us]", "the processes' [us]", "waiters never woken")
	t.Title = "Medians of the rounds"
	exact := func(f float64) float64 { return f }
	for _, e := range entrants {
		m := func(rounds []float64) result.Figure { return result.Figure{measure.Median(rounds)} }
		t.Add(e.String(), m(e.rate), extremes(e.rate, exact), m(e.mean), m(e.p99), m(e.p999), m(e.redis), m(e.process), e.stuck)
		if e.Library == ours {
			b.Failed += e.stuck
		}
	}
	b.Result.Tables = append(b.Result.Tables, t, tried)
	return entrants
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

func runKeys(ctx context.Context, b *tool.Bench, redis *system.Redis, l tool.Length) {
	b.Say("One process with 64 workers, each with a key of its own, which lock and unlock for %s; medians of %d rounds, "+
		"in which the libraries take turns. %s.", l.Window, l.Rounds, versions())
	entrants := compare(ctx, b, redis, shape{processes: 1, workers: 64, keys: 64}, l, setting{Library: ours})
	peer, name := bestOf(entrants[1:], rates, false)
	have := measure.Median(entrants[0].rate)
	b.Target("64 keys, 64 workers: lock and unlock, against the best peer", result.Times, result.AtLeast, 1.5, have/peer)
	b.Note("%s/s, %s %s/s", measure.Thousands(have), name, measure.Thousands(peer))
}

func runOne(ctx context.Context, b *tool.Bench, redis *system.Redis, l tool.Length) {
	s := shape{processes: 4, workers: 4, keys: 1}
	b.Say("Four processes of four workers, which lock and unlock the same key for %s; medians of %d rounds, "+
		"in which the libraries take turns. %s.", l.Window, l.Rounds, versions())
	b.Say("Out of order: in a further window of the fair lock Redis' MONITOR shows each ticket and each grant. " +
		"A grant counts that passes a ticket that was queued before.")
	entrants := compare(ctx, b, redis, s, l, setting{Library: ours}, setting{Library: ours, Fair: true})
	unfair, fair, peers := entrants[0], entrants[1], entrants[2:]
	peer, name := bestOf(peers, rates, false)
	have := measure.Median(unfair.rate)
	b.Target("one key, unfair: lock and unlock, against the best peer", result.Times, result.AtLeast, 1.2, have/peer)
	b.Note("%s/s, %s %s/s", measure.Thousands(have), name, measure.Thousands(peer))
	least, name := bestOf(peers, func(e *entrant) []float64 { return e.p99 }, true)
	p99 := measure.Median(unfair.p99)
	b.Target("one key, unfair: p99 of waiting, against the least of all peers", result.Times, result.AtMost, 1, p99/least)
	b.Note("%s, %s %s", measure.Micros(int64(p99)), name, measure.Micros(int64(least)))
	b.Target("one key, unfair: p99.9 of waiting", result.Milliseconds, result.AtMost, 20, measure.Median(unfair.p999)/1000)
	have = measure.Median(fair.rate)
	b.Target("one key, fair: p99 of waiting / mean", result.Times, result.AtMost, 2,
		measure.Median(fair.p99)/measure.Median(fair.mean))
	b.Target("one key, fair: lock and unlock, against the best peer", result.Times, result.AtLeast, 0.5, have/peer)
	b.Note("%s/s", measure.Thousands(have))
	grants, passed := outOfOrder(ctx, redis, s, l)
	b.Target("one key, fair: grants out of order", result.Number, result.Exactly, 0, float64(passed))
	b.Note("of %s", measure.Thousands(grants))
}
