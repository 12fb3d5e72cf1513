package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/replica/config"
	"github.com/freeslot/freeslot/internal/schedule"
)

type schedulesCmd struct {
	List   schedulesListCmd   `cmd:"" help:"List schedules."`
	Get    schedulesGetCmd    `cmd:"" help:"Show a schedule and its last and next runs."`
	Apply  schedulesApplyCmd  `cmd:"" help:"Make or replace schedules by a file."`
	Delete schedulesDeleteCmd `cmd:"" help:"Delete a schedule; its jobs go on."`
	Pause  schedulesPauseCmd  `cmd:"" help:"Keep a schedule from running."`
	Resume schedulesResumeCmd `cmd:"" help:"Let a schedule run again, from its next run on."`
	Run    schedulesRunCmd    `cmd:"" help:"Submit a schedule's job now, and print the job's id."`
	Next   schedulesNextCmd   `cmd:"" help:"Show the coming runs of a schedule."`
}

// ofTenant chooses the tenant of the schedules.
type ofTenant struct {
	Tenant string `placeholder:"TENANT" help:"Of this tenant (operators)."`
}

func (t ofTenant) query() url.Values {
	q := url.Values{}
	setNonEmpty(q, "tenant", t.Tenant)
	return q
}

type oneSchedule struct {
	Name string `arg:"" help:"Name of the schedule."`
	ofTenant
}

// call sends a request about one schedule.
func (c *oneSchedule) call(a *app, method, action string, query url.Values, out any) error {
	return a.call(method, schedulesPath+"/"+url.PathEscape(c.Name)+action, query, nil, out)
}

const schedulesPath = "/v1/schedules"

type schedulesListCmd struct {
	ofTenant
	Limit int `default:"1000" placeholder:"N" help:"At most this many schedules (default ${default})."`
}

// Run lists schedules.
func (c *schedulesListCmd) Run(a *app) error {
	if c.Limit < 1 {
		return usage("--limit is %d, expected at least 1", c.Limit)
	}
	query, all := c.query(), []schedule.Schedule{}
	for len(all) < c.Limit {
		query.Set("limit", strconv.Itoa(min(c.Limit-len(all), 100)))
		var page schedule.SchedulePage
		if err := a.call(http.MethodGet, schedulesPath, query, nil, &page); err != nil {
			return err
		}
		if all = append(all, page.Schedules...); page.Cursor == "" {
			break
		}
		query.Set("cursor", page.Cursor)
	}
	if a.json {
		return a.printJSON(all)
	}
	rows := [][]string{{
		"SCHEDULE", "TENANT", "WHEN", "ZONE", "SERVICE", "NEXT RUN", "LAST RUN", "RUNS", "FAILED", "MISSED", "ERROR",
	}}
	for _, s := range all {
		rows = append(rows, []string{
			s.Name, s.Tenant, s.Cron, s.TimeZone, s.Job.Service, nextRun(&s), clock(s.LastRunMS),
			fmt.Sprint(s.Runs), fmt.Sprint(s.Failed), fmt.Sprint(s.Missed), shorten(dash(s.LastError), maxCell),
		})
	}
	return table(a.out, rows)
}

func nextRun(s *schedule.Schedule) string {
	if s.Paused {
		return "paused"
	}
	return clock(s.NextRunMS)
}

type schedulesGetCmd struct{ oneSchedule }

// Run shows one schedule.
func (c *schedulesGetCmd) Run(a *app) error {
	var s schedule.Schedule
	if err := c.call(a, http.MethodGet, "", c.query(), &s); err != nil {
		return err
	}
	return a.printSchedule(&s)
}

