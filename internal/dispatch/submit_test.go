package dispatch

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/redis/rueidis"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/cache"
	"github.com/freeslot/freeslot/internal/cell"
	"github.com/freeslot/freeslot/internal/selection"
	"github.com/freeslot/freeslot/internal/testing/redistest"
	"github.com/freeslot/freeslot/internal/testing/waittest"
)

// blind makes a replica whose cache learns nothing after its start.
func blind(c *replicaConfig) {
	c.blind, c.cache = true, cache.Config{RefreshInterval: time.Hour}
}

func (rep *replica) refusals(reason cell.RefusalReason) int {
	return int(testutil.ToFloat64(rep.metrics.refusals.WithLabelValues(string(reason))))
}

func TestLifeOfAJob(t *testing.T) {
	t.Parallel()
	redistest.Backends(t, func(t *testing.T, redis *redistest.Target) {
		t.Parallel()
		r := newRig(t, redis)
		a := r.agent(node("n1", 2))
		rep := r.replica("r1")
		sink := newRecorder(t)
		id := rep.mustPlace(&freeslot.Job{Service: "echo", Payload: json.RawMessage(`{"n":1}`), Slots: 2}, sink)
		if rep.Outstanding() != 1 {
			t.Errorf("%d outstanding", rep.Outstanding())
		}
		d := a.next()
		if d.Attempt != (cell.Attempt{Job: id, N: 1}) || d.Tenant != tenant || string(d.Job.Payload) != `{"n":1}` {
			t.Errorf("dispatched %+v", d)
		}
		assigned, ok := sink.of(id)[0].(Assignment)
		if !ok || assigned.JobID != id || assigned.Node != "n1" || assigned.Attempt != 1 || assigned.AssignedAtMS == 0 {
			t.Errorf("assigned %+v", assigned)
		}
		if s, _ := rep.cache.State("n1"); s.Used != 2 {
			t.Errorf("the cache has %d slots in use", s.Used)
		}
		a.complete(id, `{"ok":true}`)
		got := sink.result(id)
		want, err := rep.Job(deadline(t), tenant, id)
		if err != nil {
			t.Fatal(err)
		}
		if fmt.Sprint(got) != fmt.Sprint(want) || got.State != freeslot.StateSucceeded || string(got.Result) != `{"ok":true}` {
			t.Errorf("result %+v, record %+v", got, want)
		}
		sink.want(id, "assigned result")
		waittest.Until(t, "nothing outstanding", func() bool { return rep.Outstanding() == 0 })
		waittest.Until(t, "the slots in the cache", func() bool { s, _ := rep.cache.State("n1"); return s.Used == 0 })
		page, err := rep.Jobs(deadline(t), cell.JobFilter{State: freeslot.StateSucceeded}, "", 10)
		if err != nil || len(page.Jobs) != 1 || page.Jobs[0].ID != id {
			t.Errorf("listed %+v, %v", page, err)
		}
	})
}

// The node can be done before the submit hears that the job was placed. The sink still gets its
// calls in order.
func TestResultFasterThanAcceptance(t *testing.T) {
	t.Parallel()
	redistest.Backends(t, func(t *testing.T, redis *redistest.Target) {
		t.Parallel()
		r := newRig(t, redis)
		a := r.agent(node("n1", 1))
		rep := r.replica("r1")
		sink := newRecorder(t)
		var id string
		rep.Submit(deadline(t), []Request{{Tenant: tenant, Job: job()}}, sink, func(_ int, accepted Accepted, err error) {
			jobID := accepted.JobID
			if err != nil {
				t.Fatal(err)
			}
			id = jobID
			a.complete(jobID, `1`)
			w, ok := rep.byCell[0].outstanding.Load(jobID)
			if !ok {
				t.Fatal("no sink waits")
			}
			waittest.Until(t, "the reply", func() bool {
				w.mu.Lock()
				defer w.mu.Unlock()
				return w.earlyResult != nil
			})
			sink.want(jobID, "")
		})
		sink.want(id, "assigned result")
		if n := rep.Outstanding(); n != 0 {
			t.Errorf("%d outstanding", n)
		}
		rep.settled()
	})
}

// A batch is decided item by item: more jobs than slots, and one that fits nowhere.
func TestBatch(t *testing.T) {
	t.Parallel()
	redistest.Backends(t, func(t *testing.T, redis *redistest.Target) {
		t.Parallel()
		const slots, jobs = 70, 100 // more than one call of the cell
		r := newRig(t, redis)
		for i := range 7 {
			r.agent(node(fmt.Sprintf("n%d", i), slots/7)).serve(func(d cell.Dispatch) string { return string(d.Job.Payload) })
		}
		rep := r.replica("r1")
		// No job ends before all are placed.
		sink := newRecorder(t)
		reqs := make([]Request, jobs)
		for i := range reqs {
			reqs[i] = Request{Tenant: tenant, Job: &freeslot.Job{Service: "echo", Payload: json.RawMessage(fmt.Sprint(i))}}
		}
		reqs[50].Job = &freeslot.Job{Service: "unknown"}
		ids := make([]string, jobs)
		codes := make(map[freeslot.Code]int)
		seen := make([]int, jobs)
		rep.Submit(deadline(t), reqs, sink, func(i int, a Accepted, err error) {
			jobID := a.JobID
			ids[i] = jobID
			seen[i]++
			codes[freeslot.CodeOf(err)]++
			if want := i == 50; want != (freeslot.CodeOf(err) == freeslot.CodeNoMatchingNode) {
				t.Errorf("job %d: %v", i, err)
			}
			if err == nil {
				sink.want(jobID, "")
			}
		})
		rep.settled()
		for i, n := range seen {
			if n != 1 {
				t.Errorf("job %d was answered %d times", i, n)
			}
		}
		if codes[""] < slots || codes[""]+codes[freeslot.CodeOverloaded]+codes[freeslot.CodeNoMatchingNode] != jobs {
			t.Errorf("answers: %v", codes)
		}
		for i, id := range ids {
			if id == "" {
				continue
			}
			if s := sink.result(id); string(s.Result) != fmt.Sprint(i) {
				t.Errorf("job %d has the result %s", i, s.Result)
			}
			sink.want(id, "assigned result")
		}
		waittest.Until(t, "nothing outstanding", func() bool { return rep.Outstanding() == 0 })
	})
}

