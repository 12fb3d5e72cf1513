package dispatch

import (
	"encoding/json"
	"fmt"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	dto "github.com/prometheus/client_model/go"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/cache"
	"github.com/freeslot/freeslot/internal/cell"
	"github.com/freeslot/freeslot/internal/selection"
	"github.com/freeslot/freeslot/internal/testing/redistest"
	"github.com/freeslot/freeslot/internal/testing/waittest"
)

// sweeping makes a replica that looks for free nodes often.
func sweeping(c *replicaConfig) { c.dispatch.SweepInterval = 10 * time.Millisecond }

// idle makes a replica that looks for free nodes only when it is woken.
func idle(c *replicaConfig) { c.dispatch.SweepInterval = time.Hour }

// attempt ends one attempt of a job with a result.
func (a *agent) attempt(id string, n int) {
	a.rig.t.Helper()
	a.end(cell.Completion{Attempt: cell.Attempt{Job: id, N: n}, State: freeslot.StateSucceeded, Result: json.RawMessage(`"done"`)})
}

// Jobs that find no free slot wait, and get slots in order as jobs end.
func TestWaitingJobsGetSlots(t *testing.T) {
	t.Parallel()
	redistest.Backends(t, func(t *testing.T, redis *redistest.Target) {
		t.Parallel()
		r := newRig(t, redis)
		a := r.agent(node("n1", 1))
		rep := r.replica("r1", idle)
		sink := newRecorder(t)
		ids := []string{rep.mustWait(job(), 0, sink)}
		for i := range 4 {
			ids = append(ids, rep.mustWait(&freeslot.Job{Service: "echo", Priority: 3, TimeoutMS: 3_600_000}, i+1, sink))
		}
		sink.want(ids[1], "")
		if s, err := rep.Job(deadline(t), tenant, ids[2]); err != nil || s.State != freeslot.StateWaiting || s.Position != 2 {
			t.Errorf("%+v, %v; want no error, s.State == freeslot.StateWaiting, s.Position == 2", s, err)
		}
		for _, id := range ids {
			if b := sink.begun(id, 1); b.Node != "n1" || b.AssignedAtMS == 0 {
				t.Errorf(`%+v; want b.Node == "n1", b.AssignedAtMS != 0`, b)
			}
			if d := a.next(); d.Attempt != (cell.Attempt{Job: id, N: 1}) {
				t.Errorf("dispatched %+v, expected job %s", d, id)
			}
			a.attempt(id, 1)
			got := sink.result(id)
			want, err := rep.Job(deadline(t), tenant, id)
			if err != nil || fmt.Sprint(got) != fmt.Sprint(want) {
				t.Errorf("result %+v, record %+v, %v", got, want, err)
			}
			sink.want(id, "assigned result")
		}
		waittest.Until(t, "nothing outstanding", func() bool { return rep.Outstanding() == 0 })
		if n := testutil.ToFloat64(rep.metrics.enqueued.WithLabelValues("0")); n != 4 {
			t.Errorf("%v enqueued counted", n)
		}
		var starts dto.Metric
		if err := rep.metrics.others.(prometheus.Histogram).Write(&starts); err != nil || starts.GetHistogram().GetSampleCount() != 5 {
			t.Errorf("%d starts counted, %v; want 5", starts.GetHistogram().GetSampleCount(), err)
		}
		// No job waits any more: a job is submitted as ever.
		waittest.Until(t, "no job waits", func() bool {
			_ = newSweeper(rep.byCell[0]).sweep()
			return rep.byCell[0].queues.byID.Size() == 0
		})
		rep.mustWait(job(), 0, sink)
	})
}

