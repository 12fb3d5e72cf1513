package dispatch

import (
	"time"

	"github.com/freeslot/freeslot"
)

// This file keeps the jobs of a cell whose results are awaited.

// Outstanding returns the number of jobs whose results are awaited at this replica.
func (d *Dispatcher) Outstanding() int {
	n := 0
	for _, c := range d.byCell {
		n += c.outstanding.Size()
	}
	return n
}

// Forget drops everything that sink awaits. Call it after the sink's session has ended, when no
// Submit or Attach of it is under way. The jobs go on; a client that wants their results attaches.
// Cost: O(outstanding).
func (d *Dispatcher) Forget(sink Sink) {
	for _, c := range d.byCell {
		c.outstanding.Range(func(id string, w *waiter) bool {
			if w.forget(sink) {
				c.drop(id, w)
			}
			return true
		})
	}
}

// claim stores fresh as the job's waiter, or calls take for the waiter that exists.
func (c *cellClient) claim(jobID string, fresh *waiter, take func(*waiter) (ok, done bool)) (_ *waiter, ok bool) {
	for {
		w, loaded := c.outstanding.LoadOrStore(jobID, fresh)
		if !loaded {
			return w, true
		}
		ok, done := take(w)
		if done {
			c.drop(jobID, w) // its last user does this too
		}
		if ok || !done {
			return w, ok
		}
	}
}

// update calls f for the job's waiter, if there is one, and holds its mu meanwhile.
func (c *cellClient) update(jobID string, f func(*waiter)) {
	if w, ok := c.outstanding.Load(jobID); ok {
		w.mu.Lock()
		defer w.mu.Unlock()
		f(w)
	}
}

// drop removes w unless another waiter has replaced it.
func (c *cellClient) drop(id string, w *waiter) {
	c.outstanding.Compute(id, func(now *waiter, loaded bool) (*waiter, bool) {
		return now, !loaded || now == w
	})
}

// missingFor returns how long a record has been gone.
func (c *cellClient) missingFor(id string) (gone time.Duration) {
	c.update(id, func(w *waiter) { gone = time.Duration(c.d.nodes.Now() - w.missingAt) })
	return gone
}

func (c *cellClient) recordFound(id string) { c.update(id, func(w *waiter) { w.missingAt = 0 }) }

// recheckSoon makes the next recheck read the job's record, if the job is outstanding.
func (c *cellClient) recheckSoon(id string) {
	c.update(id, func(w *waiter) { w.recheckSoon(c.d.nodes.Now()) })
}

// answer gives the result to w, and drops w if it is done.
func (c *cellClient) answer(w *waiter, s freeslot.JobStatus) {
	if w.result(s) {
		c.drop(s.ID, w)
	}
}

// deliverAttempt reports the attempt in the record, even if it already failed. A record has none
// while the job waits for its next attempt.
func (c *cellClient) deliverAttempt(s *freeslot.JobStatus) {
	if w, ok := c.outstanding.Load(s.ID); ok {
		w.assigned(assignmentOf(s))
	}
}

// deliverEnd reports the last attempt and the result.
func (c *cellClient) deliverEnd(s freeslot.JobStatus) {
	if w, ok := c.outstanding.Load(s.ID); ok {
		if s.Attempt > 0 {
			w.assigned(assignmentOf(&s))
		}
		c.answer(w, s)
	}
}

func assignmentOf(s *freeslot.JobStatus) Assignment {
	return Assignment{JobID: s.ID, Node: s.Node, Attempt: s.Attempt, AssignedAtMS: s.AssignedAtMS}
}
