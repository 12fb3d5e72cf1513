package faults

import (
	"bytes"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/freeslot/freeslot"
)

// script makes a history by hand, one event a millisecond.
type script struct {
	history History
	now     time.Duration
}

func (s *script) add(e Event) *script {
	s.now += time.Millisecond
	e.At = s.now
	if e.From == 0 {
		e.From = s.now
	}
	s.history.Events = append(s.history.Events, e)
	return s
}

func (s *script) submit(task Task) *script {
	task.Slots = max(task.Slots, 1)
	return s.add(Event{Kind: Submitted, N: task.N, Task: &task})
}

func (s *script) accept(n int) *script {
	return s.add(Event{Kind: Accepted, N: n, Job: id(n), From: s.now})
}

func (s *script) handler(kind Kind, n int, node string, attempt int) *script {
	e := Event{Kind: kind, N: n, Job: id(n), Node: node, Attempt: attempt}
	if kind == Ended {
		e.State = freeslot.StateSucceeded
	}
	return s.add(e)
}

func (s *script) status(kind Kind, n int, state freeslot.State, node string, attempt int) *script {
	e := Event{Kind: kind, N: n, Job: id(n), State: state, Node: node, Attempt: attempt}
	if state == freeslot.StateSucceeded {
		e.Result = &Result{N: n, Job: id(n), Node: node, Attempt: attempt}
	}
	return s.add(e)
}

// end puts what Redis holds of a job into the history.
func (s *script) end(n int, state freeslot.State, node string, attempt int) *script {
	r := Record{Job: id(n), N: n, State: state, Node: node, Attempt: attempt}
	if state == freeslot.StateSucceeded {
		r.Result = &Result{N: n, Job: id(n), Node: node, Attempt: attempt}
	}
	s.history.Final.Records = append(s.history.Final.Records, r)
	return s
}

func id(n int) string { return "0-" + strings.Repeat("a", n) }

// good is a history in which a job succeeds at once, one after its node was lost, one is cancelled,
// one refused, one unknown to its client, and one of a schedule.
func good() *script {
	s := &script{history: History{Slots: map[string]int{"n1": 1, "n2": 2}}}
	s.submit(Task{N: 1}).accept(1).handler(Begun, 1, "n1", 1).status(Looked, 1, freeslot.StateRunning, "n1", 1).handler(Ended, 1, "n1", 1)
	s.status(Learned, 1, freeslot.StateSucceeded, "n1", 1).status(AskedAgain, 1, freeslot.StateSucceeded, "n1", 1)
	s.submit(Task{N: 2}).accept(2).handler(Begun, 2, "n1", 1).status(Looked, 2, freeslot.StateWaiting, "n1", 1)
	s.handler(Begun, 2, "n2", 2).handler(Aborted, 2, "n1", 1).handler(Ended, 2, "n2", 2).status(Learned, 2, freeslot.StateSucceeded, "n2", 2)
	s.submit(Task{N: 3, CancelMS: 1}).accept(3).add(Event{Kind: CancelAsked, N: 3, Job: id(3)}).status(Learned, 3, freeslot.StateCancelled, "", 0)
	s.submit(Task{N: 4}).add(Event{Kind: Refused, N: 4})
	s.history.Classes, s.history.Runs = map[string]string{"n1": "a"}, 1
	s.periodic(10)
	s.submit(Task{N: 5}).add(Event{Kind: Unknown, N: 5}).handler(Begun, 5, "n2", 1).handler(Ended, 5, "n2", 1)
	runs := s.history.Final.Records
	s.history.Final.Records = nil
	s.end(1, freeslot.StateSucceeded, "n1", 1).end(2, freeslot.StateSucceeded, "n2", 2).end(3, freeslot.StateCancelled, "", 0)
	s.end(5, freeslot.StateSucceeded, "n2", 1)
	s.history.Final.Records = append(s.history.Final.Records, runs...)
	return s
}

func TestCheckGood(t *testing.T) {
	t.Parallel()
	for _, v := range Check(&good().history) {
		t.Error(v)
	}
}

