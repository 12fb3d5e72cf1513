package main

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/api"
	"github.com/freeslot/freeslot/internal/plural"
)

// maxCell is the longest text in a cell of a table.
const maxCell = 60

// printJSON writes one indented value.
func (a *app) printJSON(v any) error {
	enc := json.NewEncoder(a.out)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	return enc.Encode(v)
}

// table writes rows in columns, without control characters: handlers write error messages, and
// control characters could be commands to the terminal.
func table(w io.Writer, rows [][]string) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, row := range rows {
		for i := range row {
			row[i] = clean(row[i])
		}
		_, _ = fmt.Fprintln(t, strings.Join(row, "\t"))
	}
	return t.Flush()
}

func clean(s string) string {
	return strings.Map(func(r rune) rune {
		if r < 0x20 || r >= 0x7f && r < 0xa0 {
			return ' '
		}
		return r
	}, s)
}

func shorten(s string, limit int) string {
	if r := []rune(s); len(r) > limit {
		return string(r[:limit-1]) + "…"
	}
	return s
}

func clock(ms int64) string {
	if ms == 0 {
		return "-"
	}
	return time.UnixMilli(ms).Format("2006-01-02 15:04:05")
}

func age(ms int64) time.Duration {
	return (time.Duration(ms) * time.Millisecond).Round(time.Second / 10)
}

// ago returns the time since a time of the wall clock; "-" for none.
func ago(ms int64) string {
	if ms == 0 {
		return "-"
	}
	return age(max(time.Now().UnixMilli()-ms, 0)).String()
}

func dash(s string) string { return cmp.Or(s, "-") }

func jobRows(jobs []freeslot.JobStatus) [][]string {
	rows := [][]string{{
		"JOB", "SERVICE", "CLASS", "STATE", "NODE", "ATTEMPT", "FAILURES", "TENANT", "SUBMITTED", "TOOK", "RESULT",
	}}
	for _, j := range jobs {
		took := "-"
		if j.FinishedAtMS > 0 {
			took = (time.Duration(j.FinishedAtMS-j.SubmittedAtMS) * time.Millisecond).String()
		}
		rows = append(rows, []string{
			j.ID, j.Service, dash(j.Class), shownState(j), dash(j.Node), fmt.Sprint(j.Attempt), fmt.Sprint(j.Failures), j.Tenant,
			clock(j.SubmittedAtMS), took, shorten(dash(outcome(j)), maxCell),
		})
	}
	return rows
}

// shownState adds to a job's state its place in the queue, or the time at which it comes there, if
// known.
func shownState(j freeslot.JobStatus) string {
	if j.RunAtMS > 0 {
		return fmt.Sprintf("%s (run at %s)", j.State, clock(j.RunAtMS))
	}
	var details []string
	if j.Position > 0 {
		details = append(details, fmt.Sprintf("position %d", j.Position))
	}
	if j.HeldBy != "" {
		details = append(details, "held by "+j.HeldBy)
	}
	if j.WaitsForPool != "" {
		details = append(details, "waits for "+api.NodeToStart([]string{j.WaitsForPool}))
	}
	if len(details) == 0 {
		return string(j.State)
	}
	return fmt.Sprintf("%s (%s)", j.State, strings.Join(details, ", "))
}

// outcome returns the error or, without one, the result.
func outcome(j freeslot.JobStatus) string {
	if j.Error != nil {
		return j.Error.Error()
	}
	return string(j.Result)
}

// printJob prints all of one job.
func (a *app) printJob(j freeslot.JobStatus) error {
	if a.json {
		return a.printJSON(j)
	}
	rows := [][]string{
		{"job", j.ID},
		{"state", shownState(j)},
		{"service", j.Service},
		{"class", dash(j.Class)},
		{"tenant", j.Tenant},
		{"node", dash(j.Node)},
		{"attempt", fmt.Sprint(j.Attempt)},
		{"failures", fmt.Sprint(j.Failures)},
		{"slots", fmt.Sprint(j.Slots)},
		{"priority", fmt.Sprint(j.Priority)},
		{"deadline", clock(j.DeadlineMS)},
		{"submitted", clock(j.SubmittedAtMS)},
		{"assigned", clock(j.AssignedAtMS)},
		{"finished", clock(j.FinishedAtMS)},
	}
	if p := j.Progress; p != nil {
		rows = append(rows, []string{"progress", string(p.Value)}, []string{"told", clock(p.AtMS)})
	}
	for _, row := range [][]string{
		{"schedule", j.Schedule}, {"requeued from", j.RequeuedFrom}, {"requeued as", j.RequeuedAs},
	} {
		if row[1] != "" {
			rows = append(rows, row)
		}
	}
	switch {
	case j.Error != nil:
		rows = append(rows, []string{"error", j.Error.Error()})
	case j.Result != nil:
		rows = append(rows, []string{"result", string(j.Result)})
	}
	if err := table(a.out, rows); err != nil || len(j.Attempts) == 0 {
		return err
	}
	_ = a.println("")
	return table(a.out, attemptRows(j.Attempts))
}

