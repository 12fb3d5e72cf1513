package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

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
	ID      string `arg:"" name:"job-id" help:"Job id."`
	Attempt uint   `name:"if-attempt" placeholder:"N" help:"Only if the job is in this attempt, as get shows it."`
	State   string `name:"if-state" enum:",${states}" default:"" placeholder:"STATE" help:"Only if the job is in this state; one that was cancelled meanwhile is no conflict."`
}

// Run asks for the job to be stopped. A job that has ended does not make the command fail: it does
// not run.
func (c *cancelCmd) Run(a *app) error {
	query := url.Values{}
	setNonEmpty(query, "state", c.State)
	if c.Attempt > 0 {
		query.Set("attempt", fmt.Sprint(c.Attempt))
	}
	var status freeslot.JobStatus
	if err := a.call(http.MethodPost, "/v1/jobs/"+url.PathEscape(c.ID)+"/cancel", query, nil, &status); err != nil {
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

// jobFilter narrows a listing of jobs.
type jobFilter struct {
	Class    string        `placeholder:"CLASS" help:"Only jobs of this class, by its id; waiting ones in the order in which they are served."`
	Tenant   string        `placeholder:"TENANT" help:"Only jobs of this tenant (operators)."`
	Service  string        `placeholder:"SERVICE" help:"Only jobs of this service."`
	Node     string        `placeholder:"NODE" help:"Only jobs that run on this node, or ran there last."`
	Code     string        `placeholder:"CODE" help:"Only jobs whose error has this code; without --state, only ended ones."`
	Schedule string        `placeholder:"SCHEDULE" help:"Only jobs that this schedule made, or that repeat one of them."`
	Since    time.Duration `least:"0s" placeholder:"DURATION" help:"Only jobs that ended within this time, such as 24h or 7d."`
	Before   time.Duration `name:"older-than" least:"0s" placeholder:"DURATION" help:"Only jobs that ended longer ago than this, such as 24h or 7d."`
}

// query returns the filter as the query of GET /v1/jobs.
func (f *jobFilter) query(state string) url.Values {
	query := url.Values{}
	for name, value := range map[string]string{
		"state": state, "class": f.Class, "tenant": f.Tenant, "service": f.Service, "node": f.Node, "code": f.Code,
		"schedule": f.Schedule,
	} {
		setNonEmpty(query, name, value)
	}
	if f.Since > 0 {
		query.Set("ended_from_ms", fmt.Sprint(time.Now().Add(-f.Since).UnixMilli()))
	}
	if f.Before > 0 {
		query.Set("ended_to_ms", fmt.Sprint(time.Now().Add(-f.Before).UnixMilli()))
	}
	return query
}

type listCmd struct {
	jobFilter
	State string `enum:",${states}" default:"" placeholder:"STATE" help:"Only jobs in this state, one of ${states}."`
	Key   string `name:"idempotency-key" placeholder:"KEY" help:"Only the job that this idempotency key names; operators name the --tenant, too."`
	Limit int    `default:"50" placeholder:"N" help:"At most this many jobs (default ${default})."`
}

// Run lists jobs.
func (c *listCmd) Run(a *app) error {
	if c.Limit < 1 {
		return usage("--limit is %d, expected at least 1", c.Limit)
	}
	query := c.query(c.State)
	setNonEmpty(query, "idempotency_key", c.Key)
	jobs, silent, err := a.api.jobs(a.ctx, query, c.Limit)
	if err != nil {
		return explain(err)
	}
	a.warnCells(silent)
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
