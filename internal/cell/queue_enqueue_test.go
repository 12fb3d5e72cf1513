package cell

import (
	"slices"
	"strconv"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/events"
)

// TestEnqueue: a job waits at its place, and the same call again says the same.
func TestEnqueue(t *testing.T) {
	backends(t, func(t *testing.T, r *rig) {
		if w, err := r.Waiting(r.ctx(), 0); err != nil || w.Same || w.Revision != 0 || len(w.Classes) != 0 {
			t.Errorf("nobody waits: %+v, %v", w, err)
		}
		first, second, other := submission("r1"), submission(""), submission("")
		first.Job.TimeoutMS, first.Job.MaxAttempts, other.Job.Service = 60_000, 7, "tts"
		before := r.nowMS()
		for i, want := range []int{1, 2, 1} {
			s := []Submission{first, second, other}[i]
			res := r.EnqueueAll(r.ctx(), []Submission{s})[0]
			if p := res.Placement; res.Err != nil || !p.Waiting || p.Assigned || p.Position != want {
				t.Errorf("job %d: %+v", i, res)
			}
			r.unchanged("the same again", func() {
				if p := r.enqueued(s)[0]; !p.Waiting || p.Position != want {
					t.Errorf("job %d again: %+v", i, p)
				}
			}, nil)
			if p, err := r.Submit(r.ctx(), withCandidates(s, "n1")); err != nil || !p.Waiting || !p.Repeated || p.Position != want {
				t.Errorf("job %d submitted: %+v, %v", i, p, err)
			}
		}
		s := r.status(first.JobID)
		want := freeslot.JobStatus{
			ID: first.JobID, Tenant: "acme", Service: "echo", Class: ClassOf(first.Job).ID, State: freeslot.StateWaiting, Slots: 1, Position: 1,
			SubmittedAtMS: s.SubmittedAtMS, DeadlineMS: s.SubmittedAtMS + 60_000,
		}
		if d := cmp.Diff(want, s); d != "" || s.SubmittedAtMS < before || s.SubmittedAtMS > r.nowMS() {
			t.Errorf("submitted after %d (-want +got):\n%s", before, d)
		}
		w, err := r.Waiting(r.ctx(), 0)
		slices.SortFunc(w.Classes, func(a, b Class) int { return cmpText(a.Definition, b.Definition) })
		if d := cmp.Diff([]Class{ClassOf(first.Job), ClassOf(other.Job)}, w.Classes); err != nil || d != "" {
			t.Errorf("%v, classes (-want +got):\n%s", err, d)
		}
		if again, err := r.Waiting(r.ctx(), w.Revision); err != nil || !again.Same || again.Classes != nil {
			t.Errorf("nothing has changed: %+v, %v", again, err)
		}
		r.sound()
		r.cancelWaiting()
		if again, err := r.Waiting(r.ctx(), w.Revision); err != nil || again.Same || len(again.Classes) != 0 {
			t.Errorf("nobody waits any more: %+v, %v", again, err)
		}
		r.sound()
	})
}

func cmpText(a, b string) int {
	if a < b {
		return -1
	}
	return 1
}

func withCandidates(s Submission, nodes ...string) Submission {
	s.Candidates = nodes
	return s
}

// TestEnqueueFull: a queue has an end; a job that waits already is not refused.
func TestEnqueueFull(t *testing.T) {
	racing(t, 1, func(t *testing.T, r *rig, _ []*Cell) {
		c := open(t, r.redis, func(c *Config) { c.Layout, c.WaitingLimit = r.l, 2 })
		subs := []Submission{submission(""), submission(""), submission("")}
		for i, s := range subs {
			res := c.EnqueueAll(r.ctx(), []Submission{s})[0]
			if i < 2 && (res.Err != nil || !res.Placement.Waiting) {
				t.Errorf("job %d: %+v", i, res)
			}
			if i == 2 {
				wantErr(t, res.Err, freeslot.CodeOverloaded)
			}
		}
		if r.exists(r.l.Job(subs[2].JobID)) {
			t.Error("a job that was refused is there")
		}
		if res := c.EnqueueAll(r.ctx(), subs[:1])[0]; res.Err != nil || !res.Placement.Waiting {
			t.Errorf("again: %+v", res)
		}
		other := submission("")
		other.Job.Service = "tts"
		if res := c.EnqueueAll(r.ctx(), []Submission{other})[0]; res.Err != nil || !res.Placement.Waiting {
			t.Errorf("of another class: %+v", res)
		}
	})
}

