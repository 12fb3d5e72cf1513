package cell

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/testing/redistest"
)

// racing runs a suite on both backends with several cells on the same keys, as
// replicas and agents are: each has connections and batches of its own.
func racing(t *testing.T, cells int, suite func(t *testing.T, r *rig, others []*Cell)) {
	t.Parallel()
	redistest.Backends(t, func(t *testing.T, redis *redistest.Target) {
		t.Parallel()
		r := newRig(t, redis)
		others := []*Cell{r.Cell}
		for range cells - 1 {
			others = append(others, open(t, redis, func(c *Config) { c.Layout, c.CallTimeout = r.l, patience }))
		}
		suite(t, r, others)
		r.sound()
	})
}

// together runs f n times at once.
func together(n int, f func(i int)) {
	start := make(chan struct{})
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() { <-start; f(i) })
	}
	close(start)
	wg.Wait()
}

// TestRaceForTheLastSlot: however many want it, one gets it.
func TestRaceForTheLastSlot(t *testing.T) {
	racing(t, 4, func(t *testing.T, r *rig, cells []*Cell) {
		for round := range 10 {
			node := fmt.Sprintf("n%d", round)
			r.register(testNode(node, 3))
			r.place("", 2, node)
			subs := make([]Submission, 24)
			placements := make([]Placement, len(subs))
			for i := range subs {
				subs[i] = submission("", node)
			}
			together(len(subs), func(i int) {
				var err error
				if placements[i], err = cells[i%len(cells)].Submit(r.ctx(), subs[i]); err != nil {
					t.Error(err)
				}
			})
			winners := 0
			for i, p := range placements {
				if p.Assigned {
					winners++
				} else if len(p.Refusals) != 1 || p.Refusals[0].Reason != RefusedFull || p.Refusals[0].Used != 3 || r.exists(r.l.Job(subs[i].JobID)) {
					t.Errorf("refused: %+v", p)
				}
			}
			if held, sum := r.slots(node); winners != 1 || sum != 3 || len(held) != 2 {
				t.Errorf("%d winners, %d jobs, sum %d", winners, len(held), sum)
			}
		}
	})
}

// TestRaceForSlotsOfAnySize: nodes are filled, never beyond, while jobs end and
// others take their place.
func TestRaceForSlotsOfAnySize(t *testing.T) {
	racing(t, 4, func(t *testing.T, r *rig, cells []*Cell) {
		epochs := map[string]Epoch{"a": r.register(testNode("a", 5)), "b": r.register(testNode("b", 3))}
		hear := r.listen()
		together(12, func(i int) {
			c := cells[i%len(cells)]
			for k := range 15 {
				s := submission("", "a", "b")
				if k%2 == 0 {
					s.Candidates = []string{"b", "a"}
				}
				s.Job.Slots = 1 + (i+k)%4
				p, err := c.Submit(r.ctx(), s)
				if err != nil {
					t.Error(err)
				}
				if !p.Assigned || k >= 13 {
					continue
				}
				if out, err := c.Complete(r.ctx(), succeed(p.Node, epochs[p.Node], s.JobID)); err != nil || out != Completed {
					t.Errorf("complete: %v, %v", out, err)
				}
			}
		})
		last := Revision(2)
		for _, e := range hear.drain() {
			if e.Revision != last+1 || e.Used > e.MaxConcurrency || e.Used < 0 {
				t.Errorf("event %+v after revision %d", e, last)
			}
			last = e.Revision
		}
		if last != r.revision() {
			t.Errorf("last event has revision %d of %d", last, r.revision())
		}
	})
}

// TestRaceToComplete: one attempt ends once, whoever and however often it is said.
func TestRaceToComplete(t *testing.T) {
	racing(t, 4, func(t *testing.T, r *rig, cells []*Cell) {
		if err := r.OpenReplies(r.ctx(), "r1"); err != nil {
			t.Fatal(err)
		}
		epoch := r.register(testNode("n1", 2))
		const rounds = 10
		for range rounds {
			job := r.place("r1", 2, "n1")
			outcomes := make([]CompletionOutcome, 16)
			together(len(outcomes), func(i int) {
				comp := succeed("n1", epoch, job)
				comp.Result = fmt.Appendf(nil, "%d", i)
				var err error
				if outcomes[i], err = cells[i%len(cells)].Complete(r.ctx(), comp); err != nil {
					t.Error(err)
				}
			})
			winner := slices.Index(outcomes, Completed)
			for i, o := range outcomes {
				if (o == Completed) != (i == winner) || o == CompletedStale {
					t.Errorf("outcomes %v", outcomes)
					break
				}
			}
			if got := string(r.status(job).Result); got != fmt.Sprint(winner) {
				t.Errorf("result is %s, %d had won", got, winner)
			}
		}
		if n := len(r.stream(r.l.Replies("r1"))); n != rounds+1 {
			t.Errorf("%d replies to %d jobs", n-1, rounds)
		}
	})
}

