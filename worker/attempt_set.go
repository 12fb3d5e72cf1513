package worker

import (
	"math"

	"github.com/freeslot/freeslot/internal/cell"
)

// moment is the number of heartbeats, reads and reports that had started at some point. reads is
// noRead if no read counts.
type moment struct{ beats, reads, reports uint64 }

const noRead = math.MaxUint64

// attemptSet is a bounded set of attempts that forgets them in the order in which they were added.
// The ledger's mutex guards it.
type attemptSet struct {
	limit int
	since map[cell.Attempt]moment
	order []remembered
}

type remembered struct {
	id cell.Attempt
	at moment
}

func newAttemptSet(limit int) attemptSet {
	return attemptSet{limit: limit, since: make(map[cell.Attempt]moment)}
}

func (s *attemptSet) has(id cell.Attempt) bool {
	_, ok := s.since[id]
	return ok
}

// add remembers id since at. A full set forgets its oldest entry.
func (s *attemptSet) add(id cell.Attempt, at moment) {
	s.since[id] = at
	s.order = append(s.order, remembered{id, at})
	if len(s.order) > s.limit {
		s.drop()
	}
}

func (s *attemptSet) remove(id cell.Attempt) { delete(s.since, id) }

// forget drops the attempts that were added before the given heartbeat, read and report started.
// The answers of this heartbeat and this read have been applied, and so have the answers of every
// report before this one.
func (s *attemptSet) forget(through moment) {
	for len(s.order) > 0 {
		at := s.order[0].at
		if at.beats >= through.beats || at.reads != noRead && at.reads >= through.reads || at.reports >= through.reports {
			return
		}
		s.drop()
	}
}

// drop removes the oldest entry, and forgets its attempt unless the attempt was added again since.
func (s *attemptSet) drop() {
	oldest := s.order[0]
	s.order = s.order[1:]
	if s.since[oldest.id] == oldest.at {
		delete(s.since, oldest.id)
	}
}
