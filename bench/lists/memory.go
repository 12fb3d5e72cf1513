package main

import (
	"context"
	"errors"
	"fmt"
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

func runMemory(ctx context.Context, b *tool.Bench, d *bed) (err error) {
	if err := d.list(ctx, b); err != nil {
		return err
	}
	if !d.expanded {
		b.Progress("building a second version")
		if _, err := d.expand(ctx); err != nil {
			return err
		}
	}
	b.Say("A process has a client, which follows a list of %s ids on the same servers; then it loads the large one, too: what its live heap grows by. Then that switches to another version of the same ids, whose filter the client loads first; the live heap is read again and again, after a collection each time, until %s later. The cache is empty; its table and the connections are there before.", thousands(tinyIDs), settle)
	if _, err := d.twoVersions(ctx, tinyList, tinyIDs); err != nil {
		return err
	}
	c, err := startChild(ctx, d, 1)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.End()) }()
	empty, err := ask(ctx, c, request{Do: "follow", List: tinyList})
	if err != nil {
		return err
	}
	loaded, err := ask(ctx, c, request{Do: "follow", List: bigList})
	if err != nil {
		return err
	}
	if _, err := ask(ctx, c, request{Do: "peak"}); err != nil {
		return err
	}
	// A rollback is the same move.
	_, revision, err := d.switchTo(ctx, bigList, d.big.version.Number, 1)
	if err != nil {
		return err
	}
	if _, err := ask(ctx, c, request{Do: "seen", Version: d.big.version.Number, Revision: revision}); err != nil {
		return err
	}
	if err := measure.SleepUntil(ctx, time.Now().Add(settle)); err != nil {
		return err
	}
	peak, err := ask(ctx, c, request{Do: "stop"})
	if err != nil {
		return err
	}
	holds, most := (loaded.Heap-empty.Heap)/mb, (peak.Heap-empty.Heap)/mb
	b.Result.Tables = []result.Table{{
		First: "A client", Columns: []result.Column{{Name: "loaded", Unit: result.MB}, {Name: "the most in a switch", Unit: result.MB}, {Name: "without the list", Unit: result.MB}},
		Rows: []result.Row{{Name: thousands(d.ids) + " ids", Figures: result.Figures(measure.FourFigures(holds), measure.FourFigures(most), measure.FourFigures(empty.Heap/mb))}},
	}}
	b.Target("client memory of the loaded list", result.MB, result.AtMost, 12, holds)
	b.Target("the most in a switch / loaded", result.Times, result.AtMost, 2.2, most/holds)
	return nil
}

func runCold(ctx context.Context, b *tool.Bench, d *bed) error {
	if err := d.list(ctx, b); err != nil {
		return err
	}
	starts := coldPerRun * d.rounds
	b.Say("From Open until Check answers yes for a member, and until WaitReady returns: the median of %d starts in one process, each with connections of its own.", starts)
	var first, ready []float64
	for i := range starts {
		answered, loaded, err := coldStart(ctx, d, idOf(memberOfRun*i))
		if err != nil {
			return err
		}
		first, ready = append(first, float64(answered.Microseconds())/1000), append(ready, float64(loaded.Microseconds())/1000)
	}
	t := result.Table{First: "Cold start", Columns: []result.Column{{Name: "p50", Unit: result.Milliseconds}, {Name: "longest", Unit: result.Milliseconds}}}
	for _, row := range []struct {
		name, target string
		times        []float64
		limit        float64
	}{{"first exact answer", "cold start to the first exact answer", first, 50}, {"filter loaded", "cold start to the loaded filter", ready, 500}} {
		longest := measure.FourFigures(measure.Quantile(row.times, 1))
		t.Rows = append(t.Rows, result.Row{Name: row.name, Figures: result.Figures(measure.FourFigures(measure.Median(row.times)), longest)})
		b.Target(row.target+", p50", result.Milliseconds, result.AtMost, row.limit, measure.Median(row.times))
		note(b, fmt.Sprintf("the longest of %d: %.1f ms", starts, longest))
	}
	b.Result.Tables = []result.Table{t}
	return nil
}

func coldStart(ctx context.Context, d *bed, member string) (first, ready time.Duration, err error) {
	ctx, cancel := context.WithTimeout(ctx, callLimit)
	defer cancel()
	begin := time.Now()
	c, err := openClient(d.control.URL())
	if err != nil {
		return 0, 0, err
	}
	defer func() { err = errors.Join(err, closeClient(c)) }()
	l := c.List(bigList)
	for !l.Check(ctx, member).Member(false) {
		if err := measure.SleepUntil(ctx, time.Now().Add(firstPoll)); err != nil {
			return 0, 0, err
		}
	}
	first = time.Since(begin)
	err = l.WaitReady(ctx)
	return first, time.Since(begin), err
}