// If no node could ever run the job, the client learns why. If nodes are only busy or draining, the
// job waits.
func TestNoNode(t *testing.T) {
	t.Parallel()
	r := newRig(t, redistest.Shared(t))
	rep := r.replica("r1")
	outcome := func(job *freeslot.Job, code freeslot.Code) *freeslot.Error {
		t.Helper()
		_, err := rep.place(job, newRecorder(t))
		return asError(t, err, code)
	}
	if e := outcome(job(), freeslot.CodeNoMatchingNode); len(e.Breakdown) != 0 || e.RetryAfter != 0 {
		t.Errorf("no node at all: %+v", e)
	}
	busy := r.agent(node("busy", 1))
	other := node("other", 4)
	other.Services[0].Name = "other"
	r.agent(other)
	waittest.Until(t, "both nodes", func() bool { return rep.cache.Size() == 2 })
	first := rep.mustPlace(job(), newRecorder(t))

	waiting := newRecorder(t)
	second := rep.mustWait(job(), 1, waiting)
	e := outcome(&freeslot.Job{Service: "echo", Requirement: freeslot.Requirement{Labels: map[string]string{"gpu": "a"}}}, freeslot.CodeNoMatchingNode)
	if e.Breakdown["labels"] != 1 || e.Breakdown["service"] != 1 || e.RetryAfter != 0 {
		t.Errorf("no label: %+v", e)
	}
	if e := outcome(&freeslot.Job{Service: "echo", Slots: 2}, freeslot.CodeNoMatchingNode); e.Breakdown["slots"] != 1 || e.Breakdown["service"] != 1 {
		t.Errorf("too large for every node: %+v", e)
	}
	busy.heartbeat(freeslot.StatusDraining)
	waittest.Until(t, "the drain", func() bool { n, _ := rep.cache.Node("busy"); return n.Draining() })
	busy.complete(first, `1`)
	third := rep.mustWait(job(), 2, waiting)
	busy.heartbeat(freeslot.StatusOnline)
	for _, id := range []string{second, third} {
		waiting.begun(id, 1)
		busy.complete(id, `1`)
		_ = waiting.result(id)
		waiting.want(id, "assigned result")
	}
	if n := testutil.ToFloat64(rep.metrics.enqueued.WithLabelValues("0")); n != 2 {
		t.Errorf("%v enqueued counted", n)
	}
}

// The cache is wrong: Redis refuses, which corrects the cache, and the job goes elsewhere.
func TestRefusalsMendTheCache(t *testing.T) {
	t.Parallel()
	for reason, spoil := range map[cell.RefusalReason]func(r *rig, a *agent){
		cell.RefusedFull: func(r *rig, a *agent) {
			s := cell.Submission{JobID: cell.NewJobID(0), Tenant: tenant, Job: &freeslot.Job{Service: "echo", Slots: 9}, Candidates: []string{a.node.ID}}
			if p, err := r.cell.Submit(deadline(r.t), s); err != nil || !p.Assigned {
				r.t.Fatalf("%+v, %v; want no error, p.Assigned", p, err)
			}
		},
		cell.RefusedDraining: func(_ *rig, a *agent) { a.heartbeat(freeslot.StatusDraining) },
		cell.RefusedGone: func(r *rig, a *agent) {
			if _, err := r.cell.Deregister(deadline(r.t), a.node.ID, a.epoch); err != nil {
				r.t.Fatal(err)
			}
		},
		cell.RefusedSilent: func(r *rig, a *agent) {
			long := r.client.B().Set().Key(r.layout.Load(a.node.ID)).Value("1000000000000 {}").Build()
			if err := r.client.Do(deadline(r.t), long).Error(); err != nil {
				r.t.Fatal(err)
			}
		},
	} {
		t.Run(string(reason), func(t *testing.T) {
			t.Parallel()
			r := newRig(t, redistest.Shared(t))
			bad := r.agent(node("bad", 9))
			r.agent(node("good", 1000))
			// One candidate: if another one took the job, this refusal would not be reported.
			rep := r.replica("r1", blind, func(c *replicaConfig) { c.dispatch.Candidates = 1 })
			spoil(r, bad)
			ids := make([]string, 20)
			sink := newRecorder(t)
			for i := range ids {
				ids[i] = rep.mustPlace(job(), sink)
			}
			for _, id := range ids {
				if a, _ := sink.of(id)[0].(Assignment); a.Node != "good" {
					t.Errorf("job %s went to %s", id, a.Node)
				}
			}
			// The first refusal suffices. "bad" is chosen once, because it seems idle.
			if n := rep.refusals(reason); n != 1 {
				t.Errorf("%d refusals", n)
			}
			if _, used := r.owned("good"); used != 20 {
				t.Errorf("%d jobs on the good node", used)
			}
		})
	}
}

// Jobs wait only for a fleet that Redis calls full: the cache alone does not suffice.
func TestFullInTheCacheOnly(t *testing.T) {
	t.Parallel()
	r := newRig(t, redistest.Shared(t))
	r.agent(node("n1", 1))
	rep := r.replica("r1", blind)
	n, _ := rep.cache.Node("n1")
	n.SetUsed(1)
	rep.mustWait(job(), 0, nil)
	n.SetUsed(1)
	rep.mustWait(job(), 1, nil)
	if jobs, used := r.owned("n1"); used != 1 || len(jobs) != 1 {
		t.Errorf("%d jobs, %d slots", len(jobs), used)
	}
}

