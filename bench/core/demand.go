package main

import (
	"context"
	"encoding/json"
	"fmt"
	"regexp"
	"strconv"
	"time"

	"go.uber.org/zap"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/bench/measure"
	"github.com/freeslot/freeslot/bench/result"
	"github.com/freeslot/freeslot/bench/system"
	"github.com/freeslot/freeslot/bench/tool"
	"github.com/freeslot/freeslot/internal/cache"
	"github.com/freeslot/freeslot/internal/cell"
	"github.com/freeslot/freeslot/internal/demand"
	"github.com/freeslot/freeslot/internal/dispatch"
	"github.com/freeslot/freeslot/internal/presence"
	"github.com/freeslot/freeslot/internal/selection"
)

// demandSpan is the time between two pictures of a replica.
const demandSpan = 5 * time.Second

// runDemand measures what a replica adds for the demand: a picture, and what its count of the
// queues does for it.
func runDemand(ctx context.Context, b *tool.Bench) {
	nodes, queues, rounds := tool.Sized(b, 10_000, 200), tool.Sized(b, 1000, 50), tool.Sized(b, 400, 5)
	const replicas = 4
	b.Say("A cache of %s nodes, each with three services, and %s queues with a job each, in %d pools; as many jobs for "+
		"later; statuses of %d replicas that each tell as many kinds. A step reads the statuses, makes a picture, reads which "+
		"jobs are due soon, and finds the pool of each queue. Processor time of this process, the mean of %d steps; commands "+
		"of Redis by its own count.",
		measure.Thousands(nodes), measure.Thousands(queues), benchPools, replicas, rounds)
	redis := b.StartRedis(ctx)
	defer tool.End(redis.Stop)
	c, stop := newCell(ctx, redis.Client, silentCell)
	defer stop()
	registerFleet(ctx, c, nodes)
	jobs := demandJobs(queues)
	for i := range jobs {
		enqueueFor(ctx, c, &jobs[i], 0)
		enqueueFor(ctx, c, &jobs[i], time.Now().Add(50*time.Second).UnixMilli())
	}
	known := cache.New(cache.Config{Selection: demandPools()}, []cache.Feed{{Source: c}}, zap.NewNop(), nil)
	tool.Check(known.Start(ctx))
	defer tool.End(func() error { return known.Stop(ctx) })
	d := tool.Must(dispatch.New(dispatch.Config{Replica: "bench"}, cell.NewSet(c), known, zap.NewNop(), nil))
	tool.Check(d.Start(ctx))
	for all, _ := d.KindBacklogs(); len(all) == 0; all, _ = d.KindBacklogs() {
		tool.Sleep(ctx, 10*time.Millisecond)
	}
	tool.Check(d.Stop(ctx)) // its other loops would count as well
	store := presence.NewStore(c.Runner())
	tellDemand(ctx, store, jobs, replicas)
	w := demand.NewWatch(d, known, store.Statuses, zap.NewNop())
	step := func() {
		w.Refresh()
		tool.Must(c.DueBy(ctx, time.Now().Add(dispatch.DueWithin)))
		for i := range jobs {
			_ = known.Class(jobs[i].Service, &jobs[i].Requirement).Pool()
		}
	}
	step() // makes the lists of the classes
	before := demandCommands(ctx, redis)
	micros := timed(rounds, step)
	commands := float64(demandCommands(ctx, redis)-before) / float64(rounds)
	share := micros / float64(demandSpan.Microseconds()) * 100
	t := result.NewTable("Nodes", "CPU of a step [us]", "of a core, a step every 5 s [%]", "commands of Redis a step")
	t.Add(measure.Thousands(nodes), micros, share, commands)
	b.Result.Tables = []result.Table{t}
	b.Target(fmt.Sprintf("demand with %s nodes and %s queues", measure.Thousands(nodes), measure.Thousands(queues)),
		result.Percent, result.AtMost, 0.5, share)
}

// demandJobs returns jobs of as many classes.
func demandJobs(n int) []freeslot.Job {
	jobs := make([]freeslot.Job, n)
	for i := range jobs {
		jobs[i] = freeslot.Job{Service: []string{benchService, "asr", "tts"}[i%3], Requirement: freeslot.Requirement{
			Pool: poolID(i % benchPools), Labels: map[string]string{"zone": "eu-" + strconv.Itoa(i)},
		}}
		if i%2 == 0 { // half of them ask for no pool
			jobs[i].Requirement.Pool = ""
		}
	}
	return jobs
}

func demandPools() *selection.Config {
	cfg := &selection.Config{Enabled: true, Mode: selection.ModeFlat, Version: 1}
	for i := range benchPools {
		cfg.Pools = append(cfg.Pools, selection.Pool{ID: poolID(i)})
	}
	return cfg
}

func enqueueFor(ctx context.Context, c *cell.Cell, job *freeslot.Job, at int64) {
	of := *job
	of.RunAtMS = at
	for _, r := range c.EnqueueAll(ctx, []cell.Submission{{JobID: cell.NewJobID(0), Tenant: "bench", Job: &of}}) {
		tool.Check(r.Err)
	}
}

// tellDemand writes the statuses of replicas that have all kinds of the jobs.
func tellDemand(ctx context.Context, store *presence.Store, jobs []freeslot.Job, replicas int) {
	told := make([]demand.Told, len(jobs))
	for i := range jobs {
		told[i] = demand.Told{
			Pool: jobs[i].Requirement.Pool, Service: jobs[i].Service + "-" + strconv.Itoa(i),
			Came: 12.3456789, Slots: 24.691358, Ended: 10.1, Ran: 17.1819,
		}
	}
	text := tool.Must(json.Marshal(map[string]any{"build": "bench", "demand": told}))
	for i := range replicas {
		tool.Must(store.Present(ctx, presence.Replica{Name: "r" + strconv.Itoa(i), Status: string(text)}, time.Hour))
	}
}

var demandCalls = regexp.MustCompile(`(?m)^total_commands_processed:(\d+)`)

// demandCommands returns how many commands the server has run.
func demandCommands(ctx context.Context, redis *system.Redis) int {
	text := tool.Must(redis.Client.Do(ctx, redis.Client.B().Info().Section("stats").Build()).ToString())
	return tool.Must(strconv.Atoi(demandCalls.FindStringSubmatch(text)[1]))
}
