package cell

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/events"
)

// TestRevisions runs a random mix of calls. Each revision is published exactly once,
// in order, and says what Redis says.
func TestRevisions(t *testing.T) {
	backends(t, func(t *testing.T, r *rig) {
		seed := rand.Uint64()
		t.Logf("seed %d", seed)
		rng := rand.New(rand.NewPCG(seed, 0))
		mix := newMix(rng, "n0", "n1", "n2")
		hear := r.listen()
		last := Revision(0)
		kinds := make(map[events.Kind]int)
		check := func(what string) {
			for _, e := range hear.drain() {
				kinds[e.Kind]++
				if last++; e.Revision != last {
					t.Fatalf("%s published %+v after revision %d", what, e, last-1)
				}
				r.truth(what, e)
			}
			if got := r.revision(); got != last {
				t.Fatalf("%s: revision is %d, the last event has %d", what, got, last)
			}
		}
		r.oneOfEach(check)
		for _, k := range []events.Kind{events.Register, events.Heartbeat, events.Offline, events.SlotFull, events.SlotFree} {
			if kinds[k] == 0 {
				t.Errorf("no %s was published", k)
			}
		}
		for range 300 {
			check(mix.step(t, r.Cell))
		}
		r.sound()
	})
}

// oneOfEach makes the calls that publish each kind of event, which a random mix may miss.
func (r *rig) oneOfEach(check func(what string)) {
	r.t.Helper()
	epoch := r.register(testNode("first", 1))
	check("register first")
	if _, err := r.Heartbeat(r.ctx(), Heartbeat{Node: "first", Epoch: epoch}); err != nil {
		r.t.Fatal(err)
	}
	check("heartbeat first")
	job := r.place("", 1, "first")
	check("place on first")
	r.end("first", epoch, job)
	check("end on first")
	if _, err := r.Deregister(r.ctx(), "first", epoch); err != nil {
		r.t.Fatal(err)
	}
	check("deregister first")
}

// truth compares an event with what Redis has of the node now.
func (r *rig) truth(what string, e events.Event) {
	r.t.Helper()
	profile := r.hash(r.l.Node(e.Node))
	_, sum := r.slots(e.Node)
	if e.Kind == events.Offline {
		if len(profile) != 0 || e.Status != "offline" || e.Used != 0 {
			r.t.Errorf("%s published %+v, Redis has %v", what, e, profile)
		}
		return
	}
	most := profile["max_concurrency"]
	if e.Kind == events.Heartbeat { // says nothing of it
		most = "0"
	}
	if string(e.Status) != profile["status"] || strconv.Itoa(e.MaxConcurrency) != most || e.Used != sum || e.Epoch != profile["epoch"] {
		r.t.Errorf("%s published %+v, Redis has %v and %d slots in use", what, e, profile, sum)
	}
	if full := e.Used >= e.MaxConcurrency; e.Kind == events.SlotFull && !full || e.Kind == events.SlotFree && full {
		r.t.Errorf("%s published %+v", what, e)
	}
	if revision := r.scores(r.l.Revisions())[e.Node]; revision != float64(e.Revision) {
		r.t.Errorf("%s: node %s is indexed at revision %.0f, the event has %d", what, e.Node, revision, e.Revision)
	}
	if e.Kind == events.Register || e.Kind == events.Heartbeat {
		if !json.Valid([]byte(e.Body)) && !(e.Kind == events.Heartbeat && e.Body == "") {
			r.t.Errorf("%s published the body %q", what, e.Body)
		}
	} else if e.Body != "" {
		r.t.Errorf("%s published the body %q", what, e.Body)
	}
}

