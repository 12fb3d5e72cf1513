package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/bench/measure"
	"github.com/freeslot/freeslot/bench/result"
	"github.com/freeslot/freeslot/bench/tool"
	"github.com/freeslot/freeslot/client"
	"github.com/freeslot/freeslot/internal/cell"
)

const (
	// movePoll is how often Redis is asked by which gateway nodes are connected.
	movePoll = 20 * time.Millisecond
	// moveLimit is how long agents may take, and jobs.
	moveLimit = time.Minute
)

// runGatewayKilled measures how soon agents are connected by another gateway when theirs is killed,
// and what becomes of their jobs.
func runGatewayKilled(ctx context.Context, b *tool.Bench, program string) (err error) {
	const processes, takes = 4, 500 * time.Millisecond
	count := tool.Sized(b, 1000, 40)
	warmUp, after := tool.Sized(b, 5*time.Second, time.Second), tool.Sized(b, 5*time.Second, time.Second)
	b.Say("Killed: %s agents in %d processes are all connected to one gateway, before another one starts, whose address they know. A client of that one keeps %s jobs of %s under way. The former is killed with SIGKILL. Times are from then to the first heartbeat of each node by the other gateway, by Redis' clock, which is this machine's. %s later the client submits no more, and waits for all jobs.",
		measure.Thousands(float64(count)), processes, measure.Thousands(float64(count)/2), takes, after)
	b.Progress("%s agents whose gateway is killed", measure.Thousands(float64(count)))
	g, err := newGateways(ctx, b, program, 2, false)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, g.stop()) }()
	if err := g.startNext(ctx); err != nil {
		return err
	}
	all := make([]*measure.Child, processes)
	defer func() { endAgents(all...) }()
	err = inParallel(processes, processes, func(i int) (err error) {
		group := g.agents(i, count/processes)
		group.Takes = takes
		all[i], err = startAgents(ctx, agentsMode, &group)
		return err
	})
	if err != nil {
		return err
	}
	if err := g.startNext(ctx); err != nil {
		return err
	}
	l, err := startJobs(ctx, "ws://"+g.all[1].Address, count/2)
	if err != nil {
		return err
	}
	defer l.client.Close() //nolint:errcheck // all jobs have ended
	err = measure.SleepUntil(ctx, time.Now().Add(warmUp))
	var times []float64
	if err == nil {
		times, err = g.killAndAwait(ctx, count)
	}
	if err == nil {
		err = measure.SleepUntil(ctx, time.Now().Add(after))
	}
	jobs := l.end()
	if err != nil {
		return err
	}
	lost, twice, err := judge(ctx, jobs, all)
	if err != nil {
		return err
	}
	for id, err := range lost {
		b.Progress("job %s is lost: %v", id, err)
	}
	b.Failed += int64(len(lost))
	ms := func(q float64) float64 { return measure.FourFigures(1000 * measure.Quantile(times, q)) }
	b.Result.Tables = append(b.Result.Tables, result.Table{First: "Agents of the killed gateway", Columns: []result.Column{
		{Name: "connected elsewhere: p50", Unit: result.Milliseconds},
		{Name: "p99", Unit: result.Milliseconds},
		{Name: "the last", Unit: result.Milliseconds},
		{Name: "jobs"},
		{Name: "lost"},
		{Name: "begun twice"},
	}, Rows: []result.Row{{Name: measure.Thousands(float64(count)), Figures: result.Figures(ms(0.5), ms(0.99), ms(1), float64(len(jobs)), float64(len(lost)), float64(twice))}}})
	of := fmt.Sprintf("a gateway with %s agents is killed: ", measure.Thousands(float64(count)))
	b.Target(of+"a heartbeat of each was answered elsewhere", result.Milliseconds, result.AtMost, 3000, ms(1))
	b.Target(of+"jobs lost", result.Number, result.Exactly, 0, float64(len(lost)))
	b.Target(of+"jobs done twice", result.Number, result.Exactly, 0, float64(twice))
	return nil
}

