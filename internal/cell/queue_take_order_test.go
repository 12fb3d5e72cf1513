package cell

import (
	"strconv"
	"testing"
	"time"

	"github.com/freeslot/freeslot"
)

// TestRoomIsLeft: jobs of other classes do not pass one of a higher priority that needs more
// room than there is; those of its own priority do, until it has waited for long.
func TestRoomIsLeft(t *testing.T) {
	backends(t, func(t *testing.T, r *rig) {
		n := testNode("n1", 2)
		n.Services = append(n.Services, freeslot.Service{Name: "small"})
		epoch := r.register(n)
		small := ClassOf(&freeslot.Job{Service: "small"}).ID
		for name, tt := range map[string]struct {
			priority int
			waited   int64 // ms
			left     bool
		}{
			"higher priority":     {priority: 1, left: true},
			"same priority":       {waited: -time.Hour.Milliseconds()}, // which lasts for the test
			"has waited for long": {waited: 11_000, left: true},
		} {
			held := r.place("", 1, "n1")
			big := r.waits("", slots(2), priority(tt.priority))
			record := r.jobRecord(big)
			record.submittedMS -= tt.waited
			r.do("HSET", r.l.Job(big), "job", record.String())
			other := r.waits("", service("small"))
			r.take("n1", echo, small)
			if got := r.status(other).State; (got == freeslot.StateWaiting) != tt.left {
				t.Errorf("%s: the small job is %s", name, got)
			}
			r.end("n1", epoch, held)
			if !tt.left {
				r.end("n1", epoch, other)
			}
			r.take("n1", echo, small)
			if got := r.status(big).State; got != freeslot.StateRunning {
				t.Errorf("%s: the large job is %s", name, got)
			}
			r.end("n1", epoch, big)
			if tt.left {
				r.take("n1", echo, small)
				r.end("n1", epoch, other)
			}
		}
		r.sound()
	})
}

// TestServesAfterAChange: what a replica that has not heard of a node's change says that it
// serves is not remembered.
func TestServesAfterAChange(t *testing.T) {
	backends(t, func(t *testing.T, r *rig) {
		n := testNode("n1", 1)
		epoch := r.register(n)
		held := r.place("", 1, "n1")
		first, second := r.waits(""), r.waits("")
		r.take("n1", echo)
		r.end("n1", epoch, held)
		if got := r.status(first).State; got != freeslot.StateRunning {
			t.Fatalf("the first job is %s", got)
		}
		n.Services = []freeslot.Service{{Name: "other"}}
		if _, err := r.Register(r.ctx(), n, epoch); err != nil {
			t.Fatal(err)
		}
		r.take("n1", echo)
		r.end("n1", epoch, first)
		if got := r.status(second).State; got != freeslot.StateWaiting {
			t.Errorf("the second job is %s", got)
		}
		if taken, err := r.TakeAs(r.ctx(), "n1", NewEpoch(), []string{echo}, 0); err != nil || !taken.Superseded || taken.Jobs != 0 {
			t.Errorf("as another epoch: %+v, %v", taken, err)
		}
		if got := r.status(second).State; got != freeslot.StateWaiting {
			t.Errorf("the second job is %s", got)
		}
		r.sound()
	})
}

// TestKindsAreBounded: a tenant cannot make up any number of classes that replicas have to
// try on every free node.
func TestKindsAreBounded(t *testing.T) {
	backends(t, func(t *testing.T, r *rig) {
		known := r.waits("")
		for i := range 1023 {
			r.do("HSET", r.l.Waiting(), "class"+strconv.Itoa(i), "{}")
		}
		refused := func(s Submission) bool {
			t.Helper()
			s.Candidates = nil
			res := r.EnqueueAll(r.ctx(), []Submission{s})[0]
			if res.Err != nil && freeslot.CodeOf(res.Err) != freeslot.CodeOverloaded {
				t.Fatal(res.Err)
			}
			return res.Err != nil
		}
		s := submission("")
		s.Job.Service = "another"
		if !refused(s) {
			t.Error("one class more was let in")
		}
		if refused(submission("")) {
			t.Error("a job of a class that waits was refused")
		}
		if r.status(known).State != freeslot.StateWaiting {
			t.Error("the first job waits no more")
		}
	})
}
