package faults

import (
	"slices"
	"testing"
	"time"

	"github.com/freeslot/freeslot"
)

// lossy is the good history, then a failover in which job 11 lost its record and was answered so,
// job 12 its end, which its client knows, and 13 its begin, so that it ran twice; 14 comes after
// it.
func lossy() *script {
	s := good()
	s.history.Slots["n3"] = 1
	from := s.now
	for n := 11; n <= 13; n++ {
		s.submit(Task{N: n}).accept(n).handler(Begun, n, "n3", 1)
	}
	s.handler(Aborted, 11, "n3", 1).handler(Ended, 12, "n3", 1).status(Learned, 12, freeslot.StateSucceeded, "n3", 1)
	s.status(Looked, 11, "", "", 0)
	s.history.Losses = []Loss{{From: from, To: s.now}}
	s.add(Event{Kind: Learned, N: 11, Job: id(11), State: freeslot.StateFailed, Code: freeslot.JobErrorLost})
	s.handler(Begun, 13, "n2", 1).handler(Ended, 13, "n3", 1).handler(Ended, 13, "n2", 1)
	s.status(Learned, 13, freeslot.StateSucceeded, "n2", 1).end(13, freeslot.StateSucceeded, "n2", 1)
	s.now += time.Second
	s.submit(Task{N: 14}).accept(14).handler(Begun, 14, "n3", 1).handler(Ended, 14, "n3", 1)
	s.status(Learned, 14, freeslot.StateSucceeded, "n3", 1).end(14, freeslot.StateSucceeded, "n3", 1)
	s.add(Event{Kind: NoAnswer, N: 11, Job: id(11), Who: lateClient, Note: "not_found"})
	return s.status(AskedAgain, 13, freeslot.StateSucceeded, "n2", 1)
}

func TestCheckLossGood(t *testing.T) {
	t.Parallel()
	for _, v := range Check(&lossy().history) {
		t.Error(v)
	}
}

// TestCheckLossFinds doctors the history with a loss: what a loss does not excuse is found.
func TestCheckLossFinds(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		rule   string
		doctor func(s *script)
	}{
		"never answered":          {"no answer", func(s *script) { s.drop(Learned, 11) }},
		"answered twice":          {"no answer", func(s *script) { s.status(Learned, 12, freeslot.StateSucceeded, "n3", 1) }},
		"told nothing":            {"no answer", func(s *script) { s.add(Event{Kind: NoAnswer, N: 13, Job: id(13), Who: "c1"}) }},
		"not found but there":     {"no answer", func(s *script) { s.add(Event{Kind: NoAnswer, N: 13, Job: id(13), Who: lateClient}) }},
		"lost but there":          {"answers differ", func(s *script) { s.end(11, freeslot.StateSucceeded, "n3", 1) }},
		"told later and not kept": {"lost", func(s *script) { s.find(Learned, 12).At = 10 * time.Second }},
		"two records":             {"doubled", func(s *script) { s.end(13, freeslot.StateSucceeded, "n2", 1) }},
		"never ends":              {"not ended", func(s *script) { s.record(13).State = freeslot.StateRunning }},
		"another end":             {"answers differ", func(s *script) { s.record(13).State = freeslot.StateFailed }},
		"ended for no reason":     {"no reason", func(s *script) { s.record(13).State = freeslot.StateDead }},
		"result of nobody":        {"stale", func(s *script) { s.record(13).Result.Node = "n3" }},
		"handler runs":            {"handler runs", func(s *script) { s.drop(Aborted, 11) }},
		"lost afterwards":         {"lost", func(s *script) { s.dropRecord(14) }},
		"lost before":             {"lost", func(s *script) { s.dropRecord(1) }},
		"lost in another cell":    {"lost", func(s *script) { s.history.Losses[0].Cells = []int{1} }},
		"lost though replicated":  {"lost", func(s *script) { s.history.Losses[0].Keeps = true }},
		"slots do not come back":  {"leftover", func(s *script) { s.history.Final.Leftovers = []string{"slots:n1 has 1"} }},
		"over-commit told":        {"over-commit", func(s *script) { s.add(Event{Kind: Used, Node: "n3", Slots: 2}) }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := lossy()
			c.doctor(s)
			found := Check(&s.history)
			if !slices.ContainsFunc(found, func(v Violation) bool { return v.Rule == c.rule }) {
				t.Errorf("found %v, expected %q", found, c.rule)
			}
		})
	}
}

func (s *script) record(n int) *Record {
	i := slices.IndexFunc(s.history.Final.Records, func(r Record) bool { return r.N == n })
	return &s.history.Final.Records[i]
}

func (s *script) dropRecord(n int) {
	s.history.Final.Records = slices.DeleteFunc(s.history.Final.Records, func(r Record) bool { return r.N == n })
}