// A fleet that answered that it is full is not asked again by every job that is enqueued, and is
// asked again soon.
func TestFullFleetIsNotAskedAgainAtOnce(t *testing.T) {
	t.Parallel()
	r := newRig(t, redistest.Shared(t))
	r.agent(node("n1", 1))
	rep := r.replica("r1", blind)
	rep.mustPlace(job(), nil)
	n, _ := rep.cache.Node("n1")
	n.SetUsed(1)
	asked := func() int {
		t.Helper()
		p := &placement{request: Request{Tenant: tenant, Job: job()}}
		if err := rep.chooseNode(p); err != nil || !p.enqueues() || p.to != rep.byCell[0] {
			t.Fatalf("%+v, %v; want no error, p.enqueues(), p.to == rep.byCell[0]", p, err)
		}
		return len(p.candidates)
	}
	if got := asked(); got != 1 {
		t.Fatalf("%d nodes are asked", got)
	}
	class, nodes := rep.echo(), &rep.byCell[0].full
	*nodes = fullNodes{}
	if future := time.Now().Add(time.Hour); !nodes.ask(class, future) {
		t.Fatal("no job may ask")
	}
	if got := asked(); got != 0 {
		t.Errorf("%d nodes are asked while another job asks them", got)
	}
	*nodes = fullNodes{}
	nodes.answered(probe{class, time.Now().Add(time.Hour)}, time.Now().Add(time.Hour), true)
	if got := asked(); got != 0 {
		t.Errorf("%d nodes are asked of a fleet that answered that it is full", got)
	}
	*nodes = fullNodes{}
	nodes.answered(probe{class, time.Now().Add(-time.Hour)}, time.Now().Add(-time.Hour), true)
	if got := asked(); got != 1 {
		t.Errorf("%d nodes are asked of a fleet that was full long ago, expected one", got)
	}
	*nodes = fullNodes{}
	begin := time.Now()
	rep.mustWait(job(), 1, nil)
	if !nodes.has(class, begin) {
		t.Error("the nodes are not taken for full")
	}
	if nodes.has("other", begin) {
		t.Error("unknown nodes count as full")
	}
}

// echo is the id of the class of job.
func (rep *replica) echo() string { return rep.cache.Class("echo", new(freeslot.Requirement)).ID() }

// Whatever the answer to a probe, the next job may ask, unless the nodes of that cell are full.
func TestAnswersToProbes(t *testing.T) {
	t.Parallel()
	redis := redistest.Shared(t)
	r, p := newCells(t, 2, redis), newProxy(t, redis)
	fleet := r.nodesIn(1, 1, 1)
	r.agent(fleet[0])
	rep := r.replica("r1", blind, idle, func(c *replicaConfig) { c.url = p.url() })
	n, _ := rep.cache.Node(fleet[0].ID)
	class, nodes := rep.echo(), &rep.byCell[1].full
	free := func(after string) {
		t.Helper()
		if !nodes.ask(class, time.Now()) {
			t.Errorf("after %s no job may ask", after)
		}
		*nodes = fullNodes{}
	}
	n.SetUsed(1)
	rep.mustWait(job(), 0, nil) // the node had room
	free("a probe that found room")
	p.cutOn("mark-", unanswered, 1)
	rep.mustWait(&freeslot.Job{Service: "echo", Payload: json.RawMessage(`"mark-"`)}, 1, nil)
	if got := p.cuts.Load(); got != 1 {
		t.Fatalf("%d calls failed", got)
	}
	free("a probe that failed")
	waittest.Until(t, "the cell answers", func() bool { return rep.nodes.Skip() == 0 })
	rep.mustWait(job(), 2, nil)
	if !nodes.has(class, time.Now().Add(-time.Second)) || rep.byCell[0].full.has(class, time.Now().Add(-time.Second)) {
		t.Error("the nodes do not count as full, or the other cell's do")
	}
}

// A node that becomes free while a job is on its way into the queue finds no waiting job. The job
// has asked no node, and still gets the slot.
func TestFreeBesideAJobThatAskedNobody(t *testing.T) {
	t.Parallel()
	redis := redistest.Shared(t)
	r, p := newRig(t, redis), newProxy(t, redis)
	r.agent(node("n1", 1))
	rep := r.replica("r1", blind, idle, func(c *replicaConfig) { c.url = p.url() })
	n, _ := rep.cache.Node("n1")
	n.SetUsed(1)
	known := &queue{job: freeslot.Job{Service: "echo"}} // otherwise a new queue wakes the sweep
	known.hasWaiting.Store(true)
	rep.byCell[0].queues.byID.Store(rep.echo(), known)
	rep.byCell[0].full.answered(probe{rep.echo(), time.Now().Add(time.Hour)}, time.Now().Add(time.Hour), true)
	p.onceSent("mark-", func([]byte) { n.SetUsed(0) })
	id := rep.mustWait(&freeslot.Job{Service: "echo", Payload: json.RawMessage(`"mark-"`)}, 1, nil)
	waittest.Until(t, "its slot", func() bool {
		jobs, _ := r.owned("n1")
		return slices.Equal(jobs, []string{id})
	})
}

// The same for a job that has asked as many nodes as a call names, and the free node is another
// one.
func TestFreeBesideAJobThatAskedOthers(t *testing.T) {
	t.Parallel()
	const nodes = cell.MaxCandidates + 1
	redis := redistest.Shared(t)
	r, p := newRig(t, redis), newProxy(t, redis)
	agents := make(map[string]*agent)
	for i := range nodes {
		id := fmt.Sprintf("n%d", i)
		agents[id] = r.agent(node(id, 1))
	}
	rep := r.replica("r1", blind, idle, func(c *replicaConfig) { c.url = p.url() })
	for range nodes {
		rep.mustPlace(job(), nil)
	}
	known := &queue{job: freeslot.Job{Service: "echo"}}
	known.hasWaiting.Store(true)
	rep.byCell[0].queues.byID.Store(rep.echo(), known)
	freed := make(chan string, 1)
	p.onceSent("mark-", func(request []byte) {
		for id, a := range agents {
			if n, _ := rep.cache.Node(id); !bytes.Contains(request, []byte("nodes:"+id+"\r")) {
				jobs, _ := r.owned(id)
				a.complete(jobs[0], `1`)
				n.SetUsed(0)
				freed <- id
				return
			}
		}
	})
	id := rep.mustWait(&freeslot.Job{Service: "echo", Payload: json.RawMessage(`"mark-"`)}, 1, nil)
	where := receive(t, "a node that is not named", freed)
	waittest.Until(t, "its slot", func() bool {
		jobs, _ := r.owned(where)
		return slices.Equal(jobs, []string{id})
	})
}

