package dispatch

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/cell"
)

const (
	// leaseSpan is what a replica takes out of a tenant's bucket at least: its share of the
	// permits of this time.
	leaseSpan = 100 * time.Millisecond
	// leaseHold is for how long it keeps what it does not use.
	leaseHold = time.Second
	// leaseTimeout bounds a call.
	leaseTimeout = 500 * time.Millisecond
	// leaseRest is the pause after a call that failed.
	failureRest = 250 * time.Millisecond
	// dryRest is the shortest pause after a call that found too little, unless the bucket is
	// full sooner: a tenant that floods is not to cost a call for each permit.
	dryRest = 10 * time.Millisecond
	// rateWaiters is how many submits of a tenant may wait for a call.
	rateWaiters = 1024
)

// bucket is this replica's side of a tenant's bucket, which is in Redis and which all
// replicas share. It leases permits in chunks, so that most submits cost no call, and keeps
// what is left for a short time.
//
// Invariant: held <= wanted + chunk, hence the replicas admit in any time t no more than
// rate * t + burst + their chunks, of which the sum is a tenth of a second's permits as long
// as each knows of the others.
type bucket struct {
	tenant string
	rate   cell.Rate
	// take is a call; chunk how much of it is worth one; now a clock that never goes back.
	take  func(ctx context.Context, most int) (cell.Permits, error)
	chunk func() int
	now   func() time.Duration

	admitted, refused, failed prometheus.Counter

	mu sync.Mutex // guards what follows
	// held may be used before until.
	held  int
	until time.Duration
	// dry is when the bucket has a permit again, and resting when a call is tried again
	// after failure.
	emptyUntil, failedUntil time.Duration
	failure                 error
	// lease is closed when the call under way has ended; nil when there is none.
	lease chan struct{}
	// wanted is what the waiting submits still need.
	wanted, waiting int
}

// admit takes n permits, or as many as there are; err says why the others got none, and
// then their jobs may come again after it and, one by one, after further permits.
func (b *bucket) admit(ctx context.Context, n int) (got int, err error) {
	b.mu.Lock()
	defer func() { b.mu.Unlock(); b.count(n, got, err) }()
	if got = b.draw(n); got == n {
		return got, nil
	}
	if b.waiting >= rateWaiters {
		return got, &freeslot.Error{
			Code: freeslot.CodeOverloaded, RetryAfter: retryAfter(),
			Message: fmt.Sprintf("%d submits of tenant %s wait to learn whether its submit_rate allows them", rateWaiters, b.tenant),
		}
	}
	b.waiting++
	b.wanted += n - got
	defer func() { b.waiting--; b.wanted -= n - got }()
	for got < n {
		now := b.now()
		switch {
		case now < b.failedUntil:
			return got, coded("submit", b.failure)
		case now < b.emptyUntil:
			return got, b.limited(b.emptyUntil - now)
		case ctx.Err() != nil:
			return got, coded("submit", notAsked(ctx))
		case b.lease == nil:
			b.call(ctx)
		default:
			b.await(ctx)
		}
		more := b.draw(n - got)
		got += more
		b.wanted -= more
	}
	return got, nil
}

func notAsked(ctx context.Context) error { return fmt.Errorf("%w: %w", cell.ErrNotSent, ctx.Err()) }

// draw takes of what is held.
func (b *bucket) draw(n int) int {
	if b.now() >= b.until {
		b.held = 0
	}
	n = min(n, b.held)
	b.held -= n
	return n
}

// call asks Redis for what all who wait need, or a chunk if that is more. The caller's end
// does not end it: others wait for it too.
func (b *bucket) call(ctx context.Context) {
	done := make(chan struct{})
	b.lease = done
	defer func() { b.lease = nil; close(done) }()
	most, begin := max(b.wanted, b.chunk()), b.now()
	got, err := b.ask(ctx, most)
	if err != nil {
		b.failure, b.failedUntil = err, b.now()+failureRest
		return
	}
	// Who has left wants nothing any more.
	b.held, b.until = min(got.Taken, max(b.wanted, b.chunk())), begin+leaseHold
	if got.Taken < most {
		b.emptyUntil = b.now() + b.refill(got.Left)
	}
}

// ask is called with mu held, and does not hold it meanwhile.
func (b *bucket) ask(ctx context.Context, most int) (cell.Permits, error) {
	b.mu.Unlock()
	defer b.mu.Lock()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), leaseTimeout)
	defer cancel()
	return b.take(ctx, most)
}

// refill is how long an empty bucket is left alone.
func (b *bucket) refill(left float64) time.Duration {
	next, full := b.permits(1-left), b.permits(float64(b.rate.Burst)-left)
	return max(next, min(dryRest, full))
}

