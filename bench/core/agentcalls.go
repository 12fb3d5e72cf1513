package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
	"go.uber.org/zap"

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
func runAgentCalls(ctx context.Context, b *tool.Bench) (err error) {
	nodes, agents := tool.Sized(b, 100, 4), tool.Sized(b, 40, 4)
	window := tool.Sized(b, 2*time.Minute, time.Second)
	b.Say("%d nodes of 16 slots in one process, one replica (the scheduler program), jobs over WebSocket, a frame each, %d a second in an open loop.", nodes, callsRate)
	b.Say("Beside them %d agents with a connection of their own make the calls of the package worker: a heartbeat with figures each %s, and in place of each %dth a registration under a new epoch. Times are from call to answer. Windows of %s.",
		agents, callsBeat, callsRegister, window)
	b.Say("CPU: user and system time of the replica's process by /proc.")
	s, err := startSystem(ctx, b, system.Shape{Schedulers: 1, Worker: fmt.Sprintf("-nodes %d -slots 16", nodes), Load: "-sessions 4"})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Stop()) }()
	callers := make([]*caller, agents)
	for i := range callers {
		if callers[i], err = newCaller(ctx, s.Redis.URL(), i); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, callers[i].stop()) }()
	}
	t := result.Table{First: "Load", Columns: []result.Column{
		{Name: "heartbeat p50", Unit: result.Milliseconds},
		{Name: "p99", Unit: result.Milliseconds},
		{Name: "registration p50", Unit: result.Milliseconds},
		{Name: "p99", Unit: result.Milliseconds},
		{Name: "replica, of a core", Unit: result.Percent},
		{Name: "calls that failed"},
	}}
	var c calls
	for _, rate := range []float64{0, callsRate} {
		if c, err = measureCalls(ctx, b, s, callers, rate, window); err != nil {
			return err
		}
		t.Rows = append(t.Rows, result.Row{Name: measure.Thousands(rate) + " jobs/s", Figures: result.Figures(
			c.beat(50), c.beat(99), c.register(50), c.register(99), measure.FourFigures(c.cpu), float64(c.failed))})
		b.Failed += c.failed
	}
	b.Result.Tables = []result.Table{t}
	at := fmt.Sprintf(" at %s jobs/s", measure.Thousands(callsRate))
	b.Target("heartbeat as the agent sees it"+at+": p50", result.Milliseconds, result.AtMost, 1, c.beat(50))
	b.Target("heartbeat as the agent sees it"+at+": p99", result.Milliseconds, result.AtMost, 5, c.beat(99))
	b.Target("registration as the agent sees it"+at+": p50", result.Milliseconds, result.AtMost, 2, c.register(50))
	b.Target("registration as the agent sees it"+at+": p99", result.Milliseconds, result.AtMost, 10, c.register(99))
	b.Target("a replica"+at+": of a core", result.Percent, result.AtMost, 20, c.cpu)
	return nil
}

// calls are what agents and a replica did in a window.
type calls struct {
	beats, registrations *hdrhistogram.Histogram
	failed               int64
	cpu                  float64 // percent of a core
}

func (c *calls) beat(q float64) float64     { return quantileMS(c.beats, q) }
func (c *calls) register(q float64) float64 { return quantileMS(c.registrations, q) }

func quantileMS(h *hdrhistogram.Histogram, q float64) float64 {
	return measure.FourFigures(float64(h.ValueAtQuantile(q)) / 1000)
}

// measureCalls has all agents make calls for a window, under a rate of jobs.
func measureCalls(ctx context.Context, b *tool.Bench, s *system.System, callers []*caller, rate float64, window time.Duration) (c calls, err error) {
	before, err := s.CPU()
	if err != nil {
		return c, err
	}
	begin := time.Now()
	calling, end := context.WithCancel(ctx)
	defer end()
	var agents sync.WaitGroup
	for i, a := range callers {
		agents.Go(func() { a.run(calling, callsBeat*time.Duration(i)/time.Duration(len(callers))) })
	}
	if rate > 0 {
		var f *load.Figures
		if f, err = s.Ask(ctx, load.Request{Loop: load.Open, Rate: rate, Batch: 1, WarmUpMS: (window / 10).Milliseconds(), MeasureMS: window.Milliseconds()}); err == nil {
			b.Failed += f.Failures()
		}
	} else {
		err = measure.SleepUntil(ctx, begin.Add(window))
	}
	took := time.Since(begin)
	after, cpuErr := s.CPU()
	end()
	agents.Wait()
	if err := errors.Join(err, cpuErr); err != nil {
		return c, err
	}
	c = calls{beats: measure.NewHistogram(), registrations: measure.NewHistogram(), cpu: 100 * (after["replicas"] - before["replicas"]) / took.Seconds()}
	for _, a := range callers {
		c.beats.Merge(a.beats)
		c.registrations.Merge(a.registrations)
		c.failed += a.failed
		a.beats.Reset()
		a.registrations.Reset()
		a.failed = 0
	}
	return c, nil
}

// caller makes the calls of one agent. Its fields are its run's, or of those who wait for that.
type caller struct {
	cell  *cell.Cell
	close func()
	node  freeslot.Node
	epoch cell.Epoch

	beats, registrations *hdrhistogram.Histogram
	failed               int64
}

// newCaller registers a node that no job of the load fits.
func newCaller(ctx context.Context, url string, i int) (*caller, error) {
	client, err := redisclient.Agent(redisclient.Config{URL: url, Name: fmt.Sprintf("bench-agent-%d", i)})
	if err != nil {
		return nil, err
	}
	a := &caller{close: client.Close, node: benchNode(i), epoch: cell.NewEpoch(), beats: measure.NewHistogram(), registrations: measure.NewHistogram()}
	a.node.ID = fmt.Sprintf("caller-%d", i)
	if a.cell, err = cell.New(cell.Config{Scripts: script.Await}, client, zap.NewNop(), nil); err == nil {
		err = a.cell.Start(ctx)
	}
	if err == nil {
		_, err = a.cell.Register(ctx, a.node, a.epoch)
	}
	if err != nil {
		client.Close()
		return nil, err
	}
	return a, nil
}

func (a *caller) stop() error {
	ctx, cancel := context.WithTimeout(context.Background(), measure.StopGrace)
	defer cancel()
	err := a.cell.Stop(ctx)
	a.close()
	return err
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
			_, err = a.cell.Heartbeat(ctx, cell.Heartbeat{Node: a.node.ID, Epoch: a.epoch, Status: freeslot.StatusOnline, Resources: callsFigures})
		}
		switch {
		case err == nil:
			measure.Record(h, time.Since(begin))
		case ctx.Err() == nil:
			a.failed++
		}
	}
}
