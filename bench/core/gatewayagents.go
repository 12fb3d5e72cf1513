package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	"github.com/freeslot/freeslot/bench/measure"
	"github.com/freeslot/freeslot/worker"
)

const (
	agentsMode = "core-agents"
	// beatPoll is how often an agent's last heartbeat is looked at: more often than it sends any.
	beatPoll = 5 * time.Millisecond
)

// agents reach Redis through gateways, in one process.
type agents struct {
	Gateways, Token, CAFile string
	// First is the number of the first agent.
	First, Count, Slots int
	// Interval is the time between heartbeats, 0 for the default.
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

func startAgents(ctx context.Context, mode string, a *agents) (*measure.Child, error) {
	text, err := json.Marshal(a)
	if err != nil {
		return nil, err
	}
	return startChild(ctx, mode, string(text))
}

// endAgents kills agents, since thousands would take long to stop in order.
func endAgents(all ...*measure.Child) {
	for _, c := range all {
		if c != nil {
			_ = c.Cmd.Process.Kill()
			_ = c.End() // it was killed
		}
	}
}

// runAgents answers "ended": how many agents have; "begun": the jobs whose handlers began; and
// "beats".
func runAgents(ctx context.Context, args []string, in *bufio.Reader, out io.Writer) error {
	var a agents
	if len(args) != 1 {
		return errors.New("expected agents as JSON")
	}
	if err := json.Unmarshal([]byte(args[0]), &a); err != nil {
		return err
	}
	if _, err := measure.RaiseFiles(fleetFiles); err != nil {
		return err
	}
	run := new(agentsRun)
	starting, cancel := context.WithTimeout(ctx, fleetStart)
	defer cancel()
	workers := make([]*worker.Worker, a.Count)
	err := inParallel(fleetCallers, a.Count, func(i int) (err error) {
		for try := 0; workers[i] == nil && try < fleetTries; try++ {
			workers[i], err = a.start(starting, a.First+i, run)
		}
		return err
	})
	if err != nil {
		return err
	}
	watching, end := context.WithCancel(ctx)
	var watch sync.WaitGroup
	watch.Go(func() { run.watch(watching, workers[0]) })
	fmt.Fprintln(out, childReady)
	err = serveLines(in, out, map[string]func() any{
		"ended": func() any { return countEnded(workers) },
		"begun": func() any {
			run.mu.Lock()
			defer run.mu.Unlock()
			return append([]string{}, run.begun...)
		},
		"beats": func() any {
			run.mu.Lock()
			defer run.mu.Unlock()
			taken := run.beats
			run.beats = beats{}
			return taken
		},
	})
	end()
	watch.Wait()
	stopCtx, cancelStop := context.WithTimeout(context.Background(), measure.StopGrace)
	defer cancelStop()
	return errors.Join(err, inParallel(fleetCallers, a.Count, func(i int) error { return workers[i].Stop(stopCtx) }))
}

func (a *agents) start(ctx context.Context, number int, run *agentsRun) (*worker.Worker, error) {
	node := benchNode(number)
	node.MaxConcurrency = a.Slots
	w, err := worker.New(worker.Config{
		Gateway: a.Gateways, Token: a.Token, GatewayTLS: worker.GatewayTLS{CAFile: a.CAFile}, Node: node, HeartbeatInterval: a.Interval,
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