// TestEnqueueTakesFreeSlots: candidates' slots go to who is first in the classes that name
// them, several classes and nodes in one call.
func TestEnqueueTakesFreeSlots(t *testing.T) {
	backends(t, func(t *testing.T, r *rig) {
		if err := r.OpenReplies(r.ctx(), "r1"); err != nil {
			t.Fatal(err)
		}
		r.register(testNode("n1", 2))
		r.register(testNode("n2", 1))
		early := r.waits("r1")
		hear := r.listen()
		a, b, c, d := submission("r1", "n1"), submission("r1", "n1", "n2"), submission("", "n2"), submission("", "n1", "none")
		c.Job.Service, d.Job.Priority = "tts", 5
		got := r.enqueued(a, b, c, d, a)
		for i, want := range []struct {
			node     string
			used     int
			position int
		}{{node: "n2", used: 1}, {position: 1}, {position: 1}, {node: "n1", used: 1}, {node: "n2", used: 1}} {
			p := got[i]
			if p.Assigned != (want.node != "") || p.Node != want.node || p.Assigned && (p.Used != want.used || p.Attempt != 1) || p.Waiting && p.Position != want.position {
				t.Errorf("item %d: %+v, want %+v", i, p, want)
			}
		}
		// Who had waited before got what was left, and its replica is told.
		s := r.status(early)
		if s.State != freeslot.StateRunning || s.Node != "n1" || s.Attempt != 1 {
			t.Errorf("the first: %+v", s)
		}
		begun := func(job, node string, used int) Reply {
			return Reply{Assigned: true, Used: used, Status: freeslot.JobStatus{
				ID: job, Node: node, Attempt: 1, AssignedAtMS: s.AssignedAtMS, State: freeslot.StateRunning,
			}}
		}
		want := []Reply{begun(early, "n1", 2), begun(a.JobID, "n2", 1)}
		if d := cmp.Diff(want, r.told("r1")); d != "" {
			t.Errorf("replies (-want +got):\n%s", d)
		}
		full := map[string]int{}
		for _, e := range hear.drain() {
			if e.Kind != events.SlotFull || e.Used != e.MaxConcurrency {
				t.Errorf("event %+v", e)
			}
			full[e.Node]++
		}
		if d := cmp.Diff(map[string]int{"n1": 1, "n2": 1}, full); d != "" {
			t.Errorf("nodes announced as full (-want +got):\n%s", d)
		}
		ds, err := r.Dispatches(r.ctx(), "n1", "", 0, 10)
		if err != nil || len(ds) != 2 || ds[0].Attempt != (Attempt{d.JobID, 1}) || ds[1].Attempt != (Attempt{early, 1}) || ds[1].Job == nil || ds[1].Tenant != "acme" {
			t.Errorf("dispatches %+v, %v", ds, err)
		}
		r.sound()
	})
}

