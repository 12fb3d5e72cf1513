package main

import (
	"context"
	"fmt"
	"runtime"
	"time"

	"github.com/freeslot/freeslot/bench/measure"
	"github.com/freeslot/freeslot/bench/result"
	"github.com/freeslot/freeslot/bench/tool"
	"github.com/freeslot/freeslot/internal/history"
)

// runHistory measures what a replica does for the history in each step, whether or not anyone
// looks: it writes its own figures and takes in those of all replicas.
func runHistory(ctx context.Context, b *tool.Bench) {
	const replicas = 16
	steps := tool.Sized(b, 20_000, 100)
	b.Say("What a replica does every 2 s: encode its figures, decode the ones of %d replicas and add them to the rings. %s steps "+
		"one after the other; processor time of the thread. Reading its own metrics and the presence call, which is made anyway, "+
		"are not in it.", replicas, measure.Thousands(steps))
	h := history.New()
	all := make([]history.Figures, replicas)
	for i := range all {
		all[i] = history.Figures{StartMS: 1, Keeps: true, Cells: 1, States: true}
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	spent := time.Duration(0)
	now := int64(1_700_000_000_000)
	for range steps {
		tool.Check(ctx.Err())
		now += 2000
		reports := make([]history.Report, replicas)
		for i := range all {
			f := &all[i]
			f.Counters[history.Placed] += 1000
			for j := range f.Histograms[history.RedisCall] {
				f.Histograms[history.RedisCall][j] += 100
			}
			reports[i] = history.Report{Replica: fmt.Sprintf("replica-%d", i), AtMS: now}
			if i > 0 { // by the others
				reports[i].Figures = f.Encode()
			}
		}
		begin := measure.ThreadTime()
		reports[0].Figures = all[0].Encode()
		h.Observe(now, reports)
		spent += measure.ThreadTime() - begin
	}
	step := spent.Seconds() / float64(steps)
	t := result.NewTable("Replicas", "a step [us]", "of a core [%]")
	t.Add(measure.Thousands(replicas), 1e6*step, 100*step/2)
	b.Result.Tables = []result.Table{t}
	b.Target("history while no one looks, of a core", result.Percent, result.AtMost, 0.05, 100*step/2)
}
