package main

import (
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/bench/load"
	"github.com/freeslot/freeslot/client"
	"github.com/freeslot/freeslot/internal/dispatch"
)

var errDetached = errors.New("detached")

// oneSink waits for one job. The dispatcher calls it in order, from one goroutine at a time.
type oneSink struct {
	done     func(load.Outcome)
	assigned time.Time
}

func (s *oneSink) accepted(_ int, _ dispatch.Accepted, err error) {
	if err != nil {
		s.done(load.Outcome{Err: reason(err)})
	}
}

func (s *oneSink) Assigned(dispatch.Assignment) {
	if s.assigned.IsZero() {
		s.assigned = time.Now()
	}
}

func (s *oneSink) Result(status freeslot.JobStatus) {
	o := outcome(status)
	o.Assigned = s.assigned
	s.done(o)
}

func (s *oneSink) Progress(string, freeslot.Progress) {}

func (s *oneSink) Detached(string) { s.done(load.Outcome{Err: errDetached}) }

// manySink waits for the jobs of one call.
type manySink struct {
	next []*oneSink // by index

	mu   sync.Mutex // guards jobs
	jobs map[string]*oneSink
}

func (s *manySink) accepted(i int, a dispatch.Accepted, err error) {
	if err != nil {
		s.next[i].accepted(i, a, err)
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.jobs[a.JobID] = s.next[i]
}

func (s *manySink) of(id string) *oneSink {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.jobs[id]
}

func (s *manySink) Assigned(a dispatch.Assignment)     { s.of(a.JobID).Assigned(a) }
func (s *manySink) Result(status freeslot.JobStatus)   { s.of(status.ID).Result(status) }
func (s *manySink) Progress(string, freeslot.Progress) {}
func (s *manySink) Detached(id string)                 { s.of(id).Detached(id) }

var turn atomic.Uint64

func (s *overSessions) pick() *client.Client { return s.clients[turn.Add(1)%uint64(len(s.clients))] }
