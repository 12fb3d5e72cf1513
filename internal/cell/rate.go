package cell

import (
	"context"
	"strconv"

	"github.com/freeslot/freeslot"
)

// The bounds of a Rate.
const (
	MinRate  = 0.001
	MaxRate  = 1_000_000
	MaxBurst = 10_000_000
)

// Rate is how many jobs a tenant may submit.
type Rate struct {
	// PerSecond is from MinRate to MaxRate.
	PerSecond float64
	// Burst is how many may come at once after a pause, from 1 to MaxBurst.
	Burst int
}

// Permits is what a bucket gave.
type Permits struct {
	// Taken of those that were asked for.
	Taken int
	// Left is what stays in the bucket; below 1 when fewer were taken than asked for.
	Left float64
}

// TakePermits takes up to most permits, 1 at least, out of a tenant's bucket, which all
// replicas share. The bucket lives in one cell: [Set.OfTenant]. Errors: *freeslot.Error
// (invalid_argument), else what Redis said; permits may be lost then.
func (c *Cell) TakePermits(ctx context.Context, tenant string, rate Rate, most int) (Permits, error) {
	if err := freeslot.ValidateName("tenant", tenant); err != nil {
		return Permits{}, err
	}
	args := []string{strconv.FormatFloat(rate.PerSecond, 'f', -1, 64), strconv.Itoa(max(rate.Burst, 1)), strconv.Itoa(max(most, 1))}
	reply, err := c.runner.Call(ctx, c.scripts["rate"], []string{c.layout.Rate(tenant)}, args).ToArray()
	var p Permits
	var thousandths int
	if err == nil {
		err = readReply(reply, &p.Taken, &thousandths)
	}
	wrap(&err, "take permits of tenant %s", tenant)
	p.Left = float64(thousandths) / 1000
	return p, err
}

// OfTenant is the cell that keeps what is a tenant's in all cells.
func (s *Set) OfTenant(name string) *Cell { return s.cells[NodeCell(name, len(s.cells))] }
