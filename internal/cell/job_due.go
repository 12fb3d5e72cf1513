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
	// Expired is the number of jobs that passed their deadline, or waited for a node that did not
	// come. It includes running jobs, which are asked to stop.
	Expired int
	// Unplaced lists the jobs that have waited for their Submission.NodeWait. Each is listed again a
	// second later, by the call of any replica, until a call says what becomes of it.
	Unplaced []Unplaced
	// More is true if the limit left more to do.
	More bool
}

// Unplaced is a job that was accepted although no node fitted it, and has not begun.
type Unplaced struct {
	JobID string
	Slots int
	Class Class
}

// Judged says what becomes of an Unplaced job: if a node fits it, it waits on like any other job,
// otherwise it expires.
type Judged struct {
	JobID string
	Fits  bool
}

// Due does what is due, for at most limit jobs: it ends pauses, and expires jobs that passed their
// deadline. judged has the jobs that an earlier call listed as Unplaced. Errors: from Redis; part
// of the work may be done then.
func (c *Cell) Due(ctx context.Context, limit int, judged ...Judged) (d Due, err error) {
	defer wrap(&err, "handle due jobs")
	l := c.layout
	keys := []string{l.Due(), l.Finished(), l.Waiting(), l.WaitingVersion()}
	args := []string{strconv.Itoa(max(limit, 1))}
	for _, j := range judged {
		fits := "0"
		if j.Fits {
			fits = "1"
		}
		args = append(args, j.JobID, fits)
	}
	r := script.ReadReply(c.runner.Call(ctx, c.scripts["due"], keys, args))
	d = Due{Expired: int(r.Number()), More: r.Text() == "1"}
	if told, ok := r.Next(); ok {
		d.Unplaced, r.Err = readUnplaced(script.ReadReply(&told))
	}
	classes := r.Texts()
	if r.Err != nil {
		return Due{}, r.Err
	}
	d.Classes, err = readClasses(classes)
	return d, err
}

func readUnplaced(r script.Reply) (all []Unplaced, err error) {
	for r.Err == nil && len(r.Values) > 0 {
		u := Unplaced{JobID: r.Text()}
		if u.Slots, err = strconv.Atoi(r.Text()); err != nil && r.Err == nil {
			r.Err = err
		}
		u.Class = Class{ID: r.Text(), Definition: r.Text()}
		all = append(all, u)
	}
	return all, r.Err
}
