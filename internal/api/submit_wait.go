package api

import (
	"context"
	"time"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/dispatch"
)

// waiter is the sink of a submit that waits for its result. Both channels have room for the one
// message that they can get, so that no sender blocks.
type waiter struct {
	result   chan freeslot.JobStatus
	detached chan struct{}
}

func newWaiter() *waiter {
	return &waiter{result: make(chan freeslot.JobStatus, 1), detached: make(chan struct{}, 1)}
}

// Assigned implements dispatch.Sink. The answer comes from the record, which has the attempt.
func (w *waiter) Assigned(dispatch.Assignment) {}

// Progress implements dispatch.Sink. The record has the latest.
func (w *waiter) Progress(string, freeslot.Progress) {}

// Result implements dispatch.Sink.
func (w *waiter) Result(status freeslot.JobStatus) {
	select {
	case w.result <- status:
	default: // a second result is a defect of the sender, and not worth a deadlock
	}
}

// Detached implements dispatch.Sink.
func (w *waiter) Detached(string) {
	select {
	case w.detached <- struct{}{}:
	default:
	}
}

// submitAndWait answers with the result. It answers with the status so far if the time is over,
// another session took the result, or the replica stops. If the client goes away, the job goes on.
func (s *Server) submitAndWait(
	ctx context.Context, tenant string, job *freeslot.Job, wait time.Duration,
) (*JobAnswer, error) {
	select {
	case s.waits <- struct{}{}:
		s.metrics.waits.Inc()
		defer func() { s.metrics.waits.Dec(); <-s.waits }()
	default:
		return nil, &freeslot.Error{
			Code: freeslot.CodeOverloaded, RetryAfter: time.Second,
			Message: "too many submits wait for their results on this replica; submit without wait_ms, or over the WebSocket",
		}
	}
	w := newWaiter()
	a, err := s.send(ctx, dispatch.Request{Tenant: tenant, Job: job}, w)
	if err != nil {
		return nil, err
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case status := <-w.result:
		return s.answer(ctx, status), nil
	case <-w.detached:
		return s.soFar(ctx, tenant, a, job), nil
	case <-timer.C:
	case <-s.draining:
	case <-ctx.Done():
	}
	s.deps.Jobs.Forget(w) // only here: it looks at every outstanding job
	return s.soFar(ctx, tenant, a, job), nil
}
