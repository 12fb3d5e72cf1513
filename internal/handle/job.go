// Package handle holds what a program knows about a job that it awaits: the common part of the
// handles of packages client and embed.
package handle

import (
	"context"
	"sync"
	"time"

	"github.com/freeslot/freeslot"
)

// Assignment tells where a job runs.
type Assignment struct {
	Node    string
	Attempt int
	At      time.Time
}

// Job is an accepted job. Its owner guards it by a mutex, which callers of Assign, Report, Finish
// and Ended hold. The other methods are safe for concurrent use.
type Job struct {
	mu *sync.Mutex // the owner's; guards the fields that follow
	// assigned and done are made when they are first needed. They are closed once.
	assigned, done chan struct{}
	// assignment is the latest known one.
	assignment Assignment
	// progress is made when it is first needed; reported is the latest progress that has come.
	progress chan freeslot.Progress
	reported freeslot.Progress
	// ended is set together with status and err, which do not change afterwards.
	ended  bool
	status *freeslot.JobStatus // nil with err
	err    error
}

// New returns a job that has not ended.
func New(mu *sync.Mutex) Job { return Job{mu: mu} }

// Assigned returns a channel that is closed when the job gets its first node, or ends.
func (j *Job) Assigned() <-chan struct{} {
	j.mu.Lock()
	defer j.mu.Unlock()
	return closedIf(&j.assigned, j.ended || j.assignment.Attempt > 0)
}

// Done returns a channel that is closed when the job ends.
func (j *Job) Done() <-chan struct{} {
	j.mu.Lock()
	defer j.mu.Unlock()
	return closedIf(&j.done, j.ended)
}

// closedIf makes a channel if there is none, and closes it if late is true.
func closedIf(c *chan struct{}, late bool) <-chan struct{} {
	if *c == nil {
		*c = make(chan struct{})
		if late {
			close(*c)
		}
	}
	return *c
}

// Assignment returns the latest known attempt.
func (j *Job) Assignment() Assignment {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.assignment
}

// Progress returns the job's one channel of progress.
func (j *Job) Progress() <-chan freeslot.Progress {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.progressChannel()
}

// progressChannel returns the channel. The caller holds mu.
func (j *Job) progressChannel() chan freeslot.Progress {
	if j.progress == nil {
		j.progress = make(chan freeslot.Progress, 1)
		if j.ended {
			close(j.progress)
		}
	}
	return j.progress
}

// Wait returns the end of the job, or ctx's error if that ends first.
func (j *Job) Wait(ctx context.Context) (freeslot.JobStatus, error) {
	if s, ended, err := j.end(); ended {
		return s, err
	}
	select {
	case <-j.Done():
	case <-ctx.Done():
	}
	s, ended, err := j.end()
	if !ended {
		err = ctx.Err()
	}
	return s, err
}

func (j *Job) end() (s freeslot.JobStatus, ended bool, err error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.status != nil {
		s = *j.status
	}
	return s, j.ended, j.err
}

// Ended reports whether Finish was called.
func (j *Job) Ended() bool { return j.ended }

// Assign records where the job runs, and reports whether that is news: the attempt is later than
// the latest known.
func (j *Job) Assign(node string, attempt int) (news bool) {
	if node == "" || attempt <= j.assignment.Attempt {
		return false
	}
	first := j.assignment.Attempt == 0
	j.assignment = Assignment{Node: node, Attempt: attempt, At: time.Now()}
	if first && j.assigned != nil {
		close(j.assigned)
	}
	return true
}

// Report takes in progress, unless a later value is known. There is no other sender, so the channel
// has room once the earlier value is out.
func (j *Job) Report(p *freeslot.Progress) {
	if p == nil || j.ended || !p.After(&j.reported) {
		return
	}
	j.reported = *p
	c := j.progressChannel()
	select {
	case <-c:
	default:
	}
	c <- *p
}

// Finish ends the job, by its status or by the reason that the status will not come. It must be
// called only once, and the status must not change.
func (j *Job) Finish(s *freeslot.JobStatus, err error) {
	j.ended, j.status, j.err = true, s, err
	if j.assigned != nil && j.assignment.Attempt == 0 {
		close(j.assigned)
	}
	if j.progress != nil {
		close(j.progress)
	}
	if j.done != nil {
		close(j.done)
	}
}