// Free nodes that the cache does not know are all found by one sweep when jobs of one class wait.
func TestSweepAsksSeveral(t *testing.T) {
	t.Parallel()
	const nodes = sweepProbes / 2
	r := newRig(t, redistest.Shared(t))
	for i := range nodes {
		r.agent(node(fmt.Sprintf("n%d", i), 1))
	}
	rep := r.replica("r1", blind, idle)
	for _, n := range rep.cache.AllNodes() {
		n.SetUsed(1)
	}
	rep.byCell[0].full.answered(probe{rep.echo(), time.Now().Add(time.Hour)}, time.Now().Add(time.Hour), true)
	reqs := make([]Request, nodes)
	for i := range reqs {
		reqs[i] = Request{Tenant: tenant, Job: job()}
	}
	rep.Submit(deadline(t), reqs, newRecorder(t), func(_ int, a Accepted, err error) {
		if err != nil || a.Position == 0 {
			t.Errorf("%+v, %v; want no error, a.Position != 0", a, err)
		}
	})
	waittest.Until(t, "all jobs", func() bool {
		used := 0
		for i := range nodes {
			_, n := r.owned(fmt.Sprintf("n%d", i))
			used += n
		}
		return used == nodes
	})
}

// Nodes count as full for as long as Redis took to say so, since it is then busy, within bounds.
func TestFullNodesRestAsLongAsTheCallTook(t *testing.T) {
	t.Parallel()
	const class, other = "c", "d"
	start := time.Now()
	at := func(after time.Duration) time.Time { return start.Add(after) }
	for name, test := range map[string]struct {
		took, rest time.Duration
	}{
		"quick":     {time.Millisecond, probeRest},
		"slow":      {50 * time.Millisecond, 50 * time.Millisecond},
		"very slow": {time.Hour, probeRestMost},
	} {
		var r fullNodes
		if !r.ask(class, start) || r.ask(class, at(probeRestMost-1)) || r.has(class, start) {
			t.Errorf("%s: two ask, or the nodes are full before an answer", name)
		}
		r.answered(probe{class, start}, at(test.took), true)
		if r.ask(class, at(test.took+test.rest-1)) || !r.ask(class, at(test.took+test.rest)) {
			t.Errorf("%s: they do not rest for %s", name, test.rest)
		}
		if !r.has(class, at(test.took+probeRest-1)) || r.has(class, at(test.took+probeRest)) {
			t.Errorf("%s: they do not rest for %s to jobs of several slots", name, probeRest)
		}
	}
	var r fullNodes
	if !r.ask(class, start) || !r.ask(class, at(probeRestMost)) {
		t.Error("a question without an answer keeps others from asking")
	}
	r.answered(probe{class, start}, at(probeRestMost+1), false)
	if r.ask(class, at(probeRestMost+2)) {
		t.Error("the answer to a question ended another one")
	}
	r.answered(probe{class: class}, at(probeRestMost+3), true)
	if r.answered(probe{class, at(probeRestMost)}, at(probeRestMost+4), false); !r.has(class, at(probeRestMost+4)) {
		t.Error("room for one job made the nodes free for a large one, which they had refused")
	}
	if r.has(other, at(probeRestMost+4)) || !r.ask(other, at(probeRestMost+4)) {
		t.Error("nodes of another class rest")
	}
}

// A job of several slots is offered to nodes that seem full although another job asks: no node
// announces how many slots it has left.
func TestLargeJobAsksBesideOthers(t *testing.T) {
	t.Parallel()
	r := newRig(t, redistest.Shared(t))
	r.agent(node("n1", 2))
	rep := r.replica("r1", blind)
	n, _ := rep.cache.Node("n1")
	n.SetUsed(2)
	large := job()
	large.Slots = 2
	if !rep.byCell[0].full.ask(rep.echo(), time.Now().Add(time.Hour)) {
		t.Fatal("no job may ask")
	}
	for range 2 {
		p := &placement{request: Request{Tenant: tenant, Job: large}}
		if err := rep.chooseNode(p); err != nil || len(p.candidates) != 1 {
			t.Fatalf("%+v, %v; want no error, len(p.candidates) == 1", p, err)
		}
	}
}

// The list of a large fleet is not rebuilt for every new node. The first node of a class is found
// all the same.
func TestFirstNodeOfAClass(t *testing.T) {
	t.Parallel()
	const fleet = 1000
	r := newRig(t, redistest.Shared(t))
	for i := range fleet {
		r.agent(node(fmt.Sprintf("n%d", i), 1))
	}
	rep := r.replica("r1")
	for i := range 10 {
		service := fmt.Sprintf("s%d", i)
		_, err := rep.place(&freeslot.Job{Service: service}, nil)
		wantCode(t, err, freeslot.CodeNoMatchingNode)
		n := node(service, 1)
		n.Services[0].Name = service
		r.agent(n)
		waittest.Until(t, "the node", func() bool { return rep.cache.Size() == fleet+i+1 })
		rep.mustPlace(&freeslot.Job{Service: service}, nil)
	}
}

