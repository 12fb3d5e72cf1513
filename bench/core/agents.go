package main

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/rueidis"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/bench/measure"
	"github.com/freeslot/freeslot/internal/cell"
	redisclient "github.com/freeslot/freeslot/internal/redis/client"
	"github.com/freeslot/freeslot/worker"
)

const (
	agentsMode = "core-agents"

	agentReaders   = 8
	agentPage      = 64
	agentPoll      = 100 * time.Millisecond
	agentHeartbeat = worker.DefaultHeartbeatInterval
	agentCall      = 5 * time.Second
)

func init() { children[agentsMode] = runAgents }

// agents are all nodes of a run in one process. Unlike real ones they share connections, and read the streams
// of many nodes with one XREAD, again and again, instead of waiting for each; and they take no jobs ahead.
// Everything else is as agents do it: registration, heartbeats that name what runs, completions, with which
// jobs that wait begin, all by the product's scripts.
type agents struct {
	nodes  []*agentNode
	client rueidis.Client

	handled, overCommits, completed, notCompleted, silent atomic.Int64
	latest                                                atomic.Int64 // nanoseconds
	jobs                                                  sync.WaitGroup
}

type agentNode struct {
	id    string
	epoch cell.Epoch
	slots int
	cell  *cell.Cell

	mu      sync.Mutex // guards what follows
	read    string
	running map[string]int // job -> attempt
	begun   map[cell.Attempt]bool
	held    int // slots of the handlers that run
	most    int
}

// agentFigures are counted in the handlers.
type agentFigures struct {
	Handled      int64 `json:"handled"`
	Completed    int64 `json:"completed"`
	NotCompleted int64 `json:"not_completed"`
	// Silent counts heartbeats that failed.
	Silent int64 `json:"silent"`
	// OverCommits counts the handlers that began while the slots of their node were all held.
	OverCommits int64 `json:"over_commits"`
	// LatestMS is by how much the handler was late that ended latest: how long this process stood still, or
	// the whole machine did.
	LatestMS float64 `json:"latest_ms"`
	// Full is how many nodes had all their slots held at some time.
	Full int `json:"full"`
}

