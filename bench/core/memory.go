package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/freeslot/freeslot/bench/core/result"
	"github.com/freeslot/freeslot/bench/measure"
	"github.com/freeslot/freeslot/internal/cell"
)

// memorySample is how often the resident memory is read.
const memorySample = 100 * time.Millisecond

func runMemory(ctx context.Context, b *bench) error {
	program, err := measure.BuildScheduler(ctx, b.root, b.folder)
	if err != nil {
		return err
	}
	nodes := sized(b, 10_000, 500)
	quiet, busy := sized(b, 10*time.Second, 200*time.Millisecond), sized(b, 20*time.Second, 500*time.Millisecond)
	rate := sized(b, 3000, 300)
	b.say("The scheduler program against a Redis without nodes and one with %s, its settings and the garbage collector's left at their defaults; VmRSS of /proc.", measure.Thousands(float64(nodes)))
	b.say("Quiet: %s after it is ready, the last reading. Under heartbeats: %s more during which %s heartbeats/s of %d bytes come from the nodes; the highest of the readings every %s.",
		quiet, busy, measure.Thousands(float64(rate)), len(benchResources), memorySample)
	empty, err := measureMemory(ctx, b, program, 0, 0, quiet, busy)
	if err != nil {
		return err
	}
	full, err := measureMemory(ctx, b, program, nodes, rate, quiet, busy)
	if err != nil {
		return err
	}
	t := result.Table{First: "Nodes", Columns: []result.Column{
		{Name: "ready", Unit: result.MiB}, {Name: "quiet", Unit: result.MiB}, {Name: "under heartbeats, highest", Unit: result.MiB},
	}}
	t.Rows = []result.Row{
		{Name: "0", Values: result.Values(rounded(empty[0]), rounded(empty[1]), rounded(empty[2]))},
		{Name: measure.Thousands(float64(nodes)), Values: result.Values(rounded(full[0]), rounded(full[1]), rounded(full[2]))},
	}
	b.result.Tables = []result.Table{t}
	above := fmt.Sprintf("memory of a replica with %s nodes above one without", measure.Thousands(float64(nodes)))
	b.target(above+", quiet", result.MiB, result.AtMost, 40, full[1]-empty[1])
	b.target(above+", highest under heartbeats", result.MiB, result.AtMost, 40, full[2]-empty[2])
	return nil
}

// measureMemory returns the resident memory when ready, when quiet, and the highest under heartbeats.
func measureMemory(ctx context.Context, b *bench, program string, nodes, rate int, quiet, busy time.Duration) (mib [3]float64, err error) {
	s, c, epochs, err := b.fleetServer(ctx, nodes)
	if err != nil {
		return mib, err
	}
	defer func() { err = errors.Join(err, s.stop()) }()
	defer stopCell(c)
	p, err := startScheduler(program, s.URL())
	if err != nil {
		return mib, err
	}
	defer func() { err = errors.Join(err, p.Stop()) }()
	if _, err := p.ready(ctx); err != nil {
		return mib, err
	}
	if mib[0], err = p.resident(); err != nil {
		return mib, err
	}
	if err := measure.SleepUntil(ctx, time.Now().Add(quiet)); err != nil {
		return mib, err
	}
	if mib[1], err = p.resident(); err != nil {
		return mib, err
	}
	beating, cancel := context.WithCancel(ctx)
	defer cancel()
	beaten := make(chan error, 1)
	go func() { beaten <- beat(beating, c, epochs, rate) }()
	for end := time.Now().Add(busy); time.Now().Before(end); {
		if err := measure.SleepUntil(ctx, time.Now().Add(memorySample)); err != nil {
			return mib, err
		}
		now, err := p.resident()
		if err != nil {
			return mib, err
		}
		mib[2] = max(mib[2], now)
	}
	cancel()
	return mib, <-beaten
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
