package collector

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime/debug"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/process/logging"
)

// Bounds of a [Runner].
const (
	// MaxCollectors is the largest number of entries of a runner.
	MaxCollectors = 64
	// MinInterval and MaxInterval bound Entry.Interval.
	MinInterval = 100 * time.Millisecond
	MaxInterval = 24 * time.Hour
)

const (
	// availableInterval is how often a collector that is not available is asked again: a driver may
	// be loaded, a device plugged in.
	availableInterval = 3 * time.Minute
	// keepIntervals is the number of intervals for which a collector's last figures are published.
	keepIntervals = 3
	// stopGrace is how long Run waits for collections under way when ctx has ended.
	stopGrace = time.Second
)

// Runner runs collectors, each with its own interval, and publishes their last figures.
//
// One goroutine decides. Each collection has a goroutine of its own, and no collector has two at
// once. So a collector that fails, panics, is slow or never returns delays no other one, and costs
// at most one goroutine.
type Runner struct {
	entries []*entry
	log     *zap.Logger
	metrics *metrics
	latest  atomic.Pointer[published]
	changed chan struct{}
	// results has room for one result of each collector, so a collection that ends after Run does
	// not wait for a reader.
	results chan result
}

// published holds what Latest and Taken return.
type published struct {
	figures Snapshot
	taken   map[string]time.Time
}

// entry is a collector with its state. Only the loop uses it; the Collector belongs to the
// collection while running is set.
type entry struct {
	Entry
	name string
	// due is the time at which the next collection starts; it has no meaning while running is true.
	due time.Time
	// running is true until Collect, or Available, has returned.
	running bool
	// deadline is the time at which the running collection exceeds its time limit; zero if it has.
	deadline  time.Time
	available bool
	// collected counts collections that gave figures.
	collected uint64
	figures   Metrics
	// taken is the time at which the collection of figures began.
	taken time.Time
	// expires is the time at which figures are too old to be published; zero without figures.
	expires time.Time
	// size is the length of the figures, and of their age, in the JSON of a heartbeat.
	size int

	// States that have been logged and persist.
	failing, unavailable, dropping, leftOut bool
}

// result is the result of a collection.
type result struct {
	entry   *entry
	figures Metrics
	dropped []string
	// available and unavailable are the answer of Available, if there is one.
	available, unavailable bool
	err                    error
	// outcome is set after a panic.
	outcome string
	took    time.Duration
}

// New builds a runner and registers its metrics with reg; log and reg may be nil. The most
// important entries come first: if all figures together exceed MaxJSONBytes, the figures of the
// last ones are left out. The error is a *freeslot.Error with code freeslot.CodeInvalidArgument for
// an invalid entry, or an error of reg.
func New(entries []Entry, log *zap.Logger, reg prometheus.Registerer) (*Runner, error) {
	if log == nil {
		log = zap.NewNop()
	}
	if len(entries) > MaxCollectors {
		return nil, freeslot.Invalid("collectors", "has %d entries, expected at most %d", len(entries), MaxCollectors)
	}
	r := &Runner{log: log, changed: make(chan struct{}, 1), results: make(chan result, len(entries))}
	r.latest.Store(&published{figures: Snapshot{}})
	seen := make(map[string]bool, len(entries))
	for i, e := range entries {
		if err := e.validate(i, seen); err != nil {
			return nil, err
		}
		e = e.withDefaults()
		r.entries = append(r.entries, &entry{Entry: e, name: e.Collector.Type()})
	}
	m, err := newMetrics(reg)
	if err != nil {
		return nil, err
	}
	r.metrics = m
	return r, nil
}