// runAgents registers all nodes. It answers "figures".
func runAgents(ctx context.Context, args []string, in *bufio.Reader, out io.Writer) (err error) {
	if len(args) != 2 {
		return errors.New("expected the URL of Redis and a workload")
	}
	runtime.GOMAXPROCS(childProcs)
	var work workload
	if err := json.Unmarshal([]byte(args[1]), &work); err != nil {
		return err
	}
	if err := work.load(); err != nil {
		return err
	}
	a := new(agents)
	if a.client, err = redisclient.Commands(redisclient.Config{URL: args[0], Name: agentsMode}); err != nil {
		return err
	}
	defer a.client.Close()
	startCtx, cancelStart := context.WithTimeout(ctx, childStart)
	defer cancelStart()
	if err := a.register(startCtx, &work); err != nil {
		return err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	var loops sync.WaitGroup
	for i := range agentReaders {
		loops.Go(func() { cancel(a.readLoop(ctx, i)) })
	}
	loops.Go(func() { cancel(a.beatLoop(ctx)) })
	fmt.Fprintln(out, "ready")
	err = serveLines(in, out, map[string]func() any{"figures": func() any { return a.figures() }})
	if cause := context.Cause(ctx); cause != nil {
		err = errors.Join(err, cause)
	}
	cancel(nil)
	loops.Wait()
	a.jobs.Wait()
	for _, n := range a.nodes {
		stopCell(n.cell)
	}
	return err
}

// register gives each node a cell of its own, as each agent has: completions of one node never wait for
// those of another.
func (a *agents) register(ctx context.Context, work *workload) error {
	for i := range work.fleet {
		n := profile(&work.fleet[i])
		c, err := newCell(ctx, a.client)
		if err != nil {
			return err
		}
		a.nodes = append(a.nodes, &agentNode{id: n.ID, epoch: cell.NewEpoch(), slots: n.MaxConcurrency, cell: c, running: make(map[string]int), begun: make(map[cell.Attempt]bool)})
	}
	var callers sync.WaitGroup
	errs := make([]error, registerCallers)
	for w := range registerCallers {
		callers.Go(func() {
			for i := w; i < len(a.nodes) && errs[w] == nil; i += registerCallers {
				_, errs[w] = a.nodes[i].cell.Register(ctx, profile(&work.fleet[i]), a.nodes[i].epoch)
			}
		})
	}
	callers.Wait()
	return errors.Join(errs...)
}

// readLoop reads the dispatch streams of every agentReaders-th node.
func (a *agents) readLoop(ctx context.Context, first int) error {
	var own []*agentNode
	byKey := make(map[string]*agentNode)
	var keys []string
	for i := first; i < len(a.nodes); i += agentReaders {
		n := a.nodes[i]
		key := n.cell.Layout().Dispatch(n.id)
		own, keys = append(own, n), append(keys, key)
		byKey[key] = n
	}
	if len(own) == 0 {
		return nil
	}
	// One reader after the other, so that not all jobs of a tenth of a second begin at once.
	if measure.SleepUntil(ctx, time.Now().Add(agentPoll*time.Duration(first)/agentReaders)) != nil {
		return nil
	}
	tick := time.NewTicker(agentPoll)
	defer tick.Stop()
	ids := make([]string, len(own))
	for ctx.Err() == nil {
		for i, n := range own {
			ids[i] = n.position()
		}
		call, cancel := context.WithTimeout(ctx, agentCall)
		streams, err := a.client.Do(call, a.client.B().Xread().Count(agentPage).Streams().Key(keys...).Id(ids...).Build()).AsXReadSlices()
		cancel()
		if err != nil && !rueidis.IsRedisNil(err) {
			if ctx.Err() != nil {
				return nil
			}
			return fmt.Errorf("read dispatch streams: %w", err)
		}
		for key, entries := range streams {
			for i := range entries {
				if err := a.beginAll(byKey[key], &entries[i]); err != nil {
					return err
				}
			}
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
		}
	}
	return nil
}

func (n *agentNode) position() string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return cmp.Or(n.read, "0")
}

// beginAll starts the handlers of the jobs of an entry: pairs of fields j and s.
func (a *agents) beginAll(n *agentNode, e *rueidis.XRangeSlice) error {
	for f := e.FieldValues; len(f) > 0; f = f[2:] {
		if len(f) < 2 || f[0].Field != "j" || f[1].Field != "s" {
			return fmt.Errorf("dispatch entry %v: expected pairs of j and s", e.FieldValues)
		}
		if err := a.begin(n, f[0].Value, f[1].Value); err != nil {
			return fmt.Errorf("dispatch entry %v: %w", e.FieldValues, err)
		}
	}
	n.mu.Lock()
	n.read = e.ID
	n.mu.Unlock()
	return nil
}

// begin starts the handler of a job: it holds its slots until the job's time is over.
func (a *agents) begin(n *agentNode, head, spec string) error {
	id, rest, _ := strings.Cut(head, " ")
	number, _, _ := strings.Cut(rest, " ")
	attempt, err := strconv.Atoi(number)
	if err != nil {
		return err
	}
	var job freeslot.Job
	if err := json.Unmarshal([]byte(spec), &job); err != nil {
		return err
	}
	return a.handle(n, cell.Attempt{Job: id, N: attempt}, &job)
}

// handle starts the handler unless it was started before: a job can be named by the answer to a completion, or by the
// stream, and by a heartbeat.
func (a *agents) handle(n *agentNode, at cell.Attempt, job *freeslot.Job) error {
	us, err := strconv.ParseInt(string(job.Payload), 10, 64)
	if err != nil {
		return err
	}
	n.mu.Lock()
	if n.begun[at] {
		n.mu.Unlock()
		return nil
	}
	n.begun[at] = true
	n.running[at.Job] = at.N
	if n.held >= n.slots {
		a.overCommits.Add(1)
	}
	n.held++
	n.most = max(n.most, n.held)
	n.mu.Unlock()
	a.handled.Add(1)
	a.jobs.Add(1)
	took := time.Duration(us) * time.Microsecond
	due := time.Now().Add(took)
	time.AfterFunc(took, func() {
		defer a.jobs.Done()
		a.late(time.Since(due))
		a.end(n, at)
	})
	return nil
}

