package cell

import (
	"context"
	"strconv"

	"github.com/freeslot/freeslot/internal/script"
)

// Due says what Cell.Due did.
type Due struct {
	// Classes lists the classes of jobs that now wait for a slot.
	Classes []Class
	// Expired is the number of jobs that passed their deadline. It includes running jobs, which are
	// asked to stop.
	Expired int
	// More is true if the limit left more to do.
	More bool
}

// Due does what is due, for at most limit jobs: it ends pauses, and expires jobs that passed their
// deadline. Errors: from Redis; part of the work may be done then.
func (c *Cell) Due(ctx context.Context, limit int) (d Due, err error) {
	defer wrap(&err, "handle due jobs")
	l := c.layout
	keys := []string{l.Due(), l.Finished(), l.Waiting(), l.WaitingVersion()}
	r := script.ReadReply(c.runner.Call(ctx, c.scripts["due"], keys, []string{strconv.Itoa(max(limit, 1))}))
	d = Due{Expired: int(r.Number()), More: r.Text() == "1"}
	classes := r.Texts()
	if r.Err != nil {
		return Due{}, r.Err
	}
	d.Classes, err = readClasses(classes)
	return d, err
}
