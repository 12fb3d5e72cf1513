package main

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/freeslot/freeslot/bench/measure"
	"github.com/freeslot/freeslot/bench/system"
)

const (
	allFleets = "100x16,400x4,16x64,2x2048,1000x4"
	// fleetProcesses is how many processes the nodes of a fleet are spread over, and the servers
	// and workers of its peers.
	fleetProcesses = 4
	// busyMean is how long a job takes on average where handlers do not end at once, busyInFlight
	// how many jobs are in flight then at least.
	busyMean     = 10 * time.Millisecond
	busyInFlight = 1024
	// The most handlers of a peer's server or worker: it has no use for as many as a node has
	// slots.
	mostAsynq, mostJetStream = 128, 512
	// mostSlots is how many slots a node may have behind a gateway.
	mostSlots = 1024
	// fewServers are as many servers of asynq, with as many handlers each, as do best where their
	// number is free. Smaller fleets may also have these.
	fewServers = 16
)

// The fleets that targets name.
var (
	fleetOf2   = fleet{2, 2048}
	fleetOf100 = fleet{100, 16}
	fleetOf400 = fleet{400, 4}
	// large has a load from outside; the others are saturated.
	large = fleet{1000, 4}
)

// largeRate is the load of the fleet large, in jobs a second.
const largeRate = 5000

// fleet is a number of nodes and the slots of each. Peers have as many servers or workers.
type fleet struct{ nodes, slots int }

func (f fleet) String() string {
	return measure.Plural(f.nodes, "node") + " x " + measure.Plural(f.slots, "slot")
}

func (f fleet) processes() int { return min(f.nodes, fleetProcesses) }

func parseFleets(text string) (all []fleet, _ error) {
	for word := range strings.SplitSeq(text, ",") {
		var f fleet
		_, err := fmt.Sscanf(word, "%dx%d", &f.nodes, &f.slots)
		if err != nil || word != fmt.Sprintf("%dx%d", f.nodes, f.slots) || f.nodes < 1 || f.slots < 1 || f.nodes%f.processes() != 0 {
			return nil, fmt.Errorf("-fleets has %q, expected nodes x slots such as 100x16, above %d nodes a multiple of it", word, fleetProcesses)
		}
		all = append(all, f)
	}
	return all, nil
}

// calls is how jobs are submitted.
type calls struct{ inFlight, batch int }

// with are settings of the fleet that differ in how jobs are submitted.
func (f fleet) with(worker, load string, all ...calls) (out []setting) {
	for _, c := range all {
		out = append(out, setting{worker, f.processes(), load, c.inFlight, c.batch})
	}
	return out
}

// entries are what is measured with this fleet. As in the function entries, the best is in front.
func (f fleet) entries() []entry {
	nodes := fmt.Sprintf("-nodes %d -slots %d", f.nodes/f.processes(), f.slots)
	all := []entry{
		{
			name: batches, program: system.Freeslot, schedulers: 1, yardstick: true,
			sweep: f.with(nodes, "-sessions 4", calls{512, 64}, calls{1024, 64}, calls{2048, 256}, calls{4096, 256}),
		},
		{
			name: webSocket, program: system.Freeslot, schedulers: 1, yardstick: true,
			sweep: f.with(nodes, "-sessions 4", calls{256, 1}, calls{512, 1}, calls{1024, 1}),
		},
		{name: asynq, program: "asynq", sweep: f.sweepAsynq()},
		{name: jetStream, program: "nats", store: system.Own, sweep: f.sweepJetStream()},
	}
	if f.slots <= mostSlots {
		all = append(all, all[0].behindGateway())
	}
	if f == fleetOf2 {
		all = append(all, entry{
			name: inProcess, program: system.Freeslot, yardstick: true,
			sweep: f.with(nodes, "", calls{2048, 64}, calls{1024, 64}, calls{2048, 256}, calls{2048, 1}),
		})
	}
	for i := range all {
		all[i].fleet = f.String()
	}
	return all
}

// behindGateway is the same with nodes that reach Redis through the replica.
func (e *entry) behindGateway() entry {
	linked := *e
	linked.name, linked.gateway = byGateway, true
	return linked
}

func (f fleet) sweepAsynq() []setting {
	servers := func(count, concurrency int, results string) string {
		return fmt.Sprintf("-servers %d -concurrency %d -results %s", count/f.processes(), concurrency, results)
	}
	asMany, notify := min(f.slots, mostAsynq), "-results notify"
	all := slices.Concat(
		f.with(servers(f.nodes, asMany, "notify"), notify, calls{1024, 1}),
		f.with(servers(f.nodes, asMany, "poll"), "-results poll -every 5ms", calls{1024, 1}),
	)
	if f.nodes <= fewServers {
		all = append(all, f.with(servers(fewServers, fewServers, "notify"), notify, calls{1024, 1}, calls{256, 1})...)
	}
	if f.nodes > fewServers { // so many that ask each millisecond when idle take Redis from the others
		all = append(all, f.with(servers(f.nodes, asMany, "notify")+" -check 100ms", notify, calls{1024, 1}, calls{256, 1})...)
	}
	return append(all, f.with(servers(f.nodes, asMany, "notify"), notify, calls{256, 1}, calls{2048, 1})...)
}

func (f fleet) sweepJetStream() []setting {
	workers := func(fetch int) string {
		return fmt.Sprintf("-workers %d -concurrency %d -fetch %d", f.nodes/f.processes(), min(f.slots, mostJetStream), fetch)
	}
	return slices.Concat(
		f.with(workers(64), "", calls{1024, 64}, calls{2048, 256}, calls{1024, 1}, calls{256, 1}, calls{4096, 256}),
		f.with(workers(16), "", calls{1024, 64}, calls{2048, 256}),
	)
}
