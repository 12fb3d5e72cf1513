package faults

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/cell"
	redisclient "github.com/freeslot/freeslot/internal/redis/client"
	"github.com/freeslot/freeslot/internal/testing/redistest"
)

const (
	// Each round has new nodes, because a long history takes long to check.
	reservationRounds, shortReservationRounds = 60, 10
	// reservers call at the same time, each by a cell of its own, for reserverCalls calls.
	reservers, reserverCalls = 6, 60
	// dropEvery is how often all connections break.
	dropEvery = 30 * time.Millisecond
)

// TestReservations lets replicas and agents take and release slots of the same nodes at the same
// time, stop jobs and drain nodes, while their connections break. There must be an order of all
// calls that agrees with every answer.
func TestReservations(t *testing.T) {
	seed, rounds := seedOfRun(t), reservationRounds
	if os.Getenv("SHORT") == "1" {
		rounds = shortReservationRounds
	}
	t.Logf("SEED=%d", seed)
	redis := redistest.New(t)
	var cells []*cell.Cell
	for i := range reservers {
		cells = append(cells, openCell(t, redis.Process().URL(), "reserver-"+strconv.Itoa(i)))
	}
	ctx, cancel := context.WithCancel(t.Context())
	var drops sync.WaitGroup
	drops.Go(func() {
		for pause(ctx, dropEvery) {
			_ = ask(ctx, redis.Process(), "CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes").Error()
		}
	})
	calls, lost := 0, 0
	for round := range rounds {
		b := newReservations(t, cells[0], round)
		ops := b.run(cells, seed+uint64(round))
		calls += len(ops)
		for _, op := range ops {
			if op.Lost || op.Again {
				lost++
			}
		}
		for _, v := range CheckReservations(b.slots, ops) {
			t.Errorf("round %d: %s", round, v)
		}
	}
	cancel()
	drops.Wait()
	t.Logf("%d calls, the answers of %d were lost", calls, lost)
	if lost == 0 {
		t.Error("no answer was lost, so that says little")
	}
}

// openCell starts a cell with connections of its own.
func openCell(t *testing.T, url, name string) *cell.Cell {
	t.Helper()
	client, err := redisclient.Commands(redisclient.Config{URL: url, Name: name})
	if err != nil {
		t.Fatal(err)
	}
	c, err := cell.New(cell.Config{Layout: cell.Layout{Prefix: prefix}, HeartbeatLimit: time.Minute}, client, zap.NewNop(), prometheus.NewRegistry())
	if err == nil {
		err = c.Start(t.Context())
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), stopLimit)
		defer cancel()
		if err := c.Stop(ctx); err != nil {
			t.Error(err)
		}
		client.Close()
	})
	return c
}

// reservations is one round: nodes with slots, and the jobs that were submitted to each.
type reservations struct {
	t      *testing.T
	begin  time.Time
	nodes  []string
	slots  map[string]int
	epochs map[string]cell.Epoch

	mu   sync.Mutex // guards what follows
	jobs map[string][]reserved
	ops  []ReserveOp
}

type reserved struct {
	id    string
	slots int
}

func newReservations(t *testing.T, c *cell.Cell, round int) *reservations {
	t.Helper()
	b := &reservations{t: t, begin: time.Now(), slots: map[string]int{}, epochs: map[string]cell.Epoch{}, jobs: map[string][]reserved{}}
	for i := range 2 {
		name := fmt.Sprintf("n%d-%d", round, i)
		b.nodes, b.slots[name], b.epochs[name] = append(b.nodes, name), 3+i, cell.NewEpoch()
		b.until(func(ctx context.Context) error {
			_, err := c.Register(ctx, freeslot.Node{ID: name, MaxConcurrency: b.slots[name], Services: []freeslot.Service{{Name: serviceName}}}, b.epochs[name])
			return err
		})
	}
	return b
}