func (a *app) printSchedule(s *schedule.Schedule) error {
	if a.json {
		return a.printJSON(s)
	}
	job, err := json.Marshal(s.Job)
	if err != nil {
		return err
	}
	rows := [][]string{
		{"schedule", s.Name},
		{"tenant", s.Tenant},
		{"when", s.Cron},
		{"time zone", s.TimeZone},
		{"job", string(job)},
		{"on missed", string(s.OnMissed)},
		{"grace", (time.Duration(s.GraceMS) * time.Millisecond).String()},
		{"version", fmt.Sprint(s.Version)},
		{"next run", nextRun(s)},
		{"last run", clock(s.LastRunMS)},
		{"last job", dash(s.LastJobID)},
		{"runs", fmt.Sprint(s.Runs)},
		{"failed", fmt.Sprint(s.Failed)},
		{"missed", fmt.Sprint(s.Missed)},
	}
	if s.LastMissedAtMS != 0 {
		rows = append(rows, []string{"missed at", clock(s.LastMissedAtMS)})
	}
	if s.LastError != "" {
		rows = append(rows, []string{"error", s.LastError}, []string{"error at", clock(s.LastErrorAtMS)})
	}
	return table(a.out, rows)
}

type schedulesApplyCmd struct {
	File   string `short:"f" required:"" placeholder:"FILE" help:"YAML or JSON file; - reads standard input."`
	DryRun bool   `help:"Change nothing, and show the next five runs, or what is wrong."`
	ofTenant
}

// Help is shown below the flags.
func (schedulesApplyCmd) Help() string {
	return `A file has one schedule, or several under "schedules":

  name: nightly-report
  cron: "30 4 * * 1-5"          # minute, hour, day of month, month, day of week; or @daily, "@every 10m"
  time_zone: Europe/Berlin      # UTC unless set
  on_missed: latest             # skip, latest (default) or all
  job:
    service: report
    payload: {kind: nightly}

The output of "schedctl schedules get NAME -o json" can be applied, too. Its version key protects changes that another
user made meanwhile. A paused schedule stays paused unless the file has "paused: false".`
}

// Run applies all schedules of the file, in order, until one is refused.
func (c *schedulesApplyCmd) Run(a *app) error {
	documents, err := a.readSchedules(c.File)
	if err != nil {
		return err
	}
	var applied []schedule.Schedule
	for _, document := range documents {
		query := c.query()
		if c.DryRun {
			query.Set("dry_run", "true")
			query.Set("runs", "5")
		}
		s, err := a.applySchedule(document, query)
		if err != nil {
			return err
		}
		applied = append(applied, *s)
		switch {
		case a.json:
		case c.DryRun:
			_ = a.println("%s would be at version %d, and nothing was changed; its next runs:", s.Name, s.Version)
			if err := a.printRuns(s); err != nil {
				return err
			}
		default:
			if err := a.println("%s is at version %d, next run: %s", s.Name, s.Version, nextRun(s)); err != nil {
				return err
			}
		}
	}
	if a.json {
		return a.printJSON(applied)
	}
	return nil
}

func (a *app) applySchedule(document map[string]any, query url.Values) (*schedule.Schedule, error) {
	name, _ := document["name"].(string)
	if err := freeslot.ValidateName("name", name); err != nil {
		return nil, usageError{explain(err)}
	}
	if tenant, ok := document["tenant"].(string); ok && query.Get("tenant") == "" {
		query.Set("tenant", tenant)
	}
	document = maps.Clone(document)
	for _, shown := range []string{
		"name", "tenant", "created_at_ms", "updated_at_ms", "next_run_ms", "last_run_ms", "last_job_id",
		"last_error", "last_error_at_ms", "runs", "failed", "missed",
		"last_missed_at_ms", "next_runs_ms",
	} {
		delete(document, shown)
	}
	var s schedule.Schedule
	if err := a.call(http.MethodPut, schedulesPath+"/"+url.PathEscape(name), query, document, &s); err != nil {
		return nil, fmt.Errorf("schedule %s: %w", name, err)
	}
	return &s, nil
}