// Two replicas with a cache each and many clients race for few slots. No node ever has more jobs
// than slots, every submit is answered once, every job ends once.
func TestTwoReplicasManySubmits(t *testing.T) {
	t.Parallel()
	redistest.Backends(t, func(t *testing.T, redis *redistest.Target) {
		t.Parallel()
		const clients, each, nodes, slots = 20, 10, 3, 2
		r := newRig(t, redis)
		var running [nodes]atomic.Int64
		over := make(chan string, 1)
		for i := range nodes {
			r.agent(node(fmt.Sprintf("n%d", i), slots)).serve(func(d cell.Dispatch) string {
				if n := running[i].Add(1); n > slots {
					select {
					case over <- fmt.Sprintf("%d jobs at once on n%d", n, i):
					default:
					}
				}
				running[i].Add(-1)
				return string(d.Job.Payload)
			})
		}
		replicas := []*replica{r.replica("r1"), r.replica("r2")}
		watch, stopWatch := make(chan struct{}), make(chan struct{})
		go func() { // the truth in Redis all the while
			defer close(watch)
			for {
				select {
				case <-stopWatch:
					return
				default:
				}
				for i := range nodes {
					if jobs, used := r.owned(fmt.Sprintf("n%d", i)); used > slots || len(jobs) != used {
						t.Errorf("n%d owns %v, %d slots", i, jobs, used)
					}
				}
			}
		}()
		var all sync.WaitGroup
		var answers, overloaded atomic.Int64
		for c := range clients {
			rep := replicas[c%2]
			all.Go(func() {
				sink := newRecorder(t)
				for i := range each {
					payload := fmt.Sprintf(`"%d-%d"`, c, i)
					var id string
					for id == "" {
						calls := 0
						rep.Submit(deadline(t), []Request{{Tenant: tenant, Job: &freeslot.Job{Service: "echo", Payload: json.RawMessage(payload)}}}, sink,
							func(_ int, a Accepted, err error) {
								jobID := a.JobID
								calls++
								id = jobID
								if err != nil && freeslot.CodeOf(err) != freeslot.CodeOverloaded {
									t.Errorf("submit: %v", err)
								}
							})
						if calls != 1 {
							t.Errorf("answered %d times", calls)
						}
						answers.Add(1)
						if id == "" {
							overloaded.Add(1)
						}
						if t.Failed() {
							return
						}
					}
					if s := sink.result(id); string(s.Result) != payload {
						t.Errorf("job %s has the result %s, want %s", id, s.Result, payload)
					}
					sink.want(id, "assigned result")
				}
			})
		}
		all.Wait()
		close(stopWatch)
		<-watch
		select {
		case what := <-over:
			t.Error(what)
		default:
		}
		for i := range nodes {
			if jobs, used := r.owned(fmt.Sprintf("n%d", i)); used != 0 || len(jobs) != 0 {
				t.Errorf("n%d still owns %v, %d slots", i, jobs, used)
			}
		}
		submits := 0.0
		for _, rep := range replicas {
			rep.settled()
			waittest.Until(t, "nothing outstanding", func() bool { return rep.Outstanding() == 0 })
			for _, outcome := range []string{"accepted", "overloaded"} {
				submits += testutil.ToFloat64(rep.metrics.submits.WithLabelValues(outcome))
			}
		}
		if int64(submits) != answers.Load() {
			t.Errorf("%v submits counted, %d answers", submits, answers.Load())
		}
		t.Logf("%d submits, %d of them overloaded", answers.Load(), overloaded.Load())
	})
}

// The connection breaks in the middle of the call, before or after the script ran. The submit is
// repeated under the same id, and the job is placed once.
func TestUnknownOutcome(t *testing.T) {
	t.Parallel()
	for name, what := range map[string]verdict{"request lost": lost, "answer lost": unanswered} {
		for _, times := range []int64{1, 3} {
			t.Run(fmt.Sprintf("%s %d times", name, times), func(t *testing.T) {
				t.Parallel()
				redis := redistest.Shared(t)
				r := newRig(t, redis)
				a := r.agent(node("n1", 8))
				p := newProxy(t, redis)
				rep := r.replica("r1", func(c *replicaConfig) { c.url = p.url() })
				sink := newRecorder(t)
				rep.mustPlace(job(), sink) // Redis knows the script
				a.next()
				p.cutOn("mark-1", what, times)
				id := rep.mustPlace(&freeslot.Job{Service: "echo", Payload: json.RawMessage(`"mark-1"`)}, sink)
				if n := p.cuts.Load(); n != times {
					t.Errorf("cut %d times", n)
				}
				jobs, used := r.owned("n1")
				if used != 2 || len(jobs) != 2 || !slices.Contains(jobs, id) {
					t.Errorf("n1 owns %v, %d slots; the job is %s", jobs, used, id)
				}
				if d := a.next(); d.Attempt.Job != id {
					t.Errorf("dispatched %+v", d)
				}
				a.complete(id, `"done"`)
				if s := sink.result(id); string(s.Result) != `"done"` || s.AssignedAtMS == 0 || s.Node != "n1" {
					t.Errorf("result %+v", s)
				}
				sink.want(id, "assigned result")
				if n, err := r.client.Do(deadline(t), r.client.B().Xlen().Key(r.layout.Dispatch("n1")).Build()).AsInt64(); err != nil || n != 2 {
					t.Errorf("%d dispatch entries, %v", n, err)
				}
			})
		}
	}
}

// The same for a batch whose second call breaks, while it is full of refusals as well.
func TestUnknownOutcomeOfABatch(t *testing.T) {
	t.Parallel()
	const jobs, slots = 100, 90
	redis := redistest.Shared(t)
	r := newRig(t, redis)
	r.agent(node("n1", slots))
	p := newProxy(t, redis)
	rep := r.replica("r1", func(c *replicaConfig) { c.url = p.url() })
	reqs := make([]Request, jobs)
	for i := range reqs {
		reqs[i] = Request{Tenant: tenant, Job: &freeslot.Job{Service: "echo", Payload: json.RawMessage(fmt.Sprintf(`"mark-%d-"`, i))}}
	}
	p.cutOn("mark-70-", unanswered, 2)
	codes := make(map[freeslot.Code]int)
	var placed []string
	rep.Submit(deadline(t), reqs, newRecorder(t), func(_ int, a Accepted, err error) {
		id := a.JobID
		codes[freeslot.CodeOf(err)]++
		if err == nil && a.Position == 0 {
			placed = append(placed, id)
		} else if err != nil && !strings.Contains(err.Error(), "may have been placed") {
			t.Errorf("%v, although the first call of this job has no answer", err)
		}
	})
	rep.settled()
	if codes[""] != jobs {
		t.Errorf("answers: %v", codes)
	}
	owned, used := r.owned("n1")
	slices.Sort(placed)
	if used != slots || !slices.Equal(owned, placed) {
		t.Errorf("%d slots in use, %d jobs owned, %d accepted", used, len(owned), len(placed))
	}
	if rep.Outstanding() != jobs {
		t.Errorf("%d outstanding", rep.Outstanding())
	}
}

