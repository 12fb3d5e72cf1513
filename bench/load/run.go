package load

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"github.com/freeslot/freeslot/bench/measure"
)

const (
	// drainLimit is how long jobs may take that are in flight when the window closes.
	drainLimit = 60 * time.Second
	// openInFlight bounds the jobs of an open loop; past it they wait here, and their wait counts.
	openInFlight = 1 << 16
	// exactRate is the highest rate at which a pacer waits for each job. Past it, and where one
	// call takes many jobs, they are submitted in step with a grid of openGrid: a timer for each
	// would take the processor from what is measured.
	exactRate = 5000
	openGrid  = 200 * time.Microsecond
	// bareInterval is the pace of the yardstick beside a load, bareCalls how often Bare calls it at
	// most.
	bareInterval = 5 * time.Millisecond
	bareCalls    = 20_000
	maxFailures  = 1000
)

var errStuck = fmt.Errorf("jobs are still in flight %s after the last submit", drainLimit)

// Run is one window of load.
func Run(ctx context.Context, s Submitter, r Request) (*Figures, error) {
	if err := r.validate(); err != nil {
		return nil, err
	}
	r.Batch = max(r.Batch, 1)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	if r.Loop == Bare {
		return bare(ctx, s, time.Duration(r.MeasureMS)*time.Millisecond)
	}
	begin := time.Now()
	t := newTally(r, begin)
	var aside sync.WaitGroup
	window, closeWindow := context.WithDeadline(ctx, t.to)
	defer closeWindow()
	var asideErr error // set before the end of aside
	if y, ok := s.(Yardstick); ok && (r.Loop == Open || r.Probe) {
		aside.Go(func() { asideErr = t.probe(window, y) })
	}
	err := t.load(ctx, s, r)
	closeWindow()
	aside.Wait()
	if err := errors.Join(err, asideErr); err != nil {
		return nil, err
	}
	return t.figures(), nil
}

func bare(ctx context.Context, s Submitter, window time.Duration) (*Figures, error) {
	y, ok := s.(Yardstick)
	if !ok {
		return nil, errors.New("this peer has no yardstick")
	}
	h := measure.NewHistogram()
	end := time.Now().Add(window)
	for i := 0; i < bareCalls && time.Now().Before(end); i++ {
		begin := time.Now()
		if err := y.Bare(ctx); err != nil {
			return nil, err
		}
		if i > 0 { // the first one brings the script to Redis
			measure.Record(h, time.Since(begin))
		}
	}
	times := TimesOf(h)
	return &Figures{Bare: &times}, nil
}

// tally collects what became of the jobs of one window.
type tally struct {
	loop     string
	begin    time.Time
	from, to time.Time // what counts
	pending  sync.WaitGroup

	mu                          sync.Mutex
	start, result, assign, late *hdrhistogram.Histogram
	bare                        *hdrhistogram.Histogram
	last                        time.Time
	failed                      map[string]int64
	failures                    int
	succeeded                   int64
	lastErr                     error
}

func newTally(r Request, begin time.Time) *tally {
	from := begin.Add(time.Duration(r.WarmUpMS) * time.Millisecond)
	return &tally{
		loop: r.Loop, begin: begin, from: from, to: from.Add(time.Duration(r.MeasureMS) * time.Millisecond),
		start: measure.NewHistogram(), result: measure.NewHistogram(), assign: measure.NewHistogram(), late: measure.NewHistogram(),
		bare: measure.NewHistogram(), failed: make(map[string]int64),
	}
}

func (t *tally) load(ctx context.Context, s Submitter, r Request) error {
	var err error
	if r.Loop == Closed {
		t.closed(ctx, s, r)
	} else {
		err = t.open(ctx, s, r)
	}
	if err != nil {
		return err
	}
	if !t.drained() {
		return errStuck
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.failures >= maxFailures {
		return fmt.Errorf("%d jobs failed, the last with: %w", t.failures, t.lastErr)
	}
	return nil
}

// closed keeps InFlight jobs in flight by as many goroutines, or calls of a batch by fewer.
func (t *tally) closed(ctx context.Context, s Submitter, r Request) {
	batch := min(r.Batch, r.InFlight)
	var callers sync.WaitGroup
	for range r.InFlight / batch {
		callers.Go(func() {
			ended := make(chan struct{}, batch)
			for time.Now().Before(t.to) && !t.hopeless() {
				begin := time.Now()
				t.pending.Add(batch)
				s.Submit(ctx, batch, func(_ int, o Outcome) {
					t.ended(begin, o)
					ended <- struct{}{}
				})
				limit := time.NewTimer(drainLimit)
				for range batch {
					select {
					case <-ended:
					case <-limit.C:
						return // load sees that something is still in flight
					}
				}
				limit.Stop()
			}
		})
	}
	callers.Wait()
}

func (t *tally) hopeless() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.failures >= maxFailures
}

