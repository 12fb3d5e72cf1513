package cell

import (
	"slices"
	"testing"
)

// TestPlaces: the index of finished jobs keeps no places of records that are gone, however long the agent that ended the
// jobs believes that records are kept.
func TestPlaces(t *testing.T) {
	backends(t, func(t *testing.T, r *rig) {
		epoch := r.register(testNode("n1", 8))
		var jobs []string
		for range 6 {
			job := r.place("", 1, "n1")
			r.end("n1", epoch, job)
			jobs = append(jobs, job)
		}
		left := func(want ...string) {
			t.Helper()
			if got := r.strings("ZRANGE", r.l.Finished(), "0", "-1"); !slices.Equal(got, want) {
				t.Errorf("the index has %v, expected %v", got, want)
			}
		}
		r.unchanged("all are there", func() { r.due(10) }, nil)
		for _, job := range []string{jobs[0], jobs[1], jobs[2], jobs[4]} {
			r.do("DEL", r.l.Job(job)) // as its retention does
		}
		if d := r.due(2); !d.More {
			t.Errorf("two of three: %+v, expected more to do", d)
		}
		left(jobs[2:]...)
		if d := r.due(2); d.More {
			t.Errorf("the third: %+v, expected no more to do", d)
		}
		left(jobs[3:]...) // the fifth has its turn when the fourth has gone
		r.do("DEL", r.l.Job(jobs[3]))
		r.due(10)
		left(jobs[5])
		r.do("DEL", r.l.Job(jobs[5]))
		r.due(10)
		left()
		r.do("SET", r.l.Finished(), "an operator's mistake")
		r.unchanged("no index", func() { r.due(10) }, nil)
		r.do("DEL", r.l.Finished())
		r.sound()
	})
}
