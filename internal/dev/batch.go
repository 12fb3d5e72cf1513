package dev

import (
	"context"
	"errors"
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
	// assign and result are measured here, from the submit that was accepted.
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

// runJob submits until there is room: the fleet is small and the batch is not.
func runJob(ctx context.Context, c *client.Client, job freeslot.Job) outcome {
	for {
		begin := time.Now()
		h, err := c.Submit(ctx, job)
		var refused *freeslot.Error
		if errors.As(err, &refused) && refused.Code == freeslot.CodeOverloaded {
			select {
			case <-time.After(refused.RetryAfter):
				continue
			case <-ctx.Done():
			}
		}
		if err != nil {
			return outcome{job: job, err: err}
		}
		o := outcome{job: job}
		select {
		case <-h.Assigned():
			o.assign = h.Assignment().At.Sub(begin)
		case <-ctx.Done():
		}
		o.status, o.err = h.Wait(ctx)
		o.result = time.Since(begin)
		return o
	}
}

// printTable writes one row a job and returns how many did not succeed.
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
