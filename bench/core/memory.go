package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/freeslot/freeslot/bench/measure"
	"github.com/freeslot/freeslot/bench/result"
	"github.com/freeslot/freeslot/bench/system"
	"github.com/freeslot/freeslot/bench/tool"
	"github.com/freeslot/freeslot/internal/cell"
)

// memorySample is how often the resident memory is read.
const memorySample = 100 * time.Millisecond

func runMemory(ctx context.Context, b *tool.Bench) {
	nodes, rate := tool.Sized(b, 10_000, 500), tool.Sized(b, 3000, 300)
	quiet := tool.Sized(b, 10*time.Second, 200*time.Millisecond)
	busy := tool.Sized(b, 20*time.Second, 500*time.Millisecond)
	b.Say("The scheduler program against a Redis without nodes and one with %s, its settings and the garbage collector's left at "+
		"their defaults; VmRSS of /proc.", measure.Thousands(nodes))
	b.Say("Quiet: %s after it is ready, the last reading. Under heartbeats: %s more during which %s heartbeats/s of %d bytes come "+
		"from the nodes; the highest of the readings every %s.",
		quiet, busy, measure.Thousands(rate), len(benchResources), memorySample)
	t := result.NewTable("Nodes", "ready [MiB]", "quiet [MiB]", "under heartbeats, highest [MiB]")
	var mib [2][3]float64
	for i, n := range []int{0, nodes} {
		mib[i] = measureMemory(ctx, b, n, rate, quiet, busy)
		t.Add(measure.Thousands(n), mib[i][0], mib[i][1], mib[i][2])
	}
	b.Result.Tables = []result.Table{t}
	above := fmt.Sprintf("memory of a replica with %s nodes above one without", measure.Thousands(nodes))
	b.Target(above+", quiet", result.MiB, result.AtMost, 40, mib[1][1]-mib[0][1])
	b.Target(above+", highest under heartbeats", result.MiB, result.AtMost, 40, mib[1][2]-mib[0][2])
}

// measureMemory returns the resident memory when ready, when quiet, and the highest under
// heartbeats.
func measureMemory(ctx context.Context, b *tool.Bench, nodes, rate int, quiet, busy time.Duration) (mib [3]float64) {
	s := b.StartRedis(ctx)
	defer tool.End(s.Stop)
	c, stop := newCell(ctx, s.Client, silentCell)
	defer stop()
	epochs := registerFleet(ctx, c, nodes)
	p := tool.Must(system.StartScheduler(ctx, b.Program(ctx, "scheduler"), s.URL(), 1))
	defer tool.End(p.Stop)
	mib[0] = tool.Must(p.Resident())
	tool.Sleep(ctx, quiet)
	mib[1] = tool.Must(p.Resident())
	beating, cancel := context.WithTimeout(ctx, busy)
	defer cancel()
	beaten := make(chan error, 1)
	go func() { beaten <- beat(beating, c, epochs, rate) }()
	highest, err := p.HighestResident(beating, memorySample)
	tool.Check(errors.Join(err, <-beaten))
	mib[2] = highest
	return mib
}

// beat sends heartbeats of node after node, rate a second, until ctx ends.
func beat(ctx context.Context, c *cell.Cell, epochs []cell.Epoch, rate int) error {
	if len(epochs) == 0 {
		return nil
	}
	pace, err := measure.NewPacer(ctx)
	if err != nil {
		return err
	}
	defer pace.Close()
	begin := time.Now()
	for i := 0; ; i++ {
		if pace.Wait(ctx, begin.Add(time.Duration(i)*time.Second/time.Duration(rate))) != nil {
			return nil
		}
		at := i % len(epochs)
		h := cell.Heartbeat{Node: benchNodeID(at), Epoch: epochs[at], Resources: []byte(benchResources)}
		if _, err := c.Heartbeat(context.WithoutCancel(ctx), h); err != nil {
			return err
		}
	}
}