// A waiting job goes before the next one of its class, even if a slot is free.
func TestNoJobPassesOneThatWaits(t *testing.T) {
	t.Parallel()
	r := newRig(t, redistest.Shared(t))
	a := r.agent(node("n1", 2))
	x, y := r.replica("x", idle, blind), r.replica("y", idle, blind)
	sink := newRecorder(t)
	small := x.mustWait(job(), 0, sink)
	large := x.mustWait(&freeslot.Job{Service: "echo", Slots: 2}, 1, sink)
	// The replica correctly believes that a slot is free, and knows of no waiting job.
	second := y.mustWait(job(), 2, sink)
	sink.want(second, "")
	a.attempt(small, 1)
	sink.begun(large, 1)
	a.next()
	a.attempt(large, 1)
	sink.begun(second, 1)
	a.attempt(second, 1)
	_ = sink.result(second)
}

// The sweep finds a free node that was never announced, and one that only seems full: the figures
// here are hints.
func TestSweepFindsFreeNodes(t *testing.T) {
	t.Parallel()
	for used, what := range []string{"free", "full"} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, redistest.Shared(t))
			a := r.agent(node("n1", 1))
			rep := r.unstarted("r1", blind)
			start(t, rep.cache)
			first := rep.mustWait(job(), 0, nil)
			id := rep.mustWait(job(), 1, nil)
			a.attempt(first, 1) // no replica hears of it
			n, _ := rep.cache.Node("n1")
			n.SetUsed(used)
			c := rep.byCell[0]
			if newSweeper(c).sweep() {
				t.Error("there are more nodes")
			}
			o := receive(t, "the node", c.free.offers)
			c.free.queued.Clear()
			if o != (offered{node: "n1", probe: used == 1}) {
				t.Errorf("%+v is offered", o)
			}
			(&matcher{c}).take(o)
			if s, err := rep.Job(deadline(t), tenant, id); err != nil || s.State != freeslot.StateRunning {
				t.Errorf("%+v, %v; want no error, s.State == freeslot.StateRunning", s, err)
			}
			if got := testutil.ToFloat64(c.metrics.matched); got != 1 {
				t.Errorf("%v attempts matched", got)
			}
		})
	}
}

// A server that came back without its last writes gives out revisions of the classes a second time,
// for other classes. These are found all the same, and so are classes whose revision was lost.
func TestClassesUnderAKnownRevision(t *testing.T) {
	t.Parallel()
	for name, forget := range map[string]func(r *rig, c *cellClient, key string){
		"again": func(r *rig, c *cellClient, key string) {
			r.do("DEL", key)
			r.do("INCRBY", key, strconv.FormatUint(c.queues.revision, 10))
			c.queues.fullReadAt = c.d.nodes.Now() - int64(fullReadInterval)
		},
		"lost": func(r *rig, _ *cellClient, key string) { r.do("DEL", key) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, redistest.Shared(t))
			n := node("n1", 1)
			n.Services = append(n.Services, freeslot.Service{Name: "other"})
			r.agent(n)
			x, y := r.replica("x", idle), r.unstarted("y", blind)
			start(t, y.cache)
			x.mustWait(job(), 0, nil)
			x.mustWait(job(), 1, nil)
			c := y.byCell[0]
			sweeper := newSweeper(c)
			_ = sweeper.sweep()
			x.mustWait(&freeslot.Job{Service: "other"}, 1, nil)
			for range 2 {
				forget(r, c, c.cell.Layout().WaitingVersion())
				_ = sweeper.sweep()
			}
			if size := c.queues.byID.Size(); size != 2 {
				t.Errorf("%d classes are known, expected 2", size)
			}
		})
	}
}

// Several replicas hear of a free node, and one goes first. If that one is gone, the sweeps of the
// others find the node.
func TestFirstReplicaIsGone(t *testing.T) {
	t.Parallel()
	r := newRig(t, redistest.Shared(t))
	a := r.agent(node("n1", 1))
	rep := r.replica("r1", sweeping)
	for i := 0; rep.goesFirst("n1"); i++ {
		rep.SetReplicas([]string{"r1", fmt.Sprintf("gone-%d", i)})
	}
	first := rep.mustWait(job(), 0, nil)
	sink := newRecorder(t)
	id := rep.mustWait(job(), 1, sink)
	a.attempt(first, 1)
	sink.begun(id, 1)
}

