package main

import (
	"fmt"

	"github.com/freeslot/freeslot/bench/system"
)

// The names of entries that targets speak of.
const (
	inProcess = "freeslot, in process"
	webSocket = "freeslot, WebSocket, single frames"
	batches   = "freeslot, WebSocket, batch frames"
	byGateway = "freeslot, WebSocket, batch frames, nodes by gateway"
	asynq     = "asynq"
	jetStream = "NATS JetStream"
)

// entry is one peer, or one way to use this one.
type entry struct {
	name string
	// fleet names its fleet; empty in the other parts.
	fleet string
	// program is the folder of the peer, below bench/peers.
	program string
	// programs has the program; nil means the programs of this tree.
	programs *system.Programs
	store    system.Store
	// schedulers is how many replicas run as processes of their own.
	schedulers int
	// gateway: nodes reach Redis through the replicas.
	gateway bool
	// yardstick: its load generator can do bare round trips.
	yardstick bool
	// sweep is what is tried; a short run takes shortSweep of them from the front.
	sweep []setting
}

// title names the entry in a table of several fleets.
func (e *entry) title() string {
	if e.fleet == "" {
		return e.name
	}
	return e.fleet + ": " + e.name
}

// setting is how a peer is run: the flags of its roles, how many processes run jobs, and how jobs
// are submitted.
type setting struct {
	worker    string
	processes int
	load      string
	inFlight  int
	batch     int
}

func (s *setting) words() string {
	text := "`" + s.worker + "`"
	if s.processes > 1 {
		text += fmt.Sprintf(", %d processes", s.processes)
	}
	if s.load != "" {
		text += ", load `" + s.load + "`"
	}
	return text + fmt.Sprintf(", %d in flight, %d a call", s.inFlight, s.batch)
}

const shortSweep = 3

// one is a setting of one worker process.
func one(worker, load string, inFlight, batch int) setting {
	return setting{worker: worker, processes: 1, load: load, inFlight: inFlight, batch: batch}
}

