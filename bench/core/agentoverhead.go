package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/bench/core/result"
	"github.com/freeslot/freeslot/bench/measure"
	"github.com/freeslot/freeslot/internal/cell"
	redisclient "github.com/freeslot/freeslot/internal/redis/client"
	"github.com/freeslot/freeslot/worker"
)

const (
	overheadReplica = "overhead"
	overheadBlock   = 100 // jobs of one kind in a row
	blockingRead    = 20 * time.Second
)

// runAgentOverhead compares a worker with the least that can speak to Redis in its place.
func runAgentOverhead(ctx context.Context, b *bench) (err error) {
	blocks := sized(b, 40, 2)
	b.say("One job at a time that does nothing: from the submit to the result on the replica's stream. In turns of %d a worker runs it, and a bare loop that waits for the same entry, and sends the same completion, with the same client and scripts, and does nothing besides; %d turns of each. All is one process, but Redis.", overheadBlock, blocks)
	b.say("The overhead is the difference of the medians: what the worker does besides the round trips.")
	s, err := b.startRedis(ctx, noAOF)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.stop()) }()
	c, err := newCell(ctx, s.client)
	if err != nil {
		return err
	}
	defer stopCell(c)
	if err := c.OpenReplies(ctx, overheadReplica); err != nil {
		return err
	}
	w, err := worker.New(worker.Config{RedisURL: s.URL(), Node: freeslot.Node{ID: "worker", MaxConcurrency: 1}})
	if err != nil {
		return err
	}
	w.Handle(benchService, func(context.Context, *worker.Job) (any, error) { return nil, nil })
	if err := w.Start(ctx); err != nil {
		return err
	}
	defer func() {
		stopCtx, cancel := context.WithTimeout(context.Background(), measure.StopGrace)
		defer cancel()
		err = errors.Join(err, w.Stop(stopCtx))
	}()
	bare, err := startBare(ctx, s, "bare")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, bare.stop()) }()
	run := &overheadRun{cell: c, last: "0"}
	names := []string{"worker", "bare"}
	took := make([][]float64, len(names))
	for turn := range blocks + 1 {
		for i, node := range names {
			for range overheadBlock {
				us, err := run.job(ctx, node)
				if err != nil {
					return err
				}
				if turn > 0 { // the first warms up
					took[i] = append(took[i], us)
				}
			}
		}
	}
	t := result.Table{First: "Run by", Columns: []result.Column{{Name: "median", Unit: result.Microseconds}, {Name: "p90", Unit: result.Microseconds}, {Name: "p99", Unit: result.Microseconds}}}
	for i, name := range names {
		t.Rows = append(t.Rows, result.Row{Name: name, Values: result.Values(rounded(median(took[i])), rounded(quantile(took[i], 0.9)), rounded(quantile(took[i], 0.99)))})
	}
	b.result.Tables = []result.Table{t}
	b.target("what an agent adds to a job that does nothing, beyond Redis' round trips", result.Microseconds, result.AtMost, 30, median(took[0])-median(took[1]))
	return nil
}

// overheadRun submits jobs one after the other.
type overheadRun struct {
	cell *cell.Cell
	last string // reply that was read
}

// job has a node run one, and returns the microseconds until its result is there.
func (r *overheadRun) job(ctx context.Context, node string) (float64, error) {
	ctx, cancel := context.WithTimeout(ctx, blockingRead)
	defer cancel()
	sub := cell.Submission{JobID: r.cell.NewJobID(), Tenant: "bench", Job: benchJob(), Candidates: []string{node}, ReplyTo: overheadReplica}
	begin := time.Now()
	p, err := r.cell.Submit(ctx, sub)
	if err != nil {
		return 0, err
	}
	if !p.Assigned {
		return 0, fmt.Errorf("job for %s was not placed: %+v", node, p)
	}
	for {
		replies, err := r.cell.Replies(ctx, overheadReplica, r.last, time.Second, 16)
		if err != nil {
			return 0, err
		}
		for i := range replies {
			r.last = replies[i].ID
			if replies[i].Status.ID == sub.JobID {
				return float64(time.Since(begin)) / 1e3, nil
			}
		}
	}
}

// bareAgent takes jobs and completes them at once.
type bareAgent struct {
	cell   *cell.Cell
	client interface{ Close() }
	cancel context.CancelFunc
	loop   sync.WaitGroup
	err    error // set before loop is done
}

func startBare(ctx context.Context, s *server, node string) (*bareAgent, error) {
	client, err := redisclient.Agent(redisclient.Config{URL: s.URL(), Name: node})
	if err != nil {
		return nil, err
	}
	c, err := cell.New(cell.Config{}, client, zap.NewNop(), nil)
	if err == nil {
		err = c.Start(ctx)
	}
	if err != nil {
		client.Close()
		return nil, err
	}
	epoch := cell.NewEpoch()
	if _, err := c.Register(ctx, freeslot.Node{ID: node, MaxConcurrency: 1, Services: []freeslot.Service{{Name: benchService}}}, epoch); err != nil {
		client.Close()
		return nil, err
	}
	b := &bareAgent{cell: c, client: client}
	loopCtx, cancel := context.WithCancel(context.Background())
	b.cancel = cancel
	b.loop.Go(func() { b.err = b.run(loopCtx, node, epoch) })
	return b, nil
}

func (b *bareAgent) run(ctx context.Context, node string, epoch cell.Epoch) error {
	last := "0"
	for {
		entries, err := b.cell.Dispatches(ctx, node, last, blockingRead, 16)
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return err
		}
		for i := range entries {
			last = entries[i].ID
			if _, err := b.cell.Complete(ctx, cell.Completion{Node: node, Epoch: epoch, Attempt: entries[i].Attempt, State: freeslot.StateSucceeded}); err != nil {
				return err
			}
		}
	}
}

func (b *bareAgent) stop() error {
	b.cancel()
	b.loop.Wait()
	stopCell(b.cell)
	b.client.Close()
	return b.err
}
