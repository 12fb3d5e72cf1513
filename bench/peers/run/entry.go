package main

import "github.com/freeslot/freeslot/bench/peers/result"

// The stores.
const (
	onRedis    = "redis"
	onPostgres = "postgres"
)

// entry is one peer, or one way to use this one.
type entry struct {
	name string
	// program is the folder of the peer, below bench/peers.
	program string
	store   string
	// schedulers is how many replicas run as processes of their own.
	schedulers int
	// yardstick is true when its load generator can do bare round trips.
	yardstick bool
	// sweep is what is tried; a short run takes shortSweep of them from the front.
	sweep []result.Setting
}

const shortSweep = 3

// one is a setting of one worker process.
func one(worker, load string, inFlight, batch int) result.Setting {
	return result.Setting{Worker: worker, Processes: 1, Load: load, InFlight: inFlight, Batch: batch}
}

// entries are all that are measured, in the order of the report. In front of each sweep stands what did best
// while it was put together, which a short run takes.
func entries() []entry {
	return []entry{
		{name: result.InProcess, program: "freeslot", store: onRedis, yardstick: true, sweep: []result.Setting{
			one("-nodes 2", "", 2000, 64), one("-nodes 4", "", 2048, 1), one("-nodes 4", "", 256, 1),
			one("-nodes 4", "", 64, 1), one("-nodes 4", "", 1024, 1), one("-nodes 4", "", 1024, 64), one("-nodes 4", "", 2048, 64),
			one("-nodes 1", "", 1000, 1), one("-nodes 1", "", 1000, 64), one("-nodes 16", "", 1024, 1), one("-nodes 16", "", 2048, 64),
		}},
		{name: result.WebSocket, program: "freeslot", store: onRedis, schedulers: 1, yardstick: true, sweep: []result.Setting{
			one("-nodes 4", "-sessions 4", 256, 1), one("-nodes 4", "-sessions 4", 1024, 1), one("-nodes 4", "-sessions 4", 64, 1),
			one("-nodes 4", "-sessions 1", 256, 1), one("-nodes 4", "-sessions 16", 256, 1), one("-nodes 1", "-sessions 4", 256, 1),
		}},
		{name: result.Batches, program: "freeslot", store: onRedis, schedulers: 1, yardstick: true, sweep: []result.Setting{
			one("-nodes 4", "-sessions 4", 1024, 64), one("-nodes 4", "-sessions 4", 512, 64), one("-nodes 4", "-sessions 4", 2048, 64),
			one("-nodes 4", "-sessions 4", 2048, 256), one("-nodes 4", "-sessions 4", 4000, 64), one("-nodes 4", "-sessions 1", 1024, 64), one("-nodes 1", "-sessions 4", 1024, 64),
		}},
		{name: result.Asynq, program: "asynq", store: onRedis, sweep: []result.Setting{
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
		{name: "machinery", program: "machinery", store: onRedis, sweep: []result.Setting{
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
		{name: "BullMQ", program: "bullmq", store: onRedis, sweep: []result.Setting{
			one("-workers 1 -concurrency 64", "-pipeline 1", 256, 1),
			one("-workers 1 -concurrency 64", "-pipeline 1", 1024, 64),
			one("-workers 1 -concurrency 256", "-pipeline 0", 256, 1),
			one("-workers 1 -concurrency 16", "-pipeline 0", 64, 1),
			one("-workers 1 -concurrency 256", "-pipeline 1", 1024, 1),
			one("-workers 1 -concurrency 256", "-pipeline 1", 2048, 1),
			one("-workers 1 -concurrency 256", "-pipeline 0", 1024, 64),
			{Worker: "-workers 1 -concurrency 64", Processes: 2, Load: "-pipeline 0", InFlight: 256, Batch: 1},
			{Worker: "-workers 1 -concurrency 64", Processes: 2, Load: "-pipeline 1", InFlight: 1024, Batch: 64},
		}},
		{name: "River, completed in batches", program: "river", store: onPostgres, sweep: []result.Setting{
			one("-concurrency 1000 -connections 10", "-connections 10", 4096, 256),
			one("-concurrency 1000 -connections 10", "-connections 10", 1024, 64),
			one("-concurrency 1000 -connections 10", "-connections 10", 1024, 1),
			one("-concurrency 200 -connections 4", "-connections 4", 4096, 256),
			one("-concurrency 2000 -connections 10 -cooldown 1ms", "-connections 10", 4096, 256),
			one("-concurrency 2000 -connections 10 -cooldown 20ms", "-connections 4", 8192, 512),
		}},
		{name: "River, completed in the handler's transaction", program: "river", store: onPostgres, sweep: []result.Setting{
			one("-results tx -concurrency 20 -connections 10", "-connections 10", 64, 1),
			one("-results tx -concurrency 50 -connections 10", "-connections 4", 1024, 64),
			one("-results tx -concurrency 100 -connections 30", "-connections 10", 256, 1),
			one("-results tx -concurrency 20 -connections 4", "-connections 4", 256, 1),
			one("-results tx -concurrency 200 -connections 10 -cooldown 1ms", "-connections 4", 1024, 64),
		}},
	}
}

// versionOf is the module or package whose version a peer's program has.
var versionOf = map[string]string{"asynq": "github.com/hibiken/asynq", "machinery": "github.com/RichardKnop/machinery/v2", "river": "github.com/riverqueue/river", "bullmq": "bullmq"}