// readSchedules reads a file of one schedule or of several.
func (a *app) readSchedules(file string) ([]map[string]any, error) {
	data, name, err := a.readInput(file, "the schedules")
	if err != nil {
		return nil, err
	}
	document, err := config.ParseYAML(data)
	if err != nil {
		return nil, usage("%s %w", name, err)
	}
	list, several := document["schedules"]
	if !several {
		if len(document) == 0 {
			return nil, usage("%s is empty, expected a schedule: see \"schedctl schedules apply --help\"", name)
		}
		return []map[string]any{document}, nil
	}
	items, ok := list.([]any)
	if !ok || len(document) != 1 {
		return nil, usage("%s: schedules is not alone, or no list", name)
	}
	var out []map[string]any
	for i, item := range items {
		s, ok := item.(map[string]any)
		if !ok {
			return nil, usage("%s: schedules[%d] is not a mapping", name, i)
		}
		out = append(out, s)
	}
	return out, nil
}

type schedulesDeleteCmd struct {
	oneSchedule
	Version uint64 `placeholder:"N" help:"Refuse unless this is the schedule's version."`
}

// Run deletes a schedule.
func (c *schedulesDeleteCmd) Run(a *app) error {
	query := c.query()
	if c.Version > 0 {
		query.Set("version", strconv.FormatUint(c.Version, 10))
	}
	return c.does(a, http.MethodDelete, "", query, "deleted")
}

type schedulesPauseCmd struct{ oneSchedule }

// Run pauses a schedule.
func (c *schedulesPauseCmd) Run(a *app) error {
	return c.does(a, http.MethodPost, "/pause", c.query(), "paused")
}

type schedulesResumeCmd struct{ oneSchedule }

// Run ends the pause of a schedule.
func (c *schedulesResumeCmd) Run(a *app) error {
	return c.does(a, http.MethodPost, "/resume", c.query(), "")
}

// does changes a schedule and prints its new state; "" prints its next run.
func (c *oneSchedule) does(a *app, method, action string, query url.Values, state string) error {
	var s schedule.Schedule
	if err := c.call(a, method, action, query, &s); err != nil {
		return err
	}
	if a.json {
		return a.printJSON(s)
	}
	return a.println("%s is %s", s.Name, cmp.Or(state, "resumed, next run: "+nextRun(&s)))
}

type schedulesRunCmd struct{ oneSchedule }

// Run submits the job of a schedule.
func (c *schedulesRunCmd) Run(a *app) error {
	var status freeslot.JobStatus
	if err := c.call(a, http.MethodPost, "/run", c.query(), &status); err != nil {
		return err
	}
	if a.json {
		return a.printJSON(status)
	}
	return a.println("%s", status.ID)
}

type schedulesNextCmd struct {
	oneSchedule
	Count int `short:"n" default:"5" placeholder:"N" help:"How many (default ${default}), at most 100."`
}

// Run shows the coming runs in the schedule's time zone.
func (c *schedulesNextCmd) Run(a *app) error {
	if c.Count < 1 || c.Count > 100 {
		return usage("--count is %d, expected 1 to 100", c.Count)
	}
	query := c.query()
	query.Set("runs", strconv.Itoa(c.Count))
	var s schedule.Schedule
	if err := c.call(a, http.MethodGet, "", query, &s); err != nil {
		return err
	}
	if a.json {
		return a.printJSON(s.NextRunsMS)
	}
	if s.Paused {
		a.warn("%s is paused; it would run:", s.Name)
	}
	return a.printRuns(&s)
}

// printRuns prints the coming runs in the schedule's time zone.
func (a *app) printRuns(s *schedule.Schedule) error {
	zone, err := time.LoadLocation(s.TimeZone)
	if err != nil {
		zone = time.UTC
	}
	for _, at := range s.NextRunsMS {
		if err := a.println("%s", time.UnixMilli(at).In(zone).Format("2006-01-02 15:04:05 -0700")); err != nil {
			return err
		}
	}
	return nil
}
