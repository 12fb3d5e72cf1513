package main

import (
	"cmp"
	"net/http"
	"net/url"
	"strconv"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/cmd/schedctl/archive"
	"github.com/freeslot/freeslot/internal/api"
)

// jobs writes the jobs that have not ended, which come first in a listing.
func (b *backup) jobs() error {
	if !b.withJobs {
		return nil
	}
	seen := make(map[string]bool)
	for query := (url.Values{"limit": {strconv.Itoa(maxPage)}}); ; {
		var page api.JobPage
		if err := b.get("/v1/jobs", query, &page); err != nil {
			return err
		}
		for i := range page.Jobs {
			j := &page.Jobs[i]
			if j.State.Terminal() {
				return nil
			}
			// A job that is being cancelled is not wanted any more.
			if seen[j.ID] || j.State == freeslot.StateCancelling {
				continue
			}
			seen[j.ID] = true
			if err := b.job(j.ID); err != nil {
				return err
			}
		}
		if page.Cursor == "" {
			return nil
		}
		query.Set("cursor", page.Cursor)
	}
}

func (b *backup) job(id string) error {
	var spec struct {
		Tenant string       `json:"tenant"`
		Job    freeslot.Job `json:"job"`
	}
	err := b.get("/v1/jobs/"+url.PathEscape(id)+"/spec", nil, &spec)
	if freeslot.CodeOf(err) == freeslot.CodeNotFound { // it has ended meanwhile, or moved
		return nil
	}
	if err != nil {
		return err
	}
	return b.add(kindJob, jobRecord{id, spec.Tenant, spec.Job})
}

// job submits a job. Its idempotency key, or one made of its id, keeps a second run from making a
// second job.
func (r *restore) job(record archive.Record) error {
	var j jobRecord
	if err := decode(record, &j); err != nil {
		return err
	}
	j.Job.IdempotencyKey = cmp.Or(j.Job.IdempotencyKey, "restored-"+j.ID)
	err := r.patiently(func() error {
		return r.call(http.MethodPost, "/v1/restored-jobs", url.Values{"tenant": {j.Tenant}}, j.Job, nil)
	})
	return r.outcome(kindJob, j.ID, false, err)
}
