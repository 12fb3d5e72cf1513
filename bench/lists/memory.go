package main

import (
	"context"
	"time"

	"github.com/freeslot/freeslot/bench/measure"
	"github.com/freeslot/freeslot/bench/result"
	"github.com/freeslot/freeslot/bench/tool"
)

const (
	// settle is for how long the heap is read after a switch: what is not needed any more goes.
	settle      = time.Second
	tinyList    = "tiny"
	tinyIDs     = 1000
	firstPoll   = 200 * time.Microsecond
	coldPerRun  = 4
	memberOfRun = 7
)

func runMemory(ctx context.Context, b *tool.Bench, d *bed) {
	d.list(ctx, b)
	if !d.expanded {
		b.Progress("building a second version")
		d.expand(ctx)
	}
	b.Say("A process has a client, which follows a list of %s ids on the same servers; then it loads the large one, too: what "+
		"its live heap grows by. Then that switches to another version of the same ids, whose filter the client loads first; "+
		"the live heap is read again and again, after a collection each time, until %s later. The cache is empty; its table "+
		"and the connections are there before.", thousands(tinyIDs), settle)
	d.twoVersions(ctx, tinyList, tinyIDs)
	c := startClients(ctx, d, 1)
	defer tool.End(c.End)
	empty := ask(ctx, c, request{Do: "follow", List: tinyList})
	loaded := ask(ctx, c, request{Do: "follow", List: bigList})
	ask(ctx, c, request{Do: "peak"})
	number := d.big.version.Number
	_, revision := d.switchTo(ctx, bigList, number, 1) // a rollback is the same move
	ask(ctx, c, request{Do: "seen", Version: number, Revision: revision})
	tool.Sleep(ctx, settle)
	peak := ask(ctx, c, request{Do: "stop"})
	holds, most := (loaded.Heap-empty.Heap)/mb, (peak.Heap-empty.Heap)/mb
	t := result.NewTable("A client", "loaded [MB]", "the most in a switch [MB]", "without the list [MB]")
	t.Add(thousands(d.ids)+" ids", holds, most, empty.Heap/mb)
	b.Result.Tables = []result.Table{t}
	b.Target("client memory of the loaded list", result.MB, result.AtMost, 12, holds)
	b.Target("the most in a switch / loaded", result.Times, result.AtMost, 2.2, most/holds)
}

func runCold(ctx context.Context, b *tool.Bench, d *bed) {
	d.list(ctx, b)
	starts := coldPerRun * d.rounds
	b.Say("From Open until Check answers yes for a member, and until WaitReady returns: the median of %d starts in one process, "+
		"each with connections of its own.", starts)
	var first, ready []float64
	for i := range starts {
		answered, loaded := coldStart(ctx, d, idOf(memberOfRun*i))
		first, ready = append(first, measure.Milliseconds(answered)), append(ready, measure.Milliseconds(loaded))
	}
	t := result.NewTable("Cold start", "p50 [ms]", "longest [ms]")
	for _, row := range []struct {
		name, target string
		times        []float64
		limit        float64
	}{
		{"first exact answer", "cold start to the first exact answer", first, 50},
		{"filter loaded", "cold start to the loaded filter", ready, 500},
	} {
		p50, longest := measure.Median(row.times), measure.Quantile(row.times, 1)
		t.Add(row.name, p50, longest)
		b.Target(row.target+", p50", result.Milliseconds, result.AtMost, row.limit, p50)
		b.Note("the longest of %d: %.1f ms", starts, longest)
	}
	b.Result.Tables = []result.Table{t}
}

func coldStart(ctx context.Context, d *bed, member string) (first, ready time.Duration) {
	ctx, cancel := context.WithTimeout(ctx, callLimit)
	defer cancel()
	begin := time.Now()
	c, stop := openClient(d.control.URL())
	defer tool.End(stop)
	l := c.List(bigList)
	for !l.Check(ctx, member).Member(false) {
		tool.Sleep(ctx, firstPoll)
	}
	first = time.Since(begin)
	tool.Check(l.WaitReady(ctx))
	return first, time.Since(begin)
}