// end is the end of a handler: the slot is not held any more, and only then told to be free.
func (a *agents) end(n *agentNode, at cell.Attempt) {
	n.mu.Lock()
	n.held--
	n.mu.Unlock()
	if a.complete(n, at) == nil {
		a.completed.Add(1)
	} else {
		a.notCompleted.Add(1)
	}
	n.mu.Lock()
	delete(n.running, at.Job)
	n.mu.Unlock()
}

// late notes a handler that ended late.
func (a *agents) late(by time.Duration) {
	for {
		latest := a.latest.Load()
		if int64(by) <= latest || a.latest.CompareAndSwap(latest, int64(by)) {
			return
		}
	}
}

// complete tells until it is answered, as an agent does.
func (a *agents) complete(n *agentNode, at cell.Attempt) error {
	begun := func(all []cell.Dispatch) {
		for i := range all {
			if d := &all[i]; d.Job != nil {
				_ = a.handle(n, d.Attempt, d.Job) // a job that is not handled is missed at the end
			}
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), measure.StopGrace)
	defer cancel()
	for {
		outcome, err := n.cell.Complete(ctx, cell.Completion{Node: n.id, Epoch: n.epoch, Attempt: at, State: freeslot.StateSucceeded, Begun: begun})
		switch {
		case err == nil && (outcome == cell.Completed || outcome == cell.CompletedBefore):
			return nil
		case err == nil:
			return fmt.Errorf("completion of %s is %s", at.Job, outcome)
		}
		if err := measure.SleepUntil(ctx, time.Now().Add(agentPoll)); err != nil {
			return err
		}
	}
}

// beatLoop sends each node's heartbeat every agentHeartbeat, spread evenly.
func (a *agents) beatLoop(ctx context.Context) error {
	pace, err := measure.NewPacer(ctx)
	if err != nil {
		return err
	}
	defer pace.Close()
	var beats sync.WaitGroup
	defer beats.Wait()
	order := rand.Perm(len(a.nodes))
	begin := time.Now()
	for i := 0; ; i++ {
		if pace.Wait(ctx, begin.Add(time.Duration(i)*agentHeartbeat/time.Duration(len(a.nodes)))) != nil {
			return nil
		}
		n := a.nodes[order[i%len(order)]]
		beats.Go(func() {
			if a.beat(n) != nil {
				a.silent.Add(1) // as with a real agent, the next one is on its way
			}
		})
	}
}

// beat begins the jobs that it is told of, and that no answer and no entry has brought.
func (a *agents) beat(n *agentNode) error {
	n.mu.Lock()
	hb := cell.Heartbeat{Node: n.id, Epoch: n.epoch, Resources: []byte(benchResources), Read: n.read}
	for job, attempt := range n.running {
		hb.Running = append(hb.Running, cell.Attempt{Job: job, N: attempt})
	}
	n.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), agentCall)
	defer cancel()
	reply, err := n.cell.Heartbeat(ctx, hb)
	for _, at := range reply.Start {
		n.mu.Lock()
		known := n.begun[at]
		n.mu.Unlock()
		if known { // and on its way to its end
			continue
		}
		var job *freeslot.Job
		if job, _, err = n.cell.Spec(ctx, at.Job); err == nil {
			err = a.handle(n, at, job)
		}
		if err != nil {
			return err
		}
	}
	return err
}

func (a *agents) figures() agentFigures {
	f := agentFigures{
		Handled: a.handled.Load(), Completed: a.completed.Load(), NotCompleted: a.notCompleted.Load(), OverCommits: a.overCommits.Load(),
		Silent: a.silent.Load(), LatestMS: float64(a.latest.Load()) / float64(time.Millisecond),
	}
	for _, n := range a.nodes {
		n.mu.Lock()
		if n.most >= n.slots {
			f.Full++
		}
		n.mu.Unlock()
	}
	return f
}
