package main

import (
	"context"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"time"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/bench/measure"
	"github.com/freeslot/freeslot/bench/result"
	"github.com/freeslot/freeslot/bench/tool"
	"github.com/freeslot/freeslot/internal/cell"
)

// tenant owns all jobs of the bench.
const tenant = "default"

// noJob is a valid id of a job that there is not.
func noJob() string { return cell.NewJobID(0) }

// waiting submits a job that only the drained node could run, and returns its id.
func (d *bed) waiting(ctx context.Context) string {
	var job struct {
		ID    string         `json:"job_id"`
		State freeslot.State `json:"state"`
	}
	d.ask(ctx, "POST", "/v1/jobs", fmt.Sprintf(`{"service":%q,"payload":1}`, lonely), &job)
	if job.State != freeslot.StateWaiting {
		tool.Check(fmt.Errorf("the job for a drained node is %s; want waiting", job.State))
	}
	return job.ID
}

// runLists asks over HTTP, as the page does.
func runLists(ctx context.Context, b *tool.Bench, d *bed) {
	ended, records, rounds := tool.Sized(b, 1_000_000, 5000), tool.Sized(b, cell.MaxLook, 200), tool.Sized(b, 30, 3)
	b.Progress("%s ended jobs", measure.Thousands(ended))
	d.end(ctx, ended, records)
	id := d.waiting(ctx)
	b.Say("%s ended jobs are indexed, and the newest %s have records: no page reads further. A job waits for the one drained node "+
		"that has its service, among %s. Requests over HTTP of a replica on this machine, %d of each in turns; p50 and p99 of the "+
		"whole answer.", measure.Thousands(ended), measure.Thousands(records), measure.Thousands(d.nodes), rounds)
	explain := &asked{name: "why a job waits", path: "/v1/jobs/" + url.PathEscape(id) + "/explain", jobs: -1}
	pages := []*asked{
		{name: "jobs that failed", path: "/v1/jobs?state=failed&limit=100", jobs: 100},
		{name: "jobs that failed, of a service", path: "/v1/jobs?state=failed&service=" + service + "&limit=100", jobs: 100},
		{name: "jobs that failed with an error that none has: a page looks at all it may", path: "/v1/jobs?state=failed&code=rare&limit=100"},
		{name: "dead letters by error", path: "/v1/dead-letters?group=code", jobs: -1},
	}
	all := append(slices.Clone(pages), explain)
	tool.InTurns(b, rounds, all, func(a *asked, _ int) { a.ask(ctx, d) })
	t := result.NewTable("Request", "p50 [ms]", "p99 [ms]")
	worst := 0.0
	for _, a := range all {
		t.Add(a.name, measure.Median(a.ms), measure.Quantile(a.ms, 0.99))
	}
	for _, a := range pages {
		worst = max(worst, measure.Median(a.ms))
	}
	b.Result.Tables = []result.Table{t}
	b.Target("the first page of jobs with 1,000,000 ended, the slowest filter", result.Milliseconds, result.AtMost, 200, worst)
	b.Target("explain with 10,000 nodes", result.Milliseconds, result.AtMost, 200, measure.Median(explain.ms))
}

// asked is a request with the times of its answers.
type asked struct {
	name, path string
	// jobs is how many jobs the page must have; -1: it is no page of jobs.
	jobs int
	ms   []float64
}

func (a *asked) ask(ctx context.Context, d *bed) {
	var page struct {
		Jobs []struct{} `json:"jobs"`
	}
	took := d.ask(ctx, "GET", a.path, "", &page)
	if a.jobs >= 0 && len(page.Jobs) != a.jobs {
		tool.Check(fmt.Errorf("%s: %d jobs; want %d", a.path, len(page.Jobs), a.jobs))
	}
	a.ms = append(a.ms, measure.Milliseconds(took))
}

// end has jobs fail one after the other, and adds older ones to the indexes alone.
func (d *bed) end(ctx context.Context, ended, records int) {
	c := d.fleet.cell
	tool.Together(registerCallers, records, func(i int) {
		at := 1 + i%(d.nodes-1)
		id := cell.NewJobID(0)
		p := tool.Must(c.Submit(ctx, cell.Submission{
			JobID: id, Tenant: tenant, Job: &freeslot.Job{Service: service}, Candidates: []string{nodeID(at)},
		}))
		if !p.Assigned {
			tool.Check(fmt.Errorf("node %s refused a job: %v", nodeID(at), p.Refusals))
		}
		tool.Must(c.Complete(ctx, cell.Completion{
			Node: nodeID(at), Epoch: d.fleet.epochs[at], Attempt: cell.Attempt{Job: id, N: 1}, State: freeslot.StateFailed,
			Error: &freeslot.JobError{Code: "usual", Message: "no"},
		}))
	})
	// Older by a millisecond each, within the retention.
	const chunk = 1000
	layout, newest := c.Layout(), time.Now().Add(-time.Minute).UnixMicro()
	tool.Together(2, (ended-records)/chunk, func(i int) {
		for _, key := range []string{layout.Finished(), layout.Ended(string(freeslot.StateFailed))} {
			args := []string{"ZADD", key}
			for n := i * chunk; n < (i+1)*chunk; n++ {
				args = append(args, strconv.FormatInt(newest-int64(n)*1000, 10), fmt.Sprintf("0-OLD%022d", n))
			}
			ctx, cancel := context.WithTimeout(ctx, measure.CallTimeout)
			defer cancel()
			tool.Check(d.redis.Client.Do(ctx, d.redis.Client.B().Arbitrary(args[0]).Keys(args[1]).Args(args[2:]...).Build()).Error())
		}
	})
}