// A replica leaves a free node to the replica that goes first for it.
func TestFreeNodeOfAnotherReplica(t *testing.T) {
	t.Parallel()
	r := newRig(t, redistest.Shared(t))
	r.agent(node("n1", 1))
	rep := r.unstarted("r1")
	start(t, rep.cache)
	c := rep.byCell[0]
	n, _ := rep.cache.Node("n1")
	rep.nodeFreed(n)
	if len(c.free.offers) != 0 {
		t.Error("a node is to be matched although no job waits")
	}
	c.queues.byID.Store(rep.echo(), &queue{job: freeslot.Job{Service: "echo"}})
	rep.nodeFreed(n)
	rep.nodeFreed(n)
	if len(c.free.offers) != 1 {
		t.Errorf("%d nodes are to be matched", len(c.free.offers))
	}
	<-c.free.offers
	c.free.queued.Clear()
	for i := 0; rep.goesFirst("n1"); i++ {
		rep.SetReplicas([]string{"r1", fmt.Sprintf("r2-%d", i)})
	}
	rep.nodeFreed(n)
	if len(c.free.offers) != 0 {
		t.Error("a node is to be matched that is another replica's")
	}
	// The queue of nodes is bounded. The sweep finds the rest.
	for i := range freeNodesMost + 10 {
		other := node("n1", 1)
		other.ID = fmt.Sprintf("other-%d", i)
		c.free.offer(selection.NewNode(selection.Compile(&other), 0), false)
	}
	if len(c.free.offers) != freeNodesMost || c.free.queued.Size() != freeNodesMost {
		t.Errorf("%d nodes are to be matched, %d are known to be", len(c.free.offers), c.free.queued.Size())
	}
}

// A waiting job is cancelled at once, and those behind it move up.
func TestCancelWhileWaiting(t *testing.T) {
	t.Parallel()
	r := newRig(t, redistest.Shared(t))
	a := r.agent(node("n1", 1))
	rep := r.replica("r1", idle)
	sink := newRecorder(t)
	first := rep.mustWait(job(), 0, sink)
	second, third := rep.mustWait(job(), 1, sink), rep.mustWait(job(), 2, sink)
	if s, err := rep.Cancel(deadline(t), tenant, second); err != nil || s.State != freeslot.StateCancelled {
		t.Errorf("%+v, %v; want no error, s.State == freeslot.StateCancelled", s, err)
	}
	if s := sink.result(second); s.State != freeslot.StateCancelled || s.Tenant != tenant || s.Node != "" || s.SubmittedAtMS == 0 {
		t.Errorf(`%+v; want s.State == freeslot.StateCancelled, s.Tenant == %v, s.Node == "", s.SubmittedAtMS != 0`, s, tenant)
	}
	sink.want(second, "result")
	if s, err := rep.Job(deadline(t), tenant, third); err != nil || s.Position != 1 {
		t.Errorf("%+v, %v; want no error, s.Position == 1", s, err)
	}
	n, _ := rep.cache.Node("n1")
	if used, _ := n.Load(); used != 1 {
		t.Errorf("%d slots in use", used)
	}
	a.attempt(first, 1)
	sink.begun(third, 1)
}

// A waiting job past its deadline ends.
func TestExpiresWhileWaiting(t *testing.T) {
	t.Parallel()
	r := newRig(t, redistest.Shared(t))
	r.agent(node("n1", 1))
	rep := r.replica("r1", idle)
	rep.mustWait(job(), 0, nil)
	sink := newRecorder(t)
	id := rep.mustWait(&freeslot.Job{Service: "echo", TimeoutMS: 1}, 1, sink)
	if s := sink.result(id); s.State != freeslot.StateExpired {
		t.Errorf("%+v; want s.State == freeslot.StateExpired", s)
	}
	sink.want(id, "result")
	waittest.Until(t, "it is counted", func() bool { // the reply stream is faster
		return testutil.ToFloat64(rep.metrics.expired.WithLabelValues("0")) == 1
	})
}

