package cell

import (
	"context"
	"strconv"
)

// Due is what Cell.Due did.
type Due struct {
	// Classes have jobs whose time to wait for a slot has come.
	Classes []Class
	// Expired is the number of jobs that passed their deadline, those included that run
	// and are asked to stop.
	Expired int
	// More is true when there was more to do than the limit allowed.
	More bool
}

// Due does what is due, for limit jobs at most: pauses that are over, deadlines that have
// passed. Errors: those of Redis; then some of it may have been done.
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
