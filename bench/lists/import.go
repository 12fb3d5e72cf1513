package main

import (
	"context"
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

func thousands(n int) string { return measure.Thousands(n) }

func runImport(ctx context.Context, b *tool.Bench, d *bed) {
	b.Say("`schedctl lists import` sends a file of %s ids of %d random hex characters, and a line that is refused after each "+
		"%d, to a replica that has just started; its list server is a Redis of its own. The time is from the start of schedctl "+
		"until it has the version: parsed, sorted, written, and read back. Memory is VmRSS of the replica, read each %s. Bytes "+
		"are the growth of used_memory of both servers.", thousands(d.ids), idBytes, dirtyEvery-1, pollEvery)
	d.list(ctx, b)
	t := importTable()
	addImport(&t, d.ids, d.big)
	b.Result.Tables = []result.Table{t}
	n := float64(d.ids)
	b.Target("bytes a member in Redis: keys, seals and filter", result.Bytes, result.AtMost, 25, d.big.bytes/n)
	b.Target("import with its upload, 1 % of the lines refused: ids", result.PerSecond, result.AtLeast, 500_000,
		n/d.big.took.Seconds())
	b.Target("replica's memory for an import of "+thousands(d.ids)+", above idle", result.MiB, result.AtMost, 256, d.big.above())
}

func importTable() result.Table {
	return result.NewTable("Import", "ids [/s]", "upload [s]", "build [s]", "Redis, CPU an id [us]", "replica, CPU an id [us]",
		"segments", "bytes a member [B]", "of it the filter [B]", "replica idle [MiB]", "highest [MiB]")
}

func addImport(t *result.Table, ids int, i *imported) {
	n := float64(ids)
	t.Add(thousands(ids)+" ids", n/i.took.Seconds(), i.upload.Seconds(), (i.took - i.upload).Seconds(), 1e6*i.server/n,
		1e6*i.replica/n, int64(i.version.Segments), i.bytes/n, float64(i.version.FilterBytes)/n, i.idle, i.highest)
}

func runHuge(ctx context.Context, b *tool.Bench, d *bed) {
	if !d.huge {
		tool.Check(fmt.Errorf("%w: needs -huge", tool.ErrLeftOut))
	}
	d.list(ctx, b)
	ids := hugeTimes * d.ids
	gb := float64(ids) * (idBytes + 1) / 1e9
	b.Progress("needs %.0f GB of disk in %s, and %.0f GB of memory for Redis", 4*gb+1, d.folder, 25*float64(ids)/1e9+1)
	b.Say("As in the part import with %s ids, to another list on the same server by another replica, which has just started.",
		thousands(ids))
	d.create(ctx, hugeList, filter.Fuse)
	huge := d.load(ctx, d.replica(ctx), hugeList, ids, true)
	t := importTable()
	addImport(&t, d.ids, d.big)
	addImport(&t, ids, huge)
	b.Result.Tables = []result.Table{t}
	b.Target("replica's memory for an import of "+thousands(ids)+" / of "+thousands(d.ids)+", above idle", result.Times,
		result.AtMost, 1.2, huge.above()/d.big.above())
}

func runReshard(ctx context.Context, b *tool.Bench, d *bed) {
	d.list(ctx, b)
	b.Say("`schedctl lists expand` builds the list's %s ids anew in other segments while a client in another process asks for "+
		"members, %s a second, in an open loop; nearly all of them go to Redis. The time is from the beginning of the operation "+
		"until the version is ready, by Redis' clock.", thousands(d.ids), thousands(checksASecond))
	c := startClients(ctx, d, 1)
	defer tool.End(c.End)
	ask(ctx, c, request{Do: "follow", List: bigList})
	ask(ctx, c, request{Do: "load", IDs: d.ids, Rate: checksASecond})
	rate := d.expand(ctx)
	a := ask(ctx, c, request{Do: "stop"})
	t := result.NewTable("Re-sharding", "ids [/s]", "checks [/s]", "unknown", "wrong")
	t.Add(thousands(d.ids)+" ids", rate, a.Rate, a.Unknown, a.Wrong)
	b.Result.Tables = []result.Table{t}
	b.Target("re-sharding under "+thousands(checksASecond)+" checks/s: ids", result.PerSecond, result.AtLeast, 300_000, rate)
	b.Note("%s checks/s were made", measure.Thousands(a.Rate))
	b.Target("wrong answers while re-sharding", result.Number, result.Exactly, 0, float64(a.Wrong))
}

// expand builds the big list anew, waits until that serves, and returns how many ids a second the
// build made.
func (d *bed) expand(ctx context.Context) (rate float64) {
	ctx, cancel := context.WithTimeout(ctx, expandLimit)
	defer cancel()
	var started server.ListStarted
	tool.Check(d.operate(ctx, d.replicas[0], &started, "expand", bigList))
	for op := started.Operation; ; {
		if v := tool.Must(d.lists.Head(ctx, bigList)).Serving; v.Number == op.Version {
			d.expanded = true
			return float64(v.Count) / (time.Duration(v.AtMS-op.SinceMS) * time.Millisecond).Seconds()
		}
		if err := measure.SleepUntil(ctx, time.Now().Add(pollEvery)); err != nil {
			tool.Check(fmt.Errorf("version %d of list %s does not serve: %w", op.Version, bigList, err))
		}
	}
}
