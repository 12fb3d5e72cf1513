package main

import (
	"context"
	"fmt"

	"github.com/freeslot/freeslot/bench/load"
	"github.com/freeslot/freeslot/bench/measure"
	"github.com/freeslot/freeslot/bench/result"
	"github.com/freeslot/freeslot/bench/system"
	"github.com/freeslot/freeslot/bench/tool"
)

func runClient(ctx context.Context, b *tool.Bench, l tool.Length) {
	p := programs(ctx, b, "python")
	b.Say("One job at a time: submit, wait for the result, submit the next. Jobs do nothing. One system with a Go worker "+
		"of %d slots by the gateway of one replica; both clients are connected to it. Windows of %s.", slots, l.Window)
	s := tool.Must(system.Start(ctx, p, system.Shape{
		Program: system.Freeslot, AOF: system.AOFOff, Schedulers: 1, Gateway: true,
		Worker: fmt.Sprintf("-nodes 1 -slots %d", slots), Load: "-sessions 1",
	}))
	defer tool.End(s.Stop)
	python := tool.Must(s.StartLoad(ctx, "python", ""))
	defer tool.End(python.End)
	type client struct {
		name             string
		generator        *measure.Child
		p50, p99, starts []float64
	}
	all := []*client{{name: "Go client", generator: s.Load}, {name: "Python client", generator: python}}
	tool.InTurns(b, l.Rounds, all, func(c *client, _ int) {
		f := tool.Must(system.Ask(ctx, c.generator, load.Request{
			Loop: load.Closed, InFlight: 1, WarmUpMS: (l.Window / 3).Milliseconds(), MeasureMS: l.Window.Milliseconds(),
		}))
		b.Failed += f.Failures()
		c.p50, c.p99 = append(c.p50, float64(f.Result.P50)), append(c.p99, float64(f.Result.P99))
		c.starts = append(c.starts, float64(f.Start.P50))
	})
	t := result.NewTable("Client", "submit to result, p50 [us]", "p99 [us]", "submit to start, p50 [us]")
	for _, c := range all {
		t.Add(c.name, measure.Median(c.p50), measure.Median(c.p99), measure.Median(c.starts))
	}
	b.Result.Tables = []result.Table{t}
	ours, theirs := measure.Median(all[1].p50), measure.Median(all[0].p50)
	b.Target("one job at a time, p50 of the Python client, against the Go client's", result.Times, result.AtMost, 1.6,
		ours/theirs)
	b.Note("%s and %s", measure.Micros(int64(ours)), measure.Micros(int64(theirs)))
}
