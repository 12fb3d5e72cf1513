package dispatch

import (
	"context"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/freeslot/freeslot/internal/cell"
)

// admit decides the jobs that their tenants' submit rates do not allow, and returns the others.
// Within one submit, the first jobs are admitted.
func (s *submit) admit(jobs []*placement) (admitted []*placement) {
	if len(s.d.buckets) == 0 {
		return jobs
	}
	for len(jobs) > 0 {
		first := &jobs[0].request
		n := slices.IndexFunc(jobs, func(p *placement) bool {
			return p.request.Tenant != first.Tenant || p.request.rated() != first.rated()
		})
		if n < 0 {
			n = len(jobs)
		}
		if b := s.d.buckets[first.Tenant]; b == nil || !first.rated() {
			admitted = append(admitted, jobs[:n]...)
		} else {
			got, err := b.admit(s.ctx, n)
			admitted = append(admitted, jobs[:got]...)
			for k, p := range jobs[got:n] {
				s.decide(p, cell.Placement{}, b.refusal(err, k))
			}
		}
		jobs = jobs[n:]
	}
	return admitted
}

// newBuckets makes the buckets of tenants with a rate.
func newBuckets(d *Dispatcher, rates map[string]cell.Rate) map[string]*bucket {
	start := time.Now()
	buckets := make(map[string]*bucket, len(rates))
	for tenant, rate := range rates {
		home := d.cells.OfTenant(tenant)
		count := func(outcome string) prometheus.Counter { return d.metrics.rated.WithLabelValues(tenant, outcome) }
		buckets[tenant] = &bucket{
			tenant: tenant, rate: rate, now: func() time.Duration { return time.Since(start) },
			chunk: func() int { return chunk(rate, int(d.replicaCount.Load())) },
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