// TestCheckFinds doctors the good history, each time in one way.
func TestCheckFinds(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		rule   string
		doctor func(s *script)
	}{
		"lost record":        {"lost", func(s *script) { s.history.Final.Records = s.history.Final.Records[1:] }},
		"lost to a look":     {"lost", func(s *script) { s.status(Looked, 1, "", "", 0) }},
		"lost answer":        {"no answer", func(s *script) { s.drop(Learned, 1) }},
		"refused answer":     {"no answer", func(s *script) { s.add(Event{Kind: NoAnswer, N: 1, Job: id(1), Note: "not_found"}) }},
		"lost result":        {"stale", func(s *script) { s.history.Final.Records[0].Result = nil }},
		"doubled answer":     {"doubled", func(s *script) { s.status(Learned, 1, freeslot.StateSucceeded, "n1", 1) }},
		"doubled job":        {"doubled", func(s *script) { s.history.Final.Records[3].N = 2 }},
		"another answer":     {"answers differ", func(s *script) { s.status(AskedAgain, 1, freeslot.StateFailed, "n1", 1) }},
		"another result":     {"answers differ", func(s *script) { s.find(Learned, 1).Result = &Result{N: 1, Job: id(1), Node: "n2", Attempt: 1} }},
		"another count":      {"answers differ", func(s *script) { s.find(Learned, 1).Failures = 1 }},
		"changed end":        {"states", func(s *script) { s.status(Looked, 1, freeslot.StateRunning, "n1", 2) }},
		"earlier again":      {"states", func(s *script) { s.status(Looked, 3, freeslot.StateWaiting, "", 0) }},
		"stuck job":          {"not ended", func(s *script) { s.history.Final.Records[3].State = freeslot.StateRunning }},
		"stuck slot":         {"leftover", func(s *script) { s.history.Final.Leftovers = []string{"slots:n1 has 1"} }},
		"refused but there":  {"refused", func(s *script) { s.end(4, freeslot.StateSucceeded, "n1", 1) }},
		"from nowhere":       {"unsubmitted", func(s *script) { s.end(9, freeslot.StateSucceeded, "n1", 1) }},
		"over-commit":        {"over-commit", func(s *script) { s.overcommit() }},
		"over-commit told":   {"over-commit", func(s *script) { s.add(Event{Kind: Used, Node: "n1", Slots: 2}) }},
		"stale attempt":      {"stale", func(s *script) { s.history.Final.Records[1] = staleRecord }},
		"later attempt":      {"stale", func(s *script) { s.handler(Begun, 1, "n2", 2).handler(Ended, 1, "n2", 2) }},
		"unfinished handler": {"stale", func(s *script) { s.find(Ended, 1).Kind = Aborted }},
		"handler twice":      {"begun twice", func(s *script) { s.handler(Begun, 1, "n1", 1).handler(Ended, 1, "n1", 1) }},
		"handler runs":       {"handler runs", func(s *script) { s.drop(Ended, 5) }},
		"handler runs on":    {"handler runs", func(s *script) { s.find(Aborted, 2).At = time.Minute }},
		"cancelled":          {"no reason", func(s *script) { s.drop(CancelAsked, 3) }},
		"expired":            {"no reason", func(s *script) { s.history.Final.Records[2].State = freeslot.StateExpired }},
		"failed":             {"no reason", func(s *script) { s.history.Final.Records[3].State = freeslot.StateFailed }},
		"dead":               {"no reason", func(s *script) { s.history.Final.Records[3].State = freeslot.StateDead }},
		"another job of key": {"doubled", func(s *script) { s.add(Event{Kind: Accepted, N: 1, Job: id(9)}) }},
		"too early":          {"early", func(s *script) { s.find(Submitted, 1).Task.DelayMS = 100 }},
		"another class":      {"class", func(s *script) { s.find(Submitted, 1).Task.Class = "b" }},
		"progress of nobody": {"progress", func(s *script) {
			s.add(Event{Kind: Told, N: 1, Job: id(1), Attempt: 2, Result: &Result{N: 1, Job: id(1), Node: "n1", Attempt: 2}})
		}},
		"given while drained": {"drained", func(s *script) {
			s.add(Event{Kind: Drained, Node: "n1"}).history.Final.Records[0].AssignedMS = time.Minute.Milliseconds()
		}},
		"tenant runs too many": {"limit", func(s *script) { s.overlap(Task{Tenant: "a"}) }},
		"key runs too many":    {"limit", func(s *script) { s.overlap(Task{Serial: "a"}) }},
		"run that is missing":  {"schedule", func(s *script) { s.history.Runs++ }},
		"run made twice":       {"schedule", func(s *script) { s.periodic(7).periodic(8) }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := good()
			c.doctor(s)
			found := Check(&s.history)
			if !slices.ContainsFunc(found, func(v Violation) bool { return v.Rule == c.rule }) {
				t.Errorf("found %v, expected %q", found, c.rule)
			}
		})
	}
}

