package worker

import (
	"math"

	"github.com/freeslot/freeslot/internal/cell"
)

// moment says how many heartbeats, reads and reports had been started at some point; noRead where no read counts.
type moment struct{ beats, reads, reports uint64 }

const noRead = math.MaxUint64

// memory is a set of attempts with a bound and a rule for forgetting; the ledger's
// mutex guards it. Attempts are forgotten in the order in which they were added.
type memory struct {
	limit int
	since map[cell.Attempt]moment
	order []remembered
}

type remembered struct {
	id cell.Attempt
	at moment
}

func newMemory(limit int) memory {
	return memory{limit: limit, since: make(map[cell.Attempt]moment)}
}

func (m *memory) has(id cell.Attempt) bool {
	_, ok := m.since[id]
	return ok
}

// add remembers id since at. It reports false when that displaced another attempt.
func (m *memory) add(id cell.Attempt, at moment) bool {
	m.since[id] = at
	m.order = append(m.order, remembered{id, at})
	if len(m.order) <= m.limit {
		return true
	}
	return !m.drop()
}

func (m *memory) remove(id cell.Attempt) { delete(m.since, id) }

// forget drops what was remembered before the given heartbeat, read and report
// were started: the first two are through, and so is every report before the third.
func (m *memory) forget(through moment) {
	for len(m.order) > 0 {
		at := m.order[0].at
		if at.beats >= through.beats || at.reads != noRead && at.reads >= through.reads || at.reports >= through.reports {
			return
		}
		m.drop()
	}
}

// drop forgets the oldest entry and reports whether the attempt was still
// remembered by it, not removed or added again since.
func (m *memory) drop() bool {
	oldest := m.order[0]
	m.order = m.order[1:]
	if at, ok := m.since[oldest.id]; !ok || at != oldest.at {
		return false
	}
	delete(m.since, oldest.id)
	return true
}
