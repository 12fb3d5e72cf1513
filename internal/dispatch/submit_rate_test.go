package dispatch

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/cell"
	"github.com/freeslot/freeslot/internal/testing/redistest"
	"github.com/freeslot/freeslot/internal/testing/waittest"
)

// shop is an ideal bucket in Redis, and replicas that lease from it, on a clock that the test
// moves.
type shop struct {
	rate     cell.Rate
	clock    time.Duration
	left     float64
	at       time.Duration
	calls    int
	replicas []*bucket
}

func newShop(rate cell.Rate, replicas int) *shop {
	s := &shop{rate: rate, left: float64(rate.Burst)}
	for range replicas {
		s.replicas = append(s.replicas, testBucket(rate, replicas, func() time.Duration { return s.clock },
			func(_ context.Context, most int) (cell.Permits, error) { return s.take(most), nil }))
	}
	return s
}

func testBucket(rate cell.Rate, replicas int, now func() time.Duration, take func(context.Context, int) (cell.Permits, error)) *bucket {
	count := func() prometheus.Counter { return prometheus.NewCounter(prometheus.CounterOpts{Name: "n"}) }
	return &bucket{
		tenant: tenant, rate: rate, now: now, take: take, chunk: func() int { return chunk(rate, replicas) },
		admitted: count(), refused: count(), failed: count(),
	}
}

func (s *shop) take(most int) cell.Permits {
	s.calls++
	s.left = min(float64(s.rate.Burst), s.left+(s.clock-s.at).Seconds()*s.rate.PerSecond)
	s.at = s.clock
	n := min(int(s.left), most)
	s.left -= float64(n)
	return cell.Permits{Taken: n, Left: s.left}
}

// TestRateBound: three replicas that ask at random never admit more, in any stretch of time, than
// rate * time + burst + what they may hold. A job that is refused until later is admitted then,
// unless other jobs came first.
func TestRateBound(t *testing.T) {
	t.Parallel()
	for seed := range uint64(300) {
		random := rand.New(rand.NewPCG(seed, 1))
		rates := []float64{0.5, 3, 50, 1000, 20_000}
		rate := cell.Rate{PerSecond: rates[random.IntN(len(rates))], Burst: 1 + random.IntN(1+random.IntN(500))}
		s := newShop(rate, 3)
		type admission struct {
			at    time.Duration
			total int // with all before
		}
		all := []admission{{}}
		var wait time.Duration
		var refused *bucket
		for range 300 {
			s.clock += time.Duration(random.Int64N(1 + random.Int64N(int64(400*time.Millisecond))))
			b, n := s.replicas[random.IntN(3)], 1+random.IntN(1+random.IntN(80))
			got, err := b.admit(context.Background(), n)
			if (got < n) != (freeslot.CodeOf(err) == freeslot.CodeRateLimited) || got > n {
				t.Fatalf("seed %d: %d of %d: %v", seed, got, n, err)
			}
			if refused = nil; got < n {
				refused, wait = b, retryOf(t, err)
			}
			all = append(all, admission{s.clock, all[len(all)-1].total + got})
		}
		slack := rate.Burst + 3*chunk(rate, 3)
		for i := 1; i < len(all); i++ {
			for j := i; j < len(all); j++ {
				admitted := all[j].total - all[i-1].total
				if most := rate.PerSecond*(all[j].at-all[i].at).Seconds() + float64(slack) + 1e-6; float64(admitted) > most {
					t.Fatalf("seed %d, %+v: %d jobs within %s, expected at most %.2f", seed, rate, admitted, all[j].at-all[i].at, most)
				}
			}
		}
		if refused != nil {
			s.clock += wait
			if got, err := refused.admit(context.Background(), 1); got != 1 {
				t.Fatalf("seed %d, %+v: refused again after %s: %v", seed, rate, wait, err)
			}
		}
	}
}

func retryOf(t *testing.T, err error) time.Duration {
	t.Helper()
	var e *freeslot.Error
	if !errors.As(err, &e) || e.RetryAfter <= 0 {
		t.Fatalf("%v has no time to come again", err)
	}
	return e.RetryAfter
}