// open submits each job when it is due, or as soon after as it can.
func (t *tally) open(ctx context.Context, s Submitter, r Request) error {
	pace, err := measure.NewPacer(ctx)
	if err != nil {
		return err
	}
	defer pace.Close()
	grid := time.Duration(0)
	if r.Rate > exactRate || r.Batch > 1 {
		grid = openGrid
	}
	due := func(i int) time.Time {
		return t.begin.Add(time.Duration(float64(i) / r.Rate * float64(time.Second)))
	}
	if r.Random {
		due = poisson(t.begin, r.Rate)
	}
	inFlight, calls := make(chan struct{}, openInFlight), make(chan struct{}, r.calls())
	for i := 0; due(i).Before(t.to) && !t.hopeless(); {
		at := due(i)
		if grid > 0 {
			at = t.begin.Add((at.Sub(t.begin) + grid - 1).Truncate(grid))
		}
		if err := pace.Wait(ctx, at); err != nil {
			return err
		}
		if r.Batch > 1 {
			calls <- struct{}{}
		}
		n := 1
		for now := time.Now(); n < r.Batch && !due(i+n).After(now) && due(i+n).Before(t.to); {
			n++
		}
		moments := make([]time.Time, n)
		for k := range n {
			moments[k] = due(i + k)
			inFlight <- struct{}{}
		}
		i += n
		t.pending.Add(n)
		go func() { // load waits for its jobs
			for _, m := range moments {
				t.submits(m)
			}
			s.Submit(ctx, n, func(k int, o Outcome) {
				<-inFlight
				t.ended(moments[k], o)
			})
			if r.Batch > 1 {
				<-calls
			}
		}()
	}
	return nil
}

// poisson returns the moments of random arrivals, in order.
func poisson(begin time.Time, rate float64) func(i int) time.Time {
	var moments []time.Time
	at := 0.0
	return func(i int) time.Time {
		for len(moments) <= i {
			moments = append(moments, begin.Add(time.Duration(at*float64(time.Second))))
			at += rand.ExpFloat64() / rate
		}
		return moments[i]
	}
}

func (t *tally) drained() bool {
	done := make(chan struct{})
	go func() {
		t.pending.Wait()
		close(done)
	}()
	limit := time.NewTimer(drainLimit)
	defer limit.Stop()
	select {
	case <-done:
		return true
	case <-limit.C:
		return false
	}
}

func (t *tally) counts(begin, end time.Time) bool {
	at := end
	if t.loop == Open {
		at = begin
	}
	return !at.Before(t.from) && at.Before(t.to)
}

func (t *tally) submits(due time.Time) {
	now := time.Now()
	if !t.counts(due, now) {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	measure.Record(t.late, now.Sub(due))
}

func (t *tally) ended(begin time.Time, o Outcome) {
	defer t.pending.Done()
	end := time.Now()
	t.mu.Lock()
	defer t.mu.Unlock()
	if o.Err != nil {
		t.failed[o.Err.Error()]++
		t.failures++
		t.lastErr = o.Err
		return
	}
	t.succeeded++
	if !t.counts(begin, end) {
		return
	}
	measure.Record(t.start, o.Started.Sub(begin))
	measure.Record(t.result, end.Sub(begin))
	if !o.Assigned.IsZero() {
		measure.Record(t.assign, o.Assigned.Sub(begin))
	}
	if end.After(t.last) {
		t.last = end
	}
}

func (t *tally) probe(ctx context.Context, y Yardstick) error {
	if measure.SleepUntil(ctx, t.from) != nil {
		return nil
	}
	tick := time.NewTicker(bareInterval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		begin := time.Now()
		if err := y.Bare(context.WithoutCancel(ctx)); err != nil {
			return err
		}
		measure.Record(t.bare, time.Since(begin))
	}
}

func (t *tally) figures() *Figures {
	t.mu.Lock()
	defer t.mu.Unlock()
	f := &Figures{Jobs: t.result.TotalCount(), Start: TimesOf(t.start), Result: TimesOf(t.result), Failed: t.failed, Ended: t.succeeded}
	optional := func(h *hdrhistogram.Histogram) *Times {
		if h.TotalCount() == 0 {
			return nil
		}
		times := TimesOf(h)
		return &times
	}
	f.Assign, f.Bare = optional(t.assign), optional(t.bare)
	window := t.to.Sub(t.from)
	if t.loop == Open {
		f.Late = optional(t.late)
		if t.last.After(t.to) {
			window = t.last.Sub(t.from)
		}
	}
	f.JobsPerSecond = measure.Rounded(float64(f.Jobs) / window.Seconds())
	return f
}
