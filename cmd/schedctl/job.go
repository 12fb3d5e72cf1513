package main

import (
	"encoding/json"
	"net/http"
	"net/url"
	"strings"

	"github.com/freeslot/freeslot"
)

type getCmd struct {
	ID   string `arg:"" name:"job-id" help:"Job id."`
	Spec bool   `help:"Print the job as it was submitted, with its payload, as JSON."`
}

// Run shows one job. A failed job does not make this command fail.
func (c *getCmd) Run(a *app) error {
	if c.Spec {
		var answer struct {
			Job json.RawMessage `json:"job"`
		}
		if err := a.call(http.MethodGet, "/v1/jobs/"+url.PathEscape(c.ID)+"/spec", nil, nil, &answer); err != nil {
			return err
		}
		return a.printJSON(answer.Job)
	}
	status, err := a.api.job(a.ctx, c.ID)
	if err != nil {
		return explain(err)
	}
	return a.printJob(status)
}

type cancelCmd struct {
	ID string `arg:"" name:"job-id" help:"Job id."`
}

// Run asks for the job to be stopped. A job that has ended does not make the command fail: it does
// not run.
func (c *cancelCmd) Run(a *app) error {
	var status freeslot.JobStatus
	if err := a.call(http.MethodPost, "/v1/jobs/"+url.PathEscape(c.ID)+"/cancel", nil, nil, &status); err != nil {
		return err
	}
	if status.State.Terminal() && status.State != freeslot.StateCancelled {
		a.warn("job %s had ended before, nothing was cancelled", status.ID)
	}
	return a.printJob(status)
}

// stateNames are the states of jobs for the parser.
func stateNames() string {
	names := make([]string, len(freeslot.States()))
	for i, state := range freeslot.States() {
		names[i] = string(state)
	}
	return strings.Join(names, ",")
}

type listCmd struct {
	State  string `enum:",${states}" default:"" placeholder:"STATE" help:"Only jobs in this state, one of ${states}."`
	Tenant string `placeholder:"TENANT" help:"Only jobs of this tenant (operators)."`
	Class  string `placeholder:"CLASS" help:"Only jobs of this class, by its id; waiting ones in the order in which they are served."`
	Limit  int    `default:"50" placeholder:"N" help:"At most this many jobs (default ${default})."`
}

// Run lists jobs.
func (c *listCmd) Run(a *app) error {
	if c.Limit < 1 {
		return usage("--limit is %d, expected at least 1", c.Limit)
	}
	query := url.Values{}
	setNonEmpty(query, "state", c.State)
	setNonEmpty(query, "tenant", c.Tenant)
	setNonEmpty(query, "class", c.Class)
	jobs, err := a.api.jobs(a.ctx, query, c.Limit)
	if err != nil {
		return explain(err)
	}
	if a.json {
		return a.printJSON(jobs)
	}
	return table(a.out, jobRows(jobs))
}

func setNonEmpty(query url.Values, name, value string) {
	if value != "" {
		query.Set(name, value)
	}
}
