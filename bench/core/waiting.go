package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/freeslot/freeslot/bench/load"
	"github.com/freeslot/freeslot/bench/measure"
	"github.com/freeslot/freeslot/bench/result"
	"github.com/freeslot/freeslot/bench/system"
	"github.com/freeslot/freeslot/bench/tool"
)

// startSystem starts this scheduler's processes on a Redis without an append-only file, and notes
// its version.
func startSystem(ctx context.Context, b *tool.Bench, shape system.Shape) (*system.System, error) {
	programs, err := system.Build(ctx, b.Root, b.Folder)
	if err != nil {
		return nil, err
	}
	shape.Program, shape.AOF = system.Freeslot, system.AOFOff
	s, err := system.Start(ctx, programs, shape)
	if err != nil {
		return nil, err
	}
	version, err := measure.RedisVersion(ctx, s.Redis.Client)
	b.Result.Servers = version + ", append-only file off"
	return s, err
}

// startWaiting starts nodes in one process and a load process whose replica submits jobs of this
// length.
func startWaiting(ctx context.Context, b *tool.Bench, nodes, slots int, takes time.Duration) (*system.System, error) {
	return startSystem(ctx, b, system.Shape{Worker: fmt.Sprintf("-nodes %d -slots %d", nodes, slots), Load: "-tenant a -takes " + takes.String()})
}

// runUtilisation keeps more jobs waiting than there are slots and counts the time inside handlers.
func runUtilisation(ctx context.Context, b *tool.Bench) error {
	nodes, window := tool.Sized(b, 50, 8), tool.Sized(b, 10*time.Second, 500*time.Millisecond)
	const takes, depth = 50 * time.Millisecond, 40
	b.Say("Nodes of one slot in one process, jobs that take %s, always %d jobs a slot under way or waiting; the replica is in the load's process. Busy: jobs that ended x %s / (slots x %s).", takes, depth, takes, window)
	t := result.Table{First: "Nodes of one slot", Columns: []result.Column{
		{Name: "jobs", Unit: result.PerSecond},
		{Name: "slots busy", Unit: result.Percent},
		{Name: "Redis' main thread", Unit: result.Percent},
		{Name: "Redis' CPU a job", Unit: result.Microseconds},
	}}
	busy := 0.0
	// The smaller fleets show what is left idle where processors have time to spare.
	for _, n := range []int{nodes / 5, nodes / 2, nodes} {
		rate, redis, err := measureUtilisation(ctx, b, n, depth, takes, window)
		if err != nil {
			return err
		}
		busy = 100 * rate * takes.Seconds() / float64(n)
		t.Rows = append(t.Rows, result.Row{Name: strconv.Itoa(n), Figures: result.Figures(measure.FourFigures(rate), measure.FourFigures(busy),
			measure.FourFigures(100*redis), measure.FourFigures(redis*1e6/rate))})
	}
	b.Result.Tables = []result.Table{t}
	b.Target(fmt.Sprintf("time inside handlers / (slots x time), %d nodes of one slot, jobs of %s", nodes, takes), result.Percent, result.AtLeast, 95, busy)
	return nil
}

// measureUtilisation returns jobs a second and the share of the time that Redis' main thread was
// busy.
func measureUtilisation(ctx context.Context, b *tool.Bench, nodes, depth int, takes, window time.Duration) (rate, redis float64, err error) {
	s, err := startWaiting(ctx, b, nodes, 1, takes)
	if err != nil {
		return 0, 0, err
	}
	defer func() { err = errors.Join(err, s.Stop()) }()
	before, err := s.RedisStat(ctx)
	if err != nil {
		return 0, 0, err
	}
	begin := time.Now()
	f, err := s.Ask(ctx, load.Request{Loop: load.Closed, InFlight: depth * nodes, WarmUpMS: (window / 5).Milliseconds(), MeasureMS: window.Milliseconds()})
	if err != nil {
		return 0, 0, err
	}
	took := time.Since(begin)
	after, err := s.RedisStat(ctx)
	b.Failed += f.Failures()
	return f.JobsPerSecond, (after.CPUSeconds - before.CPUSeconds) / took.Seconds(), err
}

// runFairness has one tenant flood the queue and another one submit now and then.
func runFairness(ctx context.Context, b *tool.Bench) (err error) {
	const nodes, slots, takes = 5, 8, 20 * time.Millisecond
	flood, window, rate := tool.Sized(b, 64_000, 1_024), tool.Sized(b, time.Minute, time.Second), tool.Sized(b, 1.0, 10)
	b.Say("Tenant A keeps %s jobs of %s waiting or running, on %d nodes of %d slots; tenant B, of the same weight, submits %g a second for %s through a replica of its own. B's wait is from the moment at which a job is due to the start of its handler.",
		measure.Thousands(float64(flood)), takes, nodes, slots, rate, window)
	s, err := startWaiting(ctx, b, nodes, slots, takes)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Stop()) }()
	other, err := s.StartLoad(ctx, system.Freeslot, "-replica bench-2 -tenant b -takes "+takes.String())
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, other.End()) }()
	type answer struct {
		figures *load.Figures
		err     error
	}
	warmUp := window / 6 // until the flood stands
	flooded := make(chan answer, 1)
	go func() {
		f, err := s.Ask(ctx, load.Request{Loop: load.Closed, InFlight: flood, Batch: 64, MeasureMS: (warmUp + window).Milliseconds()})
		flooded <- answer{f, err}
	}()
	f, err := system.Ask(ctx, other, load.Request{Loop: load.Open, Rate: rate, WarmUpMS: warmUp.Milliseconds(), MeasureMS: window.Milliseconds()})
	a := <-flooded
	if err := errors.Join(err, a.err); err != nil {
		return err
	}
	b.Failed += f.Failures() + a.figures.Failures()
	ms := func(us int64) float64 { return measure.FourFigures(float64(us) / 1000) }
	b.Result.Tables = []result.Table{{First: "Tenant B's jobs", Columns: []result.Column{
		{Name: "wait p50", Unit: result.Milliseconds},
		{Name: "p99", Unit: result.Milliseconds},
		{Name: "longest", Unit: result.Milliseconds},
		{Name: "A's jobs", Unit: result.PerSecond},
	}, Rows: []result.Row{{Name: strconv.FormatInt(f.Jobs, 10), Figures: result.Figures(ms(f.Start.P50), ms(f.Start.P99), ms(f.Start.Max), a.figures.JobsPerSecond)}}}}
	b.Target(fmt.Sprintf("wait of a tenant beside another's flood of %s jobs of %s: p99", measure.Thousands(float64(flood)), takes), result.Milliseconds, result.AtMost, 25, ms(f.Start.P99))
	return nil
}
