package cell

import (
	"testing"

	"github.com/freeslot/freeslot"
)

// TestJobsAhead: a completion that asks for jobs ahead gets them beyond the node's slots as
// long as many wait, at most three for each of its slots, and none for a job that it hands back.
func TestJobsAhead(t *testing.T) {
	backends(t, func(t *testing.T, r *rig) {
		r.ahead = true
		const backlog = 32 // BACKLOG of lib/take.lua
		epoch := r.register(testNode("n1", 2))
		var jobs []string
		wait := func(n int, change ...func(*Submission)) {
			for range n {
				jobs = append(jobs, r.waits("", change...))
			}
		}
		wait(backlog + 8)
		if n := r.take("n1"); n != 2 {
			t.Fatalf("%d began", n)
		}
		hear := r.listen()
		owned := func(what string, want int) {
			t.Helper()
			r.sound()
			if held, sum := r.slots("n1"); len(held) != want || sum != want {
				t.Fatalf("%s: %d jobs in %d slots, expected %d", what, len(held), sum, want)
			}
		}
		end := func(ahead int) {
			t.Helper()
			c := succeed("n1", epoch, jobs[0])
			c.Ahead = ahead
			r.complete1(c)
			jobs = jobs[1:]
		}
		end(0)
		owned("none asked for", 2)
		end(1)
		owned("one asked for", 3)
		end(1)
		owned("one asked for again", 3)
		end(0)
		owned("none any more", 2)
		for len(r.line(echo)) >= backlog {
			end(0)
		}
		end(2)
		owned("few wait", 2)
		wait(4)
		end(9)
		if waiting := len(r.line(echo)); waiting != backlog-1 {
			t.Fatalf("%d wait", waiting)
		}
		owned("as many as leave the others a backlog", 4)
		wait(16)
		end(9)
		owned("at most three for each slot", 2+2*MaxAhead)
		back := Completion{
			Node: "n1", Epoch: epoch, Attempt: Attempt{Job: jobs[0], N: 1}, State: freeslot.StateFailed,
			Error: &freeslot.JobError{Code: freeslot.JobErrorInterrupted}, Again: HandBack, Ahead: 2,
		}
		r.complete1(back)
		owned("one handed back", 1+2*MaxAhead)
		if heard := hear.drain(); len(heard) != 0 {
			t.Errorf("a node that stays full was announced: %+v", heard)
		}
		r.do("DEL", r.l.Serves("n1"))
		for range 2 * MaxAhead {
			jobs = jobs[1:]
			r.complete1(succeed("n1", epoch, jobs[0]))
		}
		owned("nobody hands over", 1)
		if heard := hear.drain(); len(heard) != 1 || heard[0].Used != 1 {
			t.Errorf("events %+v", heard)
		}
	})
}

// TestJobsAheadFit: a job that the node is too small for stays away also where room is ahead.
func TestJobsAheadFit(t *testing.T) {
	backends(t, func(t *testing.T, r *rig) {
		r.ahead = true
		epoch := r.register(testNode("n1", 1))
		first := r.waits("")
		large := r.waits("", slots(2))
		next := r.waits("")
		for range 40 {
			r.waits("")
		}
		r.take("n1")
		c := succeed("n1", epoch, first)
		c.Ahead = 1
		r.complete1(c)
		r.sound()
		if s := r.status(large); s.State != freeslot.StateWaiting {
			t.Errorf("%+v", s)
		}
		if s := r.status(next); s.State != freeslot.StateRunning {
			t.Errorf("%+v", s)
		}
	})
}

// TestJobsAheadPassNoSlot: a large job that would fit ahead only, and of whose class few wait, keeps no smaller
// one from the slot that has come free; asking for jobs ahead never brings fewer than not asking.
func TestJobsAheadPassNoSlot(t *testing.T) {
	backends(t, func(t *testing.T, r *rig) {
		r.ahead = true
		epoch := r.register(testNode("n1", 4))
		var first []string
		for range 4 {
			first = append(first, r.waits(""))
		}
		other := ClassOf(&freeslot.Job{Service: "other"}).ID
		if n := r.take("n1", echo, other); n != 4 {
			t.Fatalf("%d began", n)
		}
		large := r.waits("", slots(4))
		small := r.waits("", service("other"))
		c := succeed("n1", epoch, first[0])
		c.Ahead = 4
		r.complete1(c)
		r.sound()
		if s := r.status(small); s.State != freeslot.StateRunning {
			t.Errorf("the small job is %s, with a slot free", s.State)
		}
		if s := r.status(large); s.State != freeslot.StateWaiting {
			t.Errorf("the large job is %s", s.State)
		}
	})
}

// TestJobsAheadBounds: one that would keep others from running elsewhere, or wait for several slots at once, does not
// go ahead however many wait, and a call gives only so many away that it does not stop Redis.
func TestJobsAheadBounds(t *testing.T) {
	const atOnce = 64 // AT_ONCE of lib/take.lua
	for name, c := range map[string]struct {
		slots, waiting, ahead, want int
		change                      func(*Submission)
	}{
		"plain":         {2, 40, 1, 3, slots(1)},
		"several slots": {2, 40, 6, 1, slots(2)},
		"gates":         {2, 40, 6, 2, gates(RunningGate("acme", 100))},
		"many":          {100, 200, 300, 100 + atOnce, slots(1)},
	} {
		t.Run(name, func(t *testing.T) {
			backends(t, func(t *testing.T, r *rig) {
				r.ahead = true
				epoch := r.register(testNode("n1", c.slots))
				var jobs []string
				for range c.slots + c.waiting {
					jobs = append(jobs, r.waits("", of("acme", 1), c.change))
				}
				r.take("n1")
				first := succeed("n1", epoch, jobs[0])
				first.Ahead = c.ahead
				r.complete1(first)
				r.sound()
				if held, _ := r.slots("n1"); len(held) != c.want {
					t.Errorf("the node has %d jobs, expected %d", len(held), c.want)
				}
			})
		})
	}
}
