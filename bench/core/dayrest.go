package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/freeslot/freeslot/bench/measure"
	"github.com/freeslot/freeslot/bench/result"
	"github.com/freeslot/freeslot/bench/system"
	"github.com/freeslot/freeslot/bench/tool"
)

// The fleets at rest.
const (
	restAlone   = "no nodes"
	restDirect  = "direct nodes"
	restGateway = "nodes by gateway"
	restLarge   = "the large fleet by gateway, two replicas"
)

// rest is what was read of a fleet at rest, a value for each window: thread switches of all replicas
// a second; percent of a core of all replicas, of Redis' main thread and of the agents; node events
// that a replica received, and bytes that Redis sent, a second.
type rest struct {
	switches, replicas, redis, agents, events, sent []float64
}

// idle is a system that has nothing to do, and what was measured of it.
type idle struct {
	rest     rest
	redis    *system.Redis
	replicas []*system.Scheduler
	agents   tool.Children
	stop     func() error
}

// reading is the beginning of a window.
type reading struct {
	events, switches float64
	agents, replicas *system.Meter
}

// atRest measures what processes take that have nothing to do.
func (d *day) atRest(ctx context.Context) {
	nodes, many := tool.Sized(d.Bench, 1_000, 20), tool.Sized(d.Bench, 10_000, 40)
	starts, each := tool.Sized(d.Bench, 3, 1), tool.Sized(d.Bench, 3, 1)
	d.Say("At rest: one replica (the scheduler program) with its default settings, in windows of %s. Without nodes it is started "+
		"afresh in each round and runs alone. With %s nodes both sides run at the same time and are measured in the same %d "+
		"windows. Direct nodes are workers in one process; nodes by gateway are agents that say what workers say.",
		d.restWindow(), measure.Thousands(nodes), d.rounds)
	d.Say("%s nodes by two gateways, in turns: this machine does not hold both sides at once. So that fleet has %d starts, "+
		"each with %d windows.", measure.Thousands(many), starts, each)
	d.Say("Switches: voluntary and other ones of all threads of all replicas, by /proc. Redis: its main thread by INFO. Events: " +
		"freeslot_cache_events_total of each replica.")
	d.inTurns(d.rounds, func(s *side, _ int) { d.watchStart(ctx, s, restAlone, 1, d.startAlone) })
	d.soFar(restAlone)
	d.watchTogether(ctx, restDirect, func(ctx context.Context, s *side) *idle { return d.startDirect(ctx, s, nodes) })
	d.soFar(restDirect)
	d.watchTogether(ctx, restGateway, func(ctx context.Context, s *side) *idle { return d.startLinked(ctx, s, 1, 1, nodes) })
	d.soFar(restGateway)
	large := func(ctx context.Context, s *side) *idle { return d.startLinked(ctx, s, 2, fleetProcesses, many) }
	d.inTurns(starts, func(s *side, _ int) {
		if err := tool.Try(func() { d.watchStart(ctx, s, restLarge, each, large) }); err != nil {
			d.Say("A start of %s nodes, %s, failed and was repeated: %v", measure.Thousands(many), s.name, err)
			d.watchStart(ctx, s, restLarge, each, large)
		}
	})
	d.soFar(restLarge)
	d.restTable(nodes, many)
	d.restPromises(nodes, many)
}

// soFar prints what a fleet takes: the part is long, and writes its tables in the end.
func (d *day) soFar(fleet string) {
	for _, s := range d.sides {
		r := s.rest[fleet]
		d.Progress("%s, %s: replicas %.3g %% of a core, %.4g switches/s, %.4g events/s each", fleet, s.name,
			measure.Median(r.replicas), measure.Median(r.switches), measure.Median(r.events))
	}
}

// watchStart starts a side and measures some windows of it.
func (d *day) watchStart(
	ctx context.Context, s *side, fleet string, windows int, start func(context.Context, *side) *idle,
) {
	one := start(ctx, s)
	defer tool.End(one.stop)
	d.settle(ctx)
	for range windows {
		watch(ctx, d.restWindow(), one)
	}
	noneEnded(ctx, one.lights())
	s.keep(fleet, &one.rest)
}