func (e Entry) validate(i int, seen map[string]bool) error {
	at := fmt.Sprintf("collectors[%d]", i)
	if e.Collector == nil {
		return freeslot.Invalid(at, "is nil")
	}
	name := e.Collector.Type()
	if err := freeslot.ValidateName(at+".type", name); err != nil {
		return err
	}
	if seen[name] {
		return freeslot.Invalid(at+".type", "is %q like that of another collector, expected each type once", name)
	}
	seen[name] = true
	if e.Interval != 0 && (e.Interval < MinInterval || e.Interval > MaxInterval) {
		return freeslot.Invalid(at+".interval", "is %s, expected %s to %s", e.Interval, MinInterval, MaxInterval)
	}
	if interval := e.withDefaults().Interval; e.Timeout < 0 || e.Timeout > interval {
		return freeslot.Invalid(
			at+".timeout", "is %s, expected more than 0s and at most the interval, %s", e.Timeout, interval,
		)
	}
	return nil
}

// Latest returns the last figures of each collector, for three intervals. Before the first
// collection it is empty, not nil. It takes no lock and may be called from any goroutine, before,
// during and after Run.
func (r *Runner) Latest() Snapshot { return r.latest.Load().figures }

// Taken returns the same as Latest and, by type, the time at which the collections of these figures
// began. The caller must not change the map.
func (r *Runner) Taken() (Snapshot, map[string]time.Time) {
	p := r.latest.Load()
	return p.figures, p.taken
}

// Changed returns a channel that has a value after Latest has changed. It holds at most one value,
// which can stand for several changes. It is never closed.
func (r *Runner) Changed() <-chan struct{} { return r.changed }

// Run collects until ctx ends; the first collections begin at once. Then it waits for the
// collections under way, but no longer than a second for one that ignores its context. Run must be
// called at most once.
func (r *Runner) Run(ctx context.Context) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for ctx.Err() == nil {
		select {
		case <-ctx.Done():
		case res := <-r.results:
			res.entry.running = false
			if ctx.Err() == nil { // otherwise it may have failed because ctx ended
				r.finish(res)
			}
		case <-timer.C:
		}
		r.expire(time.Now())
		r.startDue(ctx, time.Now())
		if next, ok := r.next(); ok {
			timer.Reset(time.Until(next))
		}
	}
	r.wait()
}

// wait gives collections under way a moment to end.
func (r *Runner) wait() {
	grace := time.After(stopGrace)
	for _, e := range r.entries {
		for e.running {
			select {
			case res := <-r.results:
				res.entry.running = false
			case <-grace:
				return
			}
		}
	}
}

// next returns the next time at which the loop has something to do, unless a collection ends
// before.
func (r *Runner) next() (time.Time, bool) {
	var next time.Time
	consider := func(t time.Time) {
		if !t.IsZero() && (next.IsZero() || t.Before(next)) {
			next = t
		}
	}
	for _, e := range r.entries {
		consider(e.expires)
		if e.running {
			consider(e.deadline)
		} else {
			consider(e.due)
		}
	}
	return next, !next.IsZero()
}

func (r *Runner) startDue(ctx context.Context, now time.Time) {
	for _, e := range r.entries {
		if e.running || e.due.After(now) || ctx.Err() != nil {
			continue
		}
		e.running, e.deadline = true, now.Add(e.Timeout)
		go r.collect(ctx, e, e.available)
	}
}

// expire notices collections that exceed their time limit, and stops publishing figures that are
// too old.
func (r *Runner) expire(now time.Time) {
	stale := false
	for _, e := range r.entries {
		if e.running && !e.deadline.IsZero() && !now.Before(e.deadline) {
			e.deadline = time.Time{}
			r.failed(e, outcomeTimeout, fmt.Errorf("took longer than %s", e.Timeout))
		}
		if !e.expires.IsZero() && !now.Before(e.expires) {
			e.figures, e.expires, stale = nil, time.Time{}, true
		}
	}
	if stale {
		r.publish()
	}
}

// collect runs one collection. It always sends one result, which never blocks.
func (r *Runner) collect(ctx context.Context, e *entry, available bool) {
	ctx, cancel := context.WithTimeout(ctx, e.Timeout)
	defer cancel()
	res := result{entry: e}
	began := time.Now()
	defer func() {
		if p := recover(); p != nil {
			res = result{entry: e, outcome: outcomePanic, err: fmt.Errorf("panic: %v\n%s", p, debug.Stack())}
		}
		res.took = time.Since(began)
		r.results <- res
	}()
	if !available && !e.Collector.Available(ctx) {
		res.unavailable, res.err = true, ctx.Err()
		return
	}
	res.available = true
	var figures Metrics
	if figures, res.err = e.Collector.Collect(ctx); figures != nil {
		res.figures, res.dropped = clean(figures)
	}
}

