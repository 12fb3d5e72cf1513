package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/freeslot/freeslot/bench/measure"
	"github.com/freeslot/freeslot/bench/result"
	"github.com/freeslot/freeslot/bench/tool"
	"github.com/freeslot/freeslot/internal/namelist/filter"
	"github.com/freeslot/freeslot/internal/namelist/server"
)

const (
	checksASecond = 20_000
	hugeList      = "huge"
	hugeTimes     = 10
)

func thousands(n int) string { return measure.Thousands(float64(n)) }

func runImport(ctx context.Context, b *tool.Bench, d *bed) error {
	b.Say("`schedctl lists import` sends a file of %s ids of %d random hex characters, and a line that is refused after each %d, to a replica that has just started; its list server is a Redis of its own. The time is from the start of schedctl until it has the version: parsed, sorted, written, and read back. Memory is VmRSS of the replica, read each %s. Bytes are the growth of used_memory of both servers.", thousands(d.ids), idBytes, dirtyEvery-1, pollEvery)
	if err := d.list(ctx, b); err != nil {
		return err
	}
	t := importTable()
	t.Rows = []result.Row{importRow(d.ids, d.big)}
	b.Result.Tables = []result.Table{t}
	b.Target("bytes a member in Redis: keys, seals and filter", result.Bytes, result.AtMost, 25, d.big.bytes/float64(d.ids))
	b.Target("import with its upload, 1 % of the lines refused: ids", result.PerSecond, result.AtLeast, 500_000, float64(d.ids)/d.big.took.Seconds())
	b.Target("replica's memory for an import of "+thousands(d.ids)+", above idle", result.MiB, result.AtMost, 256, d.big.above())
	return nil
}

func importTable() result.Table {
	return result.Table{First: "Import", Columns: []result.Column{
		{Name: "ids", Unit: result.PerSecond},
		{Name: "upload", Unit: result.Seconds},
		{Name: "build", Unit: result.Seconds},
		{Name: "Redis, CPU an id", Unit: result.Microseconds},
		{Name: "replica, CPU an id", Unit: result.Microseconds},
		{Name: "segments"},
		{Name: "bytes a member", Unit: result.Bytes},
		{Name: "of it the filter", Unit: result.Bytes},
		{Name: "replica idle", Unit: result.MiB},
		{Name: "highest", Unit: result.MiB},
	}}
}

func importRow(ids int, i *imported) result.Row {
	f := measure.FourFigures
	n := float64(ids)
	return result.Row{Name: thousands(ids) + " ids", Figures: result.Figures(
		f(n/i.took.Seconds()), f(i.upload.Seconds()), f((i.took - i.upload).Seconds()), f(1e6*i.server/n), f(1e6*i.replica/n), float64(i.version.Segments),
		f(i.bytes/n), f(float64(i.version.FilterBytes)/n), f(i.idle), f(i.highest),
	)}
}

func runHuge(ctx context.Context, b *tool.Bench, d *bed) error {
	if !d.huge {
		return fmt.Errorf("%w: needs -huge", tool.ErrLeftOut)
	}
	if err := d.list(ctx, b); err != nil {
		return err
	}
	ids := hugeTimes * d.ids
	gb := float64(ids) * (idBytes + 1) / 1e9
	b.Progress("needs %.0f GB of disk in %s, and %.0f GB of memory for Redis", 4*gb+1, d.folder, 25*float64(ids)/1e9+1)
	b.Say("As in the part import with %s ids, to another list on the same server by another replica, which has just started.", thousands(ids))
	if err := d.create(ctx, hugeList, filter.Fuse); err != nil {
		return err
	}
	r, err := d.replica(ctx)
	if err != nil {
		return err
	}
	huge, err := d.load(ctx, r, hugeList, ids, true)
	if err != nil {
		return err
	}
	t := importTable()
	t.Rows = []result.Row{importRow(d.ids, d.big), importRow(ids, huge)}
	b.Result.Tables = []result.Table{t}
	b.Target("replica's memory for an import of "+thousands(ids)+" / of "+thousands(d.ids)+", above idle", result.Times, result.AtMost, 1.2, huge.above()/d.big.above())
	return nil
}

func runReshard(ctx context.Context, b *tool.Bench, d *bed) (err error) {
	if err := d.list(ctx, b); err != nil {
		return err
	}
	b.Say("`schedctl lists expand` builds the list's %s ids anew in other segments while a client in another process asks for members, %s a second, in an open loop; nearly all of them go to Redis. The time is from the beginning of the operation until the version is ready, by Redis' clock.", thousands(d.ids), thousands(checksASecond))
	c, err := startChild(ctx, d, 1)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.End()) }()
	if _, err := ask(ctx, c, request{Do: "follow", List: bigList}); err != nil {
		return err
	}
	if _, err := ask(ctx, c, request{Do: "load", IDs: d.ids, Rate: checksASecond}); err != nil {
		return err
	}
	rate, err := d.expand(ctx)
	if err != nil {
		return err
	}
	a, err := ask(ctx, c, request{Do: "stop"})
	if err != nil {
		return err
	}
	b.Result.Tables = []result.Table{{
		First: "Re-sharding", Columns: []result.Column{{Name: "ids", Unit: result.PerSecond}, {Name: "checks", Unit: result.PerSecond}, {Name: "unknown"}, {Name: "wrong"}},
		Rows: []result.Row{{Name: thousands(d.ids) + " ids", Figures: result.Figures(measure.FourFigures(rate), measure.FourFigures(a.Rate), float64(a.Unknown), float64(a.Wrong))}},
	}}
	b.Target("re-sharding under "+thousands(checksASecond)+" checks/s: ids", result.PerSecond, result.AtLeast, 300_000, rate)
	note(b, fmt.Sprintf("%s checks/s were made", measure.Thousands(a.Rate)))
	b.Target("wrong answers while re-sharding", result.Number, result.Exactly, 0, float64(a.Wrong))
	return nil
}

// expand builds the big list anew, waits until that serves, and returns how many ids a second the
// build made.
func (d *bed) expand(ctx context.Context) (rate float64, err error) {
	ctx, cancel := context.WithTimeout(ctx, expandLimit)
	defer cancel()
	var started server.ListStarted
	if err := d.operate(ctx, d.replicas[0], &started, "expand", bigList); err != nil {
		return 0, err
	}
	for op := started.Operation; ; {
		h, err := d.lists.Head(ctx, bigList)
		if err != nil {
			return 0, err
		}
		if v := h.Serving; v.Number == op.Version {
			d.expanded = true
			return float64(v.Count) / (time.Duration(v.AtMS-op.SinceMS) * time.Millisecond).Seconds(), nil
		}
		if err := measure.SleepUntil(ctx, time.Now().Add(pollEvery)); err != nil {
			return 0, fmt.Errorf("version %d of list %s does not serve: %w", op.Version, bigList, err)
		}
	}
}