// run has all reservers at work, and returns what they saw.
func (b *reservations) run(cells []*cell.Cell, seed uint64) []ReserveOp {
	var all sync.WaitGroup
	for i, c := range cells {
		rng := rand.New(rand.NewPCG(seed, uint64(i)))
		all.Go(func() {
			for range reserverCalls {
				b.one(c, rng)
			}
		})
	}
	all.Wait()
	return b.ops
}

// one is one operation on any node.
func (b *reservations) one(c *cell.Cell, rng *rand.Rand) {
	op := ReserveOp{Node: b.nodes[rng.IntN(len(b.nodes))], Slots: 1 + rng.IntN(2)}
	number, job := b.anyJob(op.Node, rng)
	kind := rng.IntN(100)
	if number < 0 {
		kind = 0
	}
	switch {
	case kind < 45 && number < mostReserved-reservers:
		b.take(c, op)
		return
	case kind < 80:
		op.Kind, op.Job, op.Slots = Release, number, job.slots
	case kind < 88:
		op.Kind, op.Job, op.Slots = StopJob, number, job.slots
	case kind < 92:
		op.Kind = Close
	case kind < 96:
		op.Kind = Reopen
	default:
		op.Kind = Count
	}
	b.record(op, func(ctx context.Context, op *ReserveOp) error { return b.call(ctx, c, op, job.id) })
}

// anyJob is one of the last jobs of a node; its number is -1 where there is none.
func (b *reservations) anyJob(node string, rng *rand.Rand) (int, reserved) {
	b.mu.Lock()
	defer b.mu.Unlock()
	list := b.jobs[node]
	if len(list) == 0 {
		return -1, reserved{}
	}
	i := max(0, len(list)-1-rng.IntN(8))
	return i, list[i]
}

// take submits a new job to a node.
func (b *reservations) take(c *cell.Cell, op ReserveOp) {
	job := reserved{id: c.NewJobID(), slots: op.Slots}
	b.mu.Lock()
	op.Kind, op.Job = Take, len(b.jobs[op.Node])
	b.jobs[op.Node] = append(b.jobs[op.Node], job)
	b.mu.Unlock()
	b.record(op, func(ctx context.Context, op *ReserveOp) error { return b.call(ctx, c, op, job.id) })
}

// record does an operation until it is answered, where the answer shows whether an earlier try was
// applied; else once.
func (b *reservations) record(op ReserveOp, do func(ctx context.Context, op *ReserveOp) error) {
	op.Call = time.Since(b.begin)
	for {
		ctx, cancel := context.WithTimeout(b.t.Context(), submitLimit)
		err := do(ctx, &op)
		cancel()
		if err == nil {
			break
		}
		if b.t.Context().Err() != nil {
			return
		}
		if op.Kind != Take && op.Kind != Release {
			op.Lost = true
			break
		}
		op.Again = op.Again || !errors.Is(err, cell.ErrNotSent)
	}
	op.Return = time.Since(b.begin)
	b.mu.Lock()
	defer b.mu.Unlock()
	if op.Kind != Count || !op.Lost {
		b.ops = append(b.ops, op)
	}
}

// call makes one call and reads its answer.
func (b *reservations) call(ctx context.Context, c *cell.Cell, op *ReserveOp, id string) (err error) {
	switch op.Kind {
	case Take:
		var p cell.Placement
		p, err = c.Submit(ctx, cell.Submission{
			JobID: id, Tenant: "t", Candidates: []string{op.Node}, Job: &freeslot.Job{Service: serviceName, Slots: op.Slots},
		})
		op.Got, op.Used = taken, p.Used
		switch {
		case p.Repeated:
			op.Got = repeated
		case len(p.Refusals) == 1:
			op.Got, op.Used = string(p.Refusals[0].Reason), p.Refusals[0].Used
		}
	case Release:
		var out cell.CompletionOutcome
		out, err = c.Complete(ctx, cell.Completion{
			Node: op.Node, Epoch: b.epochs[op.Node], Attempt: cell.Attempt{Job: id, N: 1}, State: freeslot.StateSucceeded,
		})
		op.Got = string(out)
	case StopJob:
		var status freeslot.JobStatus
		status, err = c.Cancel(ctx, "", id)
		if op.Got = string(status.State); freeslot.CodeOf(err) == freeslot.CodeNotFound {
			op.Got, err = unknownJob, nil
		}
	case Close:
		op.Got, err = done, c.Drain(ctx, op.Node)
	case Reopen:
		op.Got, err = done, c.Undrain(ctx, op.Node)
	case Count:
		var found cell.Changes
		if found, err = c.Nodes(ctx, []string{op.Node}); err == nil {
			op.Got, op.Used = done, found.Nodes[0].Used
		}
	}
	return err
}

