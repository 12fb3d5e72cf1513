package main

import (
	"context"
	"errors"
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
func runGatewayLine(ctx context.Context, b *tool.Bench, program string) (err error) {
	const (
		jobs, resultBytes = 16, 1 << 20
		interval          = 100 * time.Millisecond
		queue             = 100 * time.Millisecond
		lineWait          = time.Minute
	)
	rate, rounds, rest := tool.Sized(b, 10e6, 200e6), tool.Sized(b, 3, 1), tool.Sized(b, 5*time.Second, time.Second)
	b.Say("Line: one agent of %d slots behind a proxy of %s Mbit/s in each direction, in whose queue of %s all connections stand. Handlers of %d jobs end at once, each with a result of 1 MiB; %d times. Heartbeats each %s, to have enough of them, from sent to answered.",
		jobs, measure.Thousands(rate/1e6), queue, jobs, rounds, interval)
	b.Progress("large results on a slow line")
	g, err := newGateways(ctx, b, program, 1, false)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, g.stop()) }()
	if err := g.startNext(ctx); err != nil {
		return err
	}
	line, err := away.OpenLine(g.addrs[0], rate, queue)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, line.Close()) }()
	group := g.agents(0, 1)
	group.Gateways, group.Slots, group.Interval, group.ResultBytes = "ws://"+line.Addr(), jobs, interval, resultBytes
	agent, err := startAgents(ctx, agentsMode, &group)
	if err != nil {
		return err
	}
	defer func() { endAgents(agent) }()
	c, err := client.Dial(ctx, "ws://"+g.all[0].Address, client.Options{})
	if err != nil {
		return err
	}
	defer c.Close() //nolint:errcheck // all jobs have ended

	t := result.Table{First: "Heartbeats on the line", Columns: []result.Column{
		{Name: "heartbeats"},
		{Name: "p50", Unit: result.Milliseconds},
		{Name: "p99", Unit: result.Milliseconds},
		{Name: "longest", Unit: result.Milliseconds},
		{Name: "failed"},
		{Name: "took", Unit: result.Seconds},
	}}
	beside := func(name string, work func() error) (p99 float64, failed int, err error) {
		if _, err := query[beats](ctx, agent, "beats"); err != nil {
			return 0, 0, err
		}
		begin := time.Now()
		if err := work(); err != nil {
			return 0, 0, err
		}
		took := time.Since(begin)
		found, err := query[beats](ctx, agent, "beats")
		if err != nil {
			return 0, 0, err
		}
		h := measure.NewHistogram()
		for _, us := range found.TookUS {
			measure.Record(h, time.Duration(us)*time.Microsecond)
		}
		p99 = quantileMS(h, 99)
		t.Rows = append(t.Rows, result.Row{Name: name, Figures: result.Figures(float64(h.TotalCount()), quantileMS(h, 50), p99, measure.FourFigures(float64(h.Max())/1000),
			float64(found.Failed), measure.FourFigures(took.Seconds()))})
		return p99, found.Failed, nil
	}
	if _, _, err := beside("without results", func() error { return measure.SleepUntil(ctx, time.Now().Add(rest)) }); err != nil {
		return err
	}
	p99, failed, err := beside(fmt.Sprintf("beside %d x %d results of 1 MiB", rounds, jobs), func() error {
		for range rounds {
			if err := largeResults(ctx, c, jobs, lineWait); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	b.Result.Tables = append(b.Result.Tables, t)
	of := fmt.Sprintf("%d results of 1 MiB on a line of %s Mbit/s: heartbeats", jobs, measure.Thousands(rate/1e6))
	b.Target(of+", p99", result.Milliseconds, result.AtMost, 500, p99)
	b.Target(of+" that failed", result.Number, result.Exactly, 0, float64(failed))
	return nil
}

// largeResults submits jobs at once, and waits for all.
func largeResults(ctx context.Context, c *client.Client, jobs int, limit time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	batch := make([]freeslot.Job, jobs)
	for i := range batch {
		batch[i].Service = benchService
	}
	submitted, err := c.SubmitBatch(ctx, batch)
	if err != nil {
		return err
	}
	for _, one := range submitted {
		if one.Err != nil {
			return one.Err
		}
		status, err := one.Handle.Wait(ctx)
		if err != nil {
			return err
		}
		if status.State != freeslot.StateSucceeded {
			return fmt.Errorf("job %s has %s: %w", one.Handle.ID(), status.State, status.Error)
		}
	}
	return nil
}
