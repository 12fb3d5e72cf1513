package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"strconv"
	"strings"
	"sync/atomic"

	"github.com/redis/rueidis"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/bench/load"
	"github.com/freeslot/freeslot/bench/measure"
	"github.com/freeslot/freeslot/client"
	"github.com/freeslot/freeslot/embed"
	redisclient "github.com/freeslot/freeslot/internal/redis/client"
)

func openLoad(ctx context.Context, args []string) (load.Submitter, error) {
	f := flag.NewFlagSet("load", flag.ContinueOnError)
	url := f.String("redis", "", "URL of Redis")
	ws := f.String("ws", "", "URLs of replicas, separated by commas; empty: a replica in this process")
	sessions := f.Int("sessions", 4, "WebSocket sessions")
	name := f.String("replica", "bench-1", "name of the replica in this process")
	takes := f.Duration("takes", 0, "how long each job's handler takes; 0: it ends at once")
	tenant := f.String("tenant", "bench", "tenant of the jobs, of a replica in this process")
	if err := f.Parse(args); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, measure.StartLimit)
	defer cancel()
	y, err := openYard(*url)
	if err != nil {
		return nil, err
	}
	job := freeslot.Job{Service: benchService, Payload: load.Payload()}
	if *takes > 0 {
		job.Payload = strconv.AppendInt(nil, takes.Microseconds(), 10)
	}
	var s load.Submitter
	if *ws == "" {
		s, err = openInProcess(ctx, embed.Config{RedisURL: *url, ReplicaID: *name, Tenant: *tenant, MaxOutstanding: maxOutstanding}, &inProcess{yard: y, job: job})
	} else {
		s, err = openSessions(ctx, strings.Split(*ws, ","), *sessions, &overSessions{yard: y, job: job})
	}
	if err != nil {
		y.client.Close()
	}
	return s, err
}

// yard is the yardstick: a script that does nothing, on a connection of its own. It is called
// read-only, so that Redis counts it apart from the scripts that are measured.
type yard struct {
	client rueidis.Client
	script *rueidis.Lua
}

func openYard(url string) (*yard, error) {
	c, err := redisclient.Commands(redisclient.Config{URL: url, Name: "bench-yardstick"})
	if err != nil {
		return nil, err
	}
	return &yard{client: c, script: rueidis.NewLuaScriptReadOnly("return 1")}, nil
}

// Bare implements load.Yardstick.
func (y *yard) Bare(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, measure.CallTimeout)
	defer cancel()
	return y.script.Exec(ctx, y.client, nil, nil).Error()
}

// overSessions submits over WebSocket sessions, in turn.
type overSessions struct {
	*yard
	clients []*client.Client
	job     freeslot.Job
}

func openSessions(ctx context.Context, urls []string, sessions int, s *overSessions) (load.Submitter, error) {
	for i := range sessions {
		c, err := client.Dial(ctx, urls[i%len(urls)], client.Options{})
		if err != nil {
			s.closeClients()
			return nil, fmt.Errorf("session %d: %w", i, err)
		}
		s.clients = append(s.clients, c)
	}
	return s, nil
}

// Submit implements load.Submitter. One frame takes all n jobs.
func (s *overSessions) Submit(ctx context.Context, n int, done func(int, load.Outcome)) {
	if n == 1 {
		h, err := s.pick().Submit(ctx, s.job)
		if err != nil {
			done(0, load.Outcome{Err: reason(err)})
			return
		}
		wait(ctx, h, func(o load.Outcome) { done(0, o) })
		return
	}
	jobs := make([]freeslot.Job, n)
	for i := range jobs {
		jobs[i] = s.job
	}
	submitted, err := s.pick().SubmitBatch(ctx, jobs)
	for i := range n {
		switch {
		case err != nil:
			done(i, load.Outcome{Err: reason(err)})
		case submitted[i].Err != nil:
			done(i, load.Outcome{Err: reason(submitted[i].Err)})
		default:
			// One goroutine a job: a loop would see the later ones end no sooner than the first.
			go wait(ctx, submitted[i].Handle, func(o load.Outcome) { done(i, o) })
		}
	}
}

// awaited is a handle of package client or embed.
type awaited interface {
	Wait(ctx context.Context) (freeslot.JobStatus, error)
	Assignment() client.Assignment
}

func wait(ctx context.Context, h awaited, done func(load.Outcome)) {
	status, err := h.Wait(ctx)
	if err != nil {
		done(load.Outcome{Err: reason(err)})
		return
	}
	o := outcome(status)
	o.Assigned = h.Assignment().At
	done(o)
}

var turn atomic.Uint64

func (s *overSessions) pick() *client.Client { return s.clients[turn.Add(1)%uint64(len(s.clients))] }

// Close implements load.Submitter.
func (s *overSessions) Close() error {
	s.client.Close()
	s.closeClients()
	return nil
}

func (s *overSessions) closeClients() {
	for _, c := range s.clients {
		_ = c.Close() // nothing is outstanding
	}
}

func outcome(s freeslot.JobStatus) load.Outcome {
	if s.State != freeslot.StateSucceeded {
		return load.Outcome{Err: errors.New(string(s.State))}
	}
	started, err := load.ParseStamp(s.Result)
	return load.Outcome{Started: started, Err: err}
}

// reason leaves out of an error what differs from job to job.
func reason(err error) error { return errors.New(string(freeslot.CodeOf(err))) }