// until repeats what must work.
func (b *reservations) until(do func(ctx context.Context) error) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.t.Context(), startLimit)
	defer cancel()
	for err := do(ctx); err != nil; err = do(ctx) {
		if ctx.Err() != nil {
			b.t.Fatal(err)
		}
	}
}

// TestCheckReservations: histories in which something went wrong are found.
func TestCheckReservations(t *testing.T) {
	t.Parallel()
	at := func(call, end int, op ReserveOp) ReserveOp {
		op.Node, op.Slots = "n1", max(op.Slots, 1)
		op.Call, op.Return = time.Duration(call), time.Duration(end)
		return op
	}
	good := []ReserveOp{
		at(0, 1, ReserveOp{Kind: Take, Job: 0, Got: taken, Used: 1}),
		at(2, 9, ReserveOp{Kind: Take, Job: 1, Got: full, Used: 1}), // before the first was released
		at(3, 8, ReserveOp{Kind: Release, Job: 0, Got: released}),
		at(10, 11, ReserveOp{Kind: Close, Got: done}),
		at(12, 13, ReserveOp{Kind: Take, Job: 2, Got: closed}),
		at(14, 15, ReserveOp{Kind: Reopen, Got: done}),
		at(16, 17, ReserveOp{Kind: Take, Job: 3, Got: repeated, Again: true}),
		at(18, 19, ReserveOp{Kind: StopJob, Job: 3, Got: stopping}),
		at(20, 21, ReserveOp{Kind: Count, Got: done, Used: 1}),
		at(22, 23, ReserveOp{Kind: Release, Job: 3, Got: releasedBefore, Again: true}),
	}
	for name, c := range map[string]struct {
		bad    bool
		doctor func(ops []ReserveOp) []ReserveOp
	}{
		"good":                  {false, func(ops []ReserveOp) []ReserveOp { return ops }},
		"beyond the slots":      {true, func(ops []ReserveOp) []ReserveOp { ops[1].Got, ops[1].Used, ops[1].Return = taken, 2, 3; return ops }},
		"full with a free slot": {true, func(ops []ReserveOp) []ReserveOp { ops[1].Call, ops[1].Used = 9, 0; return ops }},
		"taken while drained":   {true, func(ops []ReserveOp) []ReserveOp { ops[4].Got, ops[4].Used = taken, 1; return ops }},
		"released twice": {true, func(ops []ReserveOp) []ReserveOp {
			return append(ops, at(24, 25, ReserveOp{Kind: Release, Job: 3, Got: released}))
		}},
		"slot that is not freed": {true, func(ops []ReserveOp) []ReserveOp {
			return append(ops, at(24, 25, ReserveOp{Kind: Count, Got: done, Used: 1}))
		}},
		"taken twice": {true, func(ops []ReserveOp) []ReserveOp {
			return append(ops, at(24, 25, ReserveOp{Kind: Take, Job: 3, Got: taken, Used: 1}))
		}},
		"repeated without reason": {true, func(ops []ReserveOp) []ReserveOp { ops[6].Again = false; return ops }},
		"stopped after its end": {true, func(ops []ReserveOp) []ReserveOp {
			return append(ops, at(24, 25, ReserveOp{Kind: StopJob, Job: 3, Got: stopping}))
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			found := CheckReservations(map[string]int{"n1": 1}, c.doctor(slices.Clone(good)))
			if (len(found) > 0) != c.bad {
				t.Errorf("found %v", found)
			}
		})
	}
}
