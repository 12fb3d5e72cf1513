// Command e2e measures freeslot end to end, with real processes: a redis-server, replicas, a
// process of nodes whose handlers do nothing, and a process of clients that submit jobs over
// WebSocket.
//
//	go run -C bench ./e2e -parts everysec -duration 10s
//	go run -C bench ./e2e -load closed:64 -load closed:1024/64 -load open:2000
//
// # What a figure means
//
//   - Time to assign runs until the client has the message that names the node, time to result
//     until it has the result. In a closed loop both begin with the submit. In an open loop they
//     begin when the job was due by the rate, whether or not it could be submitted then: a stall
//     delays every job that falls into it, and each of them counts.
//   - The yardstick is the round trip of a bare EVALSHA (a script that returns 1) on a connection
//     of its own from the client's process: on the idle system, and under each load.
//   - Redis' CPU is that of its main thread, divided by the jobs. The time in scripts is the part
//     of it inside EVALSHA.
//
// Everything shares one machine: a figure shows what these processes do to each other on it, and no
// more.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/freeslot/freeslot/bench/load"
	"github.com/freeslot/freeslot/bench/measure"
	"github.com/freeslot/freeslot/bench/result"
	"github.com/freeslot/freeslot/bench/system"
	"github.com/freeslot/freeslot/bench/tool"
)

// defaultLoads are the floor of latency, single frames, batches, and two rates.
const defaultLoads = "closed:1 closed:64 closed:1024/64 open:500 open:2000"

// idleWindow is how long the yardstick is measured on the idle system.
const idleWindow = time.Second

func main() { os.Exit(newTool().Main()) }

type options struct {
	duration, warmUp                 time.Duration
	replicas, nodes, slots, sessions int
	loads                            []scenario
}

// scenario is one load and its name.
type scenario struct {
	name    string
	request load.Request
}

func newTool() *tool.Tool {
	o := new(options)
	t := &tool.Tool{
		Name: "e2e", Folder: "e2e", About: "Measures freeslot end to end: Redis, replicas, nodes and clients as processes, jobs over WebSocket.",
		Flags: o.flags, Check: o.check,
	}
	for _, aof := range []string{"everysec", system.AOFOff, "always"} {
		t.Parts = append(t.Parts, tool.Part{
			Name: aof, About: "append-only file " + aof,
			Run: func(ctx context.Context, b *tool.Bench) { o.run(ctx, b, aof) },
		})
	}
	return t
}

func (o *options) flags(f *flag.FlagSet) {
	f.DurationVar(&o.duration, "duration", 10*time.Second, "how long each load is measured")
	f.DurationVar(&o.warmUp, "warmup", 2*time.Second, "how long each load runs before that")
	f.IntVar(&o.replicas, "replicas", 1, "replicas, a process each")
	f.IntVar(&o.nodes, "nodes", 4, "nodes, all in one process")
	f.IntVar(&o.slots, "slots", 1024, "slots of each node")
	f.IntVar(&o.sessions, "sessions", 4, "WebSocket sessions, spread over the replicas")
	f.Func("load", "load to measure, repeatable: closed:64 (jobs in flight), closed:1024/64 (64 jobs a frame), "+
		"open:2000 (jobs a second)\n(default "+defaultLoads+")", func(text string) error {
		s, err := parseLoad(text)
		o.loads = append(o.loads, s)
		return err
	})
}

