package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/freeslot/freeslot/bench/load"
	"github.com/freeslot/freeslot/bench/measure"
	"github.com/freeslot/freeslot/bench/result"
	"github.com/freeslot/freeslot/bench/system"
	"github.com/freeslot/freeslot/bench/tool"
)

const (
	// dayProcesses run the nodes. dayInFlight jobs in calls of dayBatch are what saturates direct
	// nodes and nodes by gateway best, by the sweep of the part fleet of peers.
	dayProcesses, dayInFlight, dayBatch = 4, 512, 64
	// calmRate is a load of single frames, in jobs a second.
	calmRate = 1000
)

// loads are the figures of one kind of nodes on one side, a value for each round.
type loads struct {
	// At saturation: jobs a second, how busy Redis' main thread is in percent, and microseconds of
	// processor time a job by process.
	jobs, busy                      []float64
	replica, client, workers, redis []float64
	// At half of the saturation: microseconds until a handler began.
	startP50, startP99 []float64
	// One job at a time: jobs a second, and microseconds until its result. Direct nodes alone.
	oneRate, oneP50 []float64
	// calm is the replica's processor time a job at calmRate, and calmSwitches its thread switches.
	// Direct nodes alone.
	calm, calmSwitches []float64
}

var errNoJobEnded = errors.New("no job ended in the window")

// underLoad measures what jobs cost, by gateway and with direct nodes.
func (d *day) underLoad(ctx context.Context) {
	nodes, slots, window := tool.Sized(d.Bench, 100, 8), 16, d.loadWindow()
	worker := fmt.Sprintf("-nodes %d -slots %d", nodes/dayProcesses, slots)
	rate := d.firstLook(ctx, worker)
	d.Say("Under load: %d nodes of %d slots in %d processes, one replica, %d jobs in flight, %d a frame; each system is started "+
		"afresh in each round and warmed up. At half of the saturation of direct nodes all get %s jobs/s in an open loop, "+
		"submitted the same way. One at a time is a frame and a job. Windows of %s.",
		nodes, slots, dayProcesses, dayInFlight, dayBatch, measure.Thousands(rate), window)
	r := d.startRelay(ctx)
	defer tool.End(r.stop)
	var floor, floorSwitches []float64
	tool.InTurns(d.Bench, d.rounds, []*side{d.sides[0], d.sides[1], nil}, func(s *side, round int) {
		if s == nil {
			us, switches := r.run(ctx, calmRate, window)
			floor, floorSwitches = append(floor, us), append(floorSwitches, switches)
			return
		}
		for i := range 2 {
			d.load(ctx, s, worker, rate, (i+round)%2 == 1)
		}
	})
	d.loadTable(nodes, slots)
	d.calmTable(floor, floorSwitches)
	d.loadPromises(fmt.Sprintf("%d x %d", nodes, slots))
}

// firstLook returns the rate that all get at half load: half of what direct nodes did before.
func (d *day) firstLook(ctx context.Context, worker string) (rate float64) {
	s := d.startSide(ctx, d.sides[0], worker, false)
	defer tool.End(s.Stop)
	return d.ask(ctx, s, d.saturating()).JobsPerSecond / 2
}

func (d *day) startSide(ctx context.Context, s *side, worker string, gateway bool) *system.System {
	y := tool.Must(system.Start(ctx, s.programs, system.Shape{
		Program: system.Freeslot, AOF: system.AOFOff, Schedulers: 1, Gateway: gateway,
		Worker: worker, Processes: dayProcesses, Load: "-sessions 4",
	}))
	d.NoteServer(ctx, y.Redis, system.AOFOff)
	return y
}

func (d *day) saturating() load.Request {
	return load.Request{
		Loop: load.Closed, InFlight: dayInFlight, Batch: dayBatch,
		WarmUpMS: d.loadWindow().Milliseconds() / 15, MeasureMS: d.loadWindow().Milliseconds(),
	}
}

// ask refuses a window without jobs, and counts jobs that failed.
func (d *day) ask(ctx context.Context, s *system.System, r load.Request) *load.Figures {
	f := tool.Must(s.Ask(ctx, r))
	d.Failed += f.Failures()
	if f.Jobs == 0 || f.Ended == 0 {
		tool.Check(errNoJobEnded)
	}
	return f
}

// load is a round of one side with one kind of nodes.
func (d *day) load(ctx context.Context, s *side, worker string, rate float64, gateway bool) {
	into, kind := &s.direct, "direct"
	if gateway {
		into, kind = &s.gateway, "by gateway"
	}
	y := d.startSide(ctx, s, worker, gateway)
	defer tool.End(y.Stop)
	heat := d.saturating()
	heat.MeasureMS /= 3
	d.ask(ctx, y, heat)
	full := d.costs(ctx, y, d.saturating())
	into.saturated(full)
	r := d.saturating()
	r.Loop, r.Rate = load.Open, rate
	half := d.ask(ctx, y, r)
	d.Progress("%s, %s: %s jobs/s, replica %.1f us a job; at half load p50 to start %s", kind, s.name,
		measure.Thousands(full.JobsPerSecond), full.cpu["replicas"], measure.Micros(half.Start.P50))
	into.startP50 = append(into.startP50, float64(half.Start.P50))
	into.startP99 = append(into.startP99, float64(half.Start.P99))
	if gateway {
		return
	}
	r.Loop, r.InFlight, r.Batch, r.Rate = load.Closed, 1, 1, 0
	one := d.ask(ctx, y, r)
	into.oneRate = append(into.oneRate, one.JobsPerSecond)
	into.oneP50 = append(into.oneP50, float64(one.Result.P50))
	r.Loop, r.Rate = load.Open, calmRate
	switches := tool.Must(measure.Switches(y.Schedulers[0].PID()))
	calm := d.costs(ctx, y, r)
	switches = tool.Must(measure.Switches(y.Schedulers[0].PID())) - switches
	into.calm = append(into.calm, calm.cpu["replicas"])
	into.calmSwitches = append(into.calmSwitches, switches/float64(calm.Ended))
}

