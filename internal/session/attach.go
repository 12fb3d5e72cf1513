package session

import (
	"cmp"
	"strings"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/dispatch"
	"github.com/freeslot/freeslot/internal/wire"
)

// attachment holds back a job's news while the status that must come first is on its way.
type attachment struct {
	// pending counts the attaches under way.
	pending int
	// owned is true if the job's result comes here, even if the attaches fail.
	owned bool
	// assigned, progress, result and detached were held back; assigned is the last attempt.
	assigned dispatch.Assignment
	progress freeslot.Progress
	result   *freeslot.JobStatus
	detached bool
	// ended is the end of the job, if an attach found it ended.
	ended *freeslot.JobStatus
	// id is the id by which clients know the job, once progress or detached came.
	id string
}

// keyOf returns the part that all ids of a job in different cells have in common.
func keyOf(jobID string) string {
	if _, rest, ok := strings.Cut(jobID, "-"); ok {
		return rest
	}
	return jobID
}

// attach makes a job's result come here. It takes the result from another session, so even
// operators attach only to jobs of their own tenant.
func (s *session) attach(req *wire.Request) {
	defer s.giveTurn()
	if !s.takeTurn() {
		return // the session ends
	}
	if err := s.beginAttach(req.JobID); err != nil {
		s.sendError(req.ID, wire.NoIndex, req.JobID, err)
		return
	}
	status, err := s.handler.dispatcher.Attach(s.life, s.principal.Tenant, req.JobID, s)
	if s.life.Err() != nil && freeslot.CodeOf(err) == freeslot.CodeUnavailable {
		s.mu.Lock()
		err = s.attachElsewhere()
		s.mu.Unlock()
	}
	s.replyStatus(&status, func() { s.endAttach(req, status, err) })
}

// beginAttach adds the job to the session before the dispatcher can send its result, and holds back
// its news until endAttach.
func (s *session) beginAttach(jobID string) *freeslot.Error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.draining {
		return s.attachElsewhere()
	}
	a, known := s.jobs[keyOf(jobID)]
	if !known && len(s.jobs)+s.reserved >= s.handler.cfg.MaxJobs {
		return s.tooManyJobs()
	}
	if a == nil {
		a = &attachment{owned: known}
		s.jobs[keyOf(jobID)] = a
	}
	a.pending++
	return nil
}

// attachElsewhere is the refusal of a session that ends. It is called with mu held.
func (s *session) attachElsewhere() *freeslot.Error {
	return endingError(cmp.Or(s.why, stopping), "attach on another replica")
}

func (s *session) endAttach(req *wire.Request, status freeslot.JobStatus, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	key := keyOf(req.JobID)
	a := s.jobs[key] // it exists while an attach is pending
	a.pending--
	if err != nil {
		s.sendError(req.ID, wire.NoIndex, req.JobID, s.asError("attach", req.JobID, err))
	} else {
		a.owned = true
		if a.ended != nil { // another attach read it later, and was answered first
			status = *a.ended
		} else if status.State.Terminal() {
			a.ended = &status
		}
		s.send(func(dst []byte) []byte { return wire.AppendStatus(dst, req.ID, &status) })
	}
	last := max(status.Attempt, a.assigned.Attempt)
	if status.Attempt >= a.assigned.Attempt {
		a.assigned = dispatch.Assignment{} // the status has it already
	}
	if a.pending > 0 {
		return
	}
	ended := a.ended != nil
	if a.owned && !ended {
		if a.assigned.Attempt > 0 {
			s.sendAssigned(a.assigned)
		}
		if known := status.Progress; a.progress.Attempt > 0 && a.progress.Attempt >= last && (known == nil ||
			a.progress.After(known)) {
			s.sendProgress(a.id, &a.progress)
		}
	}
	switch {
	case ended, !a.owned:
		delete(s.jobs, key)
	case a.result != nil:
		s.sendResult(a.result)
	case a.detached:
		s.sendDetached(a.id)
	default:
		s.jobs[key] = nil
	}
	s.closeIfIdle()
}
