package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"sync"
	"time"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/bench/core/result"
	"github.com/freeslot/freeslot/bench/measure"
	"github.com/freeslot/freeslot/worker"
)

const (
	workersMode = "core-workers"

	// fleetFiles is enough for the connections of fleetAgents at Redis, and for those of a process of theirs.
	fleetFiles = 65_536
	// fleetSpare are those for other connections, and fleetRedis what Redis keeps for itself.
	fleetSpare   = 200
	fleetRedis   = 32
	fleetStart   = 5 * time.Minute
	fleetCallers = 16
	// fleetTries is how often one is started: as a service manager would, while thousands of others are.
	fleetTries = 5
)

// startIdle starts a worker that will have nothing to do.
func startIdle(ctx context.Context, url string, node freeslot.Node) (*worker.Worker, error) {
	w, err := worker.New(worker.Config{RedisURL: url, Node: node})
	if err != nil {
		return nil, err
	}
	w.Handle(benchService, func(context.Context, *worker.Job) (any, error) { return nil, nil })
	if err := w.Start(ctx); err != nil {
		return nil, err
	}
	return w, nil
}

func init() { children[workersMode] = runWorkers }

// runWorkers runs count workers, the first of which has this number.
func runWorkers(ctx context.Context, args []string, in *bufio.Reader, out io.Writer) error {
	if len(args) != 3 {
		return errors.New("expected the URL of Redis, the first number and a count")
	}
	first, err := strconv.Atoi(args[1])
	if err != nil {
		return err
	}
	count, err := strconv.Atoi(args[2])
	if err != nil {
		return err
	}
	if _, err := measure.RaiseFiles(fleetFiles); err != nil {
		return err
	}
	startCtx, cancel := context.WithTimeout(ctx, fleetStart)
	defer cancel()
	workers, errs := make([]*worker.Worker, count), make([]error, count)
	each := func(do func(i int)) {
		var callers sync.WaitGroup
		for c := range fleetCallers {
			callers.Go(func() {
				for i := c; i < count; i += fleetCallers {
					do(i)
				}
			})
		}
		callers.Wait()
	}
	each(func(i int) {
		for try := 0; workers[i] == nil && try < fleetTries; try++ {
			workers[i], errs[i] = startIdle(startCtx, args[0], benchNode(first+i, benchPools))
		}
	})
	if err := errors.Join(errs...); err != nil {
		return err
	}
	fmt.Fprintln(out, "ready")
	err = serveLines(in, out, map[string]func() any{"ended": func() any {
		ended := 0
		for _, w := range workers {
			select {
			case <-w.Done():
				ended++
			default:
			}
		}
		return ended
	}})
	stopCtx, cancelStop := context.WithTimeout(context.Background(), measure.StopGrace)
	defer cancelStop()
	each(func(i int) { errs[i] = workers[i].Stop(stopCtx) })
	return errors.Join(append(errs, err)...)
}