// TestEnqueueAsksNodes: one that may get no job gets none.
func TestEnqueueAsksNodes(t *testing.T) {
	backends(t, func(t *testing.T, r *rig) {
		draining := r.register(testNode("draining", 1))
		if _, err := r.Heartbeat(r.ctx(), Heartbeat{Node: "draining", Epoch: draining, Status: freeslot.StatusDraining}); err != nil {
			t.Fatal(err)
		}
		r.register(testNode("silent", 1))
		r.silence("silent")
		r.register(testNode("full", 1))
		r.place("", 1, "full")
		r.register(testNode("edited", 1))
		r.do("HSET", r.l.Slots("edited"), "sum", "nan")
		if p := r.enqueued(submission("", "draining", "silent", "full", "none", "edited"))[0]; !p.Waiting || p.Assigned {
			t.Errorf("%+v", p)
		}
		for node, why := range map[string]RefusalReason{
			"draining": RefusedDraining, "silent": RefusedSilent, "full": RefusedFull, "none": RefusedGone, "edited": RefusedFull,
		} {
			if got, err := r.Take(r.ctx(), node, []string{echo}, 1); err != nil || got.Jobs != 0 || got.Refusal != why {
				t.Errorf("%s: %+v, %v; want no error, got.Jobs == 0, got.Refusal == %v", node, got, err, why)
			}
		}
		r.do("HSET", r.l.Slots("edited"), "sum", "0")
		if got := r.take("edited"); got != 1 {
			t.Errorf("a node with a free slot took %d", got)
		}
		r.do("DEL", r.l.Load("silent"))
		r.sound()
	})
}

// TestSubmitBehind: no job passes one of its class that waits, also within a call; others go on.
func TestSubmitBehind(t *testing.T) {
	backends(t, func(t *testing.T, r *rig) {
		r.register(testNode("n1", 9))
		r.waits("")
		behind, free := submission("", "n1"), submission("", "n1")
		free.Job.Service = "tts"
		got, err := r.Cell.submit(r.ctx(), encoded(t, behind, free))
		if err != nil || !cmp.Equal(got[0], Placement{Behind: true}) || !got[1].Assigned {
			t.Fatalf("%+v, %v; want no error, cmp.Equal(got[0], Placement{Behind: true}), got[1].Assigned", got, err)
		}
		if r.exists(r.l.Job(behind.JobID)) {
			t.Error("a job that must wait is there")
		}
		if n := r.take("n1"); n != 1 {
			t.Errorf("%d began", n)
		}
		if p, err := r.Submit(r.ctx(), behind); err != nil || !p.Assigned {
			t.Errorf("nobody waits any more: %+v, %v", p, err)
		}
		r.sound()
	})
}

// TestFairness is start-time fair queueing in the plainest way beside the queue: tenants of
// different weights, jobs of different sizes, some enqueued while others are served.
func TestFairness(t *testing.T) {
	backends(t, func(t *testing.T, r *rig) {
		epoch := r.register(testNode("n1", 4))
		type job struct {
			id         string
			start      int
			tenant     string
			slots, was int
		}
		var waiting []job
		virtual, tags := 0, map[string]int{}
		add := func(tenant string, weight, n int) {
			id := r.waits("", of(tenant, weight), slots(n))
			start := max(virtual, tags[tenant])
			tags[tenant] = start + n*1024/weight
			waiting = append(waiting, job{id: id, start: start, tenant: tenant, slots: n, was: len(waiting)})
		}
		for range 12 {
			add("heavy", 4, 1)
		}
		for i := range 6 {
			add("light", 1, 1+i%2)
			add("other", 2, 1)
		}
		served := map[string]int{}
		for n := 0; len(waiting) > 0; n++ {
			slices.SortStableFunc(waiting, func(a, b job) int {
				if a.start != b.start {
					return a.start - b.start
				}
				return cmpText(a.id, b.id)
			})
			next := waiting[0]
			virtual = max(virtual, next.start)
			waiting = waiting[1:]
			r.do("HSET", r.l.Node("n1"), "max_concurrency", strconv.Itoa(next.slots)) // room for this one alone
			if got := r.take("n1"); got != 1 || r.status(next.id).State != freeslot.StateRunning {
				t.Fatalf("job %d of %s does not come at place %d, but %v", next.was, next.tenant, n, r.line(echo))
			}
			r.do("DEL", r.l.Serves("n1")) // or else the end would hand the slot over
			r.end("n1", epoch, next.id)
			served[next.tenant] += next.slots
			if n == 8 {
				if served["heavy"] < 5 || served["light"] > 3 {
					t.Errorf("slots served at first: %v", served)
				}
				add("late", 1, 1) // begins with those served now, not before all others
			}
		}
		r.sound()
	})
}

