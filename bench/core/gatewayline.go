package main

import (
	"context"
	"fmt"
	"time"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/bench/away"
	"github.com/freeslot/freeslot/bench/measure"
	"github.com/freeslot/freeslot/bench/result"
	"github.com/freeslot/freeslot/bench/tool"
	"github.com/freeslot/freeslot/client"
)

// runGatewayLine measures heartbeats beside large results on a slow line.
func runGatewayLine(ctx context.Context, b *tool.Bench) {
	const (
		jobs, resultBytes = 16, 1 << 20
		interval          = 100 * time.Millisecond
		queue             = 100 * time.Millisecond
	)
	rate, rounds, rest := tool.Sized(b, 10e6, 200e6), tool.Sized(b, 3, 1), tool.Sized(b, 5*time.Second, time.Second)
	b.Say("Line: one agent of %d slots behind a proxy of %s Mbit/s in each direction, in whose queue of %s all connections stand. "+
		"Handlers of %d jobs end at once, each with a result of 1 MiB; %d times. Heartbeats each %s, to have enough of them, "+
		"from sent to answered.", jobs, measure.Thousands(rate/1e6), queue, jobs, rounds, interval)
	b.Progress("large results on a slow line")
	g := newGateways(ctx, b, 1, false)
	defer tool.End(g.stop)
	g.startNext(ctx)
	line := tool.Must(away.OpenLine(g.addrs[0], rate, queue))
	defer tool.End(line.Close)
	group := g.agents(1)
	group.Gateways, group.Slots, group.Interval, group.ResultBytes = "ws://"+line.Addr(), jobs, interval, resultBytes
	all := startAgents(ctx, agentsMode, 1, group)
	defer tool.End(all.Kill)
	c := tool.Must(client.Dial(ctx, "ws://"+g.all[0].Address, client.Options{}))
	defer c.Close() //nolint:errcheck // all jobs have ended

	t := result.NewTable("Heartbeats on the line", "heartbeats", "p50 [ms]", "p99 [ms]", "longest [ms]", "failed", "took [s]")
	beside := func(name string, work func()) (p99 float64, failed int) {
		tool.Ask[beats](ctx, all[0], 0, "beats")
		begin := time.Now()
		work()
		took := time.Since(begin)
		found, h := tool.Ask[beats](ctx, all[0], 0, "beats"), measure.NewHistogram()
		for _, us := range found.TookUS {
			measure.Record(h, time.Duration(us)*time.Microsecond)
		}
		p99 = quantileMS(h, 99)
		t.Add(name, h.TotalCount(), quantileMS(h, 50), p99, float64(h.Max())/1000, found.Failed, took.Seconds())
		return p99, found.Failed
	}
	beside("without results", func() { tool.Sleep(ctx, rest) })
	p99, failed := beside(fmt.Sprintf("beside %d x %d results of 1 MiB", rounds, jobs), func() {
		for range rounds {
			largeResults(ctx, c, jobs)
		}
	})
	b.Result.Tables = append(b.Result.Tables, t)
	of := fmt.Sprintf("%d results of 1 MiB on a line of %s Mbit/s: heartbeats", jobs, measure.Thousands(rate/1e6))
	b.Target(of+", p99", result.Milliseconds, result.AtMost, 500, p99)
	b.Target(of+" that failed", result.Number, result.Exactly, 0, float64(failed))
}

// largeResults submits jobs at once, and waits for all.
func largeResults(ctx context.Context, c *client.Client, jobs int) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	batch := make([]freeslot.Job, jobs)
	for i := range batch {
		batch[i].Service = benchService
	}
	for _, one := range tool.Must(c.SubmitBatch(ctx, batch)) {
		tool.Check(one.Err)
		if status := tool.Must(one.Handle.Wait(ctx)); status.State != freeslot.StateSucceeded {
			tool.Check(fmt.Errorf("job %s has %s: %w", one.Handle.ID(), status.State, status.Error))
		}
	}
}