// killAndAwait kills the first replica and waits for a heartbeat of each node by the second. It
// returns when these came, in seconds after.
func (g *gateways) killAndAwait(ctx context.Context, count int) ([]float64, error) {
	keys := make([]string, count)
	for i := range keys {
		keys[i] = cell.Layout{Prefix: cell.DefaultPrefix}.Load(benchNodeID(i))
	}
	if _, moved, err := g.moved(ctx, keys); err != nil || moved > 0 {
		return nil, fmt.Errorf("%d agents have left before their gateway is killed: %w", moved, err)
	}
	killed := time.Now()
	if err := g.kill(0); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, moveLimit)
	defer cancel()
	times := make([]float64, count)
	for left := count; left > 0; {
		if err := measure.SleepUntil(ctx, time.Now().Add(movePoll)); err != nil {
			return nil, fmt.Errorf("%d agents have not come back: %w", left, err)
		}
		heard, _, err := g.moved(ctx, keys)
		if err != nil {
			return nil, err
		}
		for i, at := range heard {
			if times[i] == 0 && !at.IsZero() {
				times[i] = max(at.Sub(killed).Seconds(), 0.001) // Redis has whole milliseconds
				left--
			}
		}
	}
	return times, nil
}

// moved finds when each node's last heartbeat by the second replica was: zero if the last one came by
// another way.
func (g *gateways) moved(ctx context.Context, keys []string) (heard []time.Time, moved int, err error) {
	loads, err := g.redis.Client.Do(ctx, g.redis.Client.B().Mget().Key(keys...).Build()).AsStrSlice()
	if err != nil {
		return nil, 0, err
	}
	heard = make([]time.Time, len(loads))
	for i, load := range loads {
		const digits = 13 // of the time in milliseconds that load:<node> begins with
		if len(load) < digits || !strings.Contains(load, " bench-2 ") {
			continue
		}
		ms, err := strconv.ParseInt(load[:digits], 10, 64)
		if err != nil {
			return nil, 0, err
		}
		heard[i] = time.UnixMilli(ms)
		moved++
	}
	return heard, moved, nil
}

// jobLoop keeps jobs under way.
type jobLoop struct {
	client *client.Client
	ending chan struct{}
	loops  sync.WaitGroup
	mu     sync.Mutex       // guards jobs
	jobs   map[string]error // nil for those that succeeded
}

func startJobs(ctx context.Context, url string, atOnce int) (*jobLoop, error) {
	c, err := client.Dial(ctx, url, client.Options{})
	if err != nil {
		return nil, err
	}
	l := &jobLoop{client: c, ending: make(chan struct{}), jobs: make(map[string]error)}
	for range atOnce {
		l.loops.Go(func() {
			for {
				select {
				case <-l.ending:
					return
				default:
					l.one(ctx)
				}
			}
		})
	}
	return l, nil
}

func (l *jobLoop) one(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, moveLimit)
	defer cancel()
	id := "of no id"
	h, err := l.client.Submit(ctx, freeslot.Job{Service: benchService})
	if err == nil {
		id = h.ID()
		var status freeslot.JobStatus
		if status, err = h.Wait(ctx); err == nil && status.State != freeslot.StateSucceeded {
			err = fmt.Errorf("it has %s: %w", status.State, status.Error)
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.jobs[id] = err
}

// end waits for the jobs under way and returns all.
func (l *jobLoop) end() map[string]error {
	close(l.ending)
	l.loops.Wait()
	return l.jobs
}

// judge finds the jobs that did not succeed, by why, and counts those that began more than once.
func judge(ctx context.Context, jobs map[string]error, all []*measure.Child) (lost map[string]error, twice int, err error) {
	begun := make(map[string]int)
	for _, c := range all {
		ids, err := query[[]string](ctx, c, "begun")
		if err != nil {
			return nil, 0, err
		}
		for _, id := range ids {
			begun[id]++
		}
	}
	lost = make(map[string]error)
	for id, err := range jobs {
		switch {
		case err != nil:
			lost[id] = err
		case begun[id] == 0:
			lost[id] = errors.New("no agent has begun it")
		}
	}
	for _, times := range begun {
		if times > 1 {
			twice++
		}
	}
	return lost, twice, nil
}