// kind returns a submission of a class of its own.
func kind(tenant string, n, most int) Submission {
	s := submission("")
	s.Tenant, s.MaxKinds = tenant, most
	s.Job.Service = "kind-" + strconv.Itoa(n)
	return s
}

// A tenant makes no more kinds of waiting jobs than it may, and others are not held back. A kind
// counts for the tenant whose job made its queue, as long as jobs wait there.
func TestKindsOfATenant(t *testing.T) {
	backends(t, func(t *testing.T, r *rig) {
		const most = 3
		enqueue := func(s Submission) freeslot.Code {
			t.Helper()
			return freeslot.CodeOf(r.EnqueueAll(r.ctx(), []Submission{s})[0].Err)
		}
		first := kind("acme", 0, most)
		for i, s := range []Submission{first, kind("acme", 1, most), kind("acme", 2, most)} {
			if code := enqueue(s); code != "" {
				t.Fatalf("kind %d is refused as %s, expected room for %d", i, code, most)
			}
		}
		if code := enqueue(kind("acme", 3, most)); code != freeslot.CodeOverloaded {
			t.Errorf("one kind too many gets %q, expected %s", code, freeslot.CodeOverloaded)
		}
		if code := enqueue(kind("acme", 1, most)); code != "" {
			t.Errorf("another job of a kind gets %q, expected it accepted", code)
		}
		for i := range most {
			if code := enqueue(kind("other", 2+i, most)); code != "" { // one is there already, and is not its own
				t.Errorf("kind %d of another tenant gets %q, expected it accepted", i, code)
			}
		}
		if code := enqueue(kind("alone", 9, 0)); code != "" {
			t.Errorf("a tenant without a limit gets %q, expected it accepted", code)
		}
		// A queue that ends makes room. The tenant that makes it again has it.
		if _, err := r.Cancel(r.ctx(), "acme", first.JobID); err != nil {
			t.Fatal(err)
		}
		if code := enqueue(kind("other", 0, most)); code != "" {
			t.Errorf("the kind that another tenant had gets %q, expected it accepted", code)
		}
		if code := enqueue(kind("acme", 6, most)); code != "" {
			t.Errorf("a kind in place of one that ended gets %q, expected it accepted", code)
		}
		if code := enqueue(kind("acme", 7, most)); code != freeslot.CodeOverloaded {
			t.Errorf("again one too many gets %q, expected %s", code, freeslot.CodeOverloaded)
		}
		// One call cannot pass the limit either.
		batch := make([]Submission, 5)
		for i := range batch {
			batch[i] = kind("batch", 20+i, most)
		}
		accepted := 0
		for _, res := range r.EnqueueAll(r.ctx(), batch) {
			if res.Err == nil {
				accepted++
			}
		}
		if accepted != most {
			t.Errorf("%d kinds of one call are accepted, expected %d", accepted, most)
		}
		r.sound()
	})
}

