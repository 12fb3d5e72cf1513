package faults

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/freeslot/freeslot"
)

const (
	// abortSlack is how long before the service noticed it a request may have been broken off: a
	// handler that is aborted counts as owned only until then.
	abortSlack = time.Second
	// stopGrace is how long a handler may run on if its job has ended elsewhere or otherwise: a
	// fault in between keeps the agent from learning about it.
	stopGrace = 12 * time.Second
)

// Violation is one thing that must not have happened.
type Violation struct {
	// Rule names the broken rule, Text is where it was broken.
	Rule, Text string
}

// String returns the rule and the text.
func (v Violation) String() string { return v.Rule + ": " + v.Text }

// job is everything that is known of one submission.
type job struct {
	task      Task
	accepted  *Event // by the client's word
	refused   bool
	unknown   bool
	cancelled bool // a client asked for it
	ends      []*Event
	again     []*Event
	noAnswer  []*Event
	looks     []*Event
	told      []*Event
	handlers  []*handler
	records   []*Record
	lastBegun int // the highest attempt of a handler
	// twice holds, for each attempt that began twice, where it did.
	twice []string
	// first and last bound the job's life, as far as anything was seen of it.
	first, last time.Duration
	// doubt is true if a write of the job may have been lost.
	doubt bool
}

// handler returns the first handler for which the condition holds; nil for none.
func (j *job) handler(condition func(h *handler) bool) *handler {
	if i := slices.IndexFunc(j.handlers, condition); i >= 0 {
		return j.handlers[i]
	}
	return nil
}

// handler is one call of a handler. end is nil while it runs.
type handler struct {
	begin, end *Event
}

// is reports whether an event is of the handler's attempt.
func (h *handler) is(e *Event) bool {
	return h.begin.Attempt == e.Attempt && ofAllCells(h.begin.Job) == ofAllCells(e.Job)
}

func (h *handler) done() bool { return h.end != nil && h.end.Kind == Ended }

// checker collects the events of each job, and what is wrong with them.
type checker struct {
	history    *History
	jobs       map[int]*job
	periodic   map[string]int // id -> number of the jobs of schedules
	drained    map[string]spans
	violations []Violation
}

// Check lists everything that is wrong with a history; nil if nothing is.
func Check(h *History) []Violation {
	c := &checker{history: h, jobs: map[int]*job{}, periodic: map[string]int{}, drained: map[string]spans{}}
	c.collect()
	for _, n := range slices.Sorted(maps.Keys(c.jobs)) {
		j := c.jobs[n]
		if j.doubt = j.isInDoubt(h.Losses); j.doubt {
			c.checkDoubtful(n, j)
			continue
		}
		for _, text := range j.twice {
			c.bad("begun twice", "%s", text)
		}
		c.checkRecords(n, j)
		c.checkAnswers(n, j)
		c.checkReason(n, j)
		c.checkHandlers(n, j)
		c.checkTraits(max(n, Periodic), j)
	}
	c.checkSlots()
	c.checkLimits()
	c.checkPeriodic()
	c.checkStates()
	for _, l := range h.Final.Leftovers {
		c.bad("leftover", "%s", l)
	}
	return c.violations
}

func (c *checker) bad(rule, format string, args ...any) {
	c.violations = append(c.violations, Violation{Rule: rule, Text: fmt.Sprintf(format, args...)})
}

// collect sorts the events by job.
func (c *checker) collect() {
	for i := range c.history.Events {
		e := &c.history.Events[i]
		if e.Kind == Fault {
			continue
		}
		if e.Kind == Used {
			if limit := c.history.Slots[e.Node]; e.Slots > limit {
				c.bad("over-commit", "%s has %d slots, and %d in use at %s by Redis' word", e.Node, limit, e.Slots, e.At)
			}
			continue
		}
		if e.Kind == Submitted {
			c.jobs[e.N] = &job{task: *e.Task, first: e.At, last: e.At}
			continue
		}
		if e.Kind == Drained || e.Kind == Undraining {
			c.noteDrain(e)
			continue
		}
		j := c.jobOf(e.N, e.Job)
		if j == nil {
			c.bad("unsubmitted", "%s of submission %d (job %s) that nobody made", e.Kind, e.N, e.Job)
			continue
		}
		c.note(j, e)
	}
	for i := range c.history.Final.Records {
		r := &c.history.Final.Records[i]
		j := c.jobOf(r.N, r.Job)
		if j == nil {
			c.bad("unsubmitted", "record %s is of submission %d that nobody made", r.Job, r.N)
			continue
		}
		j.records = append(j.records, r)
	}
}

