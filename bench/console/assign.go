package main

import (
	"context"
	"time"

	"github.com/freeslot/freeslot/bench/load"
	"github.com/freeslot/freeslot/bench/measure"
	"github.com/freeslot/freeslot/bench/result"
	"github.com/freeslot/freeslot/bench/system"
	"github.com/freeslot/freeslot/bench/tool"
)

// viewed is a number of viewers, with the times to assign of each round in microseconds.
type viewed struct {
	viewers  int
	p50, p99 []float64
}

func runAssign(ctx context.Context, b *tool.Bench) {
	rounds, window := tool.Sized(b, 9, 1), tool.Sized(b, 3*time.Second, 500*time.Millisecond)
	nodes := tool.Sized(b, 1000, 50)
	const rate = 500
	b.Say("Jobs over WebSocket at %d/s in an open loop, a call each, to one replica with 4 nodes of 256 slots, and %s further ones of "+
		"another service, a tenth of which changes each second. Without viewers and with 5 that want overview, history, nodes and "+
		"fleet, in turns, %d rounds, windows of %s; the ratio is the median of the ratios within the rounds.",
		rate, measure.Thousands(nodes), rounds, window)
	sayLoad(b)
	s := b.StartSystem(ctx, system.Shape{
		AOF: system.AOFOff, Schedulers: 1, Environment: []string{"FREESLOT_HEARTBEAT_LIMIT=" + silence.String()},
		Worker: "-nodes 4 -slots 256", Load: "-sessions 4",
	})
	defer tool.End(s.Stop)
	f := openFleet(ctx, s.Redis, nodes)
	defer f.stop()
	all := []*viewed{{viewers: 0}, {viewers: 5}}
	f.beating(ctx, nodes/10, func() {
		tool.InTurns(b, rounds, all, func(v *viewed, _ int) {
			w := watch(ctx, s.Schedulers[0].Address, v.viewers, "overview", "history", "nodes", "fleet")
			defer tool.End(w.close)
			figures := tool.Must(s.Ask(ctx, load.Request{Loop: load.Open, Rate: rate, WarmUpMS: 500, MeasureMS: window.Milliseconds()}))
			b.Failed += figures.Failures()
			v.p50, v.p99 = append(v.p50, float64(figures.Assign.P50)), append(v.p99, float64(figures.Assign.P99))
		})
	})
	t := result.NewTable("Viewers", "submit to assign, p50 [us]", "p99 [us]", "p99, least [us]", "p99, most [us]")
	for _, v := range all {
		t.Add(measure.Thousands(v.viewers), measure.Median(v.p50), measure.Median(v.p99), measure.Quantile(v.p99, 0), measure.Quantile(v.p99, 1))
	}
	b.Result.Tables = []result.Table{t}
	ratios := make([]float64, len(all[0].p99))
	for i := range ratios {
		ratios[i] = all[1].p99[i] / all[0].p99[i]
	}
	b.Target("p99 time to assign with 5 viewers against none", result.Times, result.AtMost, 1.05, measure.Median(ratios))
	b.Note("%.2f to %.2f in single rounds", measure.Quantile(ratios, 0), measure.Quantile(ratios, 1))
}
