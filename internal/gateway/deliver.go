package gateway

import (
	"slices"
	"strconv"
	"strings"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/cell"
	"github.com/freeslot/freeslot/internal/gateway/frame"
)

const (
	// maxDeliveries is the largest number of jobs in one message, which takes no further one once it
	// has deliveryBytes. With specs of specBytes, the largest in the stream, it has 32 KiB at most.
	maxDeliveries = 64
	deliveryBytes = 24 << 10
	specBytes     = 8 << 10
	// maxHeld bounds the deliveries that wait for the first answered heartbeat. maxHeldSpecs of
	// them keep their specs; the agent asks for the others' specs.
	maxHeld      = 256
	maxHeldSpecs = 8
	// maxBehind and maxBehindSpecs bound deliveries that wait for the line in the same way: specs
	// of 4 MiB.
	maxBehind      = 2 * frame.MaxSlots
	maxBehindSpecs = 512
)

// deliver takes in entries that the stream brings for the session. Before the first answered
// heartbeat it sends nothing; see answerBeat.
func (s *session) deliver(found []cell.Dispatch) {
	s.mu.Lock()
	defer s.mu.Unlock()
	most, mostSpecs := maxHeld, maxHeldSpecs
	if s.beating {
		if most, mostSpecs = maxBehind, maxBehindSpecs; len(s.held) == 0 {
			found = s.push(found)
		}
	}
	for i := range found {
		d := &found[i]
		if len(s.held) == most {
			s.handler.metrics.dropped.Inc() // a heartbeat names it
			continue
		}
		// A part of the reply would keep all of it.
		d.ID, d.Attempt.Job, d.Tenant = strings.Clone(d.ID), strings.Clone(d.Attempt.Job), strings.Clone(d.Tenant)
		if len(s.held) >= mostSpecs {
			d.Job = nil
		}
		s.held = append(s.held, *d)
	}
}

// deliverHeld sends held entries. It is called when the line has taken something.
func (s *session) deliverHeld() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.beating {
		s.held = s.push(s.held)
	}
}

// push sends entries, except those older than the last answered heartbeat. That answer has named
// the entries that the agent missed, and the agent may have forgotten the others. push returns the
// entries for which the line has no room yet. The caller holds mu, which orders pushes and answers.
func (s *session) push(found []cell.Dispatch) (rest []cell.Dispatch) {
	for len(found) > 0 {
		message, n, old := s.nextPush(found)
		if message != nil {
			if !s.sendSome(message) {
				return found
			}
			s.handler.metrics.sent.Add(float64(n - old))
		}
		s.handler.metrics.old.Add(float64(old))
		found = found[n:]
	}
	return nil
}

// nextPush makes a message of the first n entries, leaving out those that are too old. It returns
// nil if all are.
func (s *session) nextPush(found []cell.Dispatch) (message *frame.Answer, n, old int) {
	var jobs []frame.Delivery
	var cancels []frame.Attempt
	for bytes := 0; n < len(found) && len(jobs) < maxDeliveries && bytes < deliveryBytes; n++ {
		d := &found[n]
		if s.answered(d) {
			old++
			continue
		}
		if d.Cancel && len(jobs) > 0 || !d.Cancel && len(cancels) > 0 {
			break
		}
		if d.Cancel {
			cancels = append(cancels, frame.Attempt(d.Attempt))
		} else {
			jobs = append(jobs, delivery(d))
			bytes += sizeOfJob(d.Job)
		}
	}
	switch {
	case len(jobs) > 0:
		return &frame.Answer{Type: frame.TypeJobs, Jobs: jobs}, n, old
	case len(cancels) > 0:
		return &frame.Answer{Type: frame.TypeCancel, Attempts: cancels}, n, old
	}
	return nil, n, old
}

// sizeOfJob returns about how many bytes a job of the stream takes, and rather too many.
func sizeOfJob(job *freeslot.Job) int {
	const fields = 1 << 10
	if job == nil {
		return fields
	}
	r := &job.Requirement
	if job.Admission != nil || len(r.Services)+len(r.Labels)+len(r.LabelRules)+len(r.Features) > 0 {
		return specBytes
	}
	return min(fields+len(job.Payload), specBytes)
}

// answered reports whether the last answered heartbeat covers an entry. Within the heartbeat's
// millisecond, only the attempts that its answer named count.
func (s *session) answered(d *cell.Dispatch) bool {
	at := entryMS(d.ID)
	if at != s.beatAtMS {
		return at < s.beatAtMS
	}
	named := s.beat.Start
	if d.Cancel {
		named = s.beat.Cancel
	}
	return slices.Contains(named, frame.Attempt(d.Attempt))
}

// answerBeat answers a heartbeat. Nothing that Redis wrote before it carried out the heartbeat
// follows the answer. at is the time of the latest answer, not the largest time: Redis' clock may
// step back.
func (s *session) answerBeat(answer *frame.Answer, at int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.beat, s.beatAtMS = answer, at
	s.send(answer)
	if s.beating {
		return
	}
	s.beating = true
	s.held = s.push(s.held)
	if s.owed {
		s.send(&frame.Answer{Type: frame.TypeSync})
	}
}

// sync asks the agent for a heartbeat at once. Before the first answered heartbeat it sends
// nothing: the one under way may not bring everything, so the request follows its answer. A
// heartbeat that begins later brings everything by itself.
func (s *session) sync() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.beating {
		s.send(&frame.Answer{Type: frame.TypeSync})
	} else {
		s.owed = s.owed || s.beats > 0
	}
}

func delivery(d *cell.Dispatch) frame.Delivery {
	return frame.Delivery{Attempt: frame.Attempt(d.Attempt), Tenant: d.Tenant, Job: d.Job}
}

// entryMS returns the time at which Redis wrote an entry.
func entryMS(id string) int64 {
	ms, _, _ := strings.Cut(id, "-")
	n, _ := strconv.ParseInt(ms, 10, 64) // an id of Redis
	return n
}