// TestRateIsUsed: tenants that submit too much still get their full rate, at the cost of a call now
// and then.
func TestRateIsUsed(t *testing.T) {
	t.Parallel()
	for _, rate := range []cell.Rate{{PerSecond: 2, Burst: 1}, {PerSecond: 300, Burst: 300}, {PerSecond: 50_000, Burst: 50_000}, {PerSecond: 50_000, Burst: 10}} {
		s := newShop(rate, 3)
		const span, step = 5 * time.Second, 2 * time.Millisecond
		total := 0
		for ; s.clock < span; s.clock += step {
			for _, b := range s.replicas {
				got, _ := b.admit(context.Background(), 200)
				total += got
			}
		}
		want := float64(rate.Burst) + rate.PerSecond*span.Seconds()
		if rate.Burst == 10 { // a full bucket is worth less than a step
			want = float64(rate.Burst) * span.Seconds() / step.Seconds()
		}
		if least := 0.9*want - 1; float64(total) < least {
			t.Errorf("%+v: %d jobs in %s, expected at least %.0f", rate, total, span, least)
		}
		if rate.Burst > 10 && s.calls > 3*int(span/dryRest)+rate.Burst {
			t.Errorf("%+v: %d calls", rate, s.calls)
		}
	}
}

// TestRateCostsNoCall: most submits find a permit that is held already. A permit that was not used
// in time is gone.
func TestRateCostsNoCall(t *testing.T) {
	t.Parallel()
	s := newShop(cell.Rate{PerSecond: 30_000, Burst: 30_000}, 3)
	b := s.replicas[0]
	for range 3000 {
		if got, err := b.admit(context.Background(), 1); got != 1 {
			t.Fatal(err)
		}
	}
	if s.calls != 3 {
		t.Errorf("%d calls for 3000 jobs, expected 3", s.calls)
	}
	_, _ = b.admit(context.Background(), 1)
	s.clock += leaseHold
	if _, _ = b.admit(context.Background(), 1); s.calls != 5 {
		t.Errorf("%d calls, expected another one a second later", s.calls)
	}
	if n := testutil.ToFloat64(b.admitted); n != 3002 {
		t.Errorf("%v admitted", n)
	}
}

// gated is a bucket whose calls wait for the test.
func gated(rate cell.Rate) (b *bucket, calls chan int, answers chan cell.Permits, failures chan error) {
	calls, answers, failures = make(chan int, 10), make(chan cell.Permits), make(chan error)
	start := time.Now()
	b = testBucket(rate, 1, func() time.Duration { return time.Since(start) }, func(ctx context.Context, most int) (cell.Permits, error) {
		calls <- most
		select {
		case p := <-answers:
			return p, nil
		case err := <-failures:
			return cell.Permits{}, err
		case <-ctx.Done():
			return cell.Permits{}, ctx.Err()
		}
	})
	return b, calls, answers, failures
}

func (b *bucket) wants() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.wanted
}

// TestRateOneCall: of the submits that come together one asks, for all that are known by then. The
// next one asks for the rest.
func TestRateOneCall(t *testing.T) {
	t.Parallel()
	b, calls, answers, _ := gated(cell.Rate{PerSecond: 1, Burst: 100})
	var all sync.WaitGroup
	ask := func(n int) {
		all.Go(func() {
			if got, err := b.admit(context.Background(), n); got != n {
				t.Errorf("%d of %d: %v", got, n, err)
			}
		})
	}
	ask(3)
	if n := receive(t, "a call", calls); n != 3 {
		t.Errorf("asked for %d, expected 3", n)
	}
	ask(4)
	ask(5)
	waittest.Until(t, "all wait", func() bool { return b.wants() == 12 })
	answers <- cell.Permits{Taken: 3, Left: 97}
	most := receive(t, "a call for the others", calls)
	if most > 12 || most < 9 {
		t.Errorf("asked for %d, expected what the others want", most)
	}
	answers <- cell.Permits{Taken: most, Left: 88}
	waittest.Until(t, "all are served or ask again", func() bool {
		select {
		case n := <-calls: // where the first was served last
			answers <- cell.Permits{Taken: n, Left: 85}
		default:
		}
		return b.wants() == 0
	})
	all.Wait()
}

// TestRateWaitIsBounded: a submit that gives up takes no permits, and the number of waiting submits
// is bounded.
func TestRateWaitIsBounded(t *testing.T) {
	t.Parallel()
	b, calls, answers, _ := gated(cell.Rate{PerSecond: 1, Burst: 100})
	var leader sync.WaitGroup
	leader.Go(func() { _, _ = b.admit(context.Background(), 1) })
	receive(t, "a call", calls)
	ctx, cancel := context.WithCancel(context.Background())
	gone := make(chan error)
	go func() { _, err := b.admit(ctx, 50); gone <- err }()
	waittest.Until(t, "the second waits", func() bool { return b.wants() == 51 })
	cancel()
	if err := receive(t, "its answer", gone); freeslot.CodeOf(err) != freeslot.CodeUnavailable {
		t.Error(err)
	}
	b.mu.Lock()
	b.waiting += rateWaiters
	b.mu.Unlock()
	if _, err := b.admit(context.Background(), 1); freeslot.CodeOf(err) != freeslot.CodeOverloaded {
		t.Error(err)
	}
	answers <- cell.Permits{Taken: 51, Left: 49} // more than is wanted by now
	leader.Wait()
	if b.held > chunk(b.rate, 1) || b.wants() != 0 {
		t.Errorf("%d are held, %d wanted", b.held, b.wanted)
	}
}