// finish takes over the result of a collection.
func (r *Runner) finish(res result) {
	e := res.entry
	e.available = e.available || res.available
	late := e.deadline.IsZero() // it was counted as failed at its deadline
	e.due = time.Now().Add(jitter(e.Interval))
	r.metrics.seconds.WithLabelValues(e.name).Add(res.took.Seconds())
	switch {
	case late:
		return
	case res.err != nil:
		r.failed(e, res.failure(), res.err)
	case res.unavailable:
		e.due = time.Now().Add(jitter(availableInterval))
		if !e.unavailable {
			r.log.Info("collector.unavailable", zap.String("type", e.name))
		}
		e.unavailable, e.failing = true, false
	default:
		r.succeeded(e)
	}
	if res.figures != nil {
		r.collected(e, res)
	}
}

// failure returns the outcome of a result with an error.
func (res *result) failure() string {
	switch {
	case res.outcome != "":
		return res.outcome
	case errors.Is(res.err, context.DeadlineExceeded):
		return outcomeTimeout
	default:
		return outcomeError
	}
}

func (r *Runner) succeeded(e *entry) {
	r.metrics.collections.WithLabelValues(e.name, outcomeOK).Inc()
	switch {
	case e.failing:
		r.log.Info("collector.recovered", zap.String("type", e.name))
	case e.unavailable:
		r.log.Info("collector.available", zap.String("type", e.name))
	}
	e.failing, e.unavailable = false, false
}

func (r *Runner) collected(e *entry, res result) {
	if e.collected++; e.collected == 1 {
		// A difference (cpu, network) takes two readings, and must not be missing for a whole
		// interval.
		e.due = time.Now().Add(jitter(e.Interval / 4))
	}
	if len(res.dropped) > 0 && !e.dropping {
		r.log.Warn("collector.fields_dropped", zap.String("type", e.name), zap.Strings(logging.FieldReason, res.dropped))
	}
	e.dropping = len(res.dropped) > 0
	now := time.Now()
	e.figures, e.taken, e.expires = res.figures, now.Add(-res.took), now.Add(keepIntervals*e.Interval)
	e.size = Snapshot{e.name: e.figures}.jsonSize() + len(e.name) + ageBytes
	r.publish()
}

// failed counts a failure, and logs it if it is the first in a row.
func (r *Runner) failed(e *entry, outcome string, err error) {
	r.metrics.collections.WithLabelValues(e.name, outcome).Inc()
	if !e.failing {
		r.log.Warn(
			"collector.failed", zap.String("type", e.name), zap.String("outcome", outcome),
			zap.String(logging.FieldReason, cut(err.Error(), maxReasonBytes)),
		)
	}
	e.failing = true
}

// publish makes the known figures the latest snapshot.
func (r *Runner) publish() {
	next, taken := make(Snapshot, len(r.entries)), make(map[string]time.Time, len(r.entries))
	size := len("{}")
	for _, e := range r.entries {
		if e.figures == nil {
			continue
		}
		if size+e.size > MaxJSONBytes {
			if !e.leftOut {
				r.log.Warn("collector.left_out", zap.String("type", e.name),
					zap.String(logging.FieldReason, fmt.Sprintf("the figures of all collectors exceed %d bytes", MaxJSONBytes)))
			}
			e.leftOut = true
			continue
		}
		e.leftOut = false
		size += e.size
		next[e.name], taken[e.name] = e.figures, e.taken
	}
	same := next.equal(r.Latest())
	r.latest.Store(&published{next, taken})
	if same {
		return
	}
	select {
	case r.changed <- struct{}{}:
	default: // a value is waiting, and its reader sees this change too
	}
}

// jitter returns d plus or minus a tenth, so that collectors with the same interval do not run
// together for ever.
func jitter(d time.Duration) time.Duration { return d*9/10 + rand.N(d/5+1) }
