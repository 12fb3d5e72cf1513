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

func runMemory(ctx context.Context, b *tool.Bench) error {
	program, err := measure.BuildProgram(ctx, b.Root, b.Folder, "scheduler")
	if err != nil {
		return err
	}
	nodes, rate := tool.Sized(b, 10_000, 500), tool.Sized(b, 3000, 300)
	quiet, busy := tool.Sized(b, 10*time.Second, 200*time.Millisecond), tool.Sized(b, 20*time.Second, 500*time.Millisecond)
	b.Say("The scheduler program against a Redis without nodes and one with %s, its settings and the garbage collector's left at their defaults; VmRSS of /proc.", measure.Thousands(float64(nodes)))
	b.Say("Quiet: %s after it is ready, the last reading. Under heartbeats: %s more during which %s heartbeats/s of %d bytes come from the nodes; the highest of the readings every %s.",
		quiet, busy, measure.Thousands(float64(rate)), len(benchResources), memorySample)
	t := result.Table{First: "Nodes", Columns: []result.Column{
		{Name: "ready", Unit: result.MiB}, {Name: "quiet", Unit: result.MiB}, {Name: "under heartbeats, highest", Unit: result.MiB},
	}}
	var mib [2][3]float64
	for i, n := range []int{0, nodes} {
		if mib[i], err = measureMemory(ctx, b, program, n, rate, quiet, busy); err != nil {
			return err
		}
		t.Rows = append(t.Rows, result.Row{
			Name:    measure.Thousands(float64(n)),
			Figures: result.Figures(measure.FourFigures(mib[i][0]), measure.FourFigures(mib[i][1]), measure.FourFigures(mib[i][2])),
		})
	}
	b.Result.Tables = []result.Table{t}
	above := fmt.Sprintf("memory of a replica with %s nodes above one without", measure.Thousands(float64(nodes)))
	b.Target(above+", quiet", result.MiB, result.AtMost, 40, mib[1][1]-mib[0][1])
	b.Target(above+", highest under heartbeats", result.MiB, result.AtMost, 40, mib[1][2]-mib[0][2])
	return nil
}

// measureMemory returns the resident memory when ready, when quiet, and the highest under
// heartbeats.
func measureMemory(ctx context.Context, b *tool.Bench, program string, nodes, rate int, quiet, busy time.Duration) (mib [3]float64, err error) {
	s, err := startRedis(ctx, b)
	if err != nil {
		return mib, err
	}
	defer func() { err = errors.Join(err, s.Stop()) }()
	c, err := newCell(ctx, s.Client)
	if err != nil {
		return mib, err
	}
	defer stopCell(c)
	epochs, err := registerFleet(ctx, c, nodes)
	if err != nil {
		return mib, err
	}
	p, err := system.StartScheduler(ctx, program, s.URL(), 1)
	if err != nil {
		return mib, err
	}
	defer func() { err = errors.Join(err, p.Stop()) }()
	if mib[0], err = p.Resident(); err != nil {
		return mib, err
	}
	if err := measure.SleepUntil(ctx, time.Now().Add(quiet)); err != nil {
		return mib, err
	}
	if mib[1], err = p.Resident(); err != nil {
		return mib, err
	}
	beating, cancel := context.WithTimeout(ctx, busy)
	defer cancel()
	beaten := make(chan error, 1)
	go func() { beaten <- beat(beating, c, epochs, rate) }()
	mib[2], err = p.HighestResident(beating, memorySample)
	return mib, errors.Join(err, <-beaten)
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
		_, err := c.Heartbeat(context.WithoutCancel(ctx), cell.Heartbeat{Node: benchNodeID(at), Epoch: epochs[at], Resources: []byte(benchResources)})
		if err != nil {
			return err
		}
	}
}
