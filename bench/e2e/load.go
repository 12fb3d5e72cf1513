package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/redis/rueidis"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/bench/e2e/result"
	"github.com/freeslot/freeslot/bench/measure"
	"github.com/freeslot/freeslot/client"
)

const (
	// drainLimit is how long the jobs that are in flight when the window closes may take.
	drainLimit = 30 * time.Second
	// openInFlight bounds the jobs of an open loop; past it they wait here, and their wait counts.
	openInFlight = 8192
)

// driver submits jobs and measures.
type driver struct {
	clients []*client.Client
	stats   rueidis.Client
	yard    *yardstick
	job     freeslot.Job
}

// benchJob has a payload of exactly size bytes: a JSON string.
func benchJob(size int) freeslot.Job {
	payload := append([]byte{'"'}, bytes.Repeat([]byte{'x'}, size-2)...)
	return freeslot.Job{Service: benchService, Payload: json.RawMessage(append(payload, '"'))}
}

// measure runs one scenario: warmUp that does not count, then the window.
func (d *driver) measure(ctx context.Context, s result.Scenario, warmUp, window time.Duration) (result.Measurements, error) {
	m := result.Measurements{Scenario: s}
	begin := time.Now()
	t := newTally(s.Loop, begin.Add(warmUp), begin.Add(warmUp+window))
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)

	var load sync.WaitGroup
	load.Go(func() { d.load(ctx, s, t, cancel) })
	err := d.watch(ctx, s, t, &m, &load)
	if cause := context.Cause(ctx); cause != nil {
		err = cause
	}
	cancel(nil)
	load.Wait()
	t.into(&m)
	return m, err
}

func (d *driver) load(ctx context.Context, s result.Scenario, t *tally, cancel context.CancelCauseFunc) {
	if s.Loop == result.Open {
		d.openLoop(ctx, s, t, cancel)
		return
	}
	d.closedLoop(ctx, s, t, cancel)
}

// watch reads Redis' counters at both ends of what counts, and the yardstick in between.
func (d *driver) watch(ctx context.Context, s result.Scenario, t *tally, m *result.Measurements, load *sync.WaitGroup) error {
	if err := measure.SleepUntil(ctx, t.from); err != nil {
		return err
	}
	before, err := measure.ReadRedisStat(ctx, d.stats)
	if err != nil {
		return err
	}
	window, cancel := context.WithDeadline(ctx, t.to)
	defer cancel()
	if m.Loaded, err = d.yard.during(window); err != nil {
		return err
	}
	after, err := measure.ReadRedisStat(ctx, d.stats)
	if err != nil {
		return err
	}
	if err := drained(ctx, load); err != nil {
		return err
	}
	if s.Loop == result.Open {
		// Jobs that were due in the window count although they ended after it.
		if after, err = measure.ReadRedisStat(ctx, d.stats); err != nil {
			return err
		}
	}
	t.mu.Lock()
	jobs := t.result.TotalCount()
	t.mu.Unlock()
	m.Redis = after.Cost(before, jobs)
	return nil
}

func drained(ctx context.Context, load *sync.WaitGroup) error {
	done := make(chan struct{})
	go func() { // ends with the load, for which measure waits
		load.Wait()
		close(done)
	}()
	limit := time.NewTimer(drainLimit)
	defer limit.Stop()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-limit.C:
		return fmt.Errorf("jobs are still in flight %s after the last submit", drainLimit)
	}
}

// closedLoop keeps s.Concurrency jobs in flight until the window ends.
func (d *driver) closedLoop(ctx context.Context, s result.Scenario, t *tally, cancel context.CancelCauseFunc) {
	var callers sync.WaitGroup
	for i := range s.Concurrency / s.Batch {
		c := d.clients[i%len(d.clients)]
		callers.Go(func() {
			for ctx.Err() == nil && time.Now().Before(t.to) {
				var err error
				if s.Batch == 1 {
					err = d.single(ctx, c, t, time.Now())
				} else {
					err = d.batch(ctx, c, t, s.Batch)
				}
				if err != nil {
					cancel(err)
				}
			}
		})
	}
	callers.Wait()
}

// openLoop submits each job when it is due, or as soon after as it can.
func (d *driver) openLoop(ctx context.Context, s result.Scenario, t *tally, cancel context.CancelCauseFunc) {
	var jobs sync.WaitGroup
	defer jobs.Wait()
	pace, err := measure.NewPacer(ctx)
	if err != nil {
		cancel(err)
		return
	}
	defer pace.Close()
	begin := time.Now()
	inFlight := make(chan struct{}, openInFlight)
	for i := 0; ; i++ {
		due := begin.Add(time.Duration(float64(i) / float64(s.Rate) * float64(time.Second)))
		if !due.Before(t.to) || pace.Wait(ctx, due) != nil {
			return
		}
		select {
		case inFlight <- struct{}{}:
		case <-ctx.Done():
			return
		}
		c := d.clients[i%len(d.clients)]
		jobs.Go(func() {
			defer func() { <-inFlight }()
			t.submits(due)
			if err := d.single(ctx, c, t, due); err != nil {
				cancel(err)
			}
		})
	}
}

// single submits one job, again if it is refused for the time being, and waits for its end. While the
// fleet is full it is not refused but waits, and that counts. Its latencies begin at begin. The error is for what makes the whole scenario pointless.
func (d *driver) single(ctx context.Context, c *client.Client, t *tally, begin time.Time) error {
	for {
		h, err := c.Submit(ctx, d.job)
		if err == nil {
			status, err := h.Wait(ctx)
			if ctx.Err() != nil {
				return nil
			}
			return t.ended(begin, h, status, err)
		}
		if ctx.Err() != nil {
			return nil
		}
		wait, err := t.refuse(err)
		if err != nil || wait == 0 {
			return err
		}
		if measure.SleepUntil(ctx, time.Now().Add(wait)) != nil {
			return nil
		}
	}
}

// batch submits n jobs in one frame and waits for the end of each. Refused ones are counted and not tried
// again: the next batch comes anyway.
func (d *driver) batch(ctx context.Context, c *client.Client, t *tally, n int) error {
	jobs := make([]freeslot.Job, n)
	for i := range jobs {
		jobs[i] = d.job
	}
	begin := time.Now()
	submitted, err := c.SubmitBatch(ctx, jobs)
	if ctx.Err() != nil {
		return nil
	}
	if err != nil {
		_, err = t.refuse(err)
		return err
	}
	var wait time.Duration
	var waiters sync.WaitGroup
	ends := make([]error, n)
	for i, s := range submitted {
		if s.Err != nil {
			pause, err := t.refuse(s.Err)
			wait, ends[i] = max(wait, pause), err
			continue
		}
		// One goroutine a job: whoever waits for them in turn sees the later ones end no sooner than the first.
		waiters.Go(func() {
			status, err := s.Handle.Wait(ctx)
			if ctx.Err() == nil {
				ends[i] = t.ended(begin, s.Handle, status, err)
			}
		})
	}
	waiters.Wait()
	_ = measure.SleepUntil(ctx, time.Now().Add(wait)) // the loop looks at ctx
	return errors.Join(ends...)
}
