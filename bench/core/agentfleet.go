package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"time"

	"github.com/freeslot/freeslot/bench/measure"
	"github.com/freeslot/freeslot/bench/result"
	"github.com/freeslot/freeslot/bench/system"
	"github.com/freeslot/freeslot/bench/tool"
	"github.com/freeslot/freeslot/internal/cell"
	"github.com/freeslot/freeslot/worker"
)

const (
	workersMode = "core-workers"

	// fleetFiles is enough for the connections of all agents at Redis, and for those of a process
	// of theirs.
	fleetFiles = 65_536
	// fleetSpare are those for other connections, and fleetRedis what Redis keeps for itself.
	fleetSpare   = 200
	fleetRedis   = 32
	fleetStart   = 5 * time.Minute
	fleetCallers = 16
	// fleetTries is how often an agent is started: as a service manager would, while thousands of
	// others start.
	fleetTries = 5
)

// runWorkers runs count workers with nothing to do, the first of which has this number. It answers
// "ended": how many have.
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
	ctx, cancel := context.WithTimeout(ctx, fleetStart)
	defer cancel()
	workers := make([]*worker.Worker, count)
	err = inParallel(fleetCallers, count, func(i int) (err error) {
		for try := 0; workers[i] == nil && try < fleetTries; try++ {
			workers[i], err = startIdle(ctx, args[0], first+i)
		}
		return err
	})
	if err != nil {
		return err
	}
	fmt.Fprintln(out, childReady)
	err = serveLines(in, out, map[string]func() any{"ended": func() any { return countEnded(workers) }})
	stopCtx, cancelStop := context.WithTimeout(context.Background(), measure.StopGrace)
	defer cancelStop()
	return errors.Join(err, inParallel(fleetCallers, count, func(i int) error { return workers[i].Stop(stopCtx) }))
}

// startIdle starts a worker that will have nothing to do.
func startIdle(ctx context.Context, url string, i int) (*worker.Worker, error) {
	w, err := worker.New(worker.Config{RedisURL: url, Node: benchNode(i)})
	if err != nil {
		return nil, err
	}
	w.Handle(benchService, func(context.Context, *worker.Job) (any, error) { return nil, nil })
	if err := w.Start(ctx); err != nil {
		return nil, err
	}
	return w, nil
}

// fleet is agents with nothing to do.
type fleet struct {
	program                     string // of the replicas
	agents, processes, replicas int
	maxClients                  string
	settle, window              time.Duration
}

// runAgentFleet measures what many idle agents cost Redis.
func runAgentFleet(ctx context.Context, b *tool.Bench) (err error) {
	wanted := tool.Sized(b, 10_000, 40)
	f := fleet{
		processes: tool.Sized(b, 4, 2), replicas: tool.Sized(b, 3, 1),
		settle: tool.Sized(b, 20*time.Second, time.Second), window: tool.Sized(b, time.Minute, time.Second),
	}
	files, err := measure.RaiseFiles(fleetFiles)
	if err != nil {
		return err
	}
	f.maxClients = strconv.FormatUint(files-fleetRedis, 10)
	f.agents = min(wanted, int(files-fleetSpare)/2) / f.processes * f.processes
	if f.agents < wanted {
		b.Say("This machine allows %s open files a process, which is %s agents with two connections each to one Redis: its time is counted up to %s.",
			measure.Thousands(float64(files)), measure.Thousands(float64(f.agents)), measure.Thousands(float64(wanted)))
	}
	b.Say("%s agents with nothing to do: workers with the default settings, %d processes of them, each worker with connections of its own; %d replicas (the scheduler program) hear of all. Redis' main thread by INFO, for %s, %s after the last node was there.",
		measure.Thousands(float64(f.agents)), f.processes, f.replicas, f.window, f.settle)
	if f.program, err = measure.BuildProgram(ctx, b.Root, b.Folder, "scheduler"); err != nil {
		return err
	}
	return f.measure(ctx, b, wanted)
}

func (f *fleet) measure(ctx context.Context, b *tool.Bench, wanted int) (err error) {
	s, err := startRedis(ctx, b, "--maxclients", f.maxClients)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Stop()) }()
	for i := range f.replicas {
		r, err := system.StartScheduler(ctx, f.program, s.URL(), i+1)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, r.Stop()) }()
	}
	begin := time.Now()
	all := make([]*measure.Child, f.processes)
	defer func() {
		err = errors.Join(err, inParallel(f.processes, f.processes, func(i int) error {
			if all[i] == nil {
				return nil
			}
			return all[i].End()
		}))
	}()
	each := f.agents / f.processes
	starting, cancel := context.WithTimeout(ctx, fleetStart)
	defer cancel()
	err = inParallel(f.processes, f.processes, func(i int) (err error) {
		all[i], err = startChild(starting, workersMode, s.URL(), strconv.Itoa(i*each), strconv.Itoa(each))
		return err
	})
	if err != nil {
		return err
	}
	started := time.Since(begin)
	if err := measure.SleepUntil(ctx, time.Now().Add(f.settle)); err != nil {
		return err
	}
	before, err := measure.ReadRedisStat(ctx, s.Client)
	if err != nil {
		return err
	}
	begin = time.Now()
	if err := measure.SleepUntil(ctx, begin.Add(f.window)); err != nil {
		return err
	}
	after, err := measure.ReadRedisStat(ctx, s.Client)
	if err != nil {
		return err
	}
	seconds := time.Since(begin).Seconds()
	for _, c := range all {
		if ended, err := query[int](ctx, c, "ended"); err != nil || ended > 0 {
			return fmt.Errorf("%d workers have ended: %w", ended, err)
		}
	}
	online, err := s.Client.Do(ctx, s.Client.B().Scard().Key(cell.Layout{Prefix: cell.DefaultPrefix}.Online()).Build()).AsInt64()
	if err != nil {
		return err
	}
	rate := func(command string) float64 { return measure.FourFigures(after.Rate(before, command, seconds)) }
	cpu := 100 * (after.CPUSeconds - before.CPUSeconds) / seconds
	b.Result.Tables = []result.Table{{First: "Agents", Columns: []result.Column{
		{Name: "online"},
		{Name: "heartbeats and registrations", Unit: result.PerSecond},
		{Name: "blocking reads", Unit: result.PerSecond},
		{Name: "PINGs", Unit: result.PerSecond},
		{Name: "Redis' main thread", Unit: result.Percent},
		{Name: "start of all", Unit: result.Milliseconds},
	}, Rows: []result.Row{{Name: measure.Thousands(float64(f.agents)), Figures: result.Figures(
		float64(online), rate("evalsha"), rate("xread"), rate("ping"), measure.FourFigures(cpu), measure.FourFigures(started.Seconds()*1000),
	)}}}}
	b.Target(fmt.Sprintf("%s idle agents, %d replicas: Redis' main thread", measure.Thousands(float64(wanted)), f.replicas),
		result.Percent, result.AtMost, 35, cpu*float64(wanted)/float64(f.agents))
	b.Target("idle agents online in the end", result.Number, result.Exactly, float64(f.agents), float64(online))
	return nil
}