// permits is how long the bucket takes to get so many.
func (b *bucket) permits(n float64) time.Duration {
	return time.Duration(max(n, 0) / b.rate.PerSecond * float64(time.Second))
}

// await waits for the call under way, as ask does.
func (b *bucket) await(ctx context.Context) {
	lease := b.lease
	b.mu.Unlock()
	defer b.mu.Lock()
	select {
	case <-lease:
	case <-ctx.Done():
	}
}

// limited tells the first that got no permit when there will be one, in whole milliseconds,
// as clients are told.
func (b *bucket) limited(after time.Duration) *freeslot.Error {
	return &freeslot.Error{
		Code: freeslot.CodeRateLimited, RetryAfter: (after + time.Millisecond).Truncate(time.Millisecond),
		Message: "tenant " + b.tenant + " may submit " + strconv.FormatFloat(b.rate.PerSecond, 'f', -1, 64) + " jobs a second, " +
			strconv.Itoa(b.rate.Burst) + " at once after a pause; this is one too many",
	}
}

// behind is what the k-th is told of those that got no permit, from 0: where that is for the
// rate, each gets a later time, so that they do not come back together.
func (b *bucket) refusal(err error, k int) error {
	first, ok := err.(*freeslot.Error) //nolint:errorlint // made by limited
	if !ok || first.Code != freeslot.CodeRateLimited || k == 0 {
		return err
	}
	return b.limited(first.RetryAfter + b.permits(float64(k)))
}

func (b *bucket) count(n, got int, err error) {
	b.admitted.Add(float64(got))
	if freeslot.CodeOf(err) == freeslot.CodeRateLimited {
		b.refused.Add(float64(n - got))
	} else {
		b.failed.Add(float64(n - got))
	}
}

// newBuckets makes those of the tenants that have a rate.
func newBuckets(d *Dispatcher, rates map[string]cell.Rate) map[string]*bucket {
	start := time.Now()
	buckets := make(map[string]*bucket, len(rates))
	for tenant, rate := range rates {
		home := d.cells.OfTenant(tenant)
		count := func(outcome string) prometheus.Counter { return d.metrics.rated.WithLabelValues(tenant, outcome) }
		buckets[tenant] = &bucket{
			tenant: tenant, rate: rate, now: func() time.Duration { return time.Since(start) },
			chunk: func() int { return chunk(rate, d.liveReplicas()) },
			take: func(ctx context.Context, most int) (cell.Permits, error) {
				if d.nodes.Skip().Has(home.Index()) {
					return cell.Permits{}, errCellAway
				}
				permits, err := home.TakePermits(ctx, tenant, rate, most)
				logFailure(d.sampled, "take permits", err)
				return permits, err
			},
			admitted: count("admitted"), refused: count("refused"), failed: count("failed"),
		}
	}
	return buckets
}

// errCellAway is why a cell that does not answer is not asked.
var errCellAway = fmt.Errorf("the cell does not answer: %w", cell.ErrNotSent)

// chunk is what a lease takes at least, one of so many replicas; 0 when that is no whole permit.
func chunk(rate cell.Rate, replicas int) int {
	return min(int(rate.PerSecond*leaseSpan.Seconds()), rate.Burst) / max(replicas, 1)
}

// replicas is how many run, as far as is known.
func (d *Dispatcher) liveReplicas() int { return max(int(d.replicaCount.Load()), 1) }

// admit decides on the jobs for which their tenants' submit rates leave nothing, and returns
// the others. Of the jobs of one submit the first are admitted.
func (s *submit) admit(jobs []*placement) []*placement {
	if len(s.d.buckets) == 0 {
		return jobs
	}
	admitted := jobs[:0]
	for len(jobs) > 0 {
		n := alike(jobs)
		b := s.d.buckets[jobs[0].request.Tenant]
		if b == nil || !jobs[0].request.rated() {
			admitted, jobs = append(admitted, jobs[:n]...), jobs[n:]
			continue
		}
		got, err := b.admit(s.ctx, n)
		admitted = append(admitted, jobs[:got]...)
		for k, p := range jobs[got:n] {
			s.decide(p, cell.Placement{}, b.refusal(err, k))
		}
		jobs = jobs[n:]
	}
	return admitted
}

// alike is how many jobs at the beginning are alike to a bucket.
func alike(jobs []*placement) int {
	first := &jobs[0].request
	for i, p := range jobs {
		if p.request.Tenant != first.Tenant || p.request.rated() != first.rated() {
			return i
		}
	}
	return len(jobs)
}

// rated reports whether the tenant's submit rate is for the job: the runs of a schedule come
// when they are due.
func (r *Request) rated() bool { return !r.Unlimited && r.Run == nil }
