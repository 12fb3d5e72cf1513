package main

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"

	"github.com/freeslot/freeslot"
)

type getCmd struct {
	ID string `arg:"" name:"job-id" help:"Job id."`
}

// Run shows one job. A failed job is no failure of this command.
func (c *getCmd) Run(a *app) error {
	defer a.api.close()
	status, err := a.api.job(a.ctx, c.ID)
	if err != nil {
		return explain(err)
	}
	return a.printJob(status)
}

type cancelCmd struct {
	ID string `arg:"" name:"job-id" help:"Job id."`
}

// Run asks for the job to be stopped. One that has ended is no failure: it does not run.
func (c *cancelCmd) Run(a *app) error {
	defer a.api.close()
	var status freeslot.JobStatus
	if err := a.api.call(a.ctx, http.MethodPost, "/v1/jobs/"+url.PathEscape(c.ID)+"/cancel", nil, nil, 0, &status); err != nil {
		return explain(err)
	}
	if status.State.Terminal() && status.State != freeslot.StateCancelled {
		_, _ = fmt.Fprintf(a.err, "schedctl: job %s had ended before, nothing was cancelled\n", status.ID)
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
	Class  string `placeholder:"CLASS" help:"Only jobs of this class, by its id; those that wait in the order in which they are served."`
	Limit  int    `default:"50" placeholder:"N" help:"At most so many jobs (default ${default})."`
}

// Run lists jobs.
func (c *listCmd) Run(a *app) error {
	if c.Limit < 1 {
		return usage("--limit is %d, expected at least 1", c.Limit)
	}
	defer a.api.close()
	query := url.Values{}
	if c.State != "" {
		query.Set("state", c.State)
	}
	if c.Tenant != "" {
		query.Set("tenant", c.Tenant)
	}
	if c.Class != "" {
		query.Set("class", c.Class)
	}
	jobs, err := a.api.jobs(a.ctx, query, c.Limit)
	if err != nil {
		return explain(err)
	}
	if a.json {
		return a.printJSON(jobs)
	}
	return table(a.out, jobRows(jobs))
}