func (c *checker) note(j *job, e *Event) {
	if e.Kind != AskedAgain && e.Who != lateClient {
		j.last = max(j.last, e.At)
	}
	switch e.Kind {
	case Accepted:
		if j.accepted == nil {
			j.accepted = e
		} else if j.accepted.Job != e.Job {
			c.bad("doubled", "submission %d was accepted as %s and, with its key, as %s", e.N, j.accepted.Job, e.Job)
		}
	case Told:
		j.told = append(j.told, e)
	case Refused:
		j.refused = true
	case Unknown:
		j.unknown = true
	case CancelAsked:
		j.cancelled = true
	case Learned:
		j.ends = append(j.ends, e)
	case AskedAgain:
		j.again = append(j.again, e)
	case NoAnswer:
		j.noAnswer = append(j.noAnswer, e)
	case Looked:
		j.looks = append(j.looks, e)
	case Begun:
		if h := j.handler(func(h *handler) bool { return h.is(e) }); h != nil {
			j.twice = append(j.twice, fmt.Sprintf("attempt %d of job %s began on %s and again on %s", e.Attempt, e.Job, h.begin.Node, e.Node))
		}
		j.handlers = append(j.handlers, &handler{begin: e})
		j.lastBegun = max(j.lastBegun, e.Attempt)
	case Ended, Aborted:
		if h := j.handler(func(h *handler) bool { return h.is(e) && h.begin.Node == e.Node && h.end == nil }); h != nil {
			h.end = e
		}
	case Submitted, Used, Drained, Undraining, Fault:
	}
}

// checkRecords: there is one record for each accepted job, at most one for a job that may have been
// accepted, none for a refused one; and all have ended.
func (c *checker) checkRecords(n int, j *job) {
	switch {
	case j.accepted != nil && len(j.records) == 0:
		c.bad("lost", "job %s (submission %d) was accepted and has no record", j.accepted.Job, n)
	case len(j.records) > 1:
		c.bad("doubled", "submission %d has %d records: %s and %s", n, len(j.records), j.records[0].Job, j.records[1].Job)
	case j.refused && len(j.records) > 0:
		c.bad("refused", "submission %d was refused and has the record %s", n, j.records[0].Job)
	}
	for _, e := range j.looks {
		if e.State == "" {
			c.bad("lost", "job %s (submission %d) was not found at %s", e.Job, n, e.At)
		}
	}
	for _, r := range j.records {
		if !r.State.Terminal() {
			c.bad("not ended", "job %s (submission %d) is %s, attempt %d on %q", r.Job, n, r.State, r.Attempt, r.Node)
		}
		if j.accepted != nil && ofAllCells(j.accepted.Job) != ofAllCells(r.Job) {
			c.bad("doubled", "submission %d was accepted as %s and has the record %s", n, j.accepted.Job, r.Job)
		}
	}
}

// checkAnswers: the client of an accepted job learned its end once, and all clients learned the
// same end.
func (c *checker) checkAnswers(n int, j *job) {
	for _, e := range j.noAnswer {
		c.bad("no answer", "the client of job %s (submission %d) was told: %s", e.Job, n, e.Note)
	}
	if j.accepted != nil && len(j.ends) == 0 && len(j.noAnswer) == 0 {
		c.bad("no answer", "the client of job %s (submission %d) learned of no end", j.accepted.Job, n)
	}
	if len(j.ends) > 1 {
		c.bad("doubled", "the client of job %s learned of %d ends", j.ends[0].Job, len(j.ends))
	}
	for _, e := range slices.Concat(j.ends, j.again) {
		if !e.State.Terminal() {
			c.bad("not ended", "job %s was told to have ended as %s", e.Job, e.State)
		}
		if len(j.records) != 1 {
			continue
		}
		r := j.records[0]
		told := Record{Job: ofAllCells(e.Job), N: n, State: e.State, Node: e.Node, Attempt: e.Attempt, Failures: e.Failures}
		kept := Record{Job: ofAllCells(r.Job), N: n, State: r.State, Node: r.Node, Attempt: r.Attempt, Failures: r.Failures}
		if told != kept || !sameResult(e.Result, r.Result) {
			c.bad("answers differ", "%s was told %+v with %v, the record says %+v with %v", e.Who, told, e.Result, kept, r.Result)
		}
	}
}

func sameResult(a, b *Result) bool {
	return a == nil && b == nil || a != nil && b != nil && *a == *b
}