// TestRevisionsOfManyWriters is the same with writers that race.
func TestRevisionsOfManyWriters(t *testing.T) {
	racing(t, 4, func(t *testing.T, r *rig, cells []*Cell) {
		hear := r.listen()
		var wg sync.WaitGroup
		for i, c := range cells {
			// Two writers share each node, so that they supersede each other.
			mix := newMix(rand.New(rand.NewPCG(rand.Uint64(), 0)), fmt.Sprintf("n%d", i), fmt.Sprintf("n%d", (i+1)%len(cells)))
			wg.Go(func() {
				for range 150 {
					mix.step(t, c)
				}
			})
		}
		wg.Wait()
		last := Revision(0)
		used := make(map[string]events.Event)
		for _, e := range hear.drain() {
			if last++; e.Revision != last || e.Used < 0 || e.Kind != events.Heartbeat && e.Used > e.MaxConcurrency {
				t.Fatalf("event %+v after revision %d", e, last-1)
			}
			used[e.Node] = e
		}
		if r.revision() != last {
			t.Errorf("revision is %d, the last event has %d", r.revision(), last)
		}
		// A replica that has applied all of them knows which nodes are full.
		for node, e := range used {
			_, sum := r.slots(node)
			profile := r.hash(r.l.Node(node))
			limit, _ := strconv.Atoi(profile["max_concurrency"])
			if e.Kind == events.Heartbeat { // says nothing of it
				e.MaxConcurrency = limit
			}
			if alive := len(profile) > 0; alive == (e.Kind == events.Offline) || alive && (sum >= limit) != (e.Used >= e.MaxConcurrency) {
				t.Errorf("node %s has %d of %d slots in use, the last event was %+v", node, sum, limit, e)
			}
		}
	})
}

// mix makes random calls for some nodes. It remembers epochs and jobs that may have
// ended long ago, so that repeated, stale and superseded calls are among them.
type mix struct {
	rng    *rand.Rand
	nodes  []string
	epochs map[string][]Epoch
	jobs   []mixedJob
}

type mixedJob struct {
	id, node string
	epoch    Epoch
}

func newMix(rng *rand.Rand, nodes ...string) *mix {
	return &mix{rng: rng, nodes: nodes, epochs: make(map[string][]Epoch)}
}

func (m *mix) node() string { return m.nodes[m.rng.IntN(len(m.nodes))] }

// epoch is mostly the latest that this mix has registered.
func (m *mix) epoch(node string) Epoch {
	known := m.epochs[node]
	switch {
	case len(known) == 0:
		return "none"
	case m.rng.IntN(8) == 0:
		return known[m.rng.IntN(len(known))]
	default:
		return known[len(known)-1]
	}
}

func (m *mix) job() mixedJob {
	switch n := len(m.jobs); {
	case n == 0:
		return mixedJob{id: NewJobID(0), node: m.nodes[0], epoch: "none"}
	case m.rng.IntN(3) == 0:
		return m.jobs[m.rng.IntN(n)]
	default: // a recent one, which probably runs
		return m.jobs[n-1-m.rng.IntN(min(n, 4))]
	}
}

func (m *mix) step(t *testing.T, c *Cell) (what string) {
	node := m.node()
	var err error
	switch dice := m.rng.IntN(100); {
	case dice < 8:
		epoch := m.epoch(node)
		size := 8
		if epoch == "none" || m.rng.IntN(3) == 0 {
			epoch, size = NewEpoch(), 4 // which can only grow: a node that shrinks may hold more than its maximum
			m.epochs[node] = append(m.epochs[node], epoch)
		}
		what = "register " + node
		_, err = c.Register(t.Context(), testNode(node, size), epoch)
	case dice < 11:
		what = "deregister " + node
		_, err = c.Deregister(t.Context(), node, m.epoch(node))
	case dice < 28:
		hb := Heartbeat{Node: node, Epoch: m.epoch(node), Status: freeslot.StatusOnline, Resources: json.RawMessage(`{"a b":"c\n"}`)}
		if m.rng.IntN(6) == 0 {
			hb.Status = freeslot.StatusDraining
		}
		what = "heartbeat " + node
		_, err = c.Heartbeat(t.Context(), hb)
	case dice < 65:
		subs := make([]Submission, 1+m.rng.IntN(4))
		for i := range subs {
			subs[i] = submission("", node, m.node())
			subs[i].Job.Slots = 1 + m.rng.IntN(3)
		}
		what = fmt.Sprintf("submit %d jobs to %s", len(subs), node)
		for i, res := range c.SubmitAll(t.Context(), subs) {
			err = errors.Join(err, res.Err)
			if res.Placement.Behind {
				err = errors.Join(err, c.EnqueueAll(t.Context(), subs[i:i+1])[0].Err)
			}
			if res.Placement.Assigned || res.Placement.Behind {
				m.jobs = append(m.jobs, mixedJob{subs[i].JobID, res.Placement.Node, m.epoch(res.Placement.Node)})
			}
		}
	case dice < 90:
		j := m.job()
		what = "complete " + j.id
		_, err = c.Complete(t.Context(), m.end(t, c, j))
	case dice < 94:
		what = "take for " + node
		_, err = c.Take(t.Context(), node, []string{echo}, 1)
	case dice < 96:
		what = "due"
		_, err = c.Due(t.Context(), 3)
	case dice < 97:
		what = "cancel all that wait"
		var page JobPage
		page, err = c.Jobs(t.Context(), JobFilter{State: freeslot.StateWaiting}, "", MaxPage)
		for _, j := range page.Jobs {
			_, e := c.Cancel(t.Context(), "", j.ID)
			err = errors.Join(err, e)
		}
	case dice < 98:
		what = "cancel"
		_, err = c.Cancel(t.Context(), "", m.job().id)
	default:
		what = "attach"
		_, err = c.Attach(t.Context(), "", m.job().id, "r1")
	}
	if err != nil && !errors.Is(err, ErrSuperseded) && !errors.Is(err, ErrUnknownNode) && !strings.Contains(err.Error(), "not_found") {
		t.Errorf(`%s: %v; want no error or errors.Is(err, ErrSuperseded) or errors.Is(err, ErrUnknownNode) or strings.Contains(err.Error(), "not_found")`, what, err)
	}
	return what
}

