package dispatch

import (
	"time"

	"go.uber.org/zap"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/cell"
)

// awaitedAt returns the client at which the reply's job is outstanding. A job that has moved has
// another id in this cell, with the same second part. The reply then gets the id that is known
// there.
func (c *cellClient) awaitedAt(r *cell.Reply) *cellClient {
	if len(c.d.byCell) == 1 || r.Status.ID == "" {
		return c
	}
	if _, here := c.outstanding.Load(r.Status.ID); here {
		return c
	}
	for i, other := range c.d.byCell {
		if other == c || other.outstanding.Size() == 0 {
			continue
		}
		id := cell.MovedID(r.Status.ID, i)
		if _, there := other.outstanding.Load(id); there {
			r.Status.ID = id
			return other
		}
	}
	return c
}

// splitMoved separates the records of jobs that are in this cell from records of jobs that move or
// have moved.
func splitMoved(jobs []freeslot.JobStatus) (here, moved []freeslot.JobStatus) {
	for i := range jobs {
		if cell.OnTheMove(jobs[i].State) {
			moved = append(moved, jobs[i])
		} else {
			here = append(here, jobs[i])
		}
	}
	return here, moved
}

// readElsewhere continues in other cells with outstanding jobs whose records name another cell.
// unknown holds the jobs for which no record could be read.
func (c *cellClient) readElsewhere(moved []freeslot.JobStatus) (found []freeslot.JobStatus, unknown map[string]bool) {
	if len(moved) == 0 {
		return nil, nil
	}
	ctx, cancel := c.d.timeout()
	defer cancel()
	ids := make([]string, len(moved))
	for i := range moved {
		ids[i] = moved[i].ID
	}
	return c.d.cells.Elsewhere(ctx, ids)
}

// movedPatience is how long a job without a record is looked for while another cell does not
// answer, or says that the job has moved on.
const movedPatience = 30 * time.Second

// deliverFromOtherCells delivers what other cells know of jobs whose records are gone here, and
// marks these jobs as found. This cell may have lost the note that a job moved. The job itself is
// lost only if its new cell lost it.
func (c *cellClient) deliverFromOtherCells(gone []string, found map[string]bool) {
	if len(gone) == 0 || len(c.d.byCell) == 1 {
		return
	}
	jobs := make([][]freeslot.JobStatus, len(c.d.byCell))
	failed := c.d.eachCell(func(other *cellClient) (err error) {
		if other != c {
			jobs[other.cell.Index()], err = other.readMoved(gone)
		}
		return err
	})
	unsure := make(map[string]bool)
	if failed != nil {
		for _, id := range gone {
			unsure[id] = true
		}
	}
	for i, other := range c.d.byCell {
		for _, s := range jobs[i] {
			id := cell.MovedID(s.ID, c.cell.Index())
			if cell.OnTheMove(s.State) {
				unsure[id] = true
				continue
			}
			found[id] = true
			other.deliverMoved(id, &s, c)
		}
	}
	for id := range unsure {
		if !found[id] && c.missingFor(id) < movedPatience {
			found[id] = true
			c.recheckSoon(id)
		}
	}
}

// readMoved reads this cell's records of jobs that belong to another cell.
func (c *cellClient) readMoved(ids []string) ([]freeslot.JobStatus, error) {
	ctx, cancel := c.d.timeout()
	defer cancel()
	there := make([]string, len(ids))
	for i, id := range ids {
		there[i] = cell.MovedID(id, c.cell.Index())
	}
	jobs, err := c.cell.JobsByID(ctx, there)
	if err != nil {
		c.warn("outstanding.recheck_failed", err, zap.Int("jobs", len(ids)))
	}
	return jobs, err
}

// deliverMoved delivers this cell's record of a job that is outstanding at home, under id.
func (c *cellClient) deliverMoved(id string, s *freeslot.JobStatus, home *cellClient) {
	home.recordFound(id)
	switch {
	case s.State.Terminal():
		ctx, cancel := c.d.timeout()
		defer cancel()
		whole, err := c.cell.Job(ctx, "", cell.MovedID(id, c.cell.Index()))
		if err == nil && whole.State.Terminal() { // otherwise the next recheck delivers it
			whole.ID = id
			home.deliverEnd(whole)
		}
	case s.Node != "":
		s.ID = id
		home.deliverAttempt(s)
	}
}
