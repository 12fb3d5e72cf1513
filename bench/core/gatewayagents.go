package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/freeslot/freeslot/bench/measure"
	"github.com/freeslot/freeslot/bench/tool"
	"github.com/freeslot/freeslot/worker"
)

const (
	agentsMode = "core-agents"
	// beatPoll is how often an agent's last heartbeat is looked at: more often than it sends any.
	beatPoll     = 5 * time.Millisecond
	fleetStart   = 5 * time.Minute
	fleetCallers = 16
	// fleetTries is how often an agent is started: as a service manager would, while thousands of
	// others start.
	fleetTries = 5
)

// agents are those of one process.
type agents struct {
	// Redis is its URL; Gateways are in place of it, separated by commas.
	Redis, Gateways, Token, CAFile string
	// First is the number of the first agent.
	First, Count, Slots int
	// Interval is the time between heartbeats, 0 for the default. Those of the first agent are watched
	// where it is given.
	Interval time.Duration
	// A handler ends after Takes with a result of so many bytes.
	Takes       time.Duration
	ResultBytes int
}

// beats are the heartbeats of the first agent since the last question.
type beats struct {
	// TookUS are the answered ones. Failed counts the times at which there were none any more.
	TookUS []int64
	Failed int
}

// agentsRun is what the process of agents has done. mu guards all fields.
type agentsRun struct {
	mu sync.Mutex
	// begun has a job's id for each time that its handler began.
	begun []string
	beats beats
}

// startAgents starts so many processes of agents, all at the same time.
func startAgents(ctx context.Context, mode string, processes int, a agents) tool.Children {
	all := make(tool.Children, processes)
	err := tool.Try(func() {
		tool.Together(processes, processes, func(i int) {
			group := a
			group.First = i * a.Count
			all[i] = tool.StartChild(ctx, mode, mode, group)
		})
	})
	if err != nil {
		all = slices.DeleteFunc(all, func(c *measure.Child) bool { return c == nil })
		_ = all.Kill()
		tool.Check(err)
	}
	return all
}

// noneEnded asks all processes of agents.
func noneEnded(ctx context.Context, all tool.Children) {
	for _, ended := range tool.AskAll[int](ctx, all, 0, "ended") {
		if ended > 0 {
			tool.Check(fmt.Errorf("%d agents have ended", ended))
		}
	}
}

// runAgents answers "ended": how many agents have; "begun": the jobs whose handlers began; and
// "beats".
func runAgents(ctx context.Context, arg []byte, serve func(func([]byte) any)) {
	a, run := tool.Decode[agents](arg), new(agentsRun)
	tool.Must(measure.RaiseFiles(fleetFiles))
	starting, cancel := context.WithTimeout(ctx, fleetStart)
	defer cancel()
	workers := make([]*worker.Worker, a.Count)
	tool.Check(measure.InParallel(fleetCallers, a.Count, func(i int) (err error) {
		for try := 0; workers[i] == nil && try < fleetTries; try++ {
			workers[i], err = a.start(starting, a.First+i, run)
		}
		return err
	}))
	defer tool.End(func() error {
		ctx, cancel := context.WithTimeout(context.Background(), measure.StopGrace)
		defer cancel()
		return measure.InParallel(a.Count, a.Count, func(i int) error { return workers[i].Stop(ctx) })
	})
	var watch sync.WaitGroup
	defer watch.Wait()
	watching, end := context.WithCancel(ctx)
	defer end()
	if a.Interval > 0 {
		watch.Go(func() { run.watch(watching, workers[0]) })
	}
	serve(func(request []byte) any {
		run.mu.Lock()
		defer run.mu.Unlock()
		switch question := tool.Decode[string](request); question {
		case "ended":
			return countEnded(workers)
		case "begun":
			return slices.Clone(run.begun)
		case "beats":
			taken := run.beats
			run.beats = beats{}
			return taken
		default:
			tool.Check(fmt.Errorf("question %q is not known", question))
			return nil
		}
	})
}

func (a *agents) start(ctx context.Context, number int, run *agentsRun) (*worker.Worker, error) {
	node := benchNode(number)
	node.MaxConcurrency = a.Slots
	w, err := worker.New(worker.Config{
		RedisURL: a.Redis, Gateway: a.Gateways, Token: a.Token, GatewayTLS: worker.GatewayTLS{CAFile: a.CAFile},
		Node: node, HeartbeatInterval: a.Interval,
	})
	if err != nil {
		return nil, err
	}
	result := strings.Repeat("x", max(a.ResultBytes-len(`""`), 0))
	w.Handle(benchService, func(ctx context.Context, job *worker.Job) (any, error) {
		run.mu.Lock()
		run.begun = append(run.begun, job.ID)
		run.mu.Unlock()
		return result, measure.SleepUntil(ctx, time.Now().Add(a.Takes))
	})
	if err := w.Start(ctx); err != nil {
		return nil, err
	}
	return w, nil
}

// watch notes the heartbeats of an agent. Each takes a time of its own, to the nanosecond.
func (r *agentsRun) watch(ctx context.Context, w *worker.Worker) {
	var last time.Duration
	for measure.SleepUntil(ctx, time.Now().Add(beatPoll)) == nil {
		took, answered := w.RedisLatency()
		if took == last {
			continue
		}
		last = took
		r.mu.Lock()
		if answered {
			r.beats.TookUS = append(r.beats.TookUS, took.Microseconds())
		} else {
			r.beats.Failed++
		}
		r.mu.Unlock()
	}
}

func countEnded(workers []*worker.Worker) (ended int) {
	for _, w := range workers {
		select {
		case <-w.Done():
			ended++
		default:
		}
	}
	return ended
}
