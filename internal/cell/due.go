package cell

import (
	"context"
	"strconv"
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
	reply, err := c.runner.Call(ctx, c.scripts["due"], keys, []string{strconv.Itoa(max(limit, 1))}).ToArray()
	if err != nil {
		return Due{}, err
	}
	if err = readReply(reply, &d.Expired, &d.More); err != nil {
		return Due{}, err
	}
	classes, err := texts(reply[2:])
	if err == nil {
		d.Classes, err = readClasses(classes)
	}
	return d, err
}