// watchTogether measures both sides in the same windows.
func (d *day) watchTogether(ctx context.Context, fleet string, start func(context.Context, *side) *idle) {
	var both []*idle
	for _, s := range d.sides {
		one := start(ctx, s)
		defer tool.End(one.stop)
		both = append(both, one)
	}
	d.settle(ctx)
	for range d.rounds {
		watch(ctx, d.restWindow(), both...)
	}
	for i, one := range both {
		noneEnded(ctx, one.lights())
		d.sides[i].keep(fleet, &one.rest)
	}
}

// settle lets what follows a start end.
func (d *day) settle(ctx context.Context) {
	tool.Sleep(ctx, tool.Sized(d.Bench, 3*time.Second, 100*time.Millisecond))
}

// keep adds the windows of a system that has borne them.
func (s *side) keep(fleet string, r *rest) {
	if s.rest[fleet] == nil {
		s.rest[fleet] = new(rest)
	}
	to := s.rest[fleet]
	to.switches, to.replicas = append(to.switches, r.switches...), append(to.replicas, r.replicas...)
	to.redis, to.agents = append(to.redis, r.redis...), append(to.agents, r.agents...)
	to.events, to.sent = append(to.events, r.events...), append(to.sent, r.sent...)
}

func (d *day) startAlone(ctx context.Context, s *side) *idle {
	r := &idle{redis: d.StartRedis(ctx)}
	r.stop = func() error {
		for _, p := range r.replicas {
			p.Kill()
		}
		return errors.Join(r.agents.Kill(), r.redis.Stop())
	}
	r.startReplica(ctx, s)
	return r
}

// startReplica stops the system where it fails.
func (r *idle) startReplica(ctx context.Context, s *side) {
	r.orStop(func() {
		r.replicas = append(r.replicas, tool.Must(system.StartScheduler(ctx, s.programs.Scheduler, r.redis.URL(), 1)))
	})
}

// orStop stops the system if do fails: its caller cannot, as it does not get it.
func (r *idle) orStop(do func()) {
	if err := tool.Try(do); err != nil {
		tool.Check(errors.Join(err, r.stop()))
	}
}

// startDirect starts workers of the side's own, all in one process.
func (d *day) startDirect(ctx context.Context, s *side, nodes int) *idle {
	r := d.startAlone(ctx, s)
	r.orStop(func() {
		starting, cancel := context.WithTimeout(ctx, fleetStart)
		defer cancel()
		cmd := s.programs.Command(system.Freeslot, "worker", "-redis", r.redis.URL(), "-nodes", strconv.Itoa(nodes), "-slots", "4")
		r.agents = tool.Children{tool.Must(measure.StartChild(starting, "workers", cmd))}
	})
	return r
}

// startLinked starts gateways of the side and agents of this tree: their protocol is one.
func (d *day) startLinked(ctx context.Context, s *side, replicas, processes, nodes int) *idle {
	g := newGateways(ctx, d.Bench, replicas, false)
	g.program = s.programs.Scheduler
	r := &idle{redis: g.redis}
	r.stop = func() error { return errors.Join(r.agents.Kill(), g.stop()) }
	r.orStop(func() {
		for range replicas {
			g.startNext(ctx)
		}
		r.replicas = g.all
		r.agents = startAgents(ctx, lightMode, processes, g.agents(nodes/processes))
	})
	return r
}

// lights are the agents that answer questions: workers of another commit do not.
func (r *idle) lights() (all tool.Children) {
	for _, c := range r.agents {
		if c.Name == lightMode {
			all = append(all, c)
		}
	}
	return all
}

// watch measures a window of all these systems at the same time.
func watch(ctx context.Context, window time.Duration, all ...*idle) {
	begun := make([]reading, len(all))
	for i, r := range all {
		begun[i] = r.read(ctx)
	}
	tool.Sleep(ctx, window)
	for i, r := range all {
		r.note(ctx, &begun[i])
	}
}

// read asks for the events first: the answer takes the replica some time, which must not count.
func (r *idle) read(ctx context.Context) (b reading) {
	var replicas, agents []int
	for _, p := range r.replicas {
		replicas = append(replicas, p.PID())
		b.events += nodeEvents(ctx, p)
	}
	for _, c := range r.agents {
		agents = append(agents, c.PID())
	}
	b.switches = r.switches()
	b.agents = tool.Must(system.NewMeter(ctx, nil, agents...))
	b.replicas = tool.Must(system.NewMeter(ctx, r.redis, replicas...))
	return b
}

