package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"sync/atomic"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/client"
	"github.com/freeslot/freeslot/internal/api"
	"github.com/freeslot/freeslot/internal/plural"
)

// clearScreen moves to the top left and clears everything below.
const clearScreen = "\x1b[H\x1b[2J"

type watchCmd struct {
	ID       string        `arg:"" optional:"" name:"job-id" help:"Wait for this job and print its result."`
	Interval time.Duration `default:"1s" least:"100ms" placeholder:"DURATION" help:"Time between refreshes (default ${default})."`
	Limit    int           `default:"20" placeholder:"N" help:"At most this many jobs (default ${default})."`
}

// Help is shown below the flags.
func (watchCmd) Help() string {
	return `Without a job id: shows nodes, waiting and running jobs until Ctrl-C; with -o json one line each time.

With a job id: attaches to the job over the WebSocket and prints its result; the exit code is 1 unless it succeeds.
The handler's progress is written to standard error.
A client that waited for the result before does not get it; it is notified.`
}

// Run follows.
func (c *watchCmd) Run(a *app) error {
	if c.ID != "" {
		return a.follow(a.ctx, c.ID)
	}
	if c.Limit < 1 {
		return usage("--limit is %d, expected at least 1", c.Limit)
	}
	ticker := time.NewTicker(c.Interval)
	defer ticker.Stop()
	for shown := false; ; shown = true {
		err := c.refresh(a)
		switch {
		case a.ctx.Err() != nil:
			return nil // Ctrl-C is the usual end
		case err != nil && !shown:
			return explain(err)
		case err != nil:
			// A replica may restart, so watch goes on.
			a.warn("%v", explain(err))
		}
		select {
		case <-ticker.C:
		case <-a.ctx.Done():
			return nil
		}
	}
}

// refresh writes one screen, with one call.
func (c *watchCmd) refresh(a *app) error {
	nodes, err := a.api.nodes(a.ctx, url.Values{})
	if err != nil {
		return err
	}
	jobs, waiting, err := c.underWay(a)
	if err != nil {
		return err
	}
	var picture bytes.Buffer
	if a.json {
		if err := json.NewEncoder(&picture).Encode(struct {
			At    time.Time            `json:"at"`
			Nodes []api.NodeStatus     `json:"nodes"`
			Jobs  []freeslot.JobStatus `json:"jobs"`
		}{time.Now().UTC(), nodes, jobs}); err != nil {
			return err
		}
		_, err = a.out.Write(picture.Bytes())
		return err
	}
	if a.terminal {
		picture.WriteString(clearScreen)
	}
	_, _ = fmt.Fprintf(&picture, "%s  %s  %s, %d waiting and %s shown\n\n", time.Now().Format("15:04:05"), a.api.base.Host,
		plural.Of(len(nodes), "node", "nodes"), waiting, plural.Of(len(jobs)-waiting, "running job", "running jobs"))
	if err := table(&picture, nodeRows(nodes)); err != nil {
		return err
	}
	picture.WriteByte('\n')
	if err := table(&picture, jobRows(jobs)); err != nil {
		return err
	}
	picture.WriteByte('\n')
	_, err = a.out.Write(picture.Bytes())
	return err
}

// underWay returns up to Limit running jobs, and waiting jobs up to the rest of the limit. The
// waiting ones come first.
func (c *watchCmd) underWay(a *app) (jobs []freeslot.JobStatus, waiting int, err error) {
	running, _, err := a.api.jobs(a.ctx, url.Values{"state": {string(freeslot.StateRunning)}}, c.Limit)
	if err != nil || len(running) == c.Limit {
		return running, 0, err
	}
	jobs, _, err = a.api.jobs(a.ctx, url.Values{"state": {string(freeslot.StateWaiting)}}, c.Limit-len(running))
	return append(jobs, running...), len(jobs), err
}

// follow waits for one job, and shows its progress.
func (a *app) follow(ctx context.Context, id string) error {
	connection, err := a.dial(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = connection.Close() }()
	handle, err := connection.Attach(ctx, id)
	if err != nil {
		return explain(err)
	}
	return a.await(ctx, handle, true)
}

// tokens returns the token of each connection: the first has the one at hand, and later ones have
// what its file or its command says then.
func (a *app) tokens() func(context.Context) (string, error) {
	var begun atomic.Bool
	return func(context.Context) (string, error) {
		if !begun.Swap(true) {
			return a.token, nil
		}
		return a.nextToken()
	}
}

// dial connects to the first server that can be reached.
func (a *app) dial(ctx context.Context) (*client.Client, error) {
	if a.token != "" {
		a.api.warnPlain()
	}
	opts := client.Options{TLS: a.tls, Name: "schedctl", Logger: a.connections()}
	if a.token != "" {
		opts.TokenSource = a.tokens()
	}
	connection, err := client.Dial(ctx, a.api.webSocketURL(), opts)
	if err == nil {
		return connection, nil
	}
	if refusal, ok := errors.AsType[*freeslot.Error](err); ok && refusal.Code != freeslot.CodeUnavailable {
		return nil, explain(refusal)
	}
	return nil, a.api.unreachable(err)
}

// await waits for the job's end and prints its result.
func (a *app) await(ctx context.Context, handle *client.Handle, progress bool) error {
	id := handle.ID()
	a.awaited.Store(&id)
	if progress {
		a.printProgress(ctx, handle.Progress())
	}
	status, err := handle.Wait(ctx)
	switch {
	case freeslot.CodeOf(err) == freeslot.CodeNotFound:
		return explain(err)
	case err != nil:
		return goesOn{job: id, err: explain(err)}
	}
	return a.printResult(status)
}

// goesOn holds the reason that the command stops waiting for an accepted job.
type goesOn struct {
	job string
	err error
}

func (e goesOn) Error() string {
	return fmt.Sprintf("%v; job %s goes on: schedctl watch %s", e.err, e.job, e.job)
}

func (e goesOn) Unwrap() error { return e.err }

// connections warns once if no replica can be reached, and once when one can be reached again.
func (a *app) connections() *zap.Logger {
	var failed atomic.Int64 // attempts in a row; each server is tried once in a round
	all := int64(1 + len(a.api.others))
	core := zapcore.NewCore(
		zapcore.NewJSONEncoder(zapcore.EncoderConfig{}), zapcore.AddSync(io.Discard), zapcore.InfoLevel,
	)
	return zap.New(core, zap.Hooks(func(e zapcore.Entry) error {
		switch {
		case e.Message == "client.connect_failed" && failed.Add(1) == all:
			which := "the job goes on"
			if job := a.awaited.Load(); job != nil {
				which = fmt.Sprintf("job %s goes on: schedctl watch %s", *job, *job)
			}
			a.warn("no scheduler can be reached; reconnecting, %s", which)
		case e.Message == "client.connected" && failed.Swap(0) >= all:
			a.warn("connected again")
		}
		return nil
	}))
}

// printProgress writes the handler's progress to standard error until the job or ctx has ended.
// Standard output is for the result.
func (a *app) printProgress(ctx context.Context, progress <-chan freeslot.Progress) {
	for {
		select {
		case p, ok := <-progress:
			switch {
			case !ok:
				return
			case a.json:
				_ = json.NewEncoder(a.err).Encode(p)
			default:
				_, _ = fmt.Fprintf(a.err, "attempt %d: %s\n", p.Attempt, p.Value)
			}
		case <-ctx.Done():
			return
		}
	}
}
