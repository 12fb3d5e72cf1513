package api

import (
	"context"
	"time"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/dispatch"
)

// waiter is the sink of a submit that waits. Both channels have room for the
// one message that they can get, so that nobody who sends ever blocks.
type waiter struct {
	result   chan freeslot.JobStatus
	detached chan struct{}
}

func newWaiter() *waiter {
	return &waiter{result: make(chan freeslot.JobStatus, 1), detached: make(chan struct{}, 1)}
}

// Assigned implements dispatch.Sink; the answer is read from the record, whichever attempt
// it is then at.
func (w *waiter) Assigned(dispatch.Assignment) {}

// Progress implements dispatch.Sink; the record has the latest.
func (w *waiter) Progress(string, freeslot.Progress) {}

// Result implements dispatch.Sink.
func (w *waiter) Result(status freeslot.JobStatus) {
	select {
	case w.result <- status:
	default: // a second result would be a defect of the sender, not worth a deadlock
	}
}

// Detached implements dispatch.Sink.
func (w *waiter) Detached(string) {
	select {
	case w.detached <- struct{}{}:
	default:
	}
}

// submitAndWait answers with the result, or with what is known when the time is
// over, another session took the result, or the replica stops. A client that
// goes away leaves its job running.
func (s *Server) submitAndWait(ctx context.Context, p Principal, job *freeslot.Job, wait time.Duration) (*JobAnswer, error) {
	select {
	case s.waits <- struct{}{}:
		s.metrics.waits.Inc()
		defer func() { s.metrics.waits.Dec(); <-s.waits }()
	default:
		return nil, s.refuse("submit", &freeslot.Error{
			Code: freeslot.CodeOverloaded, RetryAfter: time.Second,
			Message: "too many submits wait for their results on this replica; submit without wait_ms, or over the WebSocket",
		})
	}
	w := newWaiter()
	a, err := s.place(ctx, p, job, w)
	if err != nil {
		return nil, s.refuse("submit", err)
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case status := <-w.result:
		return answer(status), nil
	case <-w.detached:
		return s.soFar(ctx, p.Tenant, a, job), nil
	case <-timer.C:
	case <-s.draining:
	case <-ctx.Done():
	}
	// Only now: Forget looks at every outstanding job.
	s.jobs.Forget(w)
	return s.soFar(ctx, p.Tenant, a, job), nil
}
