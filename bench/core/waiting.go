package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/bench/core/result"
	"github.com/freeslot/freeslot/bench/measure"
	"github.com/freeslot/freeslot/internal/dispatch"
	"github.com/freeslot/freeslot/worker"
)

const (
	napService = "nap"
	napTenant  = "bench"
	// feeders keep a queue from running dry: one alone submits no more than a call's jobs in a round trip.
	feeders, callSize = 4, 64
)

// napFleet is a replica and nodes whose handlers sleep, all in this process; between them
// is Redis, as ever.
type napFleet struct {
	server     *server
	replica    *replica
	dispatcher *dispatch.Dispatcher
	workers    []*worker.Worker

	nap     time.Duration
	inside  atomic.Int64 // nanoseconds that handlers have slept
	running atomic.Int64
	most    atomic.Int64
	begun   func(job *worker.Job) // nil for nobody
}

func (b *bench) startNaps(ctx context.Context, nodes, slots int, nap time.Duration, begun func(*worker.Job)) (_ *napFleet, err error) {
	f := &napFleet{nap: nap, begun: begun}
	defer func() {
		if err != nil {
			err = errors.Join(err, f.stop())
		}
	}()
	if f.server, err = b.startRedis(ctx, noAOF); err != nil {
		return nil, err
	}
	if f.replica, err = openReplica(ctx, f.server.URL(), "replica-0", nil, nil, nil); err != nil {
		return nil, err
	}
	if f.dispatcher, err = dispatch.New(dispatch.Config{Replica: "replica-0"}, f.replica.cells, f.replica.cache, zap.NewNop(), nil); err != nil {
		return nil, err
	}
	if err = f.dispatcher.Start(ctx); err != nil {
		return nil, err
	}
	for i := range nodes {
		w, err := worker.New(worker.Config{
			RedisURL: f.server.URL(), Node: freeslot.Node{ID: "node-" + strconv.Itoa(i), MaxConcurrency: slots},
		})
		if err != nil {
			return nil, err
		}
		w.Handle(napService, f.handle)
		if err := w.Start(ctx); err != nil {
			return nil, err
		}
		f.workers = append(f.workers, w)
	}
	// The events of registrations may be on their way.
	for f.replica.cache.Health().Nodes < nodes {
		if err := measure.SleepUntil(ctx, time.Now().Add(time.Millisecond)); err != nil {
			return nil, err
		}
	}
	return f, nil
}

func (f *napFleet) handle(_ context.Context, job *worker.Job) (any, error) {
	if f.begun != nil {
		f.begun(job)
	}
	begin := time.Now()
	if now := f.running.Add(1); now > f.most.Load() {
		f.most.Store(now)
	}
	time.Sleep(f.nap)
	f.running.Add(-1)
	f.inside.Add(int64(time.Since(begin)))
	return nil, nil
}

func (f *napFleet) stop() error {
	ctx, cancel := context.WithTimeout(context.Background(), measure.StopGrace)
	defer cancel()
	errs := make([]error, len(f.workers))
	var all sync.WaitGroup
	for i, w := range f.workers {
		all.Go(func() { errs[i] = w.Stop(ctx) })
	}
	all.Wait()
	if f.dispatcher != nil {
		errs = append(errs, f.dispatcher.Stop(ctx))
	}
	if f.replica != nil {
		errs = append(errs, f.replica.close())
	}
	if f.server != nil {
		errs = append(errs, f.server.stop())
	}
	return errors.Join(errs...)
}

// napSink counts what becomes of jobs.
type napSink struct {
	ended    func(freeslot.JobStatus)
	assigned func(dispatch.Assignment)
}

func (s *napSink) Assigned(a dispatch.Assignment) {
	if s.assigned != nil {
		s.assigned(a)
	}
}
func (s *napSink) Result(status freeslot.JobStatus)   { s.ended(status) }
func (s *napSink) Detached(string)                    {}
func (s *napSink) Progress(string, freeslot.Progress) {}