// Redis hangs. The client gets its answer within the submit timeout: the job may have been placed.
// Nothing of it stays in the replica.
func TestRedisHangs(t *testing.T) {
	t.Parallel()
	redis := redistest.New(t)
	r := newRig(t, redis.Target)
	r.agent(node("n1", 8))
	rep := r.replica("r1", func(c *replicaConfig) { c.dispatch.SubmitTimeout = 300 * time.Millisecond })
	waittest.Succeeds(t, "an answer in time", func() error { _, err := rep.place(job(), nil); return err })
	redis.Pause()
	// On a busy machine the time can be over before the job is sent.
	waittest.Succeeds(t, "a job that may have been placed", func() error {
		var e *freeslot.Error
		rep.Submit(deadline(t), []Request{{Tenant: tenant, Job: job()}, {Tenant: tenant, Job: job()}}, newRecorder(t), func(_ int, a Accepted, err error) {
			id := a.JobID
			if id != "" || !errors.As(err, &e) {
				t.Errorf("accepted(%q, %v)", id, err)
			}
		})
		if e.Code != freeslot.CodeUnavailable || e.RetryAfter <= 0 {
			t.Errorf("%+v; want e.Code == freeslot.CodeUnavailable, e.RetryAfter > 0", e)
		}
		if !strings.Contains(e.Message, "may have been placed") {
			return e
		}
		return nil
	})
	redis.Resume()
	if rep.Outstanding() != 0 {
		t.Errorf("%d outstanding", rep.Outstanding())
	}
	rep.settled()
	waittest.Until(t, "Redis is back", func() bool {
		_, err := rep.place(job(), nil)
		return err == nil
	})
}

// A job that was never sent was not placed, and the error does not say that it may have been.
func TestNotSent(t *testing.T) {
	t.Parallel()
	r := newRig(t, redistest.Shared(t))
	r.agent(node("n1", 8))
	rep := r.replica("r1")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	rep.Submit(ctx, []Request{{Tenant: tenant, Job: job()}}, newRecorder(t), func(_ int, _ Accepted, err error) {
		if e := asError(t, err, freeslot.CodeUnavailable); strings.Contains(e.Message, "may have been") {
			t.Errorf(`%+v; want not strings.Contains(e.Message, "may have been")`, e)
		}
	})
	if jobs, _ := r.owned("n1"); len(jobs) != 0 || rep.Outstanding() != 0 {
		t.Errorf("owned %v, %d outstanding", jobs, rep.Outstanding())
	}
	rep.settled()
	stop(t, rep.set)
	_, err := rep.place(job(), newRecorder(t))
	if e := asError(t, err, freeslot.CodeUnavailable); !strings.Contains(e.Message, "stopping") || strings.Contains(e.Message, "may have been") {
		t.Errorf(`%+v; want strings.Contains(e.Message, "stopping"), not strings.Contains(e.Message, "may have been")`, e)
	}
	if rep.Outstanding() != 0 {
		t.Errorf("%d outstanding", rep.Outstanding())
	}
}

// While Redis hangs, a queue builds up before it. Callers that leave it in time know that nothing
// was placed.
func TestHangingCallersLeave(t *testing.T) {
	t.Parallel()
	redis := redistest.New(t)
	r := newRig(t, redis.Target)
	r.agent(node("n1", 1000))
	rep := r.replica("r1", func(c *replicaConfig) { c.dispatch.SubmitTimeout = 200 * time.Millisecond })
	redis.Pause()
	var sent atomic.Int64
	waittest.Until(t, "a job that was sent", func() bool {
		var queued atomic.Int64
		var all sync.WaitGroup
		before := sent.Load()
		for range 200 {
			all.Go(func() {
				rep.Submit(deadline(t), []Request{{Tenant: tenant, Job: job()}}, newRecorder(t), func(_ int, _ Accepted, err error) {
					var e *freeslot.Error
					if !errors.As(err, &e) || e.Code != freeslot.CodeUnavailable {
						t.Errorf("%v; want errors.As(err, &e), e.Code == freeslot.CodeUnavailable", err)
					} else if strings.Contains(e.Message, "may have been") {
						sent.Add(1)
					} else {
						queued.Add(1)
					}
				})
			})
		}
		all.Wait()
		if rep.Outstanding() != 0 || sent.Load()-before+queued.Load() != 200 {
			t.Errorf("%d outstanding, %d sent, %d queued", rep.Outstanding(), sent.Load()-before, queued.Load())
		}
		return sent.Load() > 0
	})
	redis.Resume()
	rep.settled()
	waittest.Until(t, "what was sent", func() bool {
		jobs, _ := r.owned("n1")
		return len(jobs) <= int(sent.Load())
	})
}

// A cache that lost touch does not report that no node fits.
func TestStaleCacheSaysNothingOfFitting(t *testing.T) {
	t.Parallel()
	redis := redistest.New(t)
	r := newRig(t, redis.Target)
	r.agent(node("n1", 1))
	rep := r.replica("r1", func(c *replicaConfig) { c.cache.RefreshInterval = 20 * time.Millisecond })
	unknown := &freeslot.Job{Service: "unknown"}
	waittest.Until(t, "no matching node", func() bool { // a busy machine makes it stale for a while, too
		_, err := rep.place(unknown, nil)
		return freeslot.CodeOf(err) == freeslot.CodeNoMatchingNode
	})
	redis.Pause()
	defer redis.Resume()
	waittest.Until(t, "a stale cache", func() bool { return rep.cache.Health().Stale })
	_, err := rep.place(unknown, nil)
	if e := asError(t, err, freeslot.CodeUnavailable); e.RetryAfter <= 0 {
		t.Errorf("%+v; want e.RetryAfter > 0", e)
	}
}

