package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/oklog/ulid/v2"

	"github.com/freeslot/freeslot"
)

// submitTries is how often a job with --wait is sent until a replica answers.
const submitTries = 3

type submitCmd struct {
	Service string `arg:"" help:"Service that runs the job."`
	Payload string `arg:"" optional:"" help:"JSON value handed to the handler; - reads it from standard input."`

	File string `short:"f" type:"existingfile" placeholder:"FILE" help:"Read the payload from a file."`
	requirementFlags
	Priority    int           `placeholder:"N" help:"Among the jobs of a queue those with a higher priority come first; 0 to 9."`
	MaxAttempts int           `placeholder:"N" help:"How often the job may fail before it is dead, by the loss of its node or a retryable error; 3 unless set."`
	Timeout     time.Duration `placeholder:"DURATION" help:"The job expires when it has not ended after this time."`

	At             string        `placeholder:"TIME" help:"Begin no earlier than this time, such as 2026-12-31T23:00:00Z."`
	In             time.Duration `least:"0s" placeholder:"DURATION" help:"Begin no earlier than after this time."`
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
	if c.Wait {
		return c.wait(a, job)
	}
	content, err := encode(job)
	if err != nil {
		return err
	}
	var status freeslot.JobStatus
	if err := a.api.call(a.ctx, http.MethodPost, "/v1/jobs", nil, content, 0, &status); err != nil {
		return explainBy(err, c.explainCommand(c.Service))
	}
	if a.json {
		return a.printJSON(status)
	}
	return a.println("%s", status.ID)
}

// wait submits the job over a WebSocket, which goes on at another server when the first is gone.
func (c *submitCmd) wait(a *app, job *freeslot.Job) error {
	if job.IdempotencyKey == "" {
		job.IdempotencyKey = "schedctl-" + ulid.Make().String()
	}
	ctx, cancel := a.ctx, context.CancelFunc(func() {})
	if c.WaitTimeout > 0 {
		ctx, cancel = context.WithTimeout(ctx, c.WaitTimeout+callTimeout)
	}
	defer cancel()
	deadline := time.Now().Add(c.WaitTimeout)
	connection, err := a.dial(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = connection.Close() }()
	handle, err := connection.Submit(ctx, *job)
	for again := 1; again < submitTries && freeslot.CodeOf(err) == freeslot.CodeUnavailable && ctx.Err() == nil; again++ {
		handle, err = connection.Submit(ctx, *job) // with the key it is the same job
	}
	if err != nil {
		return explainBy(err, c.explainCommand(c.Service))
	}
	if c.WaitTimeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithDeadline(ctx, deadline)
		defer cancel()
	}
	err = a.await(ctx, handle, c.Progress)
	if c.WaitTimeout > 0 && a.ctx.Err() == nil && errors.Is(ctx.Err(), context.DeadlineExceeded) {
		state := "has not ended"
		if status, err := a.api.job(a.ctx, handle.ID()); err == nil {
			state = "is " + shownState(status)
		}
		return fmt.Errorf("job %s %s after %s; it goes on: schedctl watch %s", handle.ID(), state, c.WaitTimeout, handle.ID())
	}
	return err
}

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
	case c.In > 0:
		job.RunAtMS = time.Now().Add(c.In).UnixMilli()
	case c.At != "":
		job.RunAtMS = at.UnixMilli()
	}
	job.TimeoutMS, job.ProgressTimeoutMS = c.Timeout.Milliseconds(), c.ProgressTimeout.Milliseconds()
	job.OnLeaseLoss = c.OnLeaseLoss
	if c.Progress && !c.Wait {
		return nil, usage("--progress is set, expected it beside --wait")
	}
	if err := job.Validate("job"); err != nil {
		return nil, usageError{explain(err)}
	}
	if c.WaitTimeout > 0 && !c.Wait {
		return nil, usage("--wait-timeout is %s, expected it beside --wait", c.WaitTimeout)
	}
	return job, nil
}

// at returns the time of --at; zero without it.
func (c *submitCmd) at() (at time.Time, err error) {
	if c.At == "" {
		return at, nil
	}
	if at, err = time.Parse(time.RFC3339, c.At); err != nil {
		return at, usage(
			"--at is %q, expected a date and time with a time zone such as 2026-12-31T23:00:00Z or "+
				"2026-12-31T23:00:00+01:00; --in 24h is in a day",
			c.At,
		)
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
	data = bytes.TrimSpace(bytes.TrimPrefix(data, []byte("\ufeff")))
	if len(data) > 0 && !json.Valid(data) {
		return nil, usage(
			`%s is not JSON; a text is written in double quotes, which the shell takes away unless quoted: '"hello"'`, from,
		)
	}
	return data, nil
}