// submit hands in count jobs of a tenant in calls of a batch's size.
func (f *napFleet) submit(ctx context.Context, tenant string, count int, sink *napSink, accepted func(id string)) error {
	var failed error
	for count > 0 && failed == nil {
		requests := make([]dispatch.Request, min(callSize, count))
		for i := range requests {
			requests[i] = dispatch.Request{Tenant: tenant, Job: &freeslot.Job{Service: napService}}
		}
		f.dispatcher.Submit(ctx, requests, sink, func(_ int, a dispatch.Accepted, err error) {
			if err != nil {
				failed = err
			} else if accepted != nil {
				accepted(a.JobID)
			}
		})
		count -= len(requests)
	}
	return failed
}

// runUtilisation keeps more jobs waiting than there are slots and counts the time inside handlers.
func runUtilisation(ctx context.Context, b *bench) error {
	nodes, window := sized(b, 50, 8), sized(b, 10*time.Second, 300*time.Millisecond)
	const nap, depth = 50 * time.Millisecond, 40
	b.say("Nodes of one slot, jobs that sleep %s, always %d jobs a slot under way or waiting, submitted by %d goroutines in calls of %d at most; replica and nodes are one process. Time inside handlers / (slots x %s).", nap, depth, feeders, callSize, window)
	table := result.Table{First: "Nodes of one slot", Columns: []result.Column{
		{Name: "jobs", Unit: result.PerSecond},
		{Name: "slots busy", Unit: result.Percent},
		{Name: "most handlers at once", Unit: result.Number},
		{Name: "Redis' main thread", Unit: result.Percent},
		{Name: "Redis' CPU a job", Unit: result.Microseconds},
	}}
	// The smaller fleets say what is left idle where processors have time to spare.
	for _, of := range []int{nodes / 5, nodes / 2, nodes} {
		u, err := b.utilisation(ctx, of, depth, nap, window)
		if err != nil {
			return err
		}
		if of == nodes {
			b.target(fmt.Sprintf("time inside handlers / (slots x time), %d nodes of one slot, jobs of %s", nodes, nap), result.Percent, result.AtLeast, 95, u.share)
			b.target("most handlers at once of a slot", result.Number, result.AtMost, 1, float64(u.most)/float64(nodes))
		}
		table.Rows = append(table.Rows, result.Row{Name: strconv.Itoa(of), Values: result.Values(rounded(u.rate), rounded(u.share), float64(u.most), rounded(u.redis), rounded(u.redis*1e4/u.rate))})
	}
	b.result.Tables = []result.Table{table}
	return nil
}

// utilised is what came of one fleet: jobs a second, percent of the slots' time and of Redis'
// main thread, and the most handlers at once.
type utilised struct {
	rate, share, redis float64
	most               int64
}

func (b *bench) utilisation(ctx context.Context, nodes, depth int, nap, window time.Duration) (u utilised, err error) {
	f, err := b.startNaps(ctx, nodes, 1, nap, nil)
	if err != nil {
		return u, err
	}
	defer func() { err = errors.Join(err, f.stop()) }()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	always := depth * nodes
	more := make(chan struct{}, always)
	var ended atomic.Int64
	sink := &napSink{ended: func(freeslot.JobStatus) { ended.Add(1); more <- struct{}{} }}
	for range always {
		more <- struct{}{}
	}
	errs := make([]error, feeders)
	var feeding sync.WaitGroup
	for n := range feeders {
		feeding.Go(func() { errs[n] = f.feed(ctx, more, min(callSize, always/(2*feeders)), sink) })
	}
	if err := measure.SleepUntil(ctx, time.Now().Add(window/5)); err != nil {
		return u, err
	}
	client := f.server.client
	before, err := measure.ReadRedisStat(ctx, client)
	if err != nil {
		return u, err
	}
	inside, jobs, begin := f.inside.Load(), ended.Load(), time.Now()
	if err := measure.SleepUntil(ctx, begin.Add(window)); err != nil {
		return u, err
	}
	took := time.Since(begin)
	u.share = float64(f.inside.Load()-inside) / float64(took) / float64(nodes) * 100
	u.rate = float64(ended.Load()-jobs) / took.Seconds()
	u.most = f.most.Load()
	after, err := measure.ReadRedisStat(ctx, client)
	if err != nil {
		return u, err
	}
	u.redis = (after.CPUSeconds - before.CPUSeconds) / took.Seconds() * 100
	cancel()
	feeding.Wait()
	return u, errors.Join(errs...)
}

