package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/bench/load"
	"github.com/freeslot/freeslot/bench/measure"
	"github.com/freeslot/freeslot/bench/result"
	"github.com/freeslot/freeslot/bench/system"
	"github.com/freeslot/freeslot/bench/tool"
	"github.com/freeslot/freeslot/internal/cell"
	redisclient "github.com/freeslot/freeslot/internal/redis/client"
	"github.com/freeslot/freeslot/internal/script"
)

const (
	// callsRate is how many jobs a second a replica is promised to bear.
	callsRate = 1000
	// callsBeat is the pause between two heartbeats of an agent; each callsRegister-th call is a
	// registration under a new epoch instead.
	callsBeat     = time.Second
	callsRegister = 5
)

// callsFigures are of the size that the built-in collectors send.
var callsFigures = []byte(`{"cpu":{"usage":0.42,"load":1.7,"cores":8},"memory":{"used":17179869184,"total":34359738368,"swap_used":0},` +
	`"disk":{"used":251658240000,"total":512110190592},"process":{"resident":50331648,"goroutines":41},"redis":{"latency_ms":0.6}}`)

// runAgentCalls measures how long agents wait for Redis while a replica bears a rate of jobs, and
// what that costs the replica.
func runAgentCalls(ctx context.Context, b *tool.Bench) {
	nodes, agents := tool.Sized(b, 100, 4), tool.Sized(b, 40, 4)
	window := tool.Sized(b, 2*time.Minute, time.Second)
	b.Say("%d nodes of 16 slots in one process, one replica (the scheduler program), jobs over WebSocket, a frame each, %d a "+
		"second in an open loop.", nodes, callsRate)
	b.Say("Beside them %d agents with a connection of their own make the calls of the package worker: a heartbeat with figures "+
		"each %s, and in place of each %dth a registration under a new epoch. Times are from call to answer. Windows of %s.",
		agents, callsBeat, callsRegister, window)
	b.Say("CPU: user and system time of the replica's process by /proc.")
	s := startSystem(ctx, b, system.Shape{
		Schedulers: 1, Worker: fmt.Sprintf("-nodes %d -slots 16", nodes), Load: "-sessions 4",
	})
	defer tool.End(s.Stop)
	callers := make([]*caller, agents)
	for i := range callers {
		callers[i] = newCaller(ctx, s.Redis.URL(), i)
		defer callers[i].stop()
	}
	t := result.NewTable("Load", "heartbeat p50 [ms]", "p99 [ms]", "registration p50 [ms]", "p99 [ms]",
		"replica, of a core [%]", "calls that failed")
	var c calls
	for _, rate := range []float64{0, callsRate} {
		c = measureCalls(ctx, b, s, callers, rate, window)
		t.Add(measure.Thousands(rate)+" jobs/s", c.beat(50), c.beat(99), c.register(50), c.register(99), c.cpu, c.failed)
		b.Failed += c.failed
	}
	b.Result.Tables = []result.Table{t}
	at, ms := fmt.Sprintf(" at %s jobs/s", measure.Thousands(callsRate)), result.Milliseconds
	b.Target("heartbeat as the agent sees it"+at+": p50", ms, result.AtMost, 1, c.beat(50))
	b.Target("heartbeat as the agent sees it"+at+": p99", ms, result.AtMost, 5, c.beat(99))
	b.Target("registration as the agent sees it"+at+": p50", ms, result.AtMost, 2, c.register(50))
	b.Target("registration as the agent sees it"+at+": p99", ms, result.AtMost, 10, c.register(99))
	b.Target("a replica"+at+": of a core", result.Percent, result.AtMost, 20, c.cpu)
}

// calls are what agents and a replica did in a window.
type calls struct {
	beats, registrations *hdrhistogram.Histogram
	failed               int64
	cpu                  float64 // percent of a core
}

func newCalls() calls {
	return calls{beats: measure.NewHistogram(), registrations: measure.NewHistogram()}
}

func (c *calls) beat(q float64) float64     { return quantileMS(c.beats, q) }
func (c *calls) register(q float64) float64 { return quantileMS(c.registrations, q) }

func quantileMS(h *hdrhistogram.Histogram, q float64) float64 {
	return measure.FourFigures(float64(h.ValueAtQuantile(q)) / 1000)
}

// measureCalls has all agents make calls for a window, under a rate of jobs.
func measureCalls(
	ctx context.Context, b *tool.Bench, s *system.System, callers []*caller, rate float64, window time.Duration,
) calls {
	m := tool.Must(system.NewMeter(ctx, nil, s.Schedulers[0].PID()))
	calling, end := context.WithCancel(ctx)
	defer end()
	var agents sync.WaitGroup
	for i, a := range callers {
		a.calls = newCalls()
		agents.Go(func() { a.run(calling, callsBeat*time.Duration(i)/time.Duration(len(callers))) })
	}
	err := tool.Try(func() {
		if rate == 0 {
			tool.Sleep(ctx, window)
			return
		}
		b.Failed += tool.Must(s.Ask(ctx, load.Request{
			Loop: load.Open, Rate: rate, Batch: 1, WarmUpMS: (window / 10).Milliseconds(), MeasureMS: window.Milliseconds(),
		})).Failures()
	})
	used, cpuErr := m.Spent(ctx)
	end()
	agents.Wait()
	tool.Check(errors.Join(err, cpuErr))
	c := newCalls()
	c.cpu = used.OfCore(used.Processes)
	for _, a := range callers {
		c.beats.Merge(a.beats)
		c.registrations.Merge(a.registrations)
		c.failed += a.failed
	}
	return c
}

// caller makes the calls of one agent. Its fields are its run's, or of those who wait for that.
type caller struct {
	calls
	cell  *cell.Cell
	stop  func()
	node  freeslot.Node
	epoch cell.Epoch
}

// newCaller registers a node that no job of the load fits.
func newCaller(ctx context.Context, url string, i int) *caller {
	client := tool.Must(redisclient.Agent(redisclient.Config{URL: url, Name: fmt.Sprintf("bench-agent-%d", i)}))
	a := &caller{node: benchNode(i), epoch: cell.NewEpoch()}
	a.node.ID = fmt.Sprintf("caller-%d", i)
	var stop func()
	a.cell, stop = newCell(ctx, client, cell.Config{Scripts: script.Await})
	a.stop = func() { stop(); client.Close() }
	tool.Must(a.cell.Register(ctx, a.node, a.epoch))
	return a
}

// run makes calls until ctx ends, the first one after a pause.
func (a *caller) run(ctx context.Context, first time.Duration) {
	at := time.Now().Add(first)
	for n := 1; measure.SleepUntil(ctx, at) == nil; n++ {
		at = at.Add(callsBeat)
		h, begin, err := a.beats, time.Now(), error(nil)
		if n%callsRegister == 1 {
			h, a.epoch = a.registrations, cell.NewEpoch()
			_, err = a.cell.Register(ctx, a.node, a.epoch)
		} else {
			_, err = a.cell.Heartbeat(ctx, cell.Heartbeat{
				Node: a.node.ID, Epoch: a.epoch, Status: freeslot.StatusOnline, Resources: callsFigures,
			})
		}
		switch {
		case err == nil:
			measure.Record(h, time.Since(begin))
		case ctx.Err() == nil:
			a.failed++
		}
	}
}
