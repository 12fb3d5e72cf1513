package worker

import (
	"context"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/cell"
	"github.com/freeslot/freeslot/internal/testing/gatewaytest"
)

// TestGatewayConnectionsFailAtRandom: connections are cut or freeze at any moment, answers of Redis
// are lost besides. Each attempt runs once, and its end arrives.
func TestGatewayConnectionsFailAtRandom(t *testing.T) {
	for round := range uint64(50) {
		synctest.Test(t, func(t *testing.T) { failAtRandom(t, round) })
	}
}

func failAtRandom(t *testing.T, round uint64) {
	const assigned, handed = 40, 40
	r := rand.New(rand.NewPCG(round, 3))
	some := func(below int) time.Duration { return time.Duration(r.IntN(below)) * time.Millisecond }
	var p gatewaytest.Network
	w, f, _ := newReplicatedWorker(t, &p)
	var mu sync.Mutex // guards runs and takes
	runs, takes := map[cell.Attempt]int{}, rand.New(rand.NewPCG(round, 4))
	w.Handle("s", func(_ context.Context, job *Job) (any, error) {
		mu.Lock()
		runs[cell.Attempt{Job: job.ID, N: job.Attempt}]++
		took := time.Duration(takes.IntN(200)) * time.Millisecond
		mu.Unlock()
		time.Sleep(took) // in virtual time
		return nil, nil
	})
	f.with(func() {
		for n := range handed {
			f.next = append(f.next, cell.Dispatch{Attempt: id(assigned + n), Job: &freeslot.Job{Service: "s"}})
		}
		f.onComplete = func(n int) error {
			if n%9 == 8 {
				return errAnswerLost
			}
			return nil
		}
	})
	if err := w.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	for n := range assigned {
		f.assign(n, freeslot.Job{Service: "s"})
		time.Sleep(some(300)) // in virtual time
		if r.IntN(4) == 0 {
			p.Fail(r.IntN(3) == 0)
		}
	}
	for n := range assigned + handed {
		f.end(t, id(n))
	}
	if err := w.Stop(context.Background()); err != nil {
		t.Errorf("round %d: %v", round, err)
	}
	if f.stale != 0 {
		t.Errorf("round %d: %d reports of attempts that the node does not own", round, f.stale)
	}
	for n := range assigned + handed {
		if got := runs[id(n)]; got != 1 {
			t.Errorf("round %d: %v ran %d times", round, id(n), got)
		}
	}
}