// A job for later that would be one kind too many waits until there is room.
func TestKindsOfJobsForLater(t *testing.T) {
	backends(t, func(t *testing.T, r *rig) {
		const most = 2
		soon := r.nowMS() + 3600_000
		ids := make([]string, 4)
		for i := range ids {
			s := kind("acme", i, most)
			s.Job.RunAtMS = soon
			if res := r.EnqueueAll(r.ctx(), []Submission{s})[0]; res.Err != nil {
				t.Fatal(res.Err)
			}
			ids[i] = s.JobID
		}
		pass := func() { // of the time until the next look
			t.Helper()
			for _, id := range ids {
				r.do("ZADD", r.layout.Due(), "XX", "1", id)
			}
			if _, err := r.Due(r.ctx(), 100); err != nil {
				t.Fatal(err)
			}
		}
		states := func() (waiting, scheduled int) {
			for _, id := range ids {
				switch r.status(id).State {
				case freeslot.StateWaiting:
					waiting++
				case freeslot.StateScheduled:
					scheduled++
				}
			}
			return waiting, scheduled
		}
		for range 3 {
			pass()
			if waiting, scheduled := states(); waiting != most || scheduled != 4-most {
				t.Fatalf("%d jobs wait and %d are for later, expected %d and %d", waiting, scheduled, most, 4-most)
			}
		}
		for _, id := range ids {
			if r.status(id).State == freeslot.StateWaiting {
				if _, err := r.Cancel(r.ctx(), "acme", id); err != nil {
					t.Fatal(err)
				}
			}
		}
		pass()
		if waiting, _ := states(); waiting != 4-most {
			t.Errorf("%d jobs wait once there is room, expected %d", waiting, 4-most)
		}
	})
}

// A tenant has at most a quarter of the jobs for later. Jobs that are cancelled make room.
func TestShareOfJobsForLater(t *testing.T) {
	backends(t, func(t *testing.T, r *rig) {
		r.cfg.WaitingLimit = 2 // so 20 jobs for later, 5 of one tenant
		later := func(tenant string) (string, freeslot.Code) {
			s := kind(tenant, 0, 64)
			s.Job.RunAtMS = r.nowMS() + 3600_000
			return s.JobID, freeslot.CodeOf(r.EnqueueAll(r.ctx(), []Submission{s})[0].Err)
		}
		var last string
		for i := range 5 {
			id, code := later("acme")
			if last = id; code != "" {
				t.Fatalf("job %d is refused as %s, expected room for 5", i, code)
			}
		}
		if _, code := later("acme"); code != freeslot.CodeOverloaded {
			t.Errorf("one too many gets %q, expected %s", code, freeslot.CodeOverloaded)
		}
		if _, code := later("other"); code != "" {
			t.Errorf("another tenant gets %q, expected it accepted", code)
		}
		if _, err := r.Cancel(r.ctx(), "acme", last); err != nil {
			t.Fatal(err)
		}
		if _, code := later("acme"); code != "" {
			t.Errorf("after a cancel it gets %q, expected it accepted", code)
		}
	})
}

// A tenant parks jobs of many classes behind one concurrency key. When the key's job ends, they do
// not take all kinds of waiting jobs: another tenant's job still waits.
func TestKindsOfHeldJobs(t *testing.T) {
	backends(t, func(t *testing.T, r *rig) {
		const most, jobs, half = 3, 600, 512
		epoch, key := r.register(testNode("n1", 8)), KeyLimit("acme", "k", 1)
		first := r.waits("r1", of("acme", 1), limitedBy(key))
		r.take("n1")
		subs := make([]Submission, jobs)
		for i := range subs {
			subs[i] = kind("acme", i, most)
			subs[i].Limits = []Limit{key}
		}
		for i, res := range r.EnqueueAll(r.ctx(), subs) {
			if res.Err != nil {
				t.Fatalf("job %d, which the limit holds back, is refused: %v", i, res.Err)
			}
		}
		r.end("n1", epoch, first)
		for range jobs/100 + 1 {
			if _, err := r.CheckLimits(r.ctx(), 100); err != nil {
				t.Fatal(err)
			}
		}
		if kinds := r.int("HLEN", r.l.Waiting()); kinds > half {
			t.Errorf("%d kinds of jobs wait, expected at most %d", kinds, half)
		}
		if err := r.EnqueueAll(r.ctx(), []Submission{kind("victim", jobs, most)})[0].Err; err != nil {
			t.Errorf("another tenant's job is refused: %v; expected it accepted", err)
		}
	})
}