// feed submits a job for each token of more until ctx ends, in calls of this size.
func (f *napFleet) feed(ctx context.Context, more <-chan struct{}, size int, sink *napSink) error {
	for {
		for range size {
			select {
			case <-more:
			case <-ctx.Done():
				return nil
			}
		}
		if err := f.submit(ctx, napTenant, size, sink, nil); err != nil && ctx.Err() == nil {
			return err
		}
	}
}

// runFairness has one tenant flood the queue and another one submit now and then.
func runFairness(ctx context.Context, b *bench) (err error) {
	nodes, slots, flood, pause := 5, 8, sized(b, 100_000, 1_000), sized(b, time.Second, 50*time.Millisecond)
	const nap = 20 * time.Millisecond
	b.say("Tenant A submits %s jobs that sleep %s as fast as it can, onto %d nodes of %d slots; tenant B, of the same weight, one every %s until A's are done. B's wait is from its submit to the begin of its handler.",
		measure.Thousands(float64(flood)), nap, nodes, slots, pause)
	var mu sync.Mutex
	submitted := make(map[string]time.Time) // of B's jobs, by payload
	waits := measure.NewHistogram()
	begun := func(job *worker.Job) {
		if job.Tenant != "b" {
			return
		}
		now := time.Now()
		mu.Lock()
		defer mu.Unlock()
		measure.Record(waits, now.Sub(submitted[string(job.Payload)]))
	}
	f, err := b.startNaps(ctx, nodes, slots, nap, begun)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.stop()) }()
	done := make(chan struct{})
	var left atomic.Int64
	left.Store(int64(flood))
	begin := time.Now()
	sinkA := &napSink{ended: func(freeslot.JobStatus) {
		if left.Add(-1) == 0 {
			close(done)
		}
	}}
	var flooding sync.WaitGroup
	var floodErr error
	flooding.Go(func() { floodErr = f.submit(ctx, "a", flood, sinkA, nil) })
	ticker := time.NewTicker(pause)
	defer ticker.Stop()
	var others sync.WaitGroup
	count := 0
	for over := false; !over; {
		select {
		case <-done:
			over = true
		case <-ctx.Done():
			return ctx.Err()
		case <-ticker.C:
			count++
			payload := strconv.Itoa(count)
			ended := make(chan struct{})
			mu.Lock()
			submitted[payload] = time.Now()
			mu.Unlock()
			others.Go(func() {
				f.dispatcher.Submit(ctx, []dispatch.Request{{Tenant: "b", Job: &freeslot.Job{Service: napService, Payload: []byte(payload)}}},
					&napSink{ended: func(freeslot.JobStatus) { close(ended) }}, func(int, dispatch.Accepted, error) {})
				select {
				case <-ended:
				case <-ctx.Done():
				}
			})
		}
	}
	took := time.Since(begin)
	flooding.Wait()
	others.Wait()
	if floodErr != nil {
		return floodErr
	}
	mu.Lock()
	defer mu.Unlock()
	ms := func(q float64) float64 { return rounded(float64(waits.ValueAtQuantile(q)) / 1e3) }
	b.result.Tables = []result.Table{{First: "Tenant B's jobs", Columns: []result.Column{
		{Name: "wait p50", Unit: result.Milliseconds},
		{Name: "p99", Unit: result.Milliseconds},
		{Name: "longest", Unit: result.Milliseconds},
		{Name: "A's jobs", Unit: result.PerSecond},
	}, Rows: []result.Row{{Name: strconv.Itoa(count), Values: result.Values(ms(50), ms(99), rounded(float64(waits.Max())/1e3), rounded(float64(flood)/took.Seconds()))}}}}
	b.target(fmt.Sprintf("wait of a tenant beside another's flood of %s jobs of %s: p99", measure.Thousands(float64(flood)), nap), result.Milliseconds, result.AtMost, 25, ms(99))
	return nil
}
