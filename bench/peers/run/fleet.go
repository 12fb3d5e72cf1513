package main

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/freeslot/freeslot/bench/load"
	"github.com/freeslot/freeslot/bench/measure"
	"github.com/freeslot/freeslot/bench/result"
	"github.com/freeslot/freeslot/bench/system"
	"github.com/freeslot/freeslot/bench/tool"
)

// crew is what was measured with one fleet: with handlers that end at once, and with busy ones.
type crew struct {
	fleet
	plain, busy []*contender
}

func of(crews []*crew, f fleet) *crew {
	if i := slices.IndexFunc(crews, func(c *crew) bool { return c.fleet == f }); i >= 0 {
		return crews[i]
	}
	return new(crew)
}

// fleet measures what nodes in numbers as users have them cost, beside as many servers or workers
// of peers.
func (b *bench) fleet(ctx context.Context) {
	fleets := tool.Must(parseFleets(b.fleets))
	b.Result.Servers = b.redis + ", append-only file off; NATS JetStream in memory"
	b.Say("asynq has as many servers and JetStream as many workers as there are nodes, in as many processes (%d, or one a node); up to %d nodes asynq may also have %d servers.", fleetProcesses, fewServers, fewServers)
	b.Say("Each with the best setting of a sweep; medians of %d interleaved rounds, each freshly started; windows of %s after %s.", b.rounds, b.window, measure.Millis(b.warmUp()))
	b.Say("What Redis' thread allows is a second divided by its time a job: where cores for all else are enough, it is the limit.")
	crews := b.crews(ctx, slices.DeleteFunc(slices.Clone(fleets), func(f fleet) bool { return f == large }))
	b.Result.Tables = fleetTables(crews)
	b.fleetTargets(crews)
	b.loaded(ctx, of(crews, fleetOf100).plain)
	b.large(ctx, slices.Contains(fleets, large))
	b.beforeAfter(ctx)
	b.Result.Tables = append(b.Result.Tables, fleetSweep(crews))
}

// crews sweeps all, and then measures all of them in turns.
func (b *bench) crews(ctx context.Context, fleets []fleet) []*crew {
	crews := make([]*crew, len(fleets))
	var all []*contender
	for i, f := range fleets {
		b.Progress("%s", f)
		c := &crew{fleet: f, plain: b.sweepAll(ctx, mode{aof: system.AOFOff}, f.entries())}
		for _, p := range c.plain {
			if p.name != webSocket && p.name != inProcess {
				c.busy = append(c.busy, p.withBusyHandlers())
			}
		}
		crews[i], all = c, slices.Concat(all, c.plain, c.busy)
	}
	one := slices.Concat(of(crews, fleetOf2).plain, of(crews, fleetOf100).plain)
	b.inTurns(ctx, all, func(c *contender, _ int) {
		b.saturation(ctx, mode{aof: system.AOFOff, one: slices.Contains(one, c)}, c)
	})
	for _, c := range crews {
		c.plain, c.busy = measured(c.plain), measured(c.busy)
	}
	return crews
}

// measured leaves out an entry whose rounds all failed; the report says so.
func measured(all []*contender) []*contender {
	return slices.DeleteFunc(slices.Clone(all), func(c *contender) bool { return len(c.rounds) == 0 })
}

func (c *contender) withBusyHandlers() *contender {
	e := *c.entry
	e.fleet += ", busy"
	busy := &contender{entry: &e, version: c.version, best: c.best}
	busy.best.worker += " -mean " + busyMean.String()
	busy.best.inFlight = max(busy.best.inFlight, busyInFlight)
	return busy
}

// loaded measures latencies at a high share of each one's own saturation. Nodes by gateway get the
// load of direct ones.
func (b *bench) loaded(ctx context.Context, all []*contender) {
	b.inTurns(ctx, all, func(c *contender, r int) {
		full := c
		if direct := find(all, batches); c.gateway && direct != nil {
			full = direct
		}
		b.levels(ctx, mode{aof: system.AOFOff}, c, r, full.throughput(), []float64{high})
	})
	t := result.Table{
		Title: fmt.Sprintf("%s, at %.0f %% of each one's own saturation, by gateway of direct nodes'", fleetOf100, high*100),
		First: "Peer", Columns: levelColumns,
	}
	for _, c := range all {
		t.Rows = append(t.Rows, c.levelRow(high))
	}
	if t.Rows != nil {
		b.Result.Tables = append(b.Result.Tables, t)
	}
	b.loadedTarget(all)
}

// inBatches submits batches as it does where that is not swept.
func (f fleet) inBatches(processes int) *contender {
	return &contender{
		entry: &entry{name: batches, fleet: f.String(), program: system.Freeslot, schedulers: 1},
		best:  setting{worker: fmt.Sprintf("-nodes %d -slots %d", f.nodes/processes, f.slots), processes: processes, load: "-sessions 4", inFlight: 1024, batch: 64},
	}
}