// A server that evicts nothing runs out of memory. Submits are refused at once, and succeed again
// when there is room.
func TestOutOfMemory(t *testing.T) {
	t.Parallel()
	redis := redistest.New(t, redistest.Args("--maxmemory", "100mb", "--maxmemory-policy", "noeviction"))
	r := newRig(t, redis.Target)
	r.agent(node("n1", 8))
	rep := r.replica("r1")
	sink := newRecorder(t)
	rep.mustPlace(job(), sink)
	do := func(args ...string) {
		t.Helper()
		if err := r.client.Do(deadline(t), r.client.B().Arbitrary(args...).Build()).Error(); err != nil && !rueidis.IsRedisNil(err) {
			t.Fatal(err)
		}
	}
	do("CONFIG", "SET", "maxmemory", "1")
	_, err := rep.place(job(), sink)
	if e := asError(t, err, freeslot.CodeOverloaded); e.RetryAfter <= 0 || !strings.Contains(e.Message, "out of memory") || strings.Contains(e.Message, "may have been") {
		t.Errorf(`%+v; want e.RetryAfter > 0, strings.Contains(e.Message, "out of memory"), not strings.Contains(e.Message, "may have been")`, e)
	}
	if jobs, _ := r.owned("n1"); len(jobs) != 1 || rep.Outstanding() != 1 {
		t.Errorf("owned %v, %d outstanding", jobs, rep.Outstanding())
	}
	do("CONFIG", "SET", "maxmemory", "0")
	waittest.Until(t, "there is memory again", func() bool { _, err := rep.place(job(), sink); return err == nil })
}

// TestAlmostOutOfMemory: from 80 % on there are no new jobs, so that running jobs can still end.
func TestAlmostOutOfMemory(t *testing.T) {
	t.Parallel()
	redis := redistest.New(t, redistest.Args("--maxmemory-policy", "noeviction"))
	r := newRig(t, redis.Target)
	a := r.agent(node("n1", 1000))
	rep := r.replica("r1")
	sink := newRecorder(t)
	id := rep.mustPlace(job(), sink)
	limit := func(share float64) {
		t.Helper()
		info, err := r.client.Do(deadline(t), r.client.B().Info().Section("memory").Build()).ToString()
		if err != nil {
			t.Fatal(err)
		}
		_, used, _ := strings.Cut(info, "used_memory:")
		used, _, _ = strings.Cut(used, "\r")
		n, err := strconv.ParseFloat(used, 64)
		if err != nil {
			t.Fatal(err)
		}
		bytes := strconv.FormatFloat(n/share, 'f', 0, 64)
		if err := r.client.Do(deadline(t), r.client.B().Arbitrary("CONFIG", "SET", "maxmemory", bytes).Build()).Error(); err != nil {
			t.Fatal(err)
		}
	}
	limit(0.88)
	waittest.Until(t, "watchMemory sees it", func() bool { return rep.outOfMemory.load() != 0 })
	_, err := rep.place(job(), sink)
	if e := asError(t, err, freeslot.CodeOverloaded); e.RetryAfter <= 0 || !strings.Contains(e.Message, "80 %") {
		t.Errorf(`%+v; want e.RetryAfter > 0, strings.Contains(e.Message, "80 %%")`, e)
	}
	a.complete(id, `1`)
	if s := sink.result(id); s.State != freeslot.StateSucceeded {
		t.Errorf("%+v; want s.State == freeslot.StateSucceeded", s)
	}
	limit(0.1)
	waittest.Until(t, "submits are taken again", func() bool { _, err := rep.place(job(), sink); return err == nil })
}

// An HTTP server survives the panic of a handler. The slots that its job had taken and its waiters
// must not outlive the handler.
func TestPanics(t *testing.T) {
	t.Parallel()
	r := newRig(t, redistest.Shared(t))
	r.agent(node("n1", 50))
	rep := r.replica("r1")
	unknown := &freeslot.Job{Service: "unknown"}
	for name, tt := range map[string]struct {
		reqs     []Request
		sink     Sink
		accepted func(i int, a Accepted, err error)
	}{
		"accepted, when nothing was sent yet": {
			[]Request{{Tenant: tenant, Job: job()}, {Tenant: tenant, Job: job()}, {Tenant: tenant, Job: unknown}},
			newRecorder(t),
			func(_ int, _ Accepted, err error) {
				if err != nil {
					panic("test")
				}
			},
		},
		"accepted, of the first of three": {
			[]Request{{Tenant: tenant, Job: job()}, {Tenant: tenant, Job: job()}, {Tenant: tenant, Job: job()}},
			newRecorder(t),
			func(int, Accepted, error) { panic("test") },
		},
		"accepted, without a sink": {
			[]Request{{Tenant: tenant, Job: job()}, {Tenant: tenant, Job: job()}}, nil, func(int, Accepted, error) { panic("test") },
		},
		"the sink": {
			[]Request{{Tenant: tenant, Job: job()}, {Tenant: tenant, Job: job()}}, panicking{}, func(int, Accepted, error) {},
		},
	} {
		t.Run(name, func(t *testing.T) {
			func() {
				defer func() {
					if recover() == nil {
						t.Error("no panic")
					}
				}()
				rep.Submit(deadline(t), tt.reqs, tt.sink, tt.accepted)
			}()
			rep.settled()
			if n := rep.Outstanding(); n != 0 {
				t.Errorf("%d outstanding", n)
			}
		})
	}
	rep.mustPlace(job(), newRecorder(t))
}

type panicking struct{}

