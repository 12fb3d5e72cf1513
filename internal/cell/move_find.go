package cell

import (
	"context"
	"errors"
	"strings"

	"github.com/freeslot/freeslot"
)

// JobsByKey returns the job that an idempotency key of f.Tenant names, if it fits f, without its
// result. Every cell is asked, with one call each, because the nodes decide in which one a key is
// kept. They can name several jobs, if a cell got its first node that fits between two submits. A
// job is found as long as both its key and its record are kept. Errors: *freeslot.Error
// (unavailable), or from Redis, if no job was found and a cell did not answer.
func (s *Set) JobsByKey(ctx context.Context, f JobFilter, key string) (JobPage, error) {
	owners := make([]string, len(s.cells))
	errs := s.each(func(c *Cell) (err error) {
		owners[c.cfg.Index], err = c.keyOwner(ctx, f.Tenant, key)
		return err
	})
	var page JobPage
	var ids []string
	seen := make(map[string]bool)
	for _, id := range owners {
		if id != "" && !seen[id] {
			seen[id], ids = true, append(ids, id)
		}
	}
	jobs, failed := s.Elsewhere(ctx, ids)
	page.LookedAt = len(ids)
	for i := range jobs {
		if f.fits(&jobs[i]) && f.ended(&jobs[i]) {
			page.Jobs = append(page.Jobs, jobs[i])
		}
	}
	if len(jobs) > 0 {
		return page, nil
	}
	for id, unknown := range failed {
		if unknown {
			errs = append(errs, movesOn(id))
		}
	}
	return page, errors.Join(errs...)
}

// keyOwner returns the id of the job that an idempotency key names in this cell; "" if none.
func (c *Cell) keyOwner(ctx context.Context, tenant, key string) (string, error) {
	get := c.client.B().Get().Key(c.layout.Idempotency(tenant, key)).Build()
	value, err := c.runner.Do(ctx, "list", get).ToString()
	if err = rueidisNil(err); err != nil {
		return "", err
	}
	owner, _, _ := strings.Cut(value, " ")
	return owner, nil
}

// ended reports whether a job ended in the filter's time.
func (f *JobFilter) ended(s *freeslot.JobStatus) bool {
	return (f.FromMS == 0 || s.FinishedAtMS >= f.FromMS) && (f.ToMS == 0 || s.FinishedAtMS > 0 && s.FinishedAtMS < f.ToMS)
}
