package worker

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/cell"
)

// TestEndsAtRandom: handlers return, fail, panic, end their goroutine, ignore a stop, and return at
// about the time when they are given up. Meanwhile jobs are cancelled and taken away, answers are
// lost, and the worker is stopped or superseded. No attempt runs twice, and nothing is left behind.
func TestEndsAtRandom(t *testing.T) {
	for round := range uint64(100) {
		synctest.Test(t, func(t *testing.T) { endAtRandom(t, round) })
	}
}

func endAtRandom(t *testing.T, round uint64) {
	const assigned, handed = 8, 60
	r := rand.New(rand.NewPCG(round, 1))
	some := func(below int) time.Duration { return time.Duration(r.IntN(below)) * time.Millisecond }
	w, f := newFakeWorker(t, func(c *Config) {
		c.Node.MaxConcurrency = 1 + r.IntN(4)
		c.StopTimeout, c.InterruptGrace = 50*time.Millisecond, 50*time.Millisecond
	})
	w.stopGrace = some(20) + time.Millisecond
	h := &randomHandler{rng: rand.New(rand.NewPCG(round, 2)), runs: map[cell.Attempt]int{}}
	w.Handle("s", h.handle)
	f.with(func() {
		for n := range handed {
			f.next = append(f.next, cell.Dispatch{Attempt: id(assigned + n), Job: &freeslot.Job{Service: "s", ProgressTimeoutMS: int64(10 * (n % 2))}})
		}
		f.onComplete = func(n int) error {
			if n%5 == 4 {
				return errAnswerLost
			}
			return nil
		}
	})
	if err := w.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	for n := range assigned {
		a := f.assign(n, freeslot.Job{Service: "s"})
		time.Sleep(some(15))
		switch r.IntN(4) {
		case 0:
			f.cancelOwned(a)
		case 1:
			f.disown(a)
			w.requestBeat()
		}
	}
	for n := assigned; n < assigned+handed; n += 7 {
		f.cancelOwned(id(n))
		time.Sleep(some(15))
	}
	if round%2 == 0 {
		f.with(func() { f.epoch = "other" })
		w.requestBeat()
		<-w.Done()
	}
	ctx, cancel := context.WithTimeout(context.Background(), some(60))
	defer cancel()
	_ = w.Stop(ctx) // its error is about handlers that still run, if there are any
	time.Sleep(time.Second)
	synctest.Wait()
	if w.handling.Load() != 0 || w.slots.InUse() != 0 || w.withheld.Load() != 0 || len(w.ledger.held) != 0 || len(w.ledger.reporting) != 0 {
		t.Errorf("round %d: %d handlers run, %d slots are in use, %d withheld, %d attempts held, %d reports under way",
			round, w.handling.Load(), w.slots.InUse(), w.withheld.Load(), len(w.ledger.held), len(w.ledger.reporting))
	}
	for a, n := range h.runs {
		if n != 1 {
			t.Errorf("round %d: attempt %v ran %d times", round, a, n)
		}
	}
}

// randomHandler ends in a random way each time.
type randomHandler struct {
	mu   sync.Mutex // guards the rest
	rng  *rand.Rand
	runs map[cell.Attempt]int
}

func (h *randomHandler) handle(ctx context.Context, job *Job) (any, error) {
	h.mu.Lock()
	h.runs[cell.Attempt{Job: job.ID, N: job.Attempt}]++
	way, takes, fails := h.rng.IntN(8), time.Duration(h.rng.IntN(20))*time.Millisecond, h.rng.IntN(3) == 0
	h.mu.Unlock()
	switch way {
	case 0:
		runtime.Goexit()
	case 1:
		panic("by chance")
	case 2:
		defer runtime.Goexit()
		panic("and Goexit")
	case 3:
		defer func() { panic("after Goexit") }()
		runtime.Goexit()
	case 4:
		select {
		case <-ctx.Done():
		case <-time.After(takes):
		}
		time.Sleep(takes) // returns about when it is given up
	case 5:
		time.Sleep(200 * time.Millisecond)
	case 6:
		<-ctx.Done()
		return nil, ctx.Err()
	default:
		time.Sleep(takes)
	}
	if fails {
		return nil, Retryable(fmt.Errorf("job %s: %w", job.ID, errors.New("by chance")))
	}
	return nil, nil
}