// A job that failed is retried after a pause, and its sink gets each attempt.
func TestRetry(t *testing.T) {
	t.Parallel()
	r := newRig(t, redistest.Shared(t))
	agents := map[string]*agent{"n1": r.agent(node("n1", 1)), "n2": r.agent(node("n2", 1))}
	rep := r.replica("r1", sweeping)
	sink := newRecorder(t)
	id := rep.mustWait(job(), 0, sink)
	first := sink.begun(id, 1)
	agents[first.Node].end(cell.Completion{
		Attempt: cell.Attempt{Job: id, N: 1}, State: freeslot.StateFailed, Next: cell.Retry, RetryDelay: 20 * time.Millisecond,
		Error: &freeslot.JobError{Code: freeslot.JobErrorHandler, Message: "not yet"},
	})
	second := sink.begun(id, 2)
	if second.Node == first.Node {
		t.Errorf("both attempts were on %s", first.Node)
	}
	agents[second.Node].attempt(id, 2)
	got := sink.result(id)
	want, err := rep.Job(deadline(t), tenant, id)
	if err != nil || got.State != freeslot.StateSucceeded || got.Attempt != 2 || got.Node != second.Node || got.AssignedAtMS != want.AssignedAtMS {
		t.Errorf("%+v, record %+v, %v", got, want, err)
	}
	sink.want(id, "assigned assigned result")
}

// A replica that stops leaves its jobs waiting. A session that attaches elsewhere gets the attempt
// and the result.
func TestStopWithJobsWaiting(t *testing.T) {
	t.Parallel()
	r := newRig(t, redistest.Shared(t))
	a := r.agent(node("n1", 1))
	x := r.unstarted("x", idle)
	start(t, x.cache)
	start(t, x.Dispatcher)
	y := r.replica("y", sweeping)
	sink := newRecorder(t)
	first, id := x.mustWait(job(), 0, sink), x.mustWait(job(), 1, sink)
	stop(t, x.Dispatcher)
	sink.want(id, "")
	other := newRecorder(t)
	s, err := y.Attach(deadline(t), tenant, id, other)
	if err != nil || s.State != freeslot.StateWaiting {
		t.Fatalf("%+v, %v; want no error, s.State == freeslot.StateWaiting", s, err)
	}
	a.attempt(first, 1)
	other.begun(id, 1)
	a.attempt(id, 1)
	if s := other.result(id); s.State != freeslot.StateSucceeded || s.Tenant != tenant || s.AssignedAtMS == 0 {
		t.Errorf("%+v; want s.State == freeslot.StateSucceeded, s.Tenant == %v, s.AssignedAtMS != 0", s, tenant)
	}
	other.want(id, "assigned result")
}

// The reply that a job got its slot can be lost: the record has it.
func TestAssignmentIsLost(t *testing.T) {
	t.Parallel()
	r := newRig(t, redistest.Shared(t))
	a := r.agent(node("n1", 1))
	rep := r.unstarted("r1", idle)
	start(t, rep.cache)
	first := rep.mustWait(job(), 0, nil)
	sink := newRecorder(t)
	id := rep.mustWait(job(), 1, sink)
	c := rep.byCell[0]
	records := newRechecker(c)
	records.recheckOlder(0)
	sink.want(id, "")
	a.attempt(first, 1)
	if err := c.queues.read(deadline(t), c.cell, rep.cache.Now(), c.log); err != nil {
		t.Fatal(err)
	}
	n, _ := rep.cache.Node("n1")
	n.SetUsed(0)
	(&matcher{c}).take(offered{node: "n1"})
	records.recheckOlder(0)
	sink.want(id, "assigned")
	a.attempt(id, 1)
	records.recheckOlder(0)
	sink.want(id, "assigned result")
}