// TestRateWithoutRedis: all waiting submits are refused at once, and for a moment there is no
// further call.
func TestRateWithoutRedis(t *testing.T) {
	t.Parallel()
	b, calls, _, failures := gated(cell.Rate{PerSecond: 1, Burst: 100})
	answers := make(chan error, 2)
	for range 2 {
		go func() { _, err := b.admit(context.Background(), 1); answers <- err }()
	}
	receive(t, "a call", calls)
	waittest.Until(t, "both wait", func() bool { return b.wants() == 2 })
	failures <- errors.New("test")
	for range 2 {
		if err := receive(t, "an answer", answers); freeslot.CodeOf(err) != freeslot.CodeUnavailable {
			t.Error(err)
		}
	}
	if _, err := b.admit(context.Background(), 1); freeslot.CodeOf(err) != freeslot.CodeUnavailable || len(calls) != 0 {
		t.Errorf("%v, %d calls", err, len(calls))
	}
}

// TestSubmitRate: the first jobs of a batch are admitted, and each other job gets a time to return.
// Replicas share the rate.
func TestSubmitRate(t *testing.T) {
	t.Parallel()
	r := newCells(t, 4, redistest.Shared(t))
	r.agent(node("n1", 100))
	limit := func(c *replicaConfig) {
		c.dispatch.Rates = map[string]cell.Rate{tenant: {PerSecond: 0.001, Burst: 5}} // next to nothing comes during the test
	}
	first, second := r.replica("r1", limit), r.replica("r2", limit)
	submit := func(rep *replica, reqs ...Request) (accepted int, errs []*freeslot.Error) {
		rep.Submit(deadline(t), reqs, nil, func(_ int, _ Accepted, err error) {
			var e *freeslot.Error
			switch {
			case err == nil:
				accepted++
			case errors.As(err, &e):
				errs = append(errs, e)
			}
		})
		rep.settled()
		return accepted, errs
	}
	batch := func(n int) (reqs []Request) {
		for range n {
			reqs = append(reqs, Request{Tenant: tenant, Job: job()})
		}
		return reqs
	}
	if n, errs := submit(first, batch(2)...); n != 2 {
		t.Fatalf("%d accepted, %v", n, errs)
	}
	n, errs := submit(second, batch(6)...)
	if n != 3 || len(errs) != 3 {
		t.Fatalf("%d accepted, %v", n, errs)
	}
	for k, e := range errs {
		least := time.Duration(1000*(k+1)-50) * time.Second
		if e.Code != freeslot.CodeRateLimited || e.RetryAfter < least || e.RetryAfter > least+60*time.Second {
			t.Errorf("refusal %d: %v, retry after %s", k, e, e.RetryAfter)
		}
	}
	if n, _ := submit(first, batch(1)...); n != 0 {
		t.Error("the replicas do not share what there is")
	}
	mixed := []Request{{Tenant: "other", Job: job()}, {Tenant: tenant, Job: job()}, {Tenant: tenant, Job: job(), Unlimited: true}}
	if n, errs := submit(first, mixed...); n != 2 || len(errs) != 1 {
		t.Errorf("%d accepted, %v", n, errs)
	}
	if _, used := r.owned("n1"); used != 7 {
		t.Errorf("%d jobs, expected 7", used)
	}
}

// TestSubmitRateOutage: if the tenant's bucket cannot be reached, its submits end soon.
func TestSubmitRateOutage(t *testing.T) {
	t.Parallel()
	server := redistest.New(t)
	r := newRig(t, server.Target)
	r.agent(node("n1", 100))
	rep := r.replica("r1", func(c *replicaConfig) {
		c.dispatch.Rates = map[string]cell.Rate{tenant: {PerSecond: 1, Burst: 1}}
		c.dispatch.SubmitTimeout = time.Hour // the bucket's calls end long before
	})
	waittest.Succeeds(t, "a permit in time", func() error { _, err := rep.place(job(), nil); return err })
	server.Pause()
	t.Cleanup(server.Resume)
	if _, err := rep.place(job(), nil); freeslot.CodeOf(err) != freeslot.CodeUnavailable && freeslot.CodeOf(err) != freeslot.CodeRateLimited {
		t.Error(err)
	}
}
