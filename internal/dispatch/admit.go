package dispatch

import (
	"context"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/cell"
)

// admit decides the jobs that their tenants' priorities, rules or submit rates do not allow, and
// returns the others. Within one submit, the first jobs are admitted.
func (s *submit) admit(jobs []*placement) (admitted []*placement) {
	jobs = s.admitByRules(s.admitPriorities(jobs))
	if len(s.d.buckets.named) == 0 && s.d.buckets.rate == nil {
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
		if b := s.d.buckets.of(first.Tenant); b == nil || !first.rated() {
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

func (s *submit) admitPriorities(jobs []*placement) (admitted []*placement) {
	return slices.DeleteFunc(jobs, func(p *placement) bool {
		r := &p.request
		priorities := s.d.cfg.Limits(r.Tenant).Priorities
		if priorities == 0 || r.Job.Priority < priorities || r.Unlimited {
			return false
		}
		s.decide(p, cell.Placement{}, freeslot.Invalid("job.priority",
			"is %d, expected at most %d, the max_priority of tenant %s", r.Job.Priority, priorities-1, r.Tenant))
		return true
	})
}

func (s *submit) admitByRules(jobs []*placement) (admitted []*placement) {
	if s.d.cfg.Admit == nil {
		return jobs
	}
	return slices.DeleteFunc(jobs, func(p *placement) bool {
		err := s.d.cfg.Admit(&p.request)
		if err != nil {
			s.decide(p, cell.Placement{}, err)
		}
		return err != nil
	})
}

// newBucket makes the bucket of a tenant, which label names in metrics.
func (d *Dispatcher) newBucket(tenant, label string, rate cell.Rate) *bucket {
	start, home := time.Now(), d.cells.OfTenant(tenant)
	count := func(outcome string) prometheus.Counter { return d.metrics.rated.WithLabelValues(label, outcome) }
	return &bucket{
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
