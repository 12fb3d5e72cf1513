package dispatch

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/puzpuzpuz/xsync/v3"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/cell"
)

const (
	// leaseSpan determines the least that a replica takes from a tenant's bucket: its share of the
	// permits of this time.
	leaseSpan = 100 * time.Millisecond
	// leaseHold is how long a replica keeps unused permits.
	leaseHold = time.Second
	// leaseTimeout bounds a call.
	leaseTimeout = 500 * time.Millisecond
	// failureRest is the pause after a failed call.
	failureRest = 250 * time.Millisecond
	// dryRest is the shortest pause after a call that found too little, unless the bucket is full
	// sooner. A tenant that floods must not cost one call for each permit.
	dryRest = 10 * time.Millisecond
	// rateWaiters is how many submits of a tenant may wait for a call.
	rateWaiters = 1024
)

// bucket enforces a tenant's submit_rate. The bucket itself is in Redis, and all replicas share it.
// This replica leases permits in chunks, so that most submits cost no call, and keeps the rest for
// a short time.
//
// Invariant: held <= wanted + chunk. So in any time t the replicas admit at most rate * t + burst +
// their chunks. The chunks add up to a tenth of a second's permits, as long as each replica knows
// of the others.
type bucket struct {
	tenant string
	rate   cell.Rate
	// take asks Redis for permits. chunk returns how many permits are worth a call. now returns the
	// time by a clock that never goes back.
	take  func(ctx context.Context, most int) (cell.Permits, error)
	chunk func() int
	now   func() time.Duration

	admitted, refused, failed prometheus.Counter

	mu sync.Mutex // guards the fields below
	// held is the number of permits that may be used before until.
	held  int
	until time.Duration
	// emptyUntil is the time at which the bucket has a permit again.
	emptyUntil time.Duration
	// failedUntil is the time at which a call is tried again after failure.
	failedUntil time.Duration
	failure     error
	// lease is closed when the call under way has ended; nil if there is none.
	lease chan struct{}
	// wanted is how many permits the waiting submits still need.
	wanted, waiting int
}

// admit takes n permits, or as many as there are. err says why the other jobs got none, and when
// the first of them may be submitted again.
func (b *bucket) admit(ctx context.Context, n int) (got int, err error) {
	b.mu.Lock()
	defer func() { b.mu.Unlock(); b.count(n, got, err) }()
	if got = b.draw(n); got == n {
		return got, nil
	}
	if b.waiting >= rateWaiters {
		return got, &freeslot.Error{
			Code: freeslot.CodeOverloaded, RetryAfter: retryAfter(),
			Message: fmt.Sprintf(
				"%d submits of tenant %s wait to learn whether its submit_rate allows them", rateWaiters, b.tenant,
			),
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

// draw takes held permits.
func (b *bucket) draw(n int) int {
	if b.now() >= b.until {
		b.held = 0
	}
	n = min(n, b.held)
	b.held -= n
	return n
}

// call asks Redis for what all waiting submits need, or for a chunk if that is more.
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
	// Submits that have given up meanwhile need nothing.
	b.held, b.until = min(got.Taken, max(b.wanted, b.chunk())), begin+leaseHold
	if got.Taken < most {
		b.emptyUntil = b.now() + b.refill(got.Left)
	}
}

// ask releases mu, which the caller holds, during the call. The end of ctx does not end the call,
// because other submits wait for it, too.
func (b *bucket) ask(ctx context.Context, most int) (cell.Permits, error) {
	b.mu.Unlock()
	defer b.mu.Lock()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), leaseTimeout)
	defer cancel()
	return b.take(ctx, most)
}

// refill returns how long an empty bucket is left alone.
func (b *bucket) refill(left float64) time.Duration {
	next, full := b.permits(1-left), b.permits(float64(b.rate.Burst)-left)
	return max(next, min(dryRest, full))
}

// permits returns how long the bucket takes to get n permits.
func (b *bucket) permits(n float64) time.Duration {
	return time.Duration(max(n, 0) / b.rate.PerSecond * float64(time.Second))
}

// await waits for the call under way. It releases mu, which the caller holds, meanwhile.
func (b *bucket) await(ctx context.Context) {
	lease := b.lease
	b.mu.Unlock()
	defer b.mu.Lock()
	select {
	case <-lease:
	case <-ctx.Done():
	}
}

// limited returns the error of the first job that got no permit. RetryAfter is in whole
// milliseconds, as clients get it.
func (b *bucket) limited(after time.Duration) *freeslot.Error {
	return &freeslot.Error{
		Code: freeslot.CodeRateLimited, RetryAfter: (after + time.Millisecond).Truncate(time.Millisecond),
		Message: "tenant " + b.tenant + " may submit " + strconv.FormatFloat(b.rate.PerSecond, 'f', -1, 64) +
			" jobs a second, " +
			strconv.Itoa(b.rate.Burst) + " at once after a pause; this is one too many",
	}
}

// refusal returns the error of the k-th job, from 0, that got no permit. If the rate is the reason,
// each job gets a later time, so that they do not return together.
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

// errCellAway is the error for a call that is not made because the cell does not answer.
var errCellAway = fmt.Errorf("the cell does not answer: %w", cell.ErrNotSent)

// chunk returns the least that each of this many replicas leases; 0 if that is not a whole permit.
// 0 replicas count as 1.
func chunk(rate cell.Rate, replicas int) int {
	return min(int(rate.PerSecond*leaseSpan.Seconds()), rate.Burst) / max(replicas, 1)
}

// buckets holds the buckets of the tenants with a submit rate. It is safe for concurrent use.
type buckets struct {
	named map[string]*bucket // by tenant, nil for one without a rate; immutable
	// others holds the buckets of tenants that have the default rate, made when they submit first.
	// Tenants come from tokens, so there are not many.
	others *xsync.MapOf[string, *bucket]
	rate   *cell.Rate // nil: these have no rate
	make   func(tenant, label string, rate cell.Rate) *bucket
}

// othersLabel is the tenant in metrics of all that have the default rate.
const othersLabel = "other"

func newBuckets(
	newBucket func(tenant, label string, rate cell.Rate) *bucket, rates map[string]cell.Rate, others *cell.Rate,
) *buckets {
	all := &buckets{
		named: make(map[string]*bucket, len(rates)), others: xsync.NewMapOf[string, *bucket](), rate: others, make: newBucket,
	}
	for tenant, rate := range rates {
		if all.named[tenant] = nil; rate.PerSecond > 0 {
			all.named[tenant] = newBucket(tenant, tenant, rate)
		}
	}
	return all
}

// of returns the bucket of a tenant, or nil if it has no rate.
func (b *buckets) of(tenant string) *bucket {
	if own, named := b.named[tenant]; named || b.rate == nil {
		return own
	}
	own, _ := b.others.LoadOrCompute(tenant, func() *bucket { return b.make(tenant, othersLabel, *b.rate) })
	return own
}
