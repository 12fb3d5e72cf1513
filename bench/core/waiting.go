package main

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/freeslot/freeslot/bench/load"
	"github.com/freeslot/freeslot/bench/measure"
	"github.com/freeslot/freeslot/bench/result"
	"github.com/freeslot/freeslot/bench/system"
	"github.com/freeslot/freeslot/bench/tool"
)

// startWaiting starts nodes in one process and a load process whose replica submits jobs of this
// length.
func startWaiting(ctx context.Context, b *tool.Bench, nodes, slots int, takes time.Duration) *system.System {
	return startSystem(ctx, b, system.Shape{
		Worker: fmt.Sprintf("-nodes %d -slots %d", nodes, slots), Load: "-tenant a -takes " + takes.String(),
	})
}

// runUtilisation keeps more jobs waiting than there are slots and counts the time inside handlers.
func runUtilisation(ctx context.Context, b *tool.Bench) {
	nodes, window := tool.Sized(b, 50, 8), tool.Sized(b, 10*time.Second, 500*time.Millisecond)
	const takes, depth = 50 * time.Millisecond, 40
	b.Say("Nodes of one slot in one process, jobs that take %s, always %d jobs a slot under way or waiting; the replica is in the "+
		"load's process. Busy: jobs that ended x %s / (slots x %s).", takes, depth, takes, window)
	t := result.NewTable("Nodes of one slot", "jobs [/s]", "slots busy [%]", "Redis' main thread [%]", "Redis' CPU a job [us]")
	busy := 0.0
	// The smaller fleets show what is left idle where processors have time to spare.
	for _, n := range []int{nodes / 5, nodes / 2, nodes} {
		rate, redis := measureUtilisation(ctx, b, n, depth, takes, window)
		busy = 100 * rate * takes.Seconds() / float64(n)
		t.Add(strconv.Itoa(n), rate, busy, 100*redis, redis*1e6/rate)
	}
	b.Result.Tables = []result.Table{t}
	b.Target(fmt.Sprintf("time inside handlers / (slots x time), %d nodes of one slot, jobs of %s", nodes, takes),
		result.Percent, result.AtLeast, 95, busy)
}

// measureUtilisation returns jobs a second and the share of the time that Redis' main thread was
// busy.
func measureUtilisation(
	ctx context.Context, b *tool.Bench, nodes, depth int, takes, window time.Duration,
) (rate, redis float64) {
	s := startWaiting(ctx, b, nodes, 1, takes)
	defer tool.End(s.Stop)
	m := tool.Must(system.NewMeter(ctx, s.Redis))
	f := tool.Must(s.Ask(ctx, load.Request{
		Loop: load.Closed, InFlight: depth * nodes, WarmUpMS: (window / 5).Milliseconds(), MeasureMS: window.Milliseconds(),
	}))
	used := tool.Must(m.Spent(ctx))
	b.Failed += f.Failures()
	return f.JobsPerSecond, used.Redis / used.Seconds
}

// runFairness has one tenant flood the queue and another one submit now and then.
func runFairness(ctx context.Context, b *tool.Bench) {
	const nodes, slots, takes = 5, 8, 20 * time.Millisecond
	flood, window := tool.Sized(b, 64_000, 1_024), tool.Sized(b, time.Minute, time.Second)
	rate := tool.Sized(b, 1.0, 10)
	b.Say("Tenant A keeps %s jobs of %s waiting or running, on %d nodes of %d slots; tenant B, of the same weight, submits %g a "+
		"second for %s through a replica of its own. B's wait is from the moment at which a job is due to the start of its "+
		"handler.", measure.Thousands(flood), takes, nodes, slots, rate, window)
	s := startWaiting(ctx, b, nodes, slots, takes)
	defer tool.End(s.Stop)
	other := tool.Must(s.StartLoad(ctx, system.Freeslot, "-replica bench-2 -tenant b -takes "+takes.String()))
	defer tool.End(other.End)
	warmUp := window / 6 // until the flood stands
	var figures [2]*load.Figures
	tool.Together(2, 2, func(i int) {
		child, r := s.Load, load.Request{Loop: load.Closed, InFlight: flood, Batch: 64, MeasureMS: (warmUp + window).Milliseconds()}
		if i == 1 {
			child = other
			r = load.Request{Loop: load.Open, Rate: rate, WarmUpMS: warmUp.Milliseconds(), MeasureMS: window.Milliseconds()}
		}
		figures[i] = tool.Must(system.Ask(ctx, child, r))
	})
	a, f := figures[0], figures[1]
	b.Failed += f.Failures() + a.Failures()
	ms := func(us int64) float64 { return measure.FourFigures(float64(us) / 1000) }
	t := result.NewTable("Tenant B's jobs", "wait p50 [ms]", "p99 [ms]", "longest [ms]", "A's jobs [/s]")
	t.Add(strconv.FormatInt(f.Jobs, 10), ms(f.Start.P50), ms(f.Start.P99), ms(f.Start.Max), result.Figure{a.JobsPerSecond})
	b.Result.Tables = []result.Table{t}
	b.Target(fmt.Sprintf("wait of a tenant beside another's flood of %s jobs of %s: p99", measure.Thousands(flood), takes),
		result.Milliseconds, result.AtMost, 25, ms(f.Start.P99))
}