func (o *options) check() error {
	var errs []error
	for name, n := range map[string]int{"replicas": o.replicas, "nodes": o.nodes, "slots": o.slots, "sessions": o.sessions} {
		if n < 1 || n > 1<<16 {
			errs = append(errs, fmt.Errorf("-%s is %d, expected 1 to %d", name, n, 1<<16))
		}
	}
	if o.duration < 100*time.Millisecond || o.duration > 10*time.Minute || o.warmUp < 0 || o.warmUp > 10*time.Minute {
		errs = append(errs, fmt.Errorf("-duration is %s and -warmup %s, expected 100ms and 0s to 10m0s", o.duration, o.warmUp))
	}
	if o.loads == nil {
		for text := range strings.FieldsSeq(defaultLoads) {
			s, err := parseLoad(text)
			o.loads, errs = append(o.loads, s), append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// parseLoad reads closed:64, closed:1024/64 or open:2000.
func parseLoad(text string) (scenario, error) {
	loop, figures, _ := strings.Cut(text, ":")
	first, second, batched := strings.Cut(figures, "/")
	n, err := strconv.Atoi(first)
	batch := 1
	if batched && err == nil {
		batch, err = strconv.Atoi(second)
	}
	s := scenario{request: load.Request{Loop: loop, Batch: batch}}
	switch {
	case err != nil || n < 1 || batch < 1 || batch > n:
	case loop == load.Open && !batched:
		s.request.Rate = float64(n)
		s.name = fmt.Sprintf("%d jobs/s due, single frames", n)
		return s, nil
	case loop == load.Closed && n%batch == 0:
		s.request.InFlight = n
		s.name = fmt.Sprintf("%d in flight, single frames", n)
		if batched {
			s.name = fmt.Sprintf("%d in flight, %d a frame", n, batch)
		}
		return s, nil
	}
	return s, fmt.Errorf("%q is no load; examples: closed:64, closed:1024/64 (64 jobs a frame), open:2000 (jobs a second)", text)
}

// run measures every load on one freshly started system.
func (o *options) run(ctx context.Context, b *tool.Bench, aof string) {
	s := b.StartSystem(ctx, system.Shape{
		AOF: aof, Schedulers: o.replicas,
		Worker: fmt.Sprintf("-nodes %d -slots %d", o.nodes, o.slots), Load: fmt.Sprintf("-sessions %d", o.sessions),
	})
	defer tool.End(s.Stop)
	idle := tool.Must(s.Ask(ctx, load.Request{Loop: load.Bare, MeasureMS: idleWindow.Milliseconds()}))
	b.Say("%s, %s of %d slots in one process, %s; payload of %d bytes; the handler does nothing. Windows of %s after %s.",
		measure.Plural(o.replicas, "replica"), measure.Plural(o.nodes, "node"), o.slots,
		measure.Plural(o.sessions, "WebSocket session"), load.PayloadBytes, o.duration, o.warmUp)
	b.Say("Times are as the client sees them. In a closed loop they begin with the submit, in an open loop when the job was " +
		"due, so a stall counts for every job that falls into it.")
	b.Say("Bare EVALSHA is the round trip of a script that does nothing, under the load itself; back to back on the idle "+
		"system it took %s.", idle.Bare.Words())
	b.Say("Redis' CPU is that of its main thread, divided by the jobs; the time in scripts is the part inside EVALSHA.")
	t := result.NewTable("Load", "jobs [/s]", "submit to assign [us]", "submit to result [us]", "bare EVALSHA beside [us]",
		"submitted late [us]", "Redis' CPU a job [us]", "in scripts [us]", "jobs counted", "failed")
	for _, sc := range o.loads {
		r := sc.request
		r.Probe = true
		r.WarmUpMS, r.MeasureMS = o.warmUp.Milliseconds(), o.duration.Milliseconds()
		m := tool.Must(system.NewMeter(ctx, s.Redis))
		f, err := s.Ask(ctx, r)
		if err != nil {
			tool.Check(fmt.Errorf("%s: %w", sc.name, err))
		}
		used := tool.Must(m.Spent(ctx))
		cost := used.Cost(f.Ended)
		b.Failed += f.Failures()
		b.Progress("%s: %s jobs/s, result %s, failed %v", sc.name, measure.Thousands(f.JobsPerSecond), f.Result.Words(), f.Failed)
		t.Add(sc.name, result.Figure{f.JobsPerSecond}, quantiles(f.Assign), quantiles(&f.Result), quantiles(f.Bare),
			quantiles(f.Late), cost.CPUPerJob, cost.ScriptPerJob, f.Jobs, f.Failures())
	}
	b.Result.Tables = []result.Table{t}
}

func quantiles(t *load.Times) result.Figure {
	if t == nil {
		return nil
	}
	return result.Quantiles(t.Latency)
}
