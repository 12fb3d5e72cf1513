package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
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
func runGatewayKilled(ctx context.Context, b *tool.Bench) {
	const processes, takes = 4, 500 * time.Millisecond
	count := tool.Sized(b, 1000, 40)
	warmUp, after := tool.Sized(b, 5*time.Second, time.Second), tool.Sized(b, 5*time.Second, time.Second)
	b.Say("Killed: %s agents in %d processes are all connected to one gateway, before another one starts, whose address they "+
		"know. A client of that one keeps %s jobs of %s under way. The former is killed with SIGKILL. Times are from then to "+
		"the first heartbeat of each node by the other gateway, by Redis' clock, which is this machine's. %s later the client "+
		"submits no more, and waits for all jobs.",
		measure.Thousands(count), processes, measure.Thousands(count/2), takes, after)
	b.Progress("%s agents whose gateway is killed", measure.Thousands(count))
	g := newGateways(ctx, b, 2, false)
	defer tool.End(g.stop)
	g.startNext(ctx)
	group := g.agents(count / processes)
	group.Takes = takes
	all := startAgents(ctx, agentsMode, processes, group)
	defer tool.End(all.Kill)
	g.startNext(ctx)
	l := startJobs(ctx, "ws://"+g.all[1].Address, count/2)
	defer l.client.Close() //nolint:errcheck // all jobs have ended
	var times []float64
	err := tool.Try(func() {
		tool.Sleep(ctx, warmUp)
		times = g.killAndAwait(ctx, count)
		tool.Sleep(ctx, after)
	})
	jobs := l.end()
	tool.Check(err)
	lost, twice := judge(ctx, jobs, all)
	for id, err := range lost {
		b.Progress("job %s is lost: %v", id, err)
	}
	b.Failed += int64(len(lost))
	ms := func(q float64) float64 { return 1000 * measure.Quantile(times, q) }
	t := result.NewTable("Agents of the killed gateway", "connected elsewhere: p50 [ms]", "p99 [ms]", "the last [ms]", "jobs",
		"lost", "begun twice")
	t.Add(measure.Thousands(count), ms(0.5), ms(0.99), ms(1), len(jobs), len(lost), twice)
	b.Result.Tables = append(b.Result.Tables, t)
	of := fmt.Sprintf("a gateway with %s agents is killed: ", measure.Thousands(count))
	b.Target(of+"a heartbeat of each was answered elsewhere", result.Milliseconds, result.AtMost, 3000, ms(1))
	b.Target(of+"jobs lost", result.Number, result.Exactly, 0, float64(len(lost)))
	b.Target(of+"jobs done twice", result.Number, result.Exactly, 0, float64(twice))
}

// killAndAwait kills the first replica and waits for a heartbeat of each node by the second. It
// returns when these came, in seconds after.
func (g *gateways) killAndAwait(ctx context.Context, count int) []float64 {
	keys := make([]string, count)
	for i := range keys {
		keys[i] = cell.Layout{Prefix: cell.DefaultPrefix}.Load(benchNodeID(i))
	}
	if heard := g.moved(ctx, keys); len(heard) > 0 {
		tool.Check(fmt.Errorf("%d agents have left before their gateway is killed", len(heard)))
	}
	killed := time.Now()
	g.all[0].Kill()
	ctx, cancel := context.WithTimeout(ctx, moveLimit)
	defer cancel()
	times := make(map[int]float64)
	for len(times) < count {
		if err := measure.SleepUntil(ctx, time.Now().Add(movePoll)); err != nil {
			tool.Check(fmt.Errorf("%d agents have not come back: %w", count-len(times), err))
		}
		for i, at := range g.moved(ctx, keys) {
			if times[i] == 0 {
				times[i] = max(at.Sub(killed).Seconds(), 0.001) // Redis has whole milliseconds
			}
		}
	}
	return slices.Collect(maps.Values(times))
}

// moved finds when the last heartbeats were that came by the second replica, by the index of the
// node.
func (g *gateways) moved(ctx context.Context, keys []string) map[int]time.Time {
	heard := make(map[int]time.Time)
	loads := tool.Must(g.redis.Client.Do(ctx, g.redis.Client.B().Mget().Key(keys...).Build()).AsStrSlice())
	for i, load := range loads {
		const digits = 13 // of the time in milliseconds that load:<node> begins with
		if len(load) >= digits && strings.Contains(load, " bench-2 ") {
			heard[i] = time.UnixMilli(tool.Must(strconv.ParseInt(load[:digits], 10, 64)))
		}
	}
	return heard
}

// jobLoop keeps jobs under way.
type jobLoop struct {
	client *client.Client
	ending chan struct{}
	loops  sync.WaitGroup
	mu     sync.Mutex       // guards jobs
	jobs   map[string]error // nil for those that succeeded
}

func startJobs(ctx context.Context, url string, atOnce int) *jobLoop {
	c := tool.Must(client.Dial(ctx, url, client.Options{}))
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
	return l
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
func judge(ctx context.Context, jobs map[string]error, all tool.Children) (lost map[string]error, twice int) {
	begun := make(map[string]int)
	for _, ids := range tool.AskAll[[]string](ctx, all, 0, "begun") {
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
	return lost, twice
}
