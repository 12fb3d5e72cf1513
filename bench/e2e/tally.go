package main

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/bench/e2e/result"
	"github.com/freeslot/freeslot/bench/measure"
	"github.com/freeslot/freeslot/client"
)

// maxFailures ends a scenario early: with that many failed jobs its figures mean nothing.
const maxFailures = 1000

// tally collects what became of the jobs of one scenario. Safe for concurrent use.
type tally struct {
	loop     result.Loop
	from, to time.Time // the window that counts

	mu              sync.Mutex
	assign, result  *hdrhistogram.Histogram
	late            *hdrhistogram.Histogram // of the submits of an open loop
	last            time.Time               // when the last counted job ended
	refused, failed map[string]int64
	failures        int
}

func newTally(l result.Loop, from, to time.Time) *tally {
	return &tally{
		loop: l, from: from, to: to, assign: measure.NewHistogram(), result: measure.NewHistogram(), late: measure.NewHistogram(),
		refused: make(map[string]int64), failed: make(map[string]int64),
	}
}

// counts decides whether a job is inside the window: in an open loop by when it was due, so that the slow
// ones are all in; in a closed loop by when it ended, so that throughput is over the window alone.
func (t *tally) counts(begin, end time.Time) bool {
	at := end
	if t.loop == result.Open {
		at = begin
	}
	return !at.Before(t.from) && at.Before(t.to)
}

// submits notes how long after it was due a job of an open loop is submitted.
func (t *tally) submits(due time.Time) {
	now := time.Now()
	if !t.counts(due, now) {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	measure.Record(t.late, now.Sub(due))
}

// ended notes a job that has come to its end, or that nothing is known of (err).
func (t *tally) ended(begin time.Time, h *client.Handle, status freeslot.JobStatus, err error) error {
	end := time.Now()
	switch {
	case err != nil:
		return t.fail(err)
	case status.State != freeslot.StateSucceeded:
		return t.fail(stateError(status))
	case h.Assignment().At.IsZero():
		return t.fail(errNotAssigned)
	}
	if !t.counts(begin, end) {
		return nil
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	measure.Record(t.assign, h.Assignment().At.Sub(begin))
	measure.Record(t.result, end.Sub(begin))
	if end.After(t.last) {
		t.last = end
	}
	return nil
}

var errNotAssigned = errors.New("a result came before its assignment")

type endedIn struct{ text string }

func (e *endedIn) Error() string { return e.text }

func stateError(s freeslot.JobStatus) error {
	if s.Error != nil {
		return &endedIn{string(s.State) + " " + s.Error.Error()}
	}
	return &endedIn{string(s.State)}
}

// refuse notes a submit that was refused. The error is nil when trying again later is of use; wait says
// when.
func (t *tally) refuse(err error) (wait time.Duration, _ error) {
	var coded *freeslot.Error
	if !errors.As(err, &coded) || !coded.Code.Temporary() {
		return 0, t.fail(err)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.refused[string(coded.Code)]++
	return max(coded.RetryAfter, time.Millisecond), nil
}

// fail counts a failed job. It returns an error when there have been too many.
func (t *tally) fail(err error) error {
	var state *endedIn
	name := string(freeslot.CodeOf(err))
	if errors.As(err, &state) || name == string(freeslot.CodeInternal) {
		name = err.Error()
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.failed[name]++
	if t.failures++; t.failures >= maxFailures {
		return fmt.Errorf("%d jobs failed, the last with: %w", t.failures, err)
	}
	return nil
}

// into writes the figures.
func (t *tally) into(m *result.Measurements) {
	t.mu.Lock()
	defer t.mu.Unlock()
	m.Jobs = t.result.TotalCount()
	m.Assign, m.Result = measure.Summary(t.assign), measure.Summary(t.result)
	if t.loop == result.Open {
		late := measure.Summary(t.late)
		m.Late = &late
	}
	m.Refused, m.Failed = t.refused, t.failed
	window := t.to.Sub(t.from)
	if t.loop == result.Open && t.last.After(t.to) {
		window = t.last.Sub(t.from)
	}
	m.JobsPerSecond = measure.Rounded(float64(m.Jobs) / window.Seconds())
}
