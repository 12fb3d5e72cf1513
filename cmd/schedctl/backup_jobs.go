package main

import (
	"cmp"
	"errors"
	"fmt"
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
		err := b.patiently(func() (err error) {
			page, err = b.jobPage(query)
			return err
		})
		if err != nil {
			return err
		}
		for i := range page.Jobs {
			// A job can end while the page is read, so one that has ended can precede others that have
			// not. A job that is being cancelled is not wanted any more.
			j := &page.Jobs[i]
			if seen[j.ID] || j.State.Terminal() || j.State == freeslot.StateCancelling {
				continue
			}
			if seen[j.ID], err = b.job(j.ID); err != nil {
				return err
			}
		}
		if page.Cursor == "" || page.SinceMS > 0 { // only ended jobs follow
			return nil
		}
		query.Set("cursor", page.Cursor)
	}
}

// jobPage asks for a page of jobs. It returns an error with the code unavailable if a cell did not
// answer: jobs are missing from the page then.
func (a *app) jobPage(query url.Values) (page api.JobPage, err error) {
	if err := a.call(http.MethodGet, "/v1/jobs", query, nil, &page); err != nil {
		return page, err
	}
	if len(page.Unreachable) > 0 {
		return page, &freeslot.Error{
			Code:    freeslot.CodeUnavailable,
			Message: fmt.Sprintf("cells %v did not answer, so their jobs are not known", page.Unreachable),
		}
	}
	return page, nil
}

// job writes a job, and reports whether it has: a job that has ended meanwhile, or moves, is not
// found. One that moves can come again in the listing.
func (b *backup) job(id string) (written bool, err error) {
	var spec struct {
		Tenant string       `json:"tenant"`
		Job    freeslot.Job `json:"job"`
	}
	err = b.get("/v1/jobs/"+url.PathEscape(id)+"/spec", nil, &spec)
	if freeslot.CodeOf(err) == freeslot.CodeNotFound {
		return false, nil
	}
	if err == nil {
		err = b.add(kindJob, jobRecord{id, spec.Tenant, spec.Job})
	}
	return err == nil, err
}

// job submits a job. Its idempotency key, or one made of its id, keeps a second run from making a
// second job.
func (r *restore) job(record archive.Record) error {
	var j jobRecord
	if err := decode(record, &j); err != nil {
		return err
	}
	j.Job.IdempotencyKey = cmp.Or(j.Job.IdempotencyKey, "restored-"+j.ID)
	submit := func() error {
		return r.call(http.MethodPost, "/v1/restored-jobs", url.Values{"tenant": {j.Tenant}}, j.Job, nil)
	}
	try := r.patiently
	if r.busy {
		try = func(do func() error) error { return do() }
	}
	there := false
	err := try(submit)
	if e, ok := errors.AsType[*freeslot.Error](err); ok {
		switch {
		case e.Code.Temporary():
			// A queue can stay full for hours, and the schedules must not wait for that. If the replica
			// is away, what follows ends the restore.
			r.busy = true
			r.failed(kindJob, j.ID, err)
			return nil
		case r.report.Again && e.Code == freeslot.CodeConflict && e.Field == "job.idempotency_key":
			there, err = true, nil // an earlier run made the job, and it has ended
		}
	}
	return r.outcome(kindJob, j.ID, there, err)
}