// large measures many nodes, with all that real ones do, in an open loop.
func (b *bench) large(ctx context.Context, wanted bool) {
	direct := large.inBatches(fleetProcesses)
	linked := *direct
	linked.entry = new(direct.behindGateway())
	all := slices.DeleteFunc([]*contender{direct, &linked}, func(c *contender) bool { return !wanted || !b.wanted(c.name) })
	b.inTurns(ctx, all, func(c *contender, _ int) { b.openLoop(ctx, c) })
	t := result.Table{
		Title: fmt.Sprintf("%s, %s jobs/s", large, measure.Thousands(largeRate)), First: "Peer",
		Columns: slices.Concat(levelColumns, result.Columns("Redis busy [%]", "Redis' thread, CPU a job [us]", "replicas [us]",
			"workers [us]")),
	}
	for _, c := range measured(all) {
		row, cpu := c.levelRow(0), c.cpuFigures()
		row.Name, row.Figures = c.title(), append(row.Figures, c.redisBusy(), c.redisUs(), cpu[1], cpu[2])
		t.Rows = append(t.Rows, row)
	}
	if t.Rows != nil {
		b.Result.Tables = append(b.Result.Tables, t)
	}
	b.largeTargets(direct, &linked)
}

// openLoop is a round at largeRate.
func (b *bench) openLoop(ctx context.Context, c *contender) {
	s := b.start(ctx, mode{aof: system.AOFOff}, c.entry, c.best)
	defer tool.End(s.Stop)
	b.heat(ctx, s, c.best)
	got := b.costs(ctx, s, load.Request{
		Loop: load.Open, Rate: largeRate, InFlight: c.best.inFlight, Batch: c.best.batch,
		WarmUpMS: b.warmUp(), MeasureMS: b.window.Milliseconds(),
	})
	got.levels = []level{{rate: largeRate, Figures: got.saturation}}
	c.rounds = append(c.rounds, *got)
	b.Failed += got.saturation.Failures()
	b.Progress("%s: assigned %s, Redis %.0f %% busy, %.1f us a job",
		c.title(), got.saturation.Assign.Words(), 100*got.redisBusy, got.redisUs)
}

// beforeAfter holds what a job costs Redis against another commit. Its program knows one process
// alone.
func (b *bench) beforeAfter(ctx context.Context) {
	if b.before == "" || !b.wanted(batches) {
		b.beforeTarget("", nil, nil)
		return
	}
	source, version, err := system.Checkout(ctx, b.Root, b.before)
	tool.Check(err)
	folder := filepath.Join(b.Folder, version)
	tool.Check(os.Mkdir(folder, 0o750))
	before := tool.Must(system.Build(ctx, source, folder))
	t := result.NewTable("Commit", "jobs [/s]", "Redis' thread, CPU a job [us]")
	t.Title = "Beside commit " + version + ", nodes in one process"
	for _, f := range []fleet{fleetOf2, fleetOf100} {
		old, this := f.inBatches(1), f.inBatches(1)
		old.version, old.programs = version, before
		both := []*contender{old, this}
		b.inTurns(ctx, both, func(c *contender, _ int) { b.saturation(ctx, mode{aof: system.AOFOff}, c) })
		for _, c := range measured(both) {
			t.Add(fmt.Sprintf("%s: %s", f, cmp.Or(c.version, "this tree")), c.throughput(), c.redisUs())
		}
		if f == fleetOf2 {
			b.beforeTarget(version, old, this)
		}
	}
	b.Result.Tables = append(b.Result.Tables, t)
}

// fleetTables have throughput and costs, beside the peers of the same fleet.
func fleetTables(crews []*crew) []result.Table {
	plain := result.NewTable("Fleet and peer", "jobs [/s]", "least and most [/s]", "by asynq's [x]", "by JetStream's [x]",
		"Redis' thread, CPU a job [us]", "Redis' thread allows [/s]", "load, CPU a job [us]", "replicas [us]", "workers [us]",
		"Redis or NATS [us]", "Redis busy [%]", "one at a time, p50 [us]", "until its start [us]")
	plain.Title = "Jobs that end at once"
	busy := plain
	busy.Title = fmt.Sprintf("Jobs of %s, exponentially distributed", busyMean)
	for _, c := range crews {
		plain.Rows = append(plain.Rows, fleetRows(c.plain)...)
		busy.Rows = append(busy.Rows, fleetRows(c.busy)...)
	}
	return []result.Table{plain, busy}
}

func fleetRows(all []*contender) (rows []result.Row) {
	for _, c := range all {
		figures := []result.Figure{{c.throughput()}, c.extremes(), c.by(find(all, asynq)), c.by(find(all, jetStream)), c.redisUs(), nil}
		if us := c.redisUs(); us != nil {
			figures[len(figures)-1] = result.Figure{measure.FourFigures(1e6 / us[0])}
		}
		figures = append(figures, c.cpuFigures()...)
		rows = append(rows, result.Row{
			Name:    strings.TrimSpace(c.title() + " " + c.version),
			Figures: append(figures, c.redisBusy(), c.oneP50(), c.oneStartP50()),
		})
	}
	return rows
}

// by is the throughput divided by another one's; nil where that was not measured.
func (c *contender) by(other *contender) result.Figure {
	if other == nil || other.throughput() == 0 {
		return nil
	}
	return result.Figure{measure.FourFigures(c.throughput() / other.throughput())}
}

func fleetSweep(crews []*crew) result.Table {
	t := result.Table{Title: "The sweep", First: "Setting", Columns: sweepColumns}
	for _, c := range crews {
		for _, p := range c.plain {
			t.Rows = append(t.Rows, p.sweepRows()...)
		}
	}
	return t
}