// entries are all that are measured, in the order of the report. In front of each sweep stands what
// did best while it was put together, which a short run takes.
func entries() []entry {
	return []entry{
		{name: inProcess, program: "freeslot", yardstick: true, sweep: []setting{
			one("-nodes 2", "", 2000, 64), one("-nodes 4", "", 2048, 1), one("-nodes 4", "", 256, 1),
			one("-nodes 4", "", 64, 1), one("-nodes 4", "", 1024, 1), one("-nodes 4", "", 1024, 64), one("-nodes 4", "", 2048, 64),
			one("-nodes 1", "", 1000, 1), one("-nodes 1", "", 1000, 64), one("-nodes 16", "", 1024, 1), one("-nodes 16", "", 2048, 64),
		}},
		{name: webSocket, program: "freeslot", schedulers: 1, yardstick: true, sweep: []setting{
			one("-nodes 4", "-sessions 4", 256, 1), one("-nodes 4", "-sessions 4", 1024, 1), one("-nodes 4", "-sessions 4", 64, 1),
			one("-nodes 4", "-sessions 1", 256, 1), one("-nodes 4", "-sessions 16", 256, 1), one("-nodes 1", "-sessions 4", 256, 1),
		}},
		{name: batches, program: "freeslot", schedulers: 1, yardstick: true, sweep: []setting{
			one("-nodes 4", "-sessions 4", 1024, 64), one("-nodes 4", "-sessions 4", 512, 64), one("-nodes 4", "-sessions 4", 2048, 64),
			one("-nodes 4", "-sessions 4", 2048, 256), one("-nodes 4", "-sessions 4", 4000, 64), one("-nodes 4", "-sessions 1", 1024, 64), one("-nodes 1", "-sessions 4", 1024, 64),
		}},
		{name: asynq, program: "asynq", sweep: []setting{
			one("-servers 1 -concurrency 64 -results notify", "-results notify", 256, 1),
			one("-servers 2 -concurrency 32 -results notify", "-results notify", 256, 1),
			one("-servers 4 -concurrency 16 -results notify", "-results notify", 256, 1),
			one("-servers 4 -concurrency 16 -results notify", "-results notify", 64, 1),
			one("-servers 4 -concurrency 16 -results notify", "-results notify", 1024, 1),
			one("-servers 1 -concurrency 16 -results notify", "-results notify", 64, 1),
			one("-servers 8 -concurrency 16 -results notify", "-results notify", 256, 1),
			one("-servers 8 -concurrency 16 -results notify", "-results notify", 1024, 1),
			one("-servers 16 -concurrency 16 -results notify", "-results notify", 256, 1),
			one("-servers 2 -concurrency 128 -results notify", "-results notify", 1024, 1),
			one("-servers 4 -concurrency 16 -results poll", "-results poll", 64, 1),
			one("-servers 4 -concurrency 16 -results poll", "-results poll -every 5ms", 256, 1),
			one("-servers 8 -concurrency 16 -results poll", "-results poll -every 5ms", 1024, 1),
			one("-servers 16 -concurrency 16 -results poll", "-results poll -every 20ms", 1024, 1),
			one("-servers 16 -concurrency 16 -results notify", "-results notify", 1024, 1),
			one("-servers 64 -concurrency 16 -results notify", "-results notify", 1024, 1),
		}},
		{name: "machinery", program: "machinery", sweep: []setting{
			one("-servers 4 -concurrency 16 -results notify", "-results notify", 256, 1),
			one("-servers 4 -concurrency 16 -results notify", "-results notify", 64, 1),
			one("-servers 4 -concurrency 16 -results poll", "-results poll", 64, 1),
			one("-servers 4 -concurrency 16 -results poll", "-results poll -every 5ms", 256, 1),
			one("-servers 1 -concurrency 64 -results notify", "-results notify", 64, 1),
			one("-servers 2 -concurrency 32 -results notify", "-results notify", 256, 1),
			one("-servers 8 -concurrency 16 -results notify", "-results notify", 256, 1),
			one("-servers 8 -concurrency 16 -results notify", "-results notify", 1024, 1),
			one("-servers 16 -concurrency 16 -results notify", "-results notify", 256, 1),
			one("-servers 8 -concurrency 16 -results poll", "-results poll -every 5ms", 256, 1),
			one("-servers 16 -concurrency 16 -results poll", "-results poll -every 20ms", 1024, 1),
		}},
		{name: "BullMQ", program: "bullmq", sweep: []setting{
			one("-workers 1 -concurrency 64", "-pipeline 1", 256, 1),
			one("-workers 1 -concurrency 64", "-pipeline 1", 1024, 64),
			one("-workers 1 -concurrency 256", "-pipeline 0", 256, 1),
			one("-workers 1 -concurrency 16", "-pipeline 0", 64, 1),
			one("-workers 1 -concurrency 256", "-pipeline 1", 1024, 1),
			one("-workers 1 -concurrency 256", "-pipeline 1", 2048, 1),
			one("-workers 1 -concurrency 256", "-pipeline 0", 1024, 64),
			{"-workers 1 -concurrency 64", 2, "-pipeline 0", 256, 1},
			{"-workers 1 -concurrency 64", 2, "-pipeline 1", 1024, 64},
		}},
		{name: jetStream, program: "nats", store: system.Own, sweep: []setting{
			one("-workers 2 -concurrency 512 -fetch 256", "", 2048, 256),
			one("-workers 2 -concurrency 512 -fetch 256", "", 1024, 64),
			one("-workers 2 -concurrency 512 -fetch 256", "", 4096, 256),
			one("-workers 2 -concurrency 512 -fetch 256", "", 1024, 1),
			one("-workers 2 -concurrency 512 -fetch 256", "", 256, 1),
			one("-workers 1 -concurrency 1024 -fetch 256", "", 2048, 256),
			one("-workers 2 -concurrency 512 -fetch 64", "", 2048, 256),
			one("-workers 2 -concurrency 1024 -fetch 1024", "", 4096, 256),
			one("-workers 4 -concurrency 256 -fetch 256", "", 2048, 256),
			one("-workers 16 -concurrency 64 -fetch 64", "", 2048, 256),
		}},
		{name: "River, completed in batches", program: "river", store: system.InPostgres, sweep: []setting{
			one("-concurrency 1000 -connections 10", "-connections 10", 4096, 256),
			one("-concurrency 1000 -connections 10", "-connections 10", 1024, 64),
			one("-concurrency 1000 -connections 10", "-connections 10", 1024, 1),
			one("-concurrency 200 -connections 4", "-connections 4", 4096, 256),
			one("-concurrency 2000 -connections 10 -cooldown 1ms", "-connections 10", 4096, 256),
			one("-concurrency 2000 -connections 10 -cooldown 20ms", "-connections 4", 8192, 512),
		}},
		{name: "River, completed in the handler's transaction", program: "river", store: system.InPostgres, sweep: []setting{
			one("-results tx -concurrency 20 -connections 10", "-connections 10", 64, 1),
			one("-results tx -concurrency 50 -connections 10", "-connections 4", 1024, 64),
			one("-results tx -concurrency 100 -connections 30", "-connections 10", 256, 1),
			one("-results tx -concurrency 20 -connections 4", "-connections 4", 256, 1),
			one("-results tx -concurrency 200 -connections 10 -cooldown 1ms", "-connections 4", 1024, 64),
		}},
	}
}
