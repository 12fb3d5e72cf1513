package main

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/api"
	"github.com/freeslot/freeslot/internal/plural"
)

// bulkFlags choose jobs that have ended: by id, or by what they have in common.
type bulkFlags struct {
	IDs   []string `arg:"" optional:"" name:"job-id" help:"Job ids."`
	State string   `enum:",succeeded,failed,cancelled,expired,dead" default:"" placeholder:"STATE" help:"Instead of ids: jobs that ended in this state."`
	jobFilter
	Limit int `default:"1000" placeholder:"N" help:"With --state: at most this many jobs (default ${default})."`
}

func (f *bulkFlags) validate() error {
	switch {
	case len(f.IDs) > 0 && (f.State != "" || f.jobFilter != jobFilter{}):
		return usage("job ids and --state choose jobs in two ways, expected one of them")
	case len(f.IDs) == 0 && f.State == "":
		return usage("expected job ids, or --state and what else they have in common")
	case f.Limit < 1:
		return usage("--limit is %d, expected at least 1", f.Limit)
	}
	return nil
}

// find returns the ids of the jobs, and whether there may be more than the limit.
func (f *bulkFlags) find(a *app) (ids []string, more bool, err error) {
	if len(f.IDs) > 0 {
		return f.IDs, false, nil
	}
	query := f.query(f.State)
	query.Set("limit", fmt.Sprint(maxPage))
	for {
		var page api.JobPage
		if err := a.call(http.MethodGet, "/v1/jobs", query, nil, &page); err != nil {
			return nil, false, err
		}
		if page.Cursor == "" {
			a.warnCells(page.Unreachable)
		}
		for _, j := range page.Jobs {
			if len(ids) == f.Limit {
				return ids, true, nil
			}
			ids = append(ids, j.ID)
		}
		if page.Cursor == "" {
			return ids, false, nil
		}
		query.Set("cursor", page.Cursor)
	}
}

// bulkResult is the result for one job of several.
type bulkResult struct {
	ID    string `json:"job_id"`
	New   string `json:"new_job_id,omitempty"`
	Error string `json:"error,omitempty"`
}

// each calls do for every job and prints each result at once; verb is for messages. With --state, a
// job that is gone meanwhile does not count.
func (f *bulkFlags) each(a *app, verb string, do func(id string) (fresh string, err error)) error {
	if err := f.validate(); err != nil {
		return err
	}
	ids, more, err := f.find(a)
	if err != nil {
		return err
	}
	all, failed, done := []bulkResult{}, 0, 0
	for _, id := range ids {
		fresh, err := do(id)
		switch {
		case a.ctx.Err() != nil:
			return a.ctx.Err()
		case err != nil && len(f.IDs) == 0 && freeslot.CodeOf(err) == freeslot.CodeNotFound:
			continue
		case err != nil:
			failed++
			all = append(all, bulkResult{ID: id, Error: err.Error()})
			a.warn("%s: %s", clean(id), strings.TrimSpace(explain(err).Error()))
			continue
		}
		done++
		all = append(all, bulkResult{ID: id, New: fresh})
		if !a.json {
			_ = a.println("%s", strings.TrimSpace(id+" "+fresh))
		}
	}
	if a.json {
		err = a.printJSON(all)
	}
	if more {
		a.warn("%s %s, and there are more; --limit raises how many", plural.Of(done, "job", "jobs"), verb)
	}
	if failed > 0 {
		return fmt.Errorf("%d of %s could not be %s", failed, plural.Of(len(ids), "job", "jobs"), verb)
	}
	return err
}

type dropCmd struct{ bulkFlags }

// Help is shown below the flags.
func (dropCmd) Help() string {
	return `Forgets jobs that have ended before their retention is over, and prints the id of each. Examples:
  schedctl drop 0-01JD5Y8G6W9V0M5T2C3Q4R7X8Z
  schedctl drop --state dead --class 5f1d7a84db00d2fc --older-than 24h`
}

// Run drops.
func (c *dropCmd) Run(a *app) error {
	return c.each(a, "dropped", func(id string) (string, error) { return "", a.drop(id) })
}

func (a *app) drop(id string) error {
	var status freeslot.JobStatus
	return a.api.call(a.ctx, http.MethodDelete, "/v1/jobs/"+url.PathEscape(id), nil, nil, 0, &status)
}

type requeueCmd struct {
	bulkFlags
	Drop bool `help:"Forget the old job once the new one is accepted, so that it is not submitted again another time."`
}

// Help is shown below the flags.
func (requeueCmd) Help() string {
	return `Submits jobs again that are dead, failed or expired, as they were submitted first. Prints the id of the new job; with
several jobs, each old id and the new one. The old jobs stay as they are until their retention ends. Examples:
  schedctl requeue 0-01JD5Y8G6W9V0M5T2C3Q4R7X8Z
  schedctl requeue --state dead --class 5f1d7a84db00d2fc --drop`
}

// Run submits the jobs again.
func (c *requeueCmd) Run(a *app) error {
	if c.State == string(freeslot.StateSucceeded) || c.State == string(freeslot.StateCancelled) {
		return usage("--state is %s, expected dead, failed or expired", c.State)
	}
	if len(c.IDs) == 1 && c.validate() == nil {
		status, err := a.requeue(c.IDs[0], c.Drop)
		if err != nil {
			return explain(err)
		}
		if a.json {
			return a.printJSON(status)
		}
		return a.println("%s", status.ID)
	}
	return c.each(a, "submitted again", func(id string) (string, error) {
		status, err := a.requeue(id, c.Drop)
		return status.ID, err
	})
}

// requeue returns the new job even if the old one could not be dropped.
func (a *app) requeue(id string, drop bool) (status freeslot.JobStatus, err error) {
	if err = a.api.call(
		a.ctx, http.MethodPost, "/v1/jobs/"+url.PathEscape(id)+"/requeue", nil, nil, 0, &status,
	); err != nil || !drop {
		return status, err
	}
	if err = a.drop(id); err != nil {
		err = fmt.Errorf("submitted again as %s, but not dropped: %w", status.ID, err)
	}
	return status, err
}
