package faults

import (
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/freeslot/freeslot"
)

// lateClient is the client that asks for all ends again when everything is over.
const lateClient = "late"

// answeredBefore is how long after the end of the loss an answer may come that was given before it.
const answeredBefore = time.Second

// Loss is a time in which Redis may have acknowledged writes that it then lost, such as when a
// replica takes the place of a master. The checker does not know the order of the writes, so it
// doubts every job that lived in that time.
type Loss struct {
	From time.Duration `json:"from"`
	// To is the time at which the server that lacks the writes took the place of the one that had
	// them.
	To time.Duration `json:"to"`
	// Cells are the cells whose writes may be lost; nil means all.
	Cells []int `json:"cells,omitempty"`
	// Keeps is true if no accepted job is lost; only later writes about it can be.
	Keeps bool `json:"keeps,omitempty"`
}

// concerns reports whether a job with this id can have lost something. An unknown id can.
func (l *Loss) concerns(id string) bool {
	if l.Cells == nil || id == "" {
		return true
	}
	text, _, _ := strings.Cut(id, "-")
	number, err := strconv.Atoi(text)
	return err != nil || slices.Contains(l.Cells, number)
}

// isInDoubt reports whether the job lived while writes were lost.
func (j *job) isInDoubt(losses []Loss) bool {
	for i := range losses {
		if j.first <= losses[i].To && j.last >= losses[i].From && losses[i].concerns(j.id()) {
			return true
		}
	}
	return false
}

// id returns the job's id, "" if no event has it.
func (j *job) id() string {
	switch {
	case j.accepted != nil:
		return j.accepted.Job
	case len(j.records) > 0:
		return j.records[0].Job
	case len(j.handlers) > 0:
		return j.handlers[0].begin.Job
	default:
		return ""
	}
}

// checkDoubtful checks what holds even for a job whose writes may be lost. Its client has one
// answer: an end, or that the job is lost. A job that is not lost has one record, which has ended.
// No handler runs on.
func (c *checker) checkDoubtful(n int, j *job) {
	switch {
	case len(j.records) > 1:
		c.bad("doubled", "submission %d has %d records: %s and %s", n, len(j.records), j.records[0].Job, j.records[1].Job)
	case j.refused && len(j.records) > 0:
		c.bad("refused", "submission %d was refused and has the record %s", n, j.records[0].Job)
	}
	for _, r := range j.records {
		if !r.State.Terminal() {
			c.bad("not ended", "job %s (submission %d) is %s, attempt %d on %q", r.Job, n, r.State, r.Attempt, r.Node)
		}
	}
	if j.accepted != nil && len(j.records) == 0 && c.keeps() {
		c.bad("lost", "job %s (submission %d) was accepted by replicas, too, and has no record", j.accepted.Job, n)
	}
	c.checkReason(n, j)
	c.checkDoubtfulAnswers(n, j)
	for _, h := range j.handlers {
		if h.end == nil {
			c.bad("handler runs", "attempt %d of job %s still runs on %s", h.begin.Attempt, h.begin.Job, h.begin.Node)
		}
	}
}

func (c *checker) checkDoubtfulAnswers(n int, j *job) {
	if j.accepted != nil && len(j.ends) != 1 {
		c.bad("no answer", "the client of job %s (submission %d) learned of %d ends, expected one", j.accepted.Job, n, len(j.ends))
	}
	for _, e := range j.noAnswer {
		if e.Who != lateClient || len(j.records) > 0 {
			c.bad("no answer", "%s was told of job %s (submission %d): %s", e.Who, e.Job, n, e.Note)
		}
	}
	for _, e := range j.ends {
		switch {
		case !e.State.Terminal():
			c.bad("not ended", "job %s was told to have ended as %s", e.Job, e.State)
		case e.isLost() && len(j.records) > 0:
			c.bad("answers differ", "the client of job %s (submission %d) was told that it is lost, and it has the record %+v", e.Job, n, *j.records[0])
		case !e.isLost() && len(j.records) == 0 && e.At > c.lastLoss(e.Job)+answeredBefore:
			c.bad("lost", "job %s (submission %d) was told at %s to have ended %s, and has no record", e.Job, n, e.At, e.State)
		}
	}
	for _, e := range j.again {
		if len(j.records) == 1 && (e.State != j.records[0].State || !sameResult(e.Result, j.records[0].Result)) {
			c.bad("answers differ", "%s was told that job %s is %s with %v, the record says %+v", e.Who, e.Job, e.State, e.Result, *j.records[0])
		}
	}
}

// isLost reports whether a client learned that its job is lost.
func (e *Event) isLost() bool {
	return e.State == freeslot.StateFailed && e.Code == freeslot.JobErrorLost
}

// keeps reports whether no loss takes jobs that were accepted.
func (c *checker) keeps() bool {
	return !slices.ContainsFunc(c.history.Losses, func(l Loss) bool { return !l.Keeps })
}

// lastLoss returns the time at which the last loss that concerns a job was over.
func (c *checker) lastLoss(id string) time.Duration {
	var last time.Duration
	for i := range c.history.Losses {
		if l := &c.history.Losses[i]; l.concerns(id) {
			last = max(last, l.To)
		}
	}
	return last
}
