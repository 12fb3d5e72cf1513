package tenant

import (
	"cmp"
	"slices"
	"sync/atomic"
	"time"

	"github.com/puzpuzpuz/xsync/v3"
)

const (
	// Busiest is how many tenants a replica tells of, and how many tenants without an entry in the
	// configuration are listed.
	Busiest = 200
	// mostMetered bounds the tenants of a meter. Those beyond are not counted until others fall
	// silent. A token or an identity provider names a tenant, so no caller can fill it alone.
	mostMetered = 10_000
)

// Submits is what a replica says of the jobs that a tenant submits to it.
type Submits struct {
	Tenant string `json:"t"`
	// Rate counts submitted jobs and Refused those of them that were refused, both per second.
	Rate    float64 `json:"r"`
	Refused float64 `json:"x,omitempty"`
}

// Meter counts submitted jobs by tenant. Count is safe for concurrent use; Take is for one caller.
type Meter struct {
	tenants *xsync.MapOf[string, *counts]
	now     func() time.Time
	takenAt time.Time
}

type counts struct {
	submitted, refused atomic.Uint64
	// What Take has seen.
	lastSubmitted, lastRefused uint64
}

// NewMeter makes a meter.
func NewMeter() *Meter {
	return &Meter{tenants: xsync.NewMapOf[string, *counts](), now: time.Now, takenAt: time.Now()}
}

// Count counts a submitted job.
func (m *Meter) Count(tenant string, refused bool) {
	c, known := m.tenants.Load(tenant)
	if !known {
		if m.tenants.Size() >= mostMetered {
			return
		}
		c, _ = m.tenants.LoadOrCompute(tenant, func() *counts { return new(counts) })
	}
	c.submitted.Add(1)
	if refused {
		c.refused.Add(1)
	}
}

// Take returns the rates since the last call of the busiest tenants, the busiest first. It forgets
// tenants that were silent since then.
func (m *Meter) Take() []Submits {
	now := m.now()
	seconds := now.Sub(m.takenAt).Seconds()
	m.takenAt = now
	var all []Submits
	m.tenants.Range(func(tenant string, c *counts) bool {
		submitted, refused := c.submitted.Load(), c.refused.Load()
		if submitted == c.lastSubmitted {
			// A job that is counted right now in the entry that goes is left out of the next rate.
			m.tenants.Delete(tenant)
			return true
		}
		if seconds > 0 {
			all = append(all, Submits{
				Tenant: tenant, Rate: float64(submitted-c.lastSubmitted) / seconds,
				Refused: float64(refused-c.lastRefused) / seconds,
			})
		}
		c.lastSubmitted, c.lastRefused = submitted, refused
		return true
	})
	slices.SortFunc(all, func(a, b Submits) int {
		return cmp.Or(cmp.Compare(b.Rate, a.Rate), cmp.Compare(a.Tenant, b.Tenant))
	})
	return all[:min(len(all), Busiest)]
}
