package dispatch

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/cell"
)

// story is a sink that writes down its calls.
type story struct{ calls []string }

func (s *story) Assigned(Assignment)              { s.calls = append(s.calls, "assigned") }
func (s *story) Result(status freeslot.JobStatus) { s.calls = append(s.calls, string(status.State)) }
func (s *story) Detached(string)                  { s.calls = append(s.calls, "detached") }
func (s *story) Progress(_ string, p freeslot.Progress) {
	s.calls = append(s.calls, fmt.Sprintf("progress:%d/%d", p.Attempt, p.Seq))
}

// TestWaiter plays what can happen to one job in any order: news from the reply stream and from its
// record, the acceptance, attaches, and the end of a session.
func TestWaiter(t *testing.T) {
	t.Parallel()
	running := freeslot.JobStatus{ID: "j", Tenant: "acme", State: freeslot.StateRunning}
	ended := freeslot.JobStatus{ID: "j", Tenant: "acme", State: freeslot.StateFailed}
	failed := errors.New("no answer")
	type step struct {
		what func(w *waiter, first, second *story) bool
		done bool
	}
	opened := func(w *waiter, _, _ *story) bool { return w.opened("j", cell.Placement{Assigned: true, Attempt: 1}) }
	result := func(w *waiter, _, _ *story) bool {
		return w.result(freeslot.JobStatus{ID: "j", State: freeslot.StateSucceeded})
	}
	waits := func(w *waiter, _, _ *story) bool { return w.opened("j", cell.Placement{Waiting: true, Position: 3}) }
	began := func(attempt int) func(w *waiter, _, _ *story) bool {
		return func(w *waiter, _, _ *story) bool {
			w.assigned(Assignment{JobID: "j", Node: "n", Attempt: attempt})
			return w.done()
		}
	}
	second := freeslot.JobStatus{ID: "j", Tenant: "acme", State: freeslot.StateRunning, Attempt: 2}
	recheck := func(w *waiter, _, _ *story) bool { return w.result(ended) }
	detached := func(w *waiter, _, _ *story) bool {
		if attaches, ask := w.contested(); ask {
			return w.detached("j", attaches)
		}
		return w.done()
	}
	// The record says that another replica has the job. Before that is read, ours attaches again.
	returned := func(w *waiter, first, _ *story) bool {
		attaches, _ := w.contested()
		w.beginAttach()
		w.endAttach(first, &running, nil)
		return w.detached("j", attaches)
	}
	join := func(w *waiter, _, _ *story) bool { w.beginAttach(); return w.done() }
	forget := func(w *waiter, first, _ *story) bool { return w.forget(first) }
	attached := func(who int, status freeslot.JobStatus, err error) func(w *waiter, first, second *story) bool {
		return func(w *waiter, first, second *story) bool {
			return w.endAttach([]Sink{first, second}[who], &status, err)
		}
	}
	progress := func(attempt int, seq int64) func(w *waiter, _, _ *story) bool {
		return func(w *waiter, _, _ *story) bool {
			w.progress("j", &freeslot.Progress{Attempt: attempt, Seq: seq})
			return w.done()
		}
	}
	knows := second
	knows.Progress = &freeslot.Progress{Attempt: 2, Seq: 5}
	for name, tt := range map[string]struct {
		attach bool // the waiter is made by an attach, not by a submit
		steps  []step
		first  string
		second string
	}{
		"as it should be":          {steps: []step{{opened, false}, {result, true}}, first: "assigned succeeded"},
		"result before acceptance": {steps: []step{{result, false}, {opened, true}}, first: "assigned succeeded"},
		"waits":                    {steps: []step{{waits, false}, {began(1), false}, {result, true}}, first: "assigned succeeded"},
		"progress": {
			steps: []step{{opened, false}, {progress(1, 2), false}, {progress(1, 2), false}, {progress(1, 1), false}, {progress(1, 4), false}, {result, true}, {progress(1, 5), true}},
			first: "assigned progress:1/2 progress:1/4 succeeded",
		},
		"progress before acceptance": {steps: []step{{progress(1, 1), false}, {progress(1, 3), false}, {opened, false}, {result, true}}, first: "assigned progress:1/3 succeeded"},
		"progress of another attempt": {
			steps: []step{{opened, false}, {progress(2, 1), false}, {began(2), false}, {progress(1, 9), false}, {progress(2, 2), false}, {result, true}},
			first: "assigned assigned progress:2/1 progress:2/2 succeeded",
		},
		"progress while attaching":     {attach: true, steps: []step{{progress(2, 6), false}, {attached(1, knows, nil), false}, {result, true}}, second: "progress:2/6 succeeded"},
		"progress that the status has": {attach: true, steps: []step{{progress(2, 5), false}, {attached(1, knows, nil), false}, {progress(2, 4), false}, {result, true}}, second: "succeeded"},
		"progress while another attaches": {
			steps: []step{{opened, false}, {began(2), false}, {join, false}, {progress(2, 6), false}, {attached(1, knows, nil), false}, {progress(2, 7), false}, {result, true}},
			first: "assigned assigned progress:2/6 detached", second: "progress:2/6 progress:2/7 succeeded",
		},
		"progress while the same attaches": {
			steps: []step{{opened, false}, {began(2), false}, {join, false}, {progress(2, 6), false}, {attached(0, knows, nil), false}, {progress(2, 6), false}, {result, true}},
			first: "assigned assigned progress:2/6 succeeded",
		},
		"ends while it waits":         {steps: []step{{waits, false}, {recheck, true}}, first: "failed"},
		"two attempts":                {steps: []step{{opened, false}, {began(2), false}, {began(2), false}, {began(1), false}, {result, true}}, first: "assigned assigned succeeded"},
		"attempts before acceptance":  {steps: []step{{began(1), false}, {began(2), false}, {result, false}, {waits, true}}, first: "assigned assigned succeeded"},
		"the same before acceptance":  {steps: []step{{began(1), false}, {opened, false}, {result, true}}, first: "assigned succeeded"},
		"attempt while attaching":     {attach: true, steps: []step{{began(2), false}, {attached(1, running, nil), false}, {result, true}}, second: "assigned succeeded"},
		"attempt that the status has": {attach: true, steps: []step{{began(2), false}, {attached(1, second, nil), false}, {result, true}}, second: "succeeded"},
		"attempt while a second session takes over": {
			steps: []step{{waits, false}, {join, false}, {began(1), false}, {attached(1, running, nil), false}, {result, true}},
			first: "assigned detached", second: "assigned succeeded",
		},
		"attempt while the same session attaches": {
			steps: []step{{waits, false}, {join, false}, {began(1), false}, {attached(0, running, nil), false}, {began(1), false}, {result, true}},
			first: "assigned succeeded",
		},
		"the first result counts":     {steps: []step{{result, false}, {recheck, false}, {opened, true}, {recheck, true}}, first: "assigned succeeded"},
		"detached":                    {steps: []step{{opened, false}, {detached, true}, {result, true}}, first: "assigned detached"},
		"detached and taken back":     {steps: []step{{opened, false}, {returned, false}, {result, true}}, first: "assigned succeeded"},
		"detached before acceptance":  {steps: []step{{detached, false}, {opened, true}}, first: "assigned detached"},
		"forgotten":                   {steps: []step{{opened, false}, {forget, true}, {result, true}}, first: "assigned"},
		"forgotten before acceptance": {steps: []step{{forget, true}, {opened, true}}},
		"attach": {
			attach: true, steps: []step{{attached(1, running, nil), false}, {result, true}}, second: "succeeded",
		},
		"attach to a job that has ended": {attach: true, steps: []step{{attached(1, ended, nil), true}}},
		"attach fails":                   {attach: true, steps: []step{{attached(1, running, failed), true}}},
		"result while attaching": {
			attach: true, steps: []step{{result, false}, {attached(1, running, nil), true}}, second: "succeeded",
		},
		"result while attaching, and the status has it": {
			attach: true, steps: []step{{result, false}, {attached(1, ended, nil), true}},
		},
		"result while an attach fails": {attach: true, steps: []step{{result, false}, {attached(1, running, failed), true}}},
		"a second session takes over": {
			steps: []step{{opened, false}, {join, false}, {attached(1, running, nil), false}, {result, true}},
			first: "assigned detached", second: "succeeded",
		},
		"a second session cannot take over": {
			steps: []step{{opened, false}, {join, false}, {attached(1, running, failed), false}, {result, true}},
			first: "assigned succeeded",
		},
		"a second session comes too late": {
			steps: []step{{opened, false}, {join, false}, {attached(1, ended, nil), true}},
			first: "assigned failed",
		},
		"result while a second session takes over": {
			steps: []step{{opened, false}, {join, false}, {result, false}, {attached(1, running, nil), true}},
			first: "assigned succeeded", second: "succeeded",
		},
		"result while a second session fails to take over": {
			steps: []step{{opened, false}, {join, false}, {result, false}, {attached(1, running, failed), true}},
			first: "assigned succeeded",
		},
		"the same session attaches": {
			steps: []step{{opened, false}, {join, false}, {attached(0, running, nil), false}, {result, true}},
			first: "assigned succeeded",
		},
		"the same session attaches and fails": {
			steps: []step{{opened, false}, {join, false}, {attached(0, running, failed), false}, {result, true}},
			first: "assigned succeeded",
		},
		"the same session attaches, and the status has the result": {
			steps: []step{{opened, false}, {join, false}, {attached(0, ended, nil), true}, {result, true}},
			first: "assigned",
		},
		"two sessions attach": {
			attach: true,
			steps:  []step{{join, false}, {attached(0, running, nil), false}, {attached(1, running, nil), false}, {result, true}},
			first:  "detached", second: "succeeded",
		},
		"two sessions attach, the second fails": {
			attach: true,
			steps:  []step{{join, false}, {attached(0, running, nil), false}, {attached(1, running, failed), false}, {result, true}},
			first:  "succeeded",
		},
		"two sessions attach, the first fails": {
			attach: true,
			steps:  []step{{join, false}, {attached(0, running, failed), false}, {attached(1, running, nil), false}, {result, true}},
			second: "succeeded",
		},
		// The entry may be older than the attach. If it is not, the record brings the result.
		"detached while attaching": {
			attach: true, steps: []step{{detached, false}, {attached(1, running, nil), false}, {recheck, true}}, second: "failed",
		},
		"detached while attaching fails": {
			steps: []step{{opened, false}, {join, false}, {detached, false}, {attached(1, running, failed), false}, {recheck, true}},
			first: "assigned failed",
		},
		"forgotten while a second session attaches": {
			steps: []step{{opened, false}, {join, false}, {forget, false}, {attached(1, running, nil), false}, {result, true}},
			first: "assigned", second: "succeeded",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			first, second := new(story), new(story)
			w := &waiter{sink: first}
			if tt.attach {
				w = &waiter{attaching: 1}
			}
			for i, s := range tt.steps {
				if done := s.what(w, first, second); done != s.done {
					t.Errorf("step %d: done is %v", i+1, done)
				}
			}
			if got := strings.Join(first.calls, " "); got != tt.first {
				t.Errorf("first sink: %q, want %q", got, tt.first)
			}
			if got := strings.Join(second.calls, " "); got != tt.second {
				t.Errorf("second sink: %q, want %q", got, tt.second)
			}
		})
	}
}

// The reply stream does not repeat what is fixed at the submit.
func TestWaiterCompletesTheStatus(t *testing.T) {
	t.Parallel()
	sink := newRecorder(t)
	w := &waiter{sink: sink, known: freeslot.JobStatus{Tenant: "acme", Service: "echo", Slots: 3}}
	w.opened("j", cell.Placement{Assigned: true, Node: "n", Attempt: 1, AssignedAtMS: 17})
	w.result(freeslot.JobStatus{ID: "j", State: freeslot.StateSucceeded, Node: "n", Attempt: 1, FinishedAtMS: 18})
	s := sink.result("j")
	if s.Tenant != "acme" || s.Service != "echo" || s.Slots != 3 || s.SubmittedAtMS != 17 || s.AssignedAtMS != 17 || s.FinishedAtMS != 18 {
		t.Errorf(`%+v; want s.Tenant == "acme", s.Service == "echo", s.Slots == 3, s.SubmittedAtMS == 17, s.AssignedAtMS == 17, s.FinishedAtMS == 18`, s)
	}
}