// Many jobs of several classes on few slots, by two replicas and in two cells: each runs once, and
// none is left.
func TestFlood(t *testing.T) {
	t.Parallel()
	onCells(t, func(t *testing.T, r *rig) {
		const jobs = 150
		book := &ledger{runs: make(map[string]int)}
		for i := range r.layouts {
			for k, n := range r.nodesIn(i, 2, 2) {
				if k == 0 {
					n.Services = append(n.Services, freeslot.Service{Name: "rare"})
				}
				r.agent(n).serve(book.run)
			}
		}
		var all sync.WaitGroup
		for k, rep := range []*replica{r.replica("r1"), r.replica("r2")} {
			rep.SetReplicas([]string{"r1", "r2"})
			all.Go(func() {
				sink := newRecorder(t)
				reqs := make([]Request, jobs)
				for i := range reqs {
					reqs[i] = Request{Tenant: tenant, Job: &freeslot.Job{
						Service: []string{"echo", "rare"}[i%2], Slots: 1 + i/2%2, Priority: i % 3, Payload: json.RawMessage(fmt.Sprintf(`"%d-%d"`, k, i)),
					}}
				}
				ids := make([]string, jobs)
				rep.Submit(deadline(t), reqs, sink, func(i int, a Accepted, err error) {
					if err != nil {
						t.Errorf("submit: %v", err)
					}
					ids[i] = a.JobID
				})
				for i, id := range ids {
					if s := sink.result(id); string(s.Result) != string(reqs[i].Job.Payload) {
						t.Errorf("job %s: %+v", id, s)
					}
					sink.want(id, "assigned result")
				}
				rep.settled()
			})
		}
		all.Wait()
		for id, n := range book.runs {
			if n != 1 {
				t.Errorf("job %s was run %d times", id, n)
			}
		}
		if len(book.runs) != 2*jobs {
			t.Errorf("%d jobs were run", len(book.runs))
		}
	})
}

// A job waits only where nodes could run it, in proportion to their number.
func TestCellsOfAClass(t *testing.T) {
	t.Parallel()
	c := &classCells{nodes: []int{30, 0, 10}, slots: []int{1, 0, 4}}
	count := make([]int, 3)
	for range 4000 {
		home, ok := c.draw(job(), 0)
		if !ok {
			t.Fatal("nowhere")
		}
		count[home]++
	}
	// 1000 of 4000 are expected; the standard deviation is below 28.
	if count[1] != 0 || count[2] < 830 || count[2] > 1170 {
		t.Errorf("%v; want count[1] == 0, count[2] >= 830, count[2] <= 1170", count)
	}
	if home, ok := c.draw(&freeslot.Job{Slots: 2}, 0); !ok || home != 2 {
		t.Errorf("%d, %v; want ok, home == 2", home, ok)
	}
	if home, ok := c.draw(job(), selection.CellMask(0).With(0)); !ok || home != 2 {
		t.Errorf("%d, %v; want ok, home == 2", home, ok)
	}
	if _, ok := c.draw(&freeslot.Job{Slots: 5}, 0); ok {
		t.Error("a job waits for a node that there is not")
	}
}

// If all nodes of a class are draining, jobs wait in the cells that have them.
func TestWaitsForDrainingNodes(t *testing.T) {
	t.Parallel()
	r := newCells(t, 2, redistest.Shared(t))
	there, other := r.agent(r.nodesIn(1, 1, 5)[0]), r.nodesIn(0, 1, 5)[0]
	other.Services[0].Name = "other"
	r.agent(other)
	rep := r.replica("r1", sweeping)
	there.heartbeat(freeslot.StatusDraining)
	waittest.Until(t, "the drain", func() bool { n, _ := rep.cache.Node(there.node.ID); return n.Draining() })
	sink := newRecorder(t)
	id := rep.mustWait(job(), 1, sink)
	if ofJob(t, id) != 1 {
		t.Errorf("job %s waits where no node could run it", id)
	}
	there.heartbeat(freeslot.StatusOnline)
	sink.begun(id, 1)
}

// versioned is a cache that gets its configurations from the test.
func versioned(version uint64) *selection.Config { return &selection.Config{Version: version} }