// cost is a window with the processor time of a job by process, in microseconds.
type cost struct {
	*load.Figures
	cpu  map[string]float64
	busy float64 // Redis' main thread, percent
}

func (d *day) costs(ctx context.Context, y *system.System, r load.Request) (c cost) {
	m := tool.Must(system.NewMeter(ctx, y.Redis))
	before := tool.Must(y.CPU())
	c.Figures = d.ask(ctx, y, r)
	c.cpu = tool.Must(y.CPU())
	used := tool.Must(m.Spent(ctx))
	for name := range c.cpu {
		c.cpu[name] = (c.cpu[name] - before[name]) * 1e6 / float64(c.Ended)
	}
	c.busy = used.OfCore(used.Redis)
	return c
}

func (l *loads) saturated(c cost) {
	l.jobs, l.busy = append(l.jobs, c.JobsPerSecond), append(l.busy, c.busy)
	l.replica, l.client = append(l.replica, c.cpu["replicas"]), append(l.client, c.cpu["load"])
	l.workers, l.redis = append(l.workers, c.cpu["workers"]), append(l.redis, c.cpu["redis"])
}

func (d *day) loadTable(nodes, slots int) {
	t := result.NewTable(fmt.Sprintf("%d nodes x %d slots", nodes, slots), "jobs [/s]", "least and most [/s]",
		"replica, CPU a job [us]", "client [us]", "workers [us]", "Redis [us]", "Redis busy [%]",
		"half load: start p50 [us]", "p99 [us]", "one at a time [/s]", "p50 to its result [us]")
	for _, kind := range []struct {
		name string
		of   func(*side) *loads
	}{
		{"direct", func(s *side) *loads { return &s.direct }},
		{"by gateway", func(s *side) *loads { return &s.gateway }},
	} {
		for _, s := range d.sides {
			l := kind.of(s)
			var oneRate, oneP50 any
			if len(l.oneRate) > 0 {
				oneRate, oneP50 = measure.Median(l.oneRate), measure.Median(l.oneP50)
			}
			t.Add(kind.name+", "+s.name, measure.Median(l.jobs), spread(l.jobs), measure.Median(l.replica),
				measure.Median(l.client), measure.Median(l.workers), measure.Median(l.redis), measure.Median(l.busy),
				measure.Median(l.startP50), measure.Median(l.startP99), oneRate, oneP50)
		}
	}
	d.Result.Tables = append(d.Result.Tables, t)
}

func (d *day) calmTable(floor, floorSwitches []float64) {
	t := result.NewTable(fmt.Sprintf("%s jobs/s in single frames", measure.Thousands(calmRate)),
		"CPU a job [us]", "least and most [us]", "switches a job")
	t.Add("bare relay", measure.Median(floor), spread(floor), measure.Median(floorSwitches))
	for _, s := range d.sides {
		t.Add("replica, "+s.name, measure.Median(s.direct.calm), spread(s.direct.calm), measure.Median(s.direct.calmSwitches))
	}
	d.Result.Tables = append(d.Result.Tables, t)
}

func (d *day) loadPromises(fleet string) {
	before, after := d.sides[0], d.sides[1]
	gateway := func(what string, bound result.Bound, limit float64, of func(*loads) []float64) {
		d.promise(fleet+" by gateway, against direct: "+what, result.Times, bound, limit,
			ratios(of(&before.gateway), of(&before.direct)), ratios(of(&after.gateway), of(&after.direct)))
	}
	jobs := func(l *loads) []float64 { return l.jobs }
	gateway("replica's CPU a job", result.AtMost, 1.6, func(l *loads) []float64 { return l.replica })
	gateway("jobs/s", result.AtLeast, 0.95, jobs)
	gateway("p50 to start at half of direct's saturation", result.AtMost, 1.4, func(l *loads) []float64 { return l.startP50 })
	d.sameAsBefore(fleet+" direct, jobs/s at saturation", before.direct.jobs, after.direct.jobs, result.PerSecond)
	d.sameAsBefore(fleet+" direct, jobs/s one at a time", before.direct.oneRate, after.direct.oneRate, result.PerSecond)
}

// sameAsBefore is a target of the ratio of both sides.
func (d *day) sameAsBefore(what string, before, after []float64, unit result.Unit) {
	all := ratios(after, before)
	d.Target(what+", against before", result.Times, result.AtLeast, 0.98, measure.Median(all))
	f := spread(all)
	d.Note("%.4g%s and %.4g%s; rounds %.3g to %.3g", measure.Median(after), unit, measure.Median(before), unit, f[0], f[1])
}
