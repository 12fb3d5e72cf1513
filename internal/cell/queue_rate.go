package cell

import (
	"context"
	"strconv"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/script"
)

// The bounds of a Rate.
const (
	MinRate  = 0.001
	MaxRate  = 1_000_000
	MaxBurst = 10_000_000
)

// Rate is a tenant's limit for submitting jobs.
type Rate struct {
	// PerSecond is the number of jobs a second, from MinRate to MaxRate.
	PerSecond float64
	// Burst is how many jobs may come at once after a pause, from 1 to MaxBurst.
	Burst int
}

// Permits is the answer of TakePermits.
type Permits struct {
	// Taken is how many permits the bucket gave.
	Taken int
	// Left is what stays in the bucket. It is below 1 if fewer were taken than asked for.
	Left float64
}

// TakePermits takes up to most permits (at least 1) from a tenant's bucket, which all replicas
// share. The bucket is in one cell: [Set.OfTenant]. Errors: *freeslot.Error (invalid_argument), or
// from Redis; permits may be lost then.
func (c *Cell) TakePermits(ctx context.Context, tenant string, rate Rate, most int) (Permits, error) {
	if err := freeslot.ValidateName("tenant", tenant); err != nil {
		return Permits{}, err
	}
	perSecond := strconv.FormatFloat(rate.PerSecond, 'f', -1, 64)
	args := []string{perSecond, strconv.Itoa(max(rate.Burst, 1)), strconv.Itoa(max(most, 1))}
	r := script.ReadReply(c.runner.Call(ctx, c.scripts["rate"], []string{c.layout.Rate(tenant)}, args))
	p := Permits{Taken: int(r.Number()), Left: float64(r.Number()) / 1000}
	wrap(&r.Err, "take permits of tenant %s", tenant)
	return p, r.Err
}

// OfTenant returns the cell that keeps a tenant's values for all cells.
func (s *Set) OfTenant(name string) *Cell { return s.cells[NodeCell(name, len(s.cells))] }
