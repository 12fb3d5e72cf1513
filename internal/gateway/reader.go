package gateway

import (
	"math/rand/v2"
	"strconv"
	"strings"
	"time"

	"github.com/freeslot/freeslot/internal/cell"
	"github.com/freeslot/freeslot/internal/gateway/frame"
)

const (
	// readBlock is long, because thousands of sessions wait like this. readLimit is how many entries
	// one read takes in.
	readBlock = 20 * time.Second
	readLimit = 128
	// maxDeliveries is the most jobs of one message: with specs of 8 KiB, the largest in the stream, it
	// has 256 KiB.
	maxDeliveries = 32
	// A read that failed is repeated after a pause.
	shortestRetry = 50 * time.Millisecond
	longestRetry  = 2 * time.Second
)

// deliveries reads the node's dispatch stream from the first answered heartbeat on.
func (s *session) deliveries() {
	pause := shortestRetry
	for s.life.Err() == nil {
		s.mu.Lock()
		after := s.read
		s.mu.Unlock()
		found, err := s.cell.Dispatches(s.life, s.node, after, readBlock, readLimit)
		switch {
		case err == nil:
			s.deliver(found)
			pause = shortestRetry
		case s.life.Err() == nil:
			s.noteUnanswered("dispatches", err)
			wait(s.life, pause/2+rand.N(pause/2))
			pause = min(2*pause, longestRetry)
		}
	}
}

// deliver sends what was read from the dispatch stream, but for entries that are older than the last
// answered heartbeat: that has named what the agent missed of them, and the agent may have forgotten
// what it did not miss. mu orders this with answers; see answerBeat.
func (s *session) deliver(found []cell.Dispatch) {
	if len(found) == 0 {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.read = strings.Clone(found[len(found)-1].ID) // a part of the reply would keep all of it
	var jobs []frame.Delivery
	var cancels []frame.Attempt
	flush := func() {
		if len(jobs) > 0 {
			s.send(&frame.Answer{Type: frame.TypeJobs, Jobs: jobs})
		}
		if len(cancels) > 0 {
			s.send(&frame.Answer{Type: frame.TypeCancel, Attempts: cancels})
		}
		jobs, cancels = nil, nil
	}
	m := s.handler.metrics
	for i := range found {
		d := &found[i]
		if entryMS(d.ID) < s.beatAtMS {
			m.old.Inc()
			continue
		}
		m.sent.Inc()
		switch {
		case d.Cancel:
			if len(jobs) > 0 {
				flush()
			}
			cancels = append(cancels, frame.Attempt(d.Attempt))
		default:
			if len(cancels) > 0 || len(jobs) == maxDeliveries {
				flush()
			}
			jobs = append(jobs, delivery(d))
		}
	}
	flush()
}

// answerBeat answers a heartbeat. What Redis wrote before the heartbeat was carried out does not follow
// the answer. at is that of the last one, not the largest: the clock of Redis may step back.
func (s *session) answerBeat(answer *frame.Answer, at int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.beatAtMS = at
	s.send(answer)
	if !s.beating {
		s.beating = true
		s.tasks.Go(s.deliveries)
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