// end is how an attempt of the job ends, mostly the present one.
func (m *mix) end(t *testing.T, c *Cell, j mixedJob) Completion {
	comp := succeed(cmp.Or(j.node, m.nodes[0]), j.epoch, j.id)
	if s, err := c.Job(t.Context(), "", j.id); err == nil && s.Attempt > 1 || j.node == "" && s.Attempt > 0 {
		node := cmp.Or(s.Node, m.nodes[0]) // of a job that waits again
		comp.Node, comp.Attempt.N, comp.Epoch = node, s.Attempt, m.epoch(node)
	}
	if again := Next(m.rng.IntN(6)); again == Retry || again == HandBack {
		comp.State, comp.Result, comp.Error = freeslot.StateFailed, nil, &freeslot.JobError{Code: "boom"}
		comp.Next, comp.RetryDelay = again, time.Duration(m.rng.IntN(2))*time.Millisecond
	}
	return comp
}

// TestLargeNumbers: Lua prints a number with 14 digits unless it is told otherwise.
func TestLargeNumbers(t *testing.T) {
	backends(t, func(t *testing.T, r *rig) {
		const last = 9_007_199_254_740_000 // near the largest that a double counts to
		r.do("HSET", r.l.Version(), "revision", strconv.Itoa(last))
		hear := r.listen()
		node := testNode("n1", freeslot.MaxConcurrencyLimit)
		epoch := NewEpoch()
		reg, err := r.Register(r.ctx(), node, epoch)
		if err != nil || reg.Revision != last+1 {
			t.Fatalf("register: %+v, %v", reg, err)
		}
		job := r.place("", freeslot.MaxSlots, "n1")
		hb, err := r.Heartbeat(r.ctx(), Heartbeat{Node: "n1", Epoch: epoch, Running: []Attempt{{job, 1}}})
		if err != nil || hb.Revision != last+3 || hb.Used != freeslot.MaxSlots || len(hb.Start)+len(hb.Stop) != 0 {
			t.Fatalf("heartbeat: %+v, %v", hb, err)
		}
		for i, e := range hear.drain() {
			if e.Revision != Revision(last+1+i) || i > 0 && e.Used != freeslot.MaxSlots {
				t.Errorf("event %d: %+v", i, e)
			}
		}
		ch, err := r.Changes(r.ctx(), last, 10)
		if err != nil || ch.Revision != last+3 || len(ch.Nodes) != 1 || ch.Nodes[0].Revision != last+3 || ch.Nodes[0].Used != freeslot.MaxSlots {
			t.Errorf("changes: %+v, %v", ch, err)
		}
		if ch, err := r.Changes(r.ctx(), last+3, 10); err != nil || len(ch.Nodes) != 0 {
			t.Errorf("changes since the last: %+v, %v", ch, err)
		}
		if rev, err := r.NodeRevision(r.ctx(), "n1"); err != nil || rev != last+3 {
			t.Errorf("revision %d, %v", rev, err)
		}
		r.end("n1", epoch, job)
		if s := r.status(job); s.FinishedAtMS < 1_600_000_000_000 || s.Slots != freeslot.MaxSlots {
			t.Errorf("%+v; want s.FinishedAtMS >= 1_600_000_000_000, s.Slots == freeslot.MaxSlots", s)
		}
		r.sound()
	})
}
