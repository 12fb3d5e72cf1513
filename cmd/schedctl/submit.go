package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"time"

	"github.com/freeslot/freeslot"
)

const (
	// maxWait is the longest wait that one request can ask for.
	maxWait = time.Minute
	// pollInterval is for jobs that take longer.
	pollInterval = time.Second
)

type submitCmd struct {
	Service string `arg:"" help:"Service that runs the job."`
	Payload string `arg:"" optional:"" help:"JSON value handed to the handler; - reads it from standard input."`

	File string `short:"f" type:"existingfile" placeholder:"FILE" help:"Read the payload from a file."`
	requirementFlags
	Priority    int           `placeholder:"N" help:"Among the jobs of a queue those with a higher priority come first; 0 to 9."`
	MaxAttempts int           `placeholder:"N" help:"How often the job may fail before it is dead, by the loss of its node or a retryable error; 3 unless set."`
	Timeout     time.Duration `placeholder:"DURATION" help:"The job expires when it has not ended after this time."`

	At             string        `placeholder:"TIME" help:"Begin no earlier than this time, such as 2026-12-31T23:00:00Z."`
	In             time.Duration `placeholder:"DURATION" help:"Begin no earlier than after this time."`
	IdempotencyKey string        `placeholder:"KEY" help:"Submit once: a second submit with the same key gets the first job."`

	ConcurrencyKey   string `placeholder:"KEY" help:"At most one job under the same key runs at a time; see --concurrency-limit."`
	ConcurrencyLimit int    `placeholder:"N" help:"How many jobs under the key may run at a time."`

	ProgressTimeout time.Duration        `placeholder:"DURATION" help:"Stop the handler, and retry the job, when it reports no progress for this time."`
	OnLeaseLoss     freeslot.OnLeaseLoss `enum:",continue,cancel" default:"" placeholder:"WHAT" help:"What a node does with the job when it cannot reach Redis: continue (default) or cancel."`

	Wait        bool          `short:"w" help:"Wait for the end of the job and print its result. The exit code is 1 unless it succeeds."`
	Progress    bool          `help:"With --wait: write the handler's progress to standard error."`
	WaitTimeout time.Duration `placeholder:"DURATION" help:"With --wait: stop waiting after this time; the job goes on."`
}

// Help is shown below the flags.
func (submitCmd) Help() string {
	return `Examples:
  schedctl submit echo '{"hello":"world"}' --wait
  echo '"hello"' | schedctl submit upper - --wait
  schedctl submit tts --file speech.json --target de --label gpu=a100 --slots 2
  schedctl submit tts '"now or never"' --priority 9 --max-attempts 1 --timeout 30s
  schedctl submit report --in 1h --idempotency-key report-2026-11-21

Without a free node that fits the job waits. Without --wait the job's id is printed, for get, cancel and watch.`
}

// Run submits.
func (c *submitCmd) Run(a *app) error {
	job, err := c.job(a)
	if err != nil {
		return err
	}
	content, err := json.Marshal(job)
	if err != nil {
		return err
	}
	ctx := a.ctx
	wait := time.Duration(0)
	if c.Wait {
		if !c.Progress {
			wait = maxWait
		}
		if c.WaitTimeout > 0 {
			var cancel context.CancelFunc
			ctx, cancel = context.WithTimeout(ctx, c.WaitTimeout+callTimeout)
			defer cancel()
			wait = min(wait, c.WaitTimeout)
		}
	}
	deadline := time.Now().Add(c.WaitTimeout)
	var status freeslot.JobStatus
	query := url.Values{"wait_ms": {fmt.Sprint(wait.Milliseconds())}}
	if err := a.api.call(ctx, http.MethodPost, "/v1/jobs", query, content, wait, &status); err != nil {
		return explainBy(err, c.explainCommand(c.Service))
	}
	if !c.Wait {
		if a.json {
			return a.printJSON(status)
		}
		return a.println("%s", status.ID)
	}
	if c.Progress {
		return c.follow(ctx, a, status.ID, deadline)
	}
	for !status.State.Terminal() {
		if c.WaitTimeout > 0 && !time.Now().Before(deadline) {
			return fmt.Errorf("job %s is %s after %s; it goes on: schedctl watch %s", status.ID, shownState(status), c.WaitTimeout, status.ID)
		}
		select {
		case <-time.After(pollInterval):
		case <-ctx.Done():
			return goesOn{job: status.ID, err: ctx.Err()}
		}
		next, err := a.api.job(ctx, status.ID)
		if err != nil {
			return goesOn{job: status.ID, err: explain(err)}
		}
		status = next
	}
	return a.printResult(status)
}