// TestRaceToRegister: of two epochs one ends superseded, and jobs that went to the
// loser end exactly once.
func TestRaceToRegister(t *testing.T) {
	racing(t, 4, func(t *testing.T, r *rig, cells []*Cell) {
		for round := range 10 {
			node := fmt.Sprintf("n%d", round)
			epochs := []Epoch{NewEpoch(), NewEpoch(), NewEpoch()}
			subs := []Submission{submission("", node), submission("", node), submission("", node)}
			var mu sync.Mutex
			lost := make(map[string]int)
			placed := make([]Placement, len(subs))
			together(len(epochs)+len(subs), func(i int) {
				var err error
				if i < len(epochs) {
					var reg Registration
					if reg, err = cells[i].Register(r.ctx(), testNode(node, 2), epochs[i]); err == nil {
						mu.Lock()
						for _, job := range reg.Lost {
							lost[job]++
						}
						mu.Unlock()
					}
				} else {
					i -= len(epochs)
					placed[i], err = cells[i].Submit(r.ctx(), subs[i])
				}
				if err != nil {
					t.Error(err)
				}
			})
			alive := 0
			for _, epoch := range epochs {
				switch _, err := r.Heartbeat(r.ctx(), Heartbeat{Node: node, Epoch: epoch}); {
				case err == nil:
					alive++
					if got := r.field(r.l.Node(node), "epoch"); got != epoch {
						t.Errorf("epoch %s is alive, %s is registered", epoch, got)
					}
				case !errors.Is(err, ErrSuperseded):
					t.Error(err)
				}
			}
			if alive != 1 {
				t.Errorf("%d epochs are alive", alive)
			}
			for i, p := range placed {
				if !p.Assigned {
					continue
				}
				s := r.status(subs[i].JobID)
				if waits := s.State == freeslot.StateWaiting; waits != (lost[s.ID] == 1) || lost[s.ID] > 1 {
					t.Errorf("job %+v was lost %d times", s, lost[s.ID])
				}
			}
		}
	})
}

// TestRaceOfEnds: a job is cancelled, completed, attached to, its node taken over and
// deregistered, heartbeats come late: all at once. It ends once and is told once to
// the replica that attached last.
func TestRaceOfEnds(t *testing.T) {
	racing(t, 3, func(t *testing.T, r *rig, cells []*Cell) {
		for _, replica := range []string{"r1", "r2"} {
			if err := r.OpenReplies(r.ctx(), replica); err != nil {
				t.Fatal(err)
			}
		}
		for round := range 15 {
			node := fmt.Sprintf("n%d", round)
			epoch := r.register(testNode(node, 1))
			job := r.place("r1", 1, node)
			beat := Heartbeat{Node: node, Epoch: epoch, Running: []Attempt{{job, 1}}}
			var outcome CompletionOutcome
			var lost, lostByLeave []string
			acts := []func(c *Cell) error{
				func(c *Cell) (err error) { _, err = c.Cancel(r.ctx(), "acme", job); return err },
				func(c *Cell) (err error) { outcome, err = c.Complete(r.ctx(), succeed(node, epoch, job)); return err },
				func(c *Cell) (err error) { _, err = c.Attach(r.ctx(), "acme", job, "r2"); return err },
				func(c *Cell) (err error) { _, err = c.Heartbeat(r.ctx(), beat); return err },
				func(c *Cell) (err error) { _, err = c.Submit(r.ctx(), submission("", node)); return err },
			}
			if round%3 == 1 {
				acts = append(acts, func(c *Cell) error {
					reg, err := c.Register(r.ctx(), testNode(node, 1), NewEpoch())
					lost = reg.Lost
					return err
				})
			}
			if round%3 == 2 {
				acts = append(acts, func(c *Cell) (err error) { lostByLeave, err = c.Deregister(r.ctx(), node, epoch); return err })
			}
			together(len(acts), func(i int) {
				err := acts[i](cells[i%len(cells)])
				if err != nil && !errors.Is(err, ErrSuperseded) && !errors.Is(err, ErrUnknownNode) {
					t.Errorf("act %d: %v", i, err)
				}
			})
			s := r.status(job)
			ends := 0
			if outcome == Completed {
				ends++
			}
			for _, id := range slices.Concat(lost, lostByLeave) {
				if id == job {
					ends++
				}
			}
			if ends != 1 || !s.State.Terminal() {
				t.Errorf("job ended %d times (%s, %v, %v): %+v", ends, outcome, lost, lostByLeave, s)
			}
			told := 0
			for _, replica := range []string{"r1", "r2"} {
				rs, err := r.Replies(r.ctx(), replica, "", 0, 1000)
				if err != nil {
					t.Fatal(err)
				}
				for _, reply := range rs {
					if reply.Status.ID == job && !reply.Detached && !reply.Requeued {
						told++
						if want, err := r.ReplyTo(r.ctx(), job); err != nil || want != replica {
							t.Errorf("replica %s was told, %s had attached last: %v", replica, want, err)
						}
						if reply.Status.State != s.State {
							t.Errorf("reply %+v, record %+v", reply, s)
						}
					}
				}
			}
			if told != 1 {
				t.Errorf("told %d times", told)
			}
			r.cancelWaiting()
		}
	})
}

// TestRaceToAttach: of many that attach the last has it, all others were told.
func TestRaceToAttach(t *testing.T) {
	racing(t, 4, func(t *testing.T, r *rig, cells []*Cell) {
		epoch := r.register(testNode("n1", 1))
		job := r.place("", 1, "n1")
		const replicas = 12
		name := func(i int) string { return fmt.Sprintf("r%d", i) }
		for i := range replicas {
			if err := r.OpenReplies(r.ctx(), name(i)); err != nil {
				t.Fatal(err)
			}
		}
		together(replicas, func(i int) {
			if _, err := cells[i%len(cells)].Attach(r.ctx(), "acme", job, name(i)); err != nil {
				t.Error(err)
			}
		})
		r.end("n1", epoch, job)
		results := 0
		for i := range replicas {
			rs, err := r.Replies(r.ctx(), name(i), "", 0, 100)
			if err != nil || len(rs) != 2 {
				t.Errorf("%s got %+v, %v", name(i), rs, err)
				continue
			}
			if !rs[1].Detached {
				results++
			}
		}
		if results != 1 {
			t.Errorf("%d got the result", results)
		}
	})
}
