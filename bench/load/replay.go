package load

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/freeslot/freeslot/bench/measure"
)

// Planned is one job of a replay.
type Planned struct {
	// AtUS is when it is due, from the beginning, RunUS how long its handler takes.
	AtUS  int64 `json:"at_us"`
	RunUS int64 `json:"run_us"`
	// Model is the node label that it asks for; empty is any node.
	Model string `json:"model,omitempty"`
}

// ReadPlan reads the jobs of a replay, in order.
func ReadPlan(path string) ([]Planned, error) {
	data, err := os.ReadFile(path) //nolint:gosec // where the caller wants it
	if err != nil {
		return nil, err
	}
	var plan []Planned
	if err := json.Unmarshal(data, &plan); err != nil {
		return nil, fmt.Errorf("plan: %w", err)
	}
	if !slices.IsSortedFunc(plan, func(a, b Planned) int { return int(a.AtUS - b.AtUS) }) {
		return nil, errors.New("plan: its jobs are not in order")
	}
	return plan, nil
}

// replay submits each job of the plan when it is due.
func replay(ctx context.Context, s Submitter, path string) (*Figures, error) {
	r, ok := s.(Replayer)
	if !ok {
		return nil, errors.New("this peer cannot replay")
	}
	plan, err := ReadPlan(path)
	if err != nil {
		return nil, err
	}
	pace, err := measure.NewPacer(ctx)
	if err != nil {
		return nil, err
	}
	defer pace.Close()
	f := &Figures{Delays: make([]int64, len(plan)), Failed: make(map[string]int64)}
	late := measure.NewHistogram()
	var mu sync.Mutex
	var left atomic.Int64
	left.Store(int64(len(plan)))
	done := make(chan struct{})
	begin := time.Now()
	for i := range plan {
		p := &plan[i]
		due := begin.Add(time.Duration(p.AtUS) * time.Microsecond)
		if err := pace.Wait(ctx, due); err != nil {
			return nil, err
		}
		measure.Record(late, time.Since(due))
		go r.SubmitPlanned(ctx, p, func(o Outcome) {
			f.Delays[i] = -1
			if o.Err == nil {
				f.Delays[i] = max(o.Started.Sub(due).Microseconds(), 0)
			} else {
				mu.Lock()
				f.Failed[o.Err.Error()]++
				mu.Unlock()
			}
			if left.Add(-1) == 0 {
				close(done)
			}
		})
	}
	limit := time.NewTimer(drainLimit)
	defer limit.Stop()
	select {
	case <-done:
	case <-limit.C:
		return nil, errStuck
	}
	f.Jobs = int64(len(plan)) - f.Failures()
	f.JobsPerSecond = measure.Rounded(float64(f.Jobs) / time.Since(begin).Seconds())
	times := TimesOf(late)
	f.Late = &times
	return f, nil
}