func (r *idle) note(ctx context.Context, b *reading) {
	used, agents := tool.Must(b.replicas.Spent(ctx)), tool.Must(b.agents.Spent(ctx))
	switches, events := r.switches()-b.switches, -b.events
	for _, p := range r.replicas {
		events += nodeEvents(ctx, p)
	}
	into := &r.rest
	into.switches = append(into.switches, switches/used.Seconds)
	into.replicas = append(into.replicas, used.OfCore(used.Processes))
	into.redis = append(into.redis, used.OfCore(used.Redis))
	into.agents = append(into.agents, agents.OfCore(agents.Processes))
	into.events = append(into.events, events/used.Seconds/float64(len(r.replicas)))
	into.sent = append(into.sent, used.SentRate())
}

func (r *idle) switches() (sum float64) {
	for _, p := range r.replicas {
		sum += tool.Must(measure.Switches(p.PID()))
	}
	return sum
}

// nodeEvents is how many events of nodes a replica has received. /metrics has no line before the
// first.
func nodeEvents(ctx context.Context, p *system.Scheduler) (sum float64) {
	ctx, cancel := context.WithTimeout(ctx, measure.CallTimeout)
	defer cancel()
	req := tool.Must(http.NewRequestWithContext(ctx, http.MethodGet, "http://"+p.Address+"/metrics", http.NoBody))
	req.Close = true // an open connection would be the replica's to look after
	resp := tool.Must(http.DefaultClient.Do(req))
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		tool.Check(fmt.Errorf("%s: /metrics answers %s", p.Name, resp.Status))
	}
	for lines := bufio.NewScanner(resp.Body); lines.Scan(); {
		name, value, _ := strings.Cut(lines.Text(), " ")
		if strings.HasPrefix(name, "freeslot_cache_events_total") {
			sum += tool.Must(strconv.ParseFloat(value, 64))
		}
	}
	return sum
}

func (d *day) restTable(nodes, many int) {
	t := result.NewTable("At rest", "replicas, of a core [%]", "least and most [%]", "switches [/s]", "least and most [/s]",
		"Redis' main thread [%]", "agents, of a core [%]", "events a replica receives [/s]", "bytes that Redis sends [/s]")
	for _, line := range []struct{ fleet, name string }{
		{restAlone, "no nodes"},
		{restDirect, measure.Thousands(nodes) + " direct"},
		{restGateway, measure.Thousands(nodes) + " by gateway"},
		{restLarge, measure.Thousands(many) + " by two gateways"},
	} {
		for _, s := range d.sides {
			r := s.rest[line.fleet]
			t.Add(line.name+", "+s.name, measure.Median(r.replicas), spread(r.replicas), measure.Median(r.switches),
				spread(r.switches), measure.Median(r.redis), measure.Median(r.agents), measure.Median(r.events),
				measure.Median(r.sent))
		}
	}
	d.Result.Tables = append(d.Result.Tables, t)
}

func (d *day) restPromises(nodes, many int) {
	before, after := d.sides[0].rest, d.sides[1].rest
	most := func(what string, unit result.Unit, limit float64, fleet string, of func(*rest) []float64) {
		d.promise(what, unit, result.AtMost, limit, of(before[fleet]), of(after[fleet]))
	}
	replicas := func(r *rest) []float64 { return r.replicas }
	most("idle replica without nodes: thread switches", result.PerSecond, 300, restAlone,
		func(r *rest) []float64 { return r.switches })
	most("idle replica without nodes: of a core", result.Percent, 1.4, restAlone, replicas)
	some := "idle replica with " + measure.Thousands(nodes)
	most(some+" direct nodes: of a core", result.Percent, 4, restDirect, replicas)
	most(some+" nodes by gateway: of a core", result.Percent, 7, restGateway, replicas)
	all := measure.Thousands(many) + " idle agents by two gateways: "
	most(all+"both replicas, of a core", result.Percent, 40, restLarge, replicas)
	most(all+"events that a replica receives", result.PerSecond, 100, restLarge,
		func(r *rest) []float64 { return r.events })
}
