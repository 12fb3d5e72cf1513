package main

import (
	"context"
	"fmt"

	"github.com/freeslot/freeslot/bench/measure"
	"github.com/freeslot/freeslot/bench/result"
	"github.com/freeslot/freeslot/bench/tool"
	"github.com/freeslot/freeslot/internal/namelist/count"
	"github.com/freeslot/freeslot/namelist"
)

const (
	countIDs  = 10_000
	countAsks = 1_000_000
)

func runCount(ctx context.Context, b *tool.Bench, d *bed) {
	asks := tool.Sized(b, countAsks, 20_000)
	b.Say("A client counts each lookup; that cannot be switched off. So one goroutine asks for the same %s strangers, %s times "+
		"in a pass, and is timed without and with one more count of each, in the same way and to counters of its own: %d "+
		"passes, in turns, by the processor time of its thread. The figure is the median difference of two neighbours.",
		thousands(countIDs), thousands(asks), turns*d.rounds)
	d.segment(ctx, b)
	list, stop := d.loaded(ctx, segmentList)
	defer tool.End(stop)
	var ids []string
	for _, id := range idsOf(shuffled(segmentIDs, 2*countIDs)) {
		if len(ids) < countIDs && list.Peek(id).Verdict == namelist.No {
			ids = append(ids, id)
		}
	}
	own, unexpected := count.NewSet(count.Cells), 0
	idle := &loop{n: asks, do: func(i int) { sink += int(ids[i%countIDs][0]) }}
	once := &loop{n: asks, idle: idle, do: func(i int) {
		if list.Check(ctx, ids[i%countIDs]).Verdict != namelist.No {
			unexpected++
		}
	}}
	twice := &loop{n: asks, idle: idle, do: func(i int) {
		if list.Check(ctx, ids[i%countIDs]).Verdict != namelist.No {
			unexpected++
		}
		own.Inc(count.FilterNo)
	}}
	inTurns(d.rounds, idle, once, twice)
	if n := own.Get(count.FilterNo); unexpected > 0 || n != uint64(turns*d.rounds*asks) {
		tool.Check(fmt.Errorf("%d answers were not no, %d were counted; want 0 and %d", unexpected, n, turns*d.rounds*asks))
	}
	differences := make([]float64, len(once.ns))
	for i := range differences {
		differences[i] = twice.ns[i] - once.ns[i]
	}
	counting := max(measure.Median(differences), 0)
	t := result.NewTable("A miss", "each [ns]")
	t.Add("as it is, counted", once.each())
	t.Add("counted twice", twice.each())
	b.Result.Tables = []result.Table{t}
	b.Target("counting of a lookup", result.Nanoseconds, result.AtMost, 5, counting)
}
