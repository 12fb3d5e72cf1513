package cell

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/testing/waittest"
)

// TestRaceOfWaitingJobs: many submit, enqueue, take, complete, fail and hand back at once. No
// node is given more than it has, each attempt runs once, and every job ends.
func TestRaceOfWaitingJobs(t *testing.T) {
	racing(t, 4, func(t *testing.T, r *rig, cells []*Cell) {
		must(t, r.OpenReplies(r.ctx(), "r1"))
		const jobs, writers = 160, 8
		const limit = 3
		nodes := map[string]Epoch{"a": "", "b": "", "c": ""}
		for node := range nodes {
			nodes[node] = r.register(testNode(node, limit))
		}
		hear := r.listen()
		var mu sync.Mutex
		ran := make(map[Attempt]string) // by whom an attempt was completed
		var ids []string
		begin := func(c *Cell, rng *rand.Rand) {
			s := submission("r1", "a", "b", "c")
			rng.Shuffle(3, func(i, j int) { s.Candidates[i], s.Candidates[j] = s.Candidates[j], s.Candidates[i] })
			s.Job.Slots, s.Job.Priority, s.Job.MaxAttempts = 1+rng.IntN(3), 5*rng.IntN(2), 50
			s.Tenant, s.Job.Service = []string{"acme", "other"}[rng.IntN(2)], []string{"echo", "tts"}[rng.IntN(2)]
			p, err := c.Submit(r.ctx(), s)
			if err != nil {
				t.Error(err)
			}
			if !p.Assigned {
				if res := c.EnqueueAll(r.ctx(), []Submission{s})[0]; res.Err != nil || !res.Placement.Waiting && !res.Placement.Assigned {
					t.Errorf("enqueue: %+v", res)
				}
			}
			mu.Lock()
			ids = append(ids, s.JobID)
			mu.Unlock()
		}
		// work is an agent that ends some of what its node owns.
		work := func(c *Cell, node string, rng *rand.Rand) (busy bool) {
			hb, err := c.Heartbeat(r.ctx(), Heartbeat{Node: node, Epoch: nodes[node]})
			if err != nil {
				t.Error(err)
			}
			for _, a := range hb.Start {
				busy = true
				comp := succeed(node, nodes[node], a.Job)
				comp.Attempt = a
				if again := Next(rng.IntN(6)); again == Retry || again == HandBack {
					comp.State, comp.Result, comp.Error, comp.Next = freeslot.StateFailed, nil, &freeslot.JobError{Code: "boom"}, again
				}
				out, err := c.Complete(r.ctx(), comp)
				if err != nil {
					t.Errorf("complete: %v, %v", out, err)
				}
				if out == Completed {
					mu.Lock()
					if by, twice := ran[a]; twice {
						t.Errorf("attempt %v was completed by %s and %s", a, by, node)
					}
					ran[a] = node
					mu.Unlock()
				}
			}
			return busy
		}
		take := func(c *Cell, node string) {
			if _, err := c.Take(r.ctx(), node, modelClasses, 1); err != nil {
				t.Error(err)
			}
		}
		together(writers, func(i int) {
			c, rng := cells[i%len(cells)], rand.New(rand.NewPCG(rand.Uint64(), 0))
			for range jobs / writers {
				begin(c, rng)
				node := []string{"a", "b", "c"}[rng.IntN(3)]
				work(c, node, rng)
				take(c, node)
			}
		})
		// What is left: nodes avoid a job that has just failed there, so that time passes here.
		rng := rand.New(rand.NewPCG(1, 2))
		left, attempts := len(ids), 0
		waittest.Until(t, "all jobs to end", func() bool {
			left, attempts = 0, 0
			for _, id := range ids {
				s := r.status(id)
				if attempts += s.Attempt; !s.State.Terminal() {
					left++
					r.forgive(id)
				}
			}
			for node := range nodes {
				take(r.Cell, node)
				work(r.Cell, node, rng)
			}
			return left == 0
		}, func() any { return fmt.Sprintf("%d jobs left after %d attempts", left, attempts) })
		for _, id := range ids {
			s := r.status(id)
			if s.State != freeslot.StateSucceeded && s.State != freeslot.StateFailed || len(ids) != jobs {
				t.Errorf("%d jobs, %+v", len(ids), s)
			}
			for n := 1; n <= s.Attempt; n++ {
				if ran[Attempt{id, n}] == "" {
					t.Errorf("attempt %d of %d of job %s was completed by nobody", n, s.Attempt, id)
				}
			}
		}
		for _, e := range hear.drain() {
			if e.Used > limit || e.Used < 0 {
				t.Errorf("event %+v", e)
			}
		}
		for node := range nodes {
			if _, sum := r.slots(node); sum != 0 {
				t.Errorf("node %s has %d slots in use", node, sum)
			}
		}
		told := make(map[string]int)
		for _, reply := range mustGet(r.Replies(r.ctx(), "r1", "", 0, 10_000))(t) {
			if reply.Status.State.Terminal() {
				told[reply.Status.ID]++
			}
		}
		for _, id := range ids {
			if told[id] != 1 {
				t.Errorf("the replica was told %d times that job %s ended", told[id], id)
			}
		}
	})
}

// TestRaceToTake: however many have a node take jobs, each begins once.
func TestRaceToTake(t *testing.T) {
	racing(t, 4, func(t *testing.T, r *rig, cells []*Cell) {
		for round := range 5 {
			node := fmt.Sprintf("n%d", round)
			epoch := r.register(testNode(node, 3))
			jobs := []string{r.waits(""), r.waits(""), r.waits(""), r.waits("")}
			var mu sync.Mutex
			begun := 0
			together(16, func(i int) {
				var err error
				if i%4 == 3 {
					_, err = cells[i%len(cells)].Cancel(r.ctx(), "", jobs[3])
				} else {
					var got Taken
					got, err = cells[i%len(cells)].Take(r.ctx(), node, []string{echo}, 1)
					mu.Lock()
					begun += got.Jobs
					mu.Unlock()
				}
				if err != nil && !errors.Is(err, ErrStopped) {
					t.Error(err)
				}
			})
			if held, sum := r.slots(node); begun != 3 || sum != 3 || len(held) != 3 {
				t.Errorf("%d began, %d slots in use", begun, sum)
			}
			for _, job := range jobs[:3] {
				r.end(node, epoch, job)
			}
			r.cancelWaiting()
		}
	})
}
