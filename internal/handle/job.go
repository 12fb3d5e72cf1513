// Package handle has what a program knows of a job that it awaits: the common part of the handles of
// packages client and embed.
package handle

import (
	"context"
	"sync"
	"time"

	"github.com/freeslot/freeslot"
)

// Assignment is where a job runs.
type Assignment struct {
	Node    string
	Attempt int
	At      time.Time
}

// Job is an accepted job. Its owner guards it by a mutex, which Assign, Report and Finish expect to
// be held. The other methods are safe for concurrent use.
type Job struct {
	id       string
	position int
	// assigned and done are closed once.
	assigned, done chan struct{}

	mu *sync.Mutex // the owner's; guards what follows. status and err do not change once done is closed.
	// assignment is the latest known.
	assignment Assignment
	// progress is made when it is first needed; reported is the latest that has come.
	progress chan freeslot.Progress
	reported freeslot.Progress
	status   freeslot.JobStatus
	err      error
}

// New returns a job that has not ended.
func New(mu *sync.Mutex, id string, position int) *Job {
	return &Job{id: id, position: position, mu: mu, assigned: make(chan struct{}), done: make(chan struct{})}
}

// ID is the job's id.
func (j *Job) ID() string { return j.id }

// Position is the job's place in the queue when it was accepted.
func (j *Job) Position() int { return j.position }

// Assigned is closed when the job gets its first node, or ends.
func (j *Job) Assigned() <-chan struct{} { return j.assigned }

// Assignment is the latest attempt.
func (j *Job) Assignment() Assignment {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.assignment
}

// Progress is the one channel of the job's progress.
func (j *Job) Progress() <-chan freeslot.Progress {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.progressChannel()
}

// progressChannel is called with mu held.
func (j *Job) progressChannel() chan freeslot.Progress {
	if j.progress == nil {
		j.progress = make(chan freeslot.Progress, 1)
		if isClosed(j.done) {
			close(j.progress)
		}
	}
	return j.progress
}

// Wait returns the end of the job, or ctx's error when that ends first.
func (j *Job) Wait(ctx context.Context) (freeslot.JobStatus, error) {
	select {
	case <-j.done:
	case <-ctx.Done():
		if !isClosed(j.done) {
			return freeslot.JobStatus{}, ctx.Err()
		}
	}
	return j.status, j.err
}

// Done is closed by Finish.
func (j *Job) Done() <-chan struct{} { return j.done }

// Ended reports whether Done is closed.
func (j *Job) Ended() bool { return isClosed(j.done) }

// Assign notes where the job runs, and reports whether that is news: the attempt is a later one than
// the latest known.
func (j *Job) Assign(node string, attempt int) (news bool) {
	if node == "" || attempt <= j.assignment.Attempt {
		return false
	}
	j.assignment = Assignment{Node: node, Attempt: attempt, At: time.Now()}
	closeOnce(j.assigned)
	return true
}

// Report takes in progress, unless a later value is known. There is no other sender, so the channel
// has room once the earlier value is out.
func (j *Job) Report(p *freeslot.Progress) {
	if p == nil || isClosed(j.done) || !p.After(&j.reported) {
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

// Finish ends the job. It must be called once only.
func (j *Job) Finish(s freeslot.JobStatus, err error) {
	closeOnce(j.assigned)
	j.status, j.err = s, err
	if j.progress != nil {
		close(j.progress)
	}
	close(j.done)
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

func closeOnce(c chan struct{}) {
	if !isClosed(c) {
		close(c)
	}
}