// checkReason: each job's end has a cause.
func (c *checker) checkReason(n int, j *job) {
	for _, r := range j.records {
		switch r.State {
		case freeslot.StateSucceeded:
			c.checkSuccess(n, j, r)
		case freeslot.StateFailed:
			if !j.task.Fatal {
				c.bad("no reason", "job %s (submission %d) failed without reason: %s", r.Job, n, r.Error)
			}
		case freeslot.StateCancelled:
			if !j.cancelled {
				c.bad("no reason", "job %s (submission %d) was cancelled by nobody", r.Job, n)
			}
		case freeslot.StateExpired:
			if j.task.TimeoutMS == 0 {
				c.bad("no reason", "job %s (submission %d) expired and has no timeout", r.Job, n)
			}
		case freeslot.StateDead:
			c.bad("no reason", "job %s (submission %d) is dead after %d attempts: %s", r.Job, n, r.Attempt, r.Error)
		default: // not ended, which checkRecords reports
		}
	}
	for _, e := range j.ends {
		if j.accepted == nil {
			continue
		}
		if age := e.At - j.accepted.From; e.State == freeslot.StateExpired && age < time.Duration(j.task.TimeoutMS)*time.Millisecond {
			c.bad("no reason", "job %s (submission %d) expired %s after its submission, its timeout is %d ms", e.Job, n, age, j.task.TimeoutMS)
		}
	}
}

// checkSuccess: the result comes from a handler that ran to its end before any client learned about
// the result.
func (c *checker) checkSuccess(n int, j *job, r *Record) {
	want := Result{N: max(n, Periodic), Job: r.Job, Node: r.Node, Attempt: r.Attempt}
	if r.Result != nil && ofAllCells(r.Result.Job) == ofAllCells(r.Job) {
		want.Job = r.Result.Job
	}
	if r.Result == nil || *r.Result != want {
		c.bad("stale", "job %s (submission %d) succeeded by attempt %d on %s with the result of %v", r.Job, n, r.Attempt, r.Node, r.Result)
	}
	i := slices.IndexFunc(j.handlers, func(h *handler) bool {
		return h.done() && h.end.State == freeslot.StateSucceeded && ofAllCells(h.begin.Job) == ofAllCells(r.Job) && h.begin.Attempt == r.Attempt && h.begin.Node == r.Node
	})
	if i < 0 {
		c.bad("stale", "job %s (submission %d) succeeded by attempt %d on %s, whose handler has not run to its end", r.Job, n, r.Attempt, r.Node)
		return
	}
	if j.doubt {
		return // a handler that is no longer known may have answered
	}
	for _, e := range j.ends {
		if e.At < j.handlers[i].end.At {
			c.bad("stale", "job %s was told to have succeeded before its handler had ended", r.Job)
		}
	}
}

// checkHandlers: no attempt begins after the one by which the job ended, and no handler runs on
// when its job has ended.
func (c *checker) checkHandlers(n int, j *job) {
	for _, r := range j.records {
		if r.State.Terminal() && j.lastBegun > r.Attempt {
			c.bad("stale", "job %s (submission %d) ended %s by attempt %d, but attempt %d had begun", r.Job, n, r.State, r.Attempt, j.lastBegun)
		}
	}
	for _, h := range j.handlers {
		if h.end == nil {
			c.bad("handler runs", "attempt %d of job %s still runs on %s", h.begin.Attempt, h.begin.Job, h.begin.Node)
			continue
		}
		for _, e := range j.ends {
			if late := h.end.At - e.At; late > stopGrace {
				c.bad("handler runs", "attempt %d of job %s ran on %s for %s after the job was %s", h.begin.Attempt, e.Job, h.begin.Node, late, e.State)
			}
		}
	}
}

// change is a change of a node's slots in use.
type change struct {
	at    time.Duration
	slots int
	text  string
}

// checkSlots: a node never has more slots in use than its capacity, by the count of its handlers. A
// handler whose request was broken off counts until abortSlack before that was noticed.
func (c *checker) checkSlots() {
	changes := map[string][]change{}
	for _, j := range c.jobs {
		if j.doubt { // its slots are no longer known
			continue
		}
		for _, h := range j.handlers {
			end := time.Duration(1<<63 - 1)
			if h.end != nil {
				end = h.end.At
			}
			if h.end != nil && h.end.Kind == Aborted {
				end = max(h.begin.At, end-abortSlack)
			}
			if end == h.begin.At {
				continue
			}
			node, text := h.begin.Node, fmt.Sprintf("attempt %d of %s", h.begin.Attempt, h.begin.Job)
			changes[node] = append(changes[node], change{h.begin.At, j.task.Slots, text}, change{end, -j.task.Slots, text})
		}
	}
	for _, node := range slices.Sorted(maps.Keys(changes)) {
		most(changes[node], func(ch change, used int) {
			if used > c.history.Slots[node] {
				c.bad("over-commit", "%s has %d slots, and %d in use at %s by %s", node, c.history.Slots[node], used, ch.at, ch.text)
			}
		})
	}
}