// runAgentFleet measures what many idle agents cost Redis.
func runAgentFleet(ctx context.Context, b *bench) (err error) {
	wanted, processes, replicas := sized(b, 10_000, 40), sized(b, 4, 2), sized(b, 3, 1)
	settle, window := sized(b, 20*time.Second, time.Second), sized(b, time.Minute, time.Second)
	files, err := measure.RaiseFiles(fleetFiles)
	if err != nil {
		return err
	}
	agents := min(wanted, int(files-fleetSpare)/2) / processes * processes
	if agents < wanted {
		b.say("This machine allows %s open files a process, which is %s agents with two connections each to one Redis: its time is counted up to %s.",
			measure.Thousands(float64(files)), measure.Thousands(float64(agents)), measure.Thousands(float64(wanted)))
	}
	b.say("%s agents with nothing to do: workers with the default settings, %d processes of them, each worker with connections of its own; %d replicas (the scheduler program) hear of all. Redis' main thread by INFO, for %s, %s after the last node was there.",
		measure.Thousands(float64(agents)), processes, replicas, window, settle)
	program, err := measure.BuildScheduler(ctx, b.root, b.folder)
	if err != nil {
		return err
	}
	maxClients := []string{"--maxclients", strconv.FormatUint(files-fleetRedis, 10)}
	fleet, err := measureFleet(ctx, b, program, maxClients, agents, processes, replicas, settle, window)
	if err != nil {
		return err
	}
	b.say("For comparison the least that such a fleet can cost on this machine: as many connections, each with a bare PUBLISH of %d bytes as often as an agent sends a heartbeat, and as many subscribers as there are replicas. No script, no second connection.", floorBytes)
	floor, published, err := fleetFloor(ctx, b, maxClients, agents, processes, replicas, fleet.beats, settle/2, window/2)
	if err != nil {
		return err
	}
	b.result.Tables = []result.Table{{First: "Agents", Columns: []result.Column{
		{Name: "online", Unit: result.Number},
		{Name: "heartbeats and registrations", Unit: result.PerSecond},
		{Name: "blocking reads", Unit: result.PerSecond},
		{Name: "PINGs", Unit: result.PerSecond},
		{Name: "Redis' main thread", Unit: result.Percent},
		{Name: "connections", Unit: result.Number},
		{Name: "Redis' memory for them", Unit: result.MiB},
		{Name: "start of all", Unit: result.Milliseconds},
	}, Rows: []result.Row{
		{Name: measure.Thousands(float64(agents)), Values: result.Values(
			fleet.online, rounded(fleet.beats), rounded(fleet.reads), rounded(fleet.pings),
			rounded(fleet.cpu), fleet.clients, rounded(fleet.mib), rounded(fleet.started.Seconds()*1000),
		)},
		{
			Name:   fmt.Sprintf("none: %s connections that publish, %s messages/s", measure.Thousands(float64(agents)), measure.Thousands(rounded(published))),
			Values: []*float64{result.Values(0)[0], nil, nil, nil, result.Values(rounded(floor))[0], nil, nil, nil},
		},
	}}}
	b.target(fmt.Sprintf("%s idle agents, %d replicas: Redis' main thread", measure.Thousands(float64(wanted)), replicas), result.Percent, result.AtMost, 35, fleet.cpu*float64(wanted)/float64(agents))
	b.target("idle agents online in the end", result.Number, result.Exactly, float64(agents), fleet.online)
	return nil
}

// fleetFigures are of a fleet with nothing to do: rates a second, Redis' main thread in percent of a core.
type fleetFigures struct {
	online, beats, reads, pings, cpu, clients, mib float64
	started                                        time.Duration
}

func measureFleet(ctx context.Context, b *bench, program string, args []string, agents, processes, replicas int, settle, window time.Duration) (f fleetFigures, err error) {
	s, err := b.startRedis(ctx, noAOF, args...)
	if err != nil {
		return f, err
	}
	defer func() { err = errors.Join(err, s.stop()) }()
	for range replicas {
		r, err := startScheduler(program, s.URL())
		if err != nil {
			return f, err
		}
		defer func() { err = errors.Join(err, r.Stop()) }()
		if _, err := r.ready(ctx); err != nil {
			return f, err
		}
	}
	begin := time.Now()
	each := agents / processes
	all, err := startSideBySide(processes, workersMode, func(i int) []string {
		return []string{s.URL(), strconv.Itoa(i * each), strconv.Itoa(each)}
	})
	defer func() { err = errors.Join(err, endAll(all)) }()
	if err != nil {
		return f, err
	}
	f.started = time.Since(begin)
	cpu, before, after, err := s.busy(ctx, settle, window)
	if err != nil {
		return f, err
	}
	for _, c := range all {
		if text, err := c.ask("ended"); err != nil || text != "0" {
			return f, fmt.Errorf("%s workers have ended: %w", text, err)
		}
	}
	online, err := s.client.Do(ctx, s.client.B().Scard().Key("scheduler:nodes:index:online").Build()).AsInt64()
	if err != nil {
		return f, err
	}
	rate := func(command string) float64 { return after.Rate(before, command, window.Seconds()) }
	f.cpu, f.online, f.beats, f.reads, f.pings = cpu, float64(online), rate("evalsha"), rate("xread"), rate("ping")
	f.clients, f.mib, err = s.connections(ctx)
	return f, err
}
