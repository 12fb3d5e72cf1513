package gateway

import (
	"slices"
	"strconv"
	"strings"

	"github.com/freeslot/freeslot/internal/cell"
	"github.com/freeslot/freeslot/internal/gateway/frame"
)

const (
	// maxDeliveries is the most jobs of one message: with specs of 8 KiB, the largest in the stream, it
	// has 64 KiB.
	maxDeliveries = 8
	// maxHeld bounds the deliveries that wait for the first answered heartbeat, and maxHeldSpecs those
	// among them that keep their specs. The agent asks for the specs of the others.
	maxHeld      = 256
	maxHeldSpecs = 8
	// maxBehind and maxBehindSpecs are the same for those that wait for the line: specs of 4 MiB.
	maxBehind      = 2 * frame.MaxSlots
	maxBehindSpecs = 512
)

// deliver takes in what the stream brings for the session. Before the first answered heartbeat nothing
// is sent; see answerBeat.
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

// deliverHeld is called when the line has taken something.
func (s *session) deliverHeld() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.beating {
		s.held = s.push(s.held)
	}
}

// push sends entries, but for those that are older than the last answered heartbeat: that has named what
// the agent missed of them, and the agent may have forgotten what it did not miss. It returns those for
// which the line has no room yet. mu is held, which orders this with answers.
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

// nextPush makes a message of the first n entries, of which some are too old. It is nil if all are.
func (s *session) nextPush(found []cell.Dispatch) (message *frame.Answer, n, old int) {
	var jobs []frame.Delivery
	var cancels []frame.Attempt
	for ; n < len(found) && len(jobs) < maxDeliveries; n++ {
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

// answered is whether the last answered heartbeat stands for an entry. Within its millisecond only what
// it has named tells.
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

// answerBeat answers a heartbeat. What Redis wrote before the heartbeat was carried out does not follow
// the answer. at is that of the last one, not the largest: the clock of Redis may step back.
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

// sync asks the agent for a heartbeat at once. Before the first answered one nothing is sent: one that
// is under way may not bring all, so the request follows its answer. A later one brings all by itself.
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

// entryMS is when Redis wrote an entry.
func entryMS(id string) int64 {
	ms, _, _ := strings.Cut(id, "-")
	n, _ := strconv.ParseInt(ms, 10, 64) // an id of Redis
	return n
}