// follow shows the job's progress until it ends or the deadline, if there is one.
func (c *submitCmd) follow(ctx context.Context, a *app, id string, deadline time.Time) error {
	if c.WaitTimeout <= 0 {
		return a.follow(ctx, id)
	}
	ctx, cancel := context.WithDeadline(ctx, deadline)
	defer cancel()
	err := a.follow(ctx, id)
	if err != nil && errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return fmt.Errorf("job %s has not ended after %s; it goes on: schedctl watch %s", id, c.WaitTimeout, id)
	}
	return err
}

// goesOn is why the command stops waiting for an accepted job.
type goesOn struct {
	job string
	err error
}

func (e goesOn) Error() string {
	return fmt.Sprintf("%v; job %s goes on: schedctl watch %s", e.err, e.job, e.job)
}

func (e goesOn) Unwrap() error { return e.err }

func (c *submitCmd) job(a *app) (*freeslot.Job, error) {
	payload, err := c.payload(a)
	if err != nil {
		return nil, err
	}
	job := c.requirementFlags.job(c.Service)
	job.Payload, job.Priority, job.MaxAttempts, job.IdempotencyKey = payload, c.Priority, c.MaxAttempts, c.IdempotencyKey
	job.ConcurrencyKey, job.ConcurrencyLimit = c.ConcurrencyKey, c.ConcurrencyLimit
	at, err := c.at()
	switch {
	case err != nil:
		return nil, err
	case c.At != "" && c.In != 0:
		return nil, usage("--at and --in are both set, expected one of them")
	case c.In < 0:
		return nil, usage("--in is %s, expected a positive duration", c.In)
	case c.In > 0:
		job.RunAtMS = time.Now().Add(c.In).UnixMilli()
	case c.At != "":
		job.RunAtMS = at.UnixMilli()
	}
	job.TimeoutMS, job.ProgressTimeoutMS, job.OnLeaseLoss = c.Timeout.Milliseconds(), c.ProgressTimeout.Milliseconds(), c.OnLeaseLoss
	switch {
	case c.Timeout != 0 && job.TimeoutMS < 1:
		return nil, usage("--timeout is %s, expected at least 1ms", c.Timeout)
	case c.ProgressTimeout != 0 && job.ProgressTimeoutMS < 1:
		return nil, usage("--progress-timeout is %s, expected at least 1ms", c.ProgressTimeout)
	}
	if c.Progress && !c.Wait {
		return nil, usage("--progress is set, expected it beside --wait")
	}
	if err := job.Validate("job"); err != nil {
		return nil, usageError{explain(err)}
	}
	if c.WaitTimeout < 0 || c.WaitTimeout > 0 && !c.Wait {
		return nil, usage("--wait-timeout is %s, expected a positive duration beside --wait", c.WaitTimeout)
	}
	return job, nil
}

// at is the time of --at; zero without it.
func (c *submitCmd) at() (at time.Time, err error) {
	if c.At == "" {
		return at, nil
	}
	if at, err = time.Parse(time.RFC3339, c.At); err != nil {
		return at, usage("--at is %q, expected a date and time with a time zone such as 2026-12-31T23:00:00Z or 2026-12-31T23:00:00+01:00; --in 24h is in a day", c.At)
	}
	return at, nil
}

func (c *submitCmd) payload(a *app) (json.RawMessage, error) {
	data, from := []byte(c.Payload), "the payload"
	if c.File != "" && c.Payload != "" {
		return nil, usage("both a payload and --file are given, expected one of them")
	}
	if c.File != "" || c.Payload == "-" {
		var err error
		if data, from, err = a.readInput(cmp.Or(c.File, c.Payload), "the payload"); err != nil {
			return nil, err
		}
	}
	data = bytes.TrimSpace(data)
	if len(data) > 0 && !json.Valid(data) {
		return nil, usage(`%s is not JSON; a text is written in double quotes, which the shell takes away unless quoted: '"hello"'`, from)
	}
	return data, nil
}
