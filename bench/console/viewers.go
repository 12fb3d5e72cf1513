package main

import (
	"context"
	"time"

	"github.com/freeslot/freeslot/bench/measure"
	"github.com/freeslot/freeslot/bench/result"
	"github.com/freeslot/freeslot/bench/system"
	"github.com/freeslot/freeslot/bench/tool"
)

// cost is what one window with viewers took.
type cost struct {
	replica float64 // percent of a core
	bytes   float64 // a viewer and second
	scripts float64 // calls of scripts to Redis a second
	all     float64 // commands of Redis a second, with those in scripts
}

// counted is a number of viewers, with what they took in each round.
type counted struct {
	viewers int
	rounds  []cost
}

func (c *counted) median(of func(cost) float64) float64 {
	values := make([]float64, len(c.rounds))
	for i, r := range c.rounds {
		values[i] = of(r)
	}
	return measure.Median(values)
}

func runViewers(ctx context.Context, b *tool.Bench, d *bed) {
	rounds, window := tool.Sized(b, 3, 1), tool.Sized(b, 6*time.Second, time.Second)
	settle := tool.Sized(b, 1500*time.Millisecond, 100*time.Millisecond)
	rate := d.nodes / 10
	b.Say("%s nodes, of which a tenth changes its figures each second by heartbeats. Viewers are WebSockets of another process "+
		"that want overview, history, nodes and fleet. With none, 5 and 50 of them in turns, %d rounds, windows of %s after %s; "+
		"medians. Processor time by the process' own clock.", measure.Thousands(d.nodes), rounds, window, settle)
	all := []*counted{{viewers: 0}, {viewers: 5}, {viewers: 50}}
	d.fleet.beating(ctx, rate, func() {
		tool.Sleep(ctx, settle)
		tool.InTurns(b, rounds, all, func(c *counted, _ int) {
			c.rounds = append(c.rounds, d.window(ctx, c.viewers, settle, window, "overview", "history", "nodes", "fleet"))
		})
	})
	t := result.NewTable("Viewers", "replica, of a core [%]", "above none [%]", "a viewer [B/s]")
	core := func(c cost) float64 { return c.replica }
	above := func(i int) float64 { return all[i].median(core) - all[0].median(core) }
	for i, c := range all {
		t.Add(measure.Thousands(c.viewers), c.median(core), above(i), c.median(func(c cost) float64 { return c.bytes }))
	}
	asking := d.asking(ctx, b, window, settle)
	b.Result.Tables = []result.Table{t, asking}
	b.Target("5 viewers: the replica above none, of a core", result.Percent, result.AtMost, 1, above(1))
	b.Target("50 viewers: the replica above none, against 5", result.Times, result.AtMost, 3, above(2)/max(above(1), 0.01))
	b.Note("%.2f and %.2f %% of a core", above(2), above(1))
	b.Target("bytes a viewer and second", result.Bytes, result.AtMost, 50_000, all[2].median(func(c cost) float64 { return c.bytes }))
	b.Target("calls to Redis because of viewers, a cell", result.PerSecond, result.AtMost, 5,
		asking.Rows[1].Figures[0][0]-asking.Rows[0].Figures[0][0])
}

// asking compares the calls to Redis without viewers and with 50 that want what asks it, too.
func (d *bed) asking(ctx context.Context, b *tool.Bench, window, settle time.Duration) result.Table {
	b.Say("Calls to Redis without heartbeats, by INFO commandstats of the one cell: 50 viewers also want queues, the job that " +
		"waits, and ten jobs that are not there.")
	t := result.NewTable("Viewers without heartbeats", "scripts [/s]", "commands, also in scripts [/s]")
	topics := []string{"overview", "history", "nodes", "fleet", "queues", "job:" + d.waiting(ctx)}
	for range 10 {
		topics = append(topics, "job:"+noJob())
	}
	for _, n := range []int{0, 50} {
		c := d.window(ctx, n, settle, window, topics...)
		t.Add(measure.Thousands(n), c.scripts, c.all)
	}
	return t
}

// window has viewers look for a while, and returns what that took.
func (d *bed) window(ctx context.Context, count int, settle, window time.Duration, topics ...string) cost {
	v := watch(ctx, d.replica.Address, count, topics...)
	defer tool.End(v.close)
	tool.Sleep(ctx, settle)
	meter := tool.Must(system.NewMeter(ctx, d.redis, d.replica.PID()))
	before := v.bytes.Load()
	tool.Sleep(ctx, window)
	used := tool.Must(meter.Spent(ctx))
	return cost{
		replica: used.OfCore(used.Processes), bytes: float64(v.bytes.Load()-before) / used.Seconds / float64(max(count, 1)),
		scripts: used.Rate("evalsha", "evalsha_ro", "eval", "eval_ro", "fcall", "fcall_ro"), all: used.AllRate(),
	}
}