// staleRecord is job 2 ended by the attempt that was taken from it.
var staleRecord = Record{Job: id(2), N: 2, State: freeslot.StateSucceeded, Node: "n1", Attempt: 1, Result: &Result{N: 2, Job: id(2), Node: "n1", Attempt: 1}}

// periodic is a job that the schedule made.
func (s *script) periodic(n int) *script {
	e := Event{N: Periodic, Job: id(n), Node: "n1", Attempt: 1}
	e.Kind = Begun
	s.add(e)
	e.Kind, e.State = Ended, freeslot.StateSucceeded
	s.add(e)
	s.history.Final.Records = append(s.history.Final.Records, Record{
		Job: id(n), N: Periodic, State: freeslot.StateSucceeded, Node: "n1", Attempt: 1, Result: &Result{N: Periodic, Job: id(n), Node: "n1", Attempt: 1},
	})
	return s
}

// overlap runs two jobs at a time where one may run.
func (s *script) overlap(task Task) {
	s.history.Running, s.history.Serial = map[string]int{"a": 1}, 1
	for n, node := range map[int]string{6: "n1", 7: "n2"} {
		task.N = n
		s.submit(task).accept(n).handler(Begun, n, node, 1)
	}
	for n, node := range map[int]string{6: "n1", 7: "n2"} {
		s.handler(Ended, n, node, 1).status(Learned, n, freeslot.StateSucceeded, node, 1).end(n, freeslot.StateSucceeded, node, 1)
	}
}

// overcommit runs two jobs at a time on a node with one slot.
func (s *script) overcommit() {
	s.submit(Task{N: 6}).accept(6).submit(Task{N: 7}).accept(7)
	s.handler(Begun, 6, "n1", 1).handler(Begun, 7, "n1", 1).handler(Ended, 6, "n1", 1).handler(Ended, 7, "n1", 1)
	for n := 6; n <= 7; n++ {
		s.status(Learned, n, freeslot.StateSucceeded, "n1", 1).end(n, freeslot.StateSucceeded, "n1", 1)
	}
}

func (s *script) find(kind Kind, n int) *Event {
	i := slices.IndexFunc(s.history.Events, func(e Event) bool { return e.Kind == kind && e.N == n })
	return &s.history.Events[i]
}

func (s *script) drop(kind Kind, n int) {
	s.history.Events = slices.DeleteFunc(s.history.Events, func(e Event) bool { return e.Kind == kind && e.N == n })
}

// TestPlan: a plan is its seed's, and what it breaks of one target comes one after the other.
func TestPlan(t *testing.T) {
	t.Parallel()
	targets := []string{redisTarget, "r1", "n1", "way-n1", "c1"}
	for seed := range uint64(50) {
		plan := Plan(seed, time.Minute, targets)
		if !slices.Equal(plan, Plan(seed, time.Minute, targets)) {
			t.Fatalf("seed %d has two plans", seed)
		}
		until, killed := map[string]time.Duration{}, map[time.Duration]int{}
		for _, b := range plan {
			if b.At < until[b.Target] || b.At >= time.Minute {
				t.Fatalf("seed %d: %s at %s, before %s is over", seed, b, b.At, until[b.Target])
			}
			until[b.Target] = b.At + b.For
			if b.Action == Kill {
				killed[b.At]++
			}
		}
		most := 0
		for _, n := range killed {
			most = max(most, n)
		}
		if most != 3 {
			t.Errorf("seed %d kills %d at a time, expected everything that can be killed: 3", seed, most)
		}
	}
}

func TestWrite(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	s := good()
	if err := s.history.Write(&out); err != nil {
		t.Fatal(err)
	}
	if lines := bytes.Count(out.Bytes(), []byte("\n")); lines != len(s.history.Events)+1 {
		t.Errorf("%d lines, expected one for each of %d events and one for the end", lines, len(s.history.Events))
	}
}