func (panicking) Assigned(Assignment)                { panic("test") }
func (panicking) Result(freeslot.JobStatus)          {}
func (panicking) Detached(string)                    {}
func (panicking) Progress(string, freeslot.Progress) {}

// Without a sink the job runs, and only its record has the result.
func TestFireAndForget(t *testing.T) {
	t.Parallel()
	r := newRig(t, redistest.Shared(t))
	a := r.agent(node("n1", 1))
	rep := r.replica("r1")
	id := rep.mustPlace(job(), nil)
	if rep.Outstanding() != 0 {
		t.Errorf("%d outstanding", rep.Outstanding())
	}
	a.complete(id, `1`)
	if s, err := rep.Job(deadline(t), tenant, id); err != nil || s.State != freeslot.StateSucceeded {
		t.Errorf("%+v, %v; want no error, s.State == freeslot.StateSucceeded", s, err)
	}
	n, err := r.client.Do(deadline(t), r.client.B().Xlen().Key(r.layout.Replies("r1")).Build()).AsInt64()
	if err != nil || n != 1 { // the entry that opened the stream
		t.Errorf("%d replies, %v", n, err)
	}
}

func TestConfig(t *testing.T) {
	t.Parallel()
	for name, cfg := range map[string]Config{
		"replica":    {},
		"white":      {Replica: "a b"},
		"candidates": {Replica: "r1", Candidates: cell.MaxCandidates + 1},
	} {
		if d, err := New(cfg, nil, nil, nil, nil); err == nil {
			t.Errorf("%s: %+v; want an error", name, d.cfg)
		}
	}
	got := Config{Replica: "r1"}.WithDefaults()
	want := Config{
		Replica: "r1", SubmitTimeout: DefaultSubmitTimeout, RecheckInterval: DefaultRecheckInterval,
		Candidates: DefaultCandidates, Rounds: DefaultRounds, SweepInterval: DefaultSweepInterval, ReplyBlock: DefaultReplyBlock,
		MoveGrace: DefaultMoveGrace,
	}
	if n := got.Weight("acme"); n != 1 {
		t.Errorf("a tenant has the weight %d", n)
	}
	got.Weight, got.Limits, got.Submitted, got.Came, got.Ran = nil, nil, nil, nil, nil
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("got %+v", got)
	}
}

func TestCoded(t *testing.T) {
	t.Parallel()
	known := &freeslot.Error{Code: freeslot.CodeNotFound, Message: "there is no such job"}
	for name, tt := range map[string]struct {
		err  error
		code freeslot.Code
		text string
	}{
		"known":          {fmt.Errorf("wrapped: %w", known), freeslot.CodeNotFound, "there is no such job"},
		"out of memory":  {errors.New("submit 1 jobs: OOM command not allowed when used memory > 'maxmemory'"), freeslot.CodeOverloaded, "out of memory"},
		"stopped":        {fmt.Errorf("wrapped: %w", cell.ErrStopped), freeslot.CodeUnavailable, "stopping"},
		"deadline":       {fmt.Errorf("wrapped: %w", context.DeadlineExceeded), freeslot.CodeUnavailable, "did not answer"},
		"cancelled":      {context.Canceled, freeslot.CodeUnavailable, "did not answer"},
		"broken":         {errors.New("EOF"), freeslot.CodeUnavailable, "did not answer"},
		"queued":         {fmt.Errorf("%w: %w", cell.ErrNotSent, context.DeadlineExceeded), freeslot.CodeUnavailable, "did not answer"},
		"error of Redis": {fmt.Errorf("wrapped: %w", new(rueidis.RedisError)), freeslot.CodeUnavailable, "answered with an error"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			err := coded("submit", tt.err)
			e := asError(t, err, tt.code)
			if !strings.Contains(e.Message, tt.text) || (tt.code.Temporary() && e.RetryAfter <= 0) {
				t.Errorf("%+v; want strings.Contains(e.Message, tt.text), not tt.code.Temporary() or e.RetryAfter > 0", e)
			}
		})
	}
	if err := coded("submit", nil); err != nil {
		t.Errorf("nil became %v", err)
	}
}

// quarantined reports whether one node is in quarantine at this moment.
func (rep *replica) quarantined(now int64) bool {
	e := selection.Explain(rep.cache.AllNodes(), nil, "echo", new(freeslot.Requirement), &selection.Query{Now: now, SilenceLimit: time.Hour})
	return e.Breakdown[string(selection.ReasonQuarantined)] == 1
}

// A node that refuses again and again although it seems free is left alone. A success in between
// restarts the count. To be full is no fault.
func TestQuarantine(t *testing.T) {
	t.Parallel()
	r := newRig(t, redistest.Shared(t))
	bad := r.agent(node("bad", 1000))
	r.agent(node("good", 1000))
	rep := r.replica("r1", blind, func(c *replicaConfig) { c.dispatch.Candidates = 1 })
	n, _ := rep.cache.Node("bad")
	good, _ := rep.cache.Node("good")
	try := func(status freeslot.Status, times int) {
		t.Helper()
		bad.heartbeat(status)
		for range times {
			n.SetDraining(false) // whatever the reason of the last refusal
			good.SetUsed(500)    // so that the other is tried first
			rep.mustPlace(job(), nil)
		}
	}
	want := func(refusals int) {
		t.Helper()
		if got := rep.refusals(cell.RefusedDraining); got != refusals {
			t.Errorf("%d refusals, expected %d", got, refusals)
		}
	}
	try(freeslot.StatusDraining, 2)
	want(2)
	try(freeslot.StatusOnline, 1)
	try(freeslot.StatusDraining, 2)
	want(4)
	now := rep.cache.Now() // the quarantine is over soon after
	if rep.quarantined(now) {
		t.Error("two refusals in a row are enough")
	}
	try(freeslot.StatusDraining, 1)
	want(5)
	n.SetDraining(false)
	if !rep.quarantined(now) {
		t.Error("three refusals in a row are not enough")
	}
}