// attemptRows lists the attempts that did not end the job well.
func attemptRows(attempts []freeslot.PastAttempt) [][]string {
	rows := [][]string{{"ATTEMPT", "NODE", "BEGAN", "TOOK", "ENDED", "CODE"}}
	for _, p := range attempts {
		took := "-"
		if p.BeganAtMS > 0 {
			took = (time.Duration(p.EndedAtMS-p.BeganAtMS) * time.Millisecond).String()
		}
		rows = append(rows, []string{
			fmt.Sprint(p.Attempt), p.Node, clock(p.BeganAtMS), took, string(p.Ended), dash(p.Code),
		})
	}
	return rows
}

// printResult prints the result of a job that has ended. A job that did not succeed is an error.
func (a *app) printResult(j freeslot.JobStatus) error {
	if a.json {
		if err := a.printJSON(j); err != nil {
			return err
		}
	}
	switch {
	case j.State == freeslot.StateSucceeded && a.json:
		return nil
	case j.State == freeslot.StateSucceeded:
		_, err := fmt.Fprintln(a.out, string(j.Result))
		return err
	default:
		return errors.New(whatHappened(j))
	}
}

// whatHappened returns the reason that a job has no result.
func whatHappened(j freeslot.JobStatus) string {
	text := fmt.Sprintf("job %s is %s", j.ID, j.State)
	switch j.State {
	case freeslot.StateFailed:
		text = fmt.Sprintf("job %s failed on node %s", j.ID, dash(j.Node))
	case freeslot.StateDead:
		if text += " after 1 failure, on node " + dash(j.Node); j.Failures != 1 {
			text = fmt.Sprintf("job %s is dead after %d failures, the last on node %s", j.ID, j.Failures, dash(j.Node))
		}
	case freeslot.StateExpired:
		text = fmt.Sprintf("job %s expired: it had not ended by its deadline", j.ID)
		if j.Error != nil {
			text += "; before that"
		}
	}
	if j.Error != nil {
		text += ": " + clean(j.Error.Error())
	}
	return text
}

func list(items []string) string { return shorten(dash(strings.Join(items, ",")), maxCell) }

func labels(m map[string]string) string {
	items := make([]string, 0, len(m))
	for _, name := range slices.Sorted(maps.Keys(m)) {
		items = append(items, name+"="+m[name])
	}
	return list(items)
}

// explain adds advice to a refusal. It returns other errors, and nil, unchanged.
func explain(err error) error {
	return explainBy(err, "schedctl explain SERVICE, with the job's requirement")
}

// explainBy does what explain does, and adds the command that looks for the nodes of the job.
func explainBy(err error, command string) error {
	e, ok := errors.AsType[*freeslot.Error](err)
	if !ok {
		return err
	}
	lines := []string{clean(e.Error())}
	if len(e.Errors) > 1 {
		for _, f := range e.Errors {
			lines = append(lines, "  "+clean(f.Message))
		}
	}
	for _, reason := range slices.Sorted(maps.Keys(e.Breakdown)) {
		lines = append(lines, fmt.Sprintf("  %s: %s", plural.Of(e.Breakdown[reason], "node", "nodes"), clean(reason)))
	}
	if e.Code == freeslot.CodeNoMatchingNode {
		lines = append(lines, "  what speaks against each node: "+clean(command))
	}
	if e.Code == freeslot.CodeUnauthenticated {
		lines = append(lines, "  set FREESLOT_TOKEN, FREESLOT_TOKEN_FILE or --token-file")
	}
	if e.RetryAfter > 0 {
		lines = append(lines, fmt.Sprintf("  try again in %s", e.RetryAfter.Round(10*time.Millisecond)))
	}
	return explained{text: strings.Join(lines, "\n"), cause: err}
}

type explained struct {
	text  string
	cause error
}

func (e explained) Error() string { return e.text }
func (e explained) Unwrap() error { return e.cause }
