package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/freeslot/freeslot/bench/core/result"
	"github.com/freeslot/freeslot/bench/measure"
	"github.com/freeslot/freeslot/internal/cell"
)

const batchNodes = 10_000

// batchWays are the ways to submit. Each goroutine has a cell of its own in the first two, so that its
// calls are never gathered with others'; in the first only one of them calls at a time, as a cell does.
var batchWays = []string{"one job a call, one call at a time", "one job a call, pipelined", "natural batching"}

const (
	wayLimited = iota
	wayPipelined
	wayBatched
)

func runBatching(ctx context.Context, b *bench) (err error) {
	s, err := b.startRedis(ctx, noAOF)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.stop()) }()
	rounds, window := sized(b, 7, 1), sized(b, 600*time.Millisecond, 50*time.Millisecond)
	b.say("Jobs of about 300 bytes with 2 candidates at random of %d nodes, each of which was heard once, submitted through the cell on one connection; %d turns of %s each, in turns; Redis emptied between.", batchNodes, rounds, window)
	b.say("One call at a time: what a cell does, with batches of one job. Pipelined: as many calls under way as there are goroutines, each with one job, which the client writes together. Natural batching: a cell as it is.")
	t := result.Table{First: "Goroutines", Columns: []result.Column{
		{Name: batchWays[wayLimited], Unit: result.PerSecond},
		{Name: batchWays[wayPipelined], Unit: result.PerSecond},
		{Name: batchWays[wayBatched], Unit: result.PerSecond},
		{Name: "against one at a time", Unit: result.Times},
		{Name: "against pipelined", Unit: result.Times},
		{Name: "in Redis a job, pipelined", Unit: result.Microseconds},
		{Name: "in Redis a job, batched", Unit: result.Microseconds},
		{Name: "jobs a call", Unit: result.Number},
	}}
	for _, goroutines := range sized(b, []int{1, 16, 64, 256, 512}, []int{64}) {
		m, err := measureBatching(ctx, s, goroutines, rounds, window)
		if err != nil {
			return err
		}
		limited, pipelined := median(ratios(m[wayBatched].rate, m[wayLimited].rate)), median(ratios(m[wayBatched].rate, m[wayPipelined].rate))
		t.Rows = append(t.Rows, result.Row{Name: fmt.Sprint(goroutines), Values: result.Values(
			rounded(median(m[wayLimited].rate)), rounded(median(m[wayPipelined].rate)), rounded(median(m[wayBatched].rate)), rounded(limited), rounded(pipelined),
			rounded(median(m[wayPipelined].cost)), rounded(median(m[wayBatched].cost)), rounded(median(m[wayBatched].size)))})
		if goroutines >= 64 {
			who := fmt.Sprintf("submits of %d goroutines: batched / one job a call, ", goroutines)
			b.target(who+"one call at a time", result.Times, result.AtLeast, 1.8, limited)
			b.target(who+"pipelined", result.Times, result.AtLeast, 1.8, pipelined)
		}
	}
	b.result.Tables = []result.Table{t}
	return nil
}

// batchFigures are one way's, one value a turn.
type batchFigures struct{ rate, cost, size []float64 }

func measureBatching(ctx context.Context, s *server, goroutines, rounds int, window time.Duration) (out [3]batchFigures, err error) {
	for range rounds {
		for way := range batchWays {
			if err := batchTurn(ctx, s, way, goroutines, window, &out[way]); err != nil {
				return out, fmt.Errorf("%s by %d goroutines: %w", batchWays[way], goroutines, err)
			}
		}
	}
	return out, nil
}

func batchTurn(ctx context.Context, s *server, way, goroutines int, window time.Duration, out *batchFigures) error {
	if err := s.do(ctx, "FLUSHALL"); err != nil {
		return err
	}
	cells := make([]*cell.Cell, goroutines)
	for i := range cells {
		if i > 0 && way == wayBatched {
			cells[i] = cells[0]
			continue
		}
		c, err := newCell(ctx, s.client)
		if err != nil {
			return err
		}
		defer stopCell(c)
		cells[i] = c
	}
	if err := hearFleet(ctx, cells[0], batchNodes); err != nil {
		return err
	}
	var turn *sync.Mutex
	if way == wayLimited {
		turn = new(sync.Mutex)
	}
	// Until the script is loaded and the callers are in step.
	if _, err := submitFor(ctx, cells, turn, window/5); err != nil {
		return err
	}
	before, err := measure.ReadRedisStat(ctx, s.client)
	if err != nil {
		return err
	}
	begin := time.Now()
	jobs, err := submitFor(ctx, cells, turn, window)
	if err != nil {
		return err
	}
	took := time.Since(begin)
	after, err := measure.ReadRedisStat(ctx, s.client)
	if err != nil {
		return err
	}
	a, z := before.Commands["evalsha"], after.Commands["evalsha"]
	out.rate = append(out.rate, float64(jobs)/took.Seconds())
	out.cost = append(out.cost, (z.Usec-a.Usec)/float64(jobs))
	out.size = append(out.size, float64(jobs)/(z.Calls-a.Calls))
	return nil
}

// hearFleet registers n nodes and has each say what a node says.
func hearFleet(ctx context.Context, c *cell.Cell, n int) error {
	epochs := make([]cell.Epoch, n)
	if err := registerFleet(ctx, c, n, epochs); err != nil {
		return err
	}
	resources := []byte(`{"cpu":{"percent":12.5},"memory":{"used_bytes":123456789,"total_bytes":987654321},"load":[0.5,0.4,0.3]}`)
	var callers sync.WaitGroup
	errs := make([]error, registerCallers)
	for w := range registerCallers {
		callers.Go(func() {
			for i := w; i < n && errs[w] == nil; i += registerCallers {
				_, errs[w] = c.Heartbeat(ctx, cell.Heartbeat{Node: benchNodeID(i), Epoch: epochs[i], Resources: resources})
			}
		})
	}
	callers.Wait()
	return errors.Join(errs...)
}

// submitFor has one goroutine a cell submit one job after the other; turn, if any, is held for each.
func submitFor(ctx context.Context, cells []*cell.Cell, turn *sync.Mutex, window time.Duration) (int64, error) {
	var jobs atomic.Int64
	errs := make([]error, len(cells))
	end := time.Now().Add(window)
	var callers sync.WaitGroup
	for i, c := range cells {
		callers.Go(func() {
			job, n := benchJob(), int64(0)
			for time.Now().Before(end) {
				first := rand.IntN(batchNodes)
				sub := cell.Submission{
					JobID: cell.NewJobID(0), Tenant: "bench", Job: job,
					Candidates: []string{benchNodeID(first), benchNodeID((first + 1 + rand.IntN(batchNodes-1)) % batchNodes)},
				}
				if turn != nil {
					turn.Lock()
				}
				p, err := c.Submit(ctx, sub)
				if turn != nil {
					turn.Unlock()
				}
				if err == nil && !p.Assigned {
					err = errors.New("not assigned")
				}
				if err != nil {
					errs[i] = err
					return
				}
				n++
			}
			jobs.Add(n)
		})
	}
	callers.Wait()
	return jobs.Load(), errors.Join(errs...)
}
