package dev

import (
	"context"
	"fmt"
	"io"
	"sync"
	"text/tabwriter"
	"time"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/client"
)

// outcome is one row of the table.
type outcome struct {
	job    freeslot.Job
	status freeslot.JobStatus
	// assign and result are measured here, from the submit on. The batch is larger than the fleet,
	// so some jobs wait.
	assign, result time.Duration
	err            error
}

// runBatch submits all jobs at once and waits for all results.
func runBatch(ctx context.Context, c *client.Client, jobs []freeslot.Job) []outcome {
	out := make([]outcome, len(jobs))
	var wg sync.WaitGroup
	for i, job := range jobs {
		wg.Go(func() { out[i] = runJob(ctx, c, job) })
	}
	wg.Wait()
	return out
}

func runJob(ctx context.Context, c *client.Client, job freeslot.Job) outcome {
	begin := time.Now()
	o := outcome{job: job}
	h, err := c.Submit(ctx, job)
	if err != nil {
		o.err = err
		return o
	}
	o.status, o.err = h.Wait(ctx)
	o.result = time.Since(begin)
	if at := h.Assignment().At; !at.IsZero() {
		o.assign = at.Sub(begin)
	}
	return o
}

// printTable writes one row for each job and returns how many did not succeed.
func printTable(w io.Writer, rows []outcome) (failed int, err error) {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	_, _ = fmt.Fprintln(t, "JOB\tSERVICE\tNODE\tATTEMPT\tTO ASSIGN\tTO RESULT\tSTATE\tRESULT")
	for _, r := range rows {
		state, result := string(r.status.State), string(r.status.Result)
		if r.err != nil {
			state, result = "error", r.err.Error()
		} else if r.status.Error != nil {
			result = r.status.Error.Error()
		}
		if state != string(freeslot.StateSucceeded) {
			failed++
		}
		_, _ = fmt.Fprintf(t, "%s\t%s\t%s\t%d\t%s\t%s\t%s\t%s\n", r.status.ID, r.job.Service, r.status.Node, r.status.Attempt,
			r.assign.Round(time.Microsecond), r.result.Round(time.Microsecond), state, shorten(result, 40))
	}
	if err := t.Flush(); err != nil {
		return failed, fmt.Errorf("print table: %w", err)
	}
	return failed, nil
}

func shorten(s string, limit int) string {
	r := []rune(s)
	if len(r) <= limit {
		return s
	}
	return string(r[:limit-1]) + "…"
}