// Nodes take jobs under the configuration by which the classes were built. It is announced to every
// cell.
func TestConfigIsAnnounced(t *testing.T) {
	t.Parallel()
	r := newRig(t, redistest.Shared(t))
	a := r.agent(node("n1", 1))
	rep := r.unstarted("r1", func(c *replicaConfig) { c.cache = cache.Config{Selection: versioned(7)} })
	start(t, rep.cache)
	c := rep.byCell[0]
	sweeper, matcher := newSweeper(c), &matcher{c}
	announced := func() string {
		t.Helper()
		s, err := r.client.Do(deadline(t), r.client.B().Get().Key(r.layout.ServesVersion()).Build()).ToString()
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	_ = sweeper.sweep()
	if got := announced(); got != "7" {
		t.Errorf("announced %s", got)
	}
	first := rep.mustWait(job(), 0, nil)
	rep.mustWait(job(), 1, nil)
	rep.cache.SetConfig(versioned(8))
	n, _ := rep.cache.Node("n1")
	if got := matcher.classesFor(n, 7); len(got) != 0 {
		t.Errorf("a node serves %v by a configuration that is not in use", got)
	}
	if got := matcher.classesFor(n, 8); len(got) != 1 {
		t.Errorf("a node serves %v", got)
	}
	_ = sweeper.sweep()
	if got := announced(); got != "8" {
		t.Errorf("announced %s", got)
	}
	a.attempt(first, 1)
}

// While jobs of a class wait, the next one is enqueued by one call, whatever seems free, until one
// of them gets its slot at once.
func TestEnqueuedBehindWaitingJobs(t *testing.T) {
	t.Parallel()
	r := newRig(t, redistest.Shared(t))
	r.agent(node("n1", 1))
	rep := r.replica("r1", blind, idle)
	rep.mustWait(job(), 0, nil)
	rep.mustWait(job(), 1, nil)
	n, _ := rep.cache.Node("n1")
	enqueued := func() bool {
		t.Helper()
		var p *placement
		// The cache, which reads now and then, may take the slot back before the choice.
		waittest.Until(t, "the choice of the node", func() bool {
			n.SetUsed(0)
			p = &placement{request: Request{Tenant: tenant, Job: job()}}
			if err := rep.chooseNode(p); err != nil {
				t.Fatalf("%+v, %v; want no error", p, err)
			}
			return len(p.candidates) == 1
		})
		p.giveBack()
		return p.enqueues()
	}
	if !enqueued() {
		t.Error("a job is offered to a node before those that wait")
	}
	rep.byCell[0].queues.noteServed(rep.cache.Class("echo", new(freeslot.Requirement)))
	if enqueued() {
		t.Error("a job is enqueued although no job waits")
	}
}

// A result of an attempt that the sink does not know is read from the record, which says where and
// when the attempt began.
func TestResultOfAnUnknownAttempt(t *testing.T) {
	t.Parallel()
	r := newRig(t, redistest.Shared(t))
	a := r.agent(node("n1", 1))
	rep := r.unstarted("r1", idle)
	start(t, rep.cache)
	first := rep.mustWait(job(), 0, nil)
	sink := newRecorder(t)
	id := rep.mustWait(job(), 1, sink)
	c := rep.byCell[0]
	a.attempt(first, 1)
	n, _ := rep.cache.Node("n1")
	n.SetUsed(0)
	(&matcher{c}).take(offered{node: "n1"})
	a.attempt(id, 1)
	newReplyReader(c).deliver(&cell.Reply{Status: freeslot.JobStatus{ID: id, Node: "n1", Attempt: 1, State: freeslot.StateSucceeded, Result: json.RawMessage(`"done"`)}})
	if b := sink.begun(id, 1); b.Node != "n1" || b.AssignedAtMS == 0 {
		t.Errorf(`%+v; want b.Node == "n1", b.AssignedAtMS != 0`, b)
	}
	if s := sink.result(id); s.SubmittedAtMS == 0 || s.AssignedAtMS == 0 || s.FinishedAtMS == 0 {
		t.Errorf("%+v; want s.SubmittedAtMS != 0, s.AssignedAtMS != 0, s.FinishedAtMS != 0", s)
	}
	rep.loops.Wait()
	sink.want(id, "assigned result")
}
