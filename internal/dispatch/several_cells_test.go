package dispatch

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/cell"
	"github.com/freeslot/freeslot/internal/testing/redistest"
	"github.com/freeslot/freeslot/internal/testing/waittest"
)

// nodesIn makes count nodes that live in this cell.
func (r *rig) nodesIn(index, count, slots int) []freeslot.Node {
	var out []freeslot.Node
	for i := 0; len(out) < count; i++ {
		if n := node(fmt.Sprintf("n%d", i), slots); cell.NodeCell(n.ID, len(r.layouts)) == index {
			out = append(out, n)
		}
	}
	return out
}

// cellOf is the cell that a job's id names.
func ofJob(t testing.TB, id string) int {
	t.Helper()
	index, ok := cell.JobCell(id)
	if !ok {
		t.Fatalf("%q is not a job id", id)
	}
	return index
}

// onCells runs a test with two and with four cells, on one server and on a cluster.
func onCells(t *testing.T, test func(t *testing.T, r *rig)) {
	t.Helper()
	redistest.Backends(t, func(t *testing.T, redis *redistest.Target) {
		for _, cells := range []int{2, 4} {
			t.Run(fmt.Sprint(cells), func(t *testing.T) {
				t.Parallel()
				test(t, newCells(t, cells, redis))
			})
		}
	})
}

// ledger counts how often each job was run.
type ledger struct {
	mu   sync.Mutex
	runs map[string]int
}

func (l *ledger) run(d cell.Dispatch) string {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.runs[d.Attempt.Job]++
	return string(d.Job.Payload)
}

// Jobs of several replicas, one by one and in batches, over several cells. Each accepted job runs
// once and has its one result, and no other job runs.
func TestExactlyOnceOverCells(t *testing.T) {
	t.Parallel()
	onCells(t, func(t *testing.T, r *rig) {
		const clients, each, batch = 6, 10, 8
		book := &ledger{runs: make(map[string]int)}
		for i := range r.layouts {
			for _, n := range r.nodesIn(i, 2, 3) {
				r.agent(n).serve(book.run)
			}
		}
		replicas := []*replica{r.replica("r1"), r.replica("r2")}
		accepted := make(map[string]int) // by cell
		var mu sync.Mutex
		var all sync.WaitGroup
		for c := range clients {
			rep := replicas[c%2]
			all.Go(func() {
				sink := newRecorder(t)
				for i := range each {
					reqs := make([]Request, 1+c%2*(batch-1))
					for k := range reqs {
						reqs[k] = Request{Tenant: tenant, Job: &freeslot.Job{Service: "echo", Payload: json.RawMessage(fmt.Sprintf(`"%d-%d-%d"`, c, i, k))}}
					}
					ids := make(map[string]int)
					rep.Submit(deadline(t), reqs, sink, func(k int, a Accepted, err error) {
						id := a.JobID
						if err == nil {
							ids[id] = k
						} else if freeslot.CodeOf(err) != freeslot.CodeOverloaded {
							t.Errorf("submit: %v", err)
						}
					})
					for id, k := range ids {
						s := sink.result(id)
						if string(s.Result) != string(reqs[k].Job.Payload) || cell.NodeCell(s.Node, len(r.layouts)) != ofJob(t, id) {
							t.Errorf("job %s: %+v", id, s)
						}
						sink.want(id, "assigned result")
					}
					mu.Lock()
					for id := range ids {
						accepted[id]++
					}
					mu.Unlock()
				}
			})
		}
		all.Wait()
		cells := make(map[int]int)
		for id, n := range accepted {
			if n != 1 || book.runs[id] != 1 {
				t.Errorf("job %s was accepted %d times and run %d times", id, n, book.runs[id])
			}
			cells[ofJob(t, id)]++
		}
		if len(book.runs) != len(accepted) || len(cells) != len(r.layouts) {
			t.Errorf("%d jobs ran, %d were accepted, in the cells %v", len(book.runs), len(accepted), cells)
		}
		for i := range r.layouts {
			for _, n := range r.nodesIn(i, 2, 3) {
				if jobs, used := r.owned(n.ID); len(jobs) != 0 || used != 0 {
					t.Errorf("node %s has %v, %d slots", n.ID, jobs, used)
				}
			}
		}
		for _, rep := range replicas {
			rep.settled()
			waittest.Until(t, "nothing outstanding", func() bool { return rep.Outstanding() == 0 })
		}
		t.Logf("%d jobs by cell: %v", len(accepted), cells)
	})
}

// A job is read, cancelled, listed and attached to in whatever cell it is.
func TestJobsOfEveryCell(t *testing.T) {
	t.Parallel()
	onCells(t, func(t *testing.T, r *rig) {
		agents := make(map[string]*agent)
		for i := range r.layouts {
			n := r.nodesIn(i, 1, 100)[0]
			agents[n.ID] = r.agent(n)
		}
		x, y := r.replica("x"), r.replica("y")
		first, second := newRecorder(t), newRecorder(t)
		byCell := make(map[int]string)
		waittest.Until(t, "a job in every cell", func() bool {
			id := x.mustPlace(job(), first)
			byCell[ofJob(t, id)] = id
			return len(byCell) == len(r.layouts)
		})
		for _, id := range byCell {
			s, err := y.Job(deadline(t), tenant, id)
			if err != nil || s.State != freeslot.StateRunning {
				t.Fatalf("%+v, %v; want no error, s.State == freeslot.StateRunning", s, err)
			}
			if s, err = y.Cancel(deadline(t), tenant, id); err != nil || s.State != freeslot.StateCancelling {
				t.Errorf("%+v, %v; want no error, s.State == freeslot.StateCancelling", s, err)
			}
			if s, err = y.Attach(deadline(t), tenant, id, second); err != nil || s.ID != id {
				t.Errorf("%+v, %v; want no error, s.ID == %v", s, err, id)
			}
			agents[s.Node].complete(id, `"end"`)
			if s := second.result(id); string(s.Result) != `"end"` {
				t.Errorf("%+v; want string(s.Result) == `\"end\"`", s)
			}
			waittest.Until(t, "the first gets Detached", func() bool { return first.kinds(id) == "assigned detached" })
		}
		seen := make(map[string]bool)
		for cursor, more := "", true; more; more = cursor != "" {
			page, err := y.Jobs(deadline(t), cell.JobFilter{State: freeslot.StateSucceeded}, cursor, 2)
			if err != nil {
				t.Fatal(err)
			}
			for _, s := range page.Jobs {
				seen[s.ID] = true
			}
			cursor = page.Cursor
		}
		for _, id := range byCell {
			if !seen[id] {
				t.Errorf("job %s is not listed", id)
			}
		}
		for _, id := range []string{cell.NewJobID(len(r.layouts)), cell.NewJobID(cell.MaxCells - 1)} {
			_, err := x.Job(deadline(t), tenant, id)
			wantCode(t, err, freeslot.CodeNotFound)
			_, err = x.Attach(deadline(t), tenant, id, first)
			wantCode(t, err, freeslot.CodeNotFound)
		}
	})
}

// Jobs go to the cells by their free capacity, and all of it is used.
func TestCellsByFreeCapacity(t *testing.T) {
	t.Parallel()
	r := newCells(t, 2, redistest.Shared(t))
	const small, large = 40, 120
	r.agent(r.nodesIn(0, 1, small)[0])
	r.agent(r.nodesIn(1, 1, large)[0])
	rep := r.replica("r1")
	count := make([]int, 2)
	for range (small + large) / 2 {
		count[ofJob(t, rep.mustPlace(job(), nil))]++
	}
	// 20 of 80 are expected; the standard deviation is below 4.
	if count[0] < 4 || count[0] > 36 {
		t.Errorf("with %d and %d free slots %v jobs went to the cells", small, large, count)
	}
	for range (small + large) / 2 {
		count[ofJob(t, rep.mustPlace(job(), nil))]++
	}
	rep.mustWait(job(), 1, nil)
	if count[0] != small || count[1] != large {
		t.Errorf("%v jobs in the cells", count)
	}
	for i, n := range count {
		if got := testutil.ToFloat64(rep.metrics.placed.WithLabelValues(fmt.Sprint(i))); got != float64(n) {
			t.Errorf("%v placed in cell %d, expected %d", got, i, n)
		}
	}
}

// If a cell refuses, the job goes to another one under another id. No waiter stays under the former
// id.
func TestRefusedInOneCell(t *testing.T) {
	t.Parallel()
	r := newCells(t, 2, redistest.Shared(t))
	bad, good := r.agent(r.nodesIn(0, 1, 1000)[0]), r.agent(r.nodesIn(1, 1, 50)[0])
	rep := r.replica("r1", func(c *replicaConfig) { blind(c) })
	bad.heartbeat(freeslot.StatusDraining)
	sink := newRecorder(t)
	for range 20 {
		id := rep.mustPlace(job(), sink)
		if a, _ := sink.of(id)[0].(Assignment); ofJob(t, id) != 1 || a.JobID != id || a.Node != good.node.ID {
			t.Errorf("job %s: %+v", id, a)
		}
	}
	if n := rep.refusals(cell.RefusedDraining); n != 1 {
		t.Errorf("%d refusals", n)
	}
	if a, b := rep.byCell[0].outstanding.Size(), rep.byCell[1].outstanding.Size(); a != 0 || b != 20 {
		t.Errorf("%d and %d outstanding", a, b)
	}
	d := good.next()
	good.complete(d.Attempt.Job, `1`)
	_ = sink.result(d.Attempt.Job)
}

// The refusals of candidates before the one that takes the job correct the cache as well.
func TestEarlierRefusals(t *testing.T) {
	t.Parallel()
	r := newRig(t, redistest.Shared(t))
	bad := r.agent(node("bad", 100))
	r.agent(node("good", 100))
	rep := r.replica("r1", blind)
	good, _ := rep.cache.Node("good")
	good.SetUsed(50) // so that it comes second
	bad.heartbeat(freeslot.StatusDraining)
	rep.mustPlace(job(), nil)
	if n, _ := rep.cache.Node("bad"); !n.Draining() || rep.refusals(cell.RefusedDraining) != 1 {
		t.Errorf("%d refusals, draining: %v", rep.refusals(cell.RefusedDraining), n.Draining())
	}
	if used, pending := good.Load(); used != 1 || pending != 0 {
		t.Errorf("used %d, pending %d", used, pending)
	}
}

// twoServers is a cell on each of two servers, and a node in each that runs until the end of the
// test whatever happens.
func twoServers(t *testing.T) (r *rig, servers [2]*redistest.Server) {
	t.Helper()
	servers = [2]*redistest.Server{redistest.New(t, redistest.AppendOnly("always")), redistest.New(t, redistest.AppendOnly("always"))}
	return newCells(t, 2, servers[0].Target, servers[1].Target), servers
}

// shortCalls makes failures of the second cell quick. A busy machine may delay the first one.
func shortCalls(c *replicaConfig) {
	quick(c)
	c.cell = func(cc *cell.Config) {
		if cc.Index == 1 {
			cc.CallTimeout = 500 * time.Millisecond
		}
	}
}

// maybe places a job, unless a call took too long on a busy machine.
func (rep *replica) maybe(job *freeslot.Job, sink Sink) (id string, ok bool) {
	rep.rig.t.Helper()
	id, err := rep.place(job, sink)
	if err != nil && freeslot.CodeOf(err) != freeslot.CodeUnavailable {
		rep.rig.t.Errorf("submit: %v", err)
	}
	return id, err == nil
}

// One of two servers dies, or hangs. Its nodes are out, and jobs go to the other one. The jobs that
// ran there return with it.
func TestOneServerOfTwo(t *testing.T) {
	t.Parallel()
	for name, fail := range map[string]struct{ away, back func(*redistest.Server) }{
		"killed": {(*redistest.Server).Kill, (*redistest.Server).Restart},
		"paused": {(*redistest.Server).Pause, (*redistest.Server).Resume},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r, servers := twoServers(t)
			stay, leave := r.agent(r.nodesIn(0, 1, 1000)[0]), r.agent(r.nodesIn(1, 1, 1000)[0])
			// A job that may have been placed is repeated in its cell for this long.
			rep := r.replica("r1", shortCalls, func(c *replicaConfig) { c.dispatch.SubmitTimeout = time.Second })
			sink := newRecorder(t)
			// Some jobs are running in both cells when it happens.
			before := make(map[int][]string)
			waittest.Until(t, "jobs in both cells", func() bool {
				if id, ok := rep.maybe(job(), sink); ok {
					before[ofJob(t, id)] = append(before[ofJob(t, id)], id)
				}
				return len(before[0]) >= 5 && len(before[1]) >= 5
			})
			fail.away(servers[1])
			open := 0 // jobs that may have been placed on the server that does not answer
			for open == 0 && rep.cache.Skip() == 0 {
				_, err := rep.place(job(), sink)
				if err == nil {
					continue
				}
				if e := asError(t, err, freeslot.CodeUnavailable); !strings.Contains(e.Message, "may have been placed") {
					t.Errorf(`%v; want strings.Contains(e.Message, "may have been placed")`, err)
				}
				open++
			}
			// From now on no job goes there.
			placed := 0
			waittest.Until(t, "200 jobs", func() bool {
				id, err := rep.place(job(), sink)
				if err == nil {
					placed++
				} else { // on a busy machine the other server may be late, too
					_, id, _ = strings.Cut(asError(t, err, freeslot.CodeUnavailable).Message, "all the same, as ")
				}
				if id != "" && ofJob(t, id) != 0 {
					t.Errorf("job %s went to a cell that does not answer", id)
				}
				return placed == 200
			}, func() any { return placed })
			stay.persist()
			for _, id := range before[0] {
				_ = sink.result(id)
			}
			for _, id := range before[1] {
				sink.want(id, "assigned")
			}
			fail.back(servers[1])
			leave.persist()
			for _, id := range before[1] {
				if s := sink.result(id); s.State != freeslot.StateSucceeded {
					t.Errorf("%+v; want s.State == freeslot.StateSucceeded", s)
				}
				sink.want(id, "assigned result")
			}
			waittest.Until(t, "the cell is used again", func() bool {
				id, ok := rep.maybe(job(), sink)
				return ok && ofJob(t, id) == 1
			})
			for _, n := range []string{stay.node.ID, leave.node.ID} {
				waittest.Until(t, "free slots", func() bool { jobs, used := r.owned(n); return len(jobs) == 0 && used == 0 })
			}
			waittest.Until(t, "nothing outstanding", func() bool { return rep.Outstanding() == 0 })
			if testutil.ToFloat64(rep.metrics.failures.WithLabelValues("1")) == 0 {
				t.Error("no failure of the cell is counted")
			}
		})
	}
}

// Jobs that wait behind an unanswered call were never sent, and go to another cell at once. Only
// what was sent is unavailable.
func TestQueuedJobsGoElsewhere(t *testing.T) {
	t.Parallel()
	const jobs = 200
	r, servers := twoServers(t)
	r.agent(r.nodesIn(0, 1, jobs)[0])
	away := r.agent(r.nodesIn(1, 1, 60_000)[0]) // where nearly every job would go
	rep := r.replica("r1", shortCalls, func(c *replicaConfig) {
		c.blind, c.cache.RefreshInterval = true, time.Hour
		c.dispatch.SubmitTimeout = 10 * time.Second // for which a job that was sent is repeated
	})
	waittest.Until(t, "a job", func() bool { _, ok := rep.maybe(job(), nil); return ok })
	servers[1].Pause()
	sent := make(chan string, jobs)
	var all sync.WaitGroup
	for range jobs {
		all.Go(func() {
			rep.Submit(context.Background(), []Request{{Tenant: tenant, Job: job()}}, newRecorder(t), func(_ int, a Accepted, err error) {
				id := a.JobID
				switch {
				case err == nil && ofJob(t, id) != 0:
					t.Errorf("job %s was placed in a cell that does not answer", id)
				case err == nil:
				case freeslot.CodeOf(err) == freeslot.CodeUnavailable && strings.Contains(err.Error(), "may have been placed"):
					sent <- ""
				default:
					t.Error(err)
				}
			})
		})
	}
	all.Wait()
	servers[1].Resume()
	rep.settled()
	// Two calls are under way, of 64 at most, and the first goes out before many have come.
	if len(sent) == 0 || len(sent) > 2*64 {
		t.Errorf("%d of %d jobs were sent to the cell that does not answer", len(sent), jobs)
	}
	waittest.Until(t, "no more than what was sent", func() bool {
		owned, _ := r.owned(away.node.ID)
		return len(owned) <= len(sent)+1
	})
	t.Logf("%d of %d jobs were sent to the cell that does not answer", len(sent), jobs)
}

// Only if every cell answers is it certain that no node fits.
func TestNoNodeWithACellAway(t *testing.T) {
	t.Parallel()
	r, servers := twoServers(t)
	here, there := r.nodesIn(0, 1, 8)[0], r.nodesIn(1, 1, 8)[0]
	there.Services = append(there.Services, freeslot.Service{Name: "rare"})
	r.agent(here)
	r.agent(there)
	spied := new(spy)
	rep := r.replica("r1", shortCalls, spied.on)
	unknown, rare := &freeslot.Job{Service: "unknown"}, &freeslot.Job{Service: "rare"}
	waittest.Until(t, "no matching node", func() bool {
		_, err := rep.place(unknown, nil)
		return freeslot.CodeOf(err) == freeslot.CodeNoMatchingNode
	})
	waittest.Until(t, "a job of the second cell", func() bool { _, ok := rep.maybe(rare, nil); return ok })

	servers[1].Kill()
	waittest.Until(t, "the cell is left out", func() bool { return rep.cache.Skip() != 0 })
	_, err := rep.place(unknown, nil)
	if e := asError(t, err, freeslot.CodeUnavailable); e.RetryAfter <= 0 {
		t.Errorf("%+v; want e.RetryAfter > 0", e)
	}
	settled := spied.settled.Load()
	_, err = rep.place(rare, nil)
	if e := asError(t, err, freeslot.CodeUnavailable); e.RetryAfter <= 0 || strings.Contains(e.Message, "may have been") {
		t.Errorf(`%+v; want e.RetryAfter > 0, not strings.Contains(e.Message, "may have been")`, e)
	}
	if n := spied.settled.Load() - settled; n > 2 {
		t.Errorf("it was searched %d times although it is known", n)
	}
	rep.mustPlace(job(), nil)
	servers[1].Restart()
	waittest.Until(t, "the cell is back", func() bool { _, err := rep.place(rare, nil); return err == nil })
	waittest.Until(t, "no matching node again", func() bool {
		_, err := rep.place(unknown, nil)
		return freeslot.CodeOf(err) == freeslot.CodeNoMatchingNode
	})
}

// A server that is away when the replica starts does not prevent the start, unless it is the only
// one. Its reply stream is opened when it returns.
func TestStartWithACellAway(t *testing.T) {
	t.Parallel()
	r, servers := twoServers(t)
	r.agent(r.nodesIn(0, 1, 1000)[0])
	late := r.agent(r.nodesIn(1, 1, 1000)[0])
	rep := r.unstarted("r1", shortCalls)
	servers[1].Pause()
	start(t, rep.cache)
	start(t, rep.Dispatcher)
	sink := newRecorder(t)
	if id := rep.mustPlace(job(), sink); ofJob(t, id) != 0 {
		t.Errorf("job %s", id)
	}
	servers[1].Resume()
	var id string
	waittest.Until(t, "the cell is used", func() bool {
		var ok bool
		id, ok = rep.maybe(job(), sink)
		return ok && ofJob(t, id) == 1
	})
	late.complete(id, `"late"`)
	if s := sink.result(id); string(s.Result) != `"late"` {
		t.Errorf("%+v; want string(s.Result) == `\"late\"`", s)
	}
}

// One of two servers runs out of memory. Jobs go to the other, and are refused only if no other
// cell would do.
func TestOneServerOutOfMemory(t *testing.T) {
	t.Parallel()
	r, _ := twoServers(t)
	here, there := r.nodesIn(0, 1, 1000)[0], r.nodesIn(1, 1, 60_000)[0]
	there.Services = append(there.Services, freeslot.Service{Name: "rare"})
	r.agent(here)
	r.agent(there)
	rep := r.replica("r1")
	limit := func(bytes string) {
		t.Helper()
		for _, args := range [][]string{{"maxmemory-policy", "noeviction"}, {"maxmemory", bytes}} {
			set := r.clients[1].B().Arbitrary("CONFIG", "SET").Args(args...).Build()
			if err := r.clients[1].Do(deadline(t), set).Error(); err != nil {
				t.Fatal(err)
			}
		}
	}
	limit("1")
	// The first submit learns it from Redis, unless watchMemory was faster.
	for range 10 {
		if id := rep.mustPlace(job(), nil); ofJob(t, id) != 0 {
			t.Errorf("job %s", id)
		}
	}
	_, err := rep.place(&freeslot.Job{Service: "rare"}, nil)
	if e := asError(t, err, freeslot.CodeOverloaded); !strings.Contains(e.Message, "memory") {
		t.Errorf(`%+v; want strings.Contains(e.Message, "memory")`, e)
	}
	limit("0")
	waittest.Until(t, "there is memory again", func() bool { return ofJob(t, rep.mustPlace(job(), nil)) == 1 })
	rep.mustPlace(&freeslot.Job{Service: "rare"}, nil)
}

// A batch has jobs for a cell that hangs and for another one. The latter are decided at once, not
// with the former.
func TestBatchWithACellThatHangs(t *testing.T) {
	t.Parallel()
	const jobs = 40
	r, servers := twoServers(t)
	for i, service := range []string{"here", "there"} {
		n := r.nodesIn(i, 1, 1000)[0]
		n.Services = []freeslot.Service{{Name: service}}
		r.agent(n)
	}
	rep := r.replica("r1", func(c *replicaConfig) { c.blind, c.cache.RefreshInterval = true, time.Hour })
	servers[1].Pause()
	reqs := make([]Request, jobs)
	for i := range reqs {
		reqs[i] = Request{Tenant: tenant, Job: sized(i + 1)}
		reqs[i].Job.Service = []string{"here", "there"}[i%2]
	}
	ctx, leave := context.WithCancel(deadline(t))
	defer leave()
	placed, open := 0, 0
	rep.Submit(ctx, reqs, newRecorder(t), func(_ int, a Accepted, err error) {
		id := a.JobID
		switch {
		case err == nil && (ofJob(t, id) != 0 || open > 0):
			t.Errorf("job %s was decided after one of the cell that hangs", id)
		case err == nil:
			if placed++; placed == jobs/2 {
				leave() // only those of the other cell are left
			}
		case strings.Contains(err.Error(), "may have been placed"):
			open++
		default:
			t.Error(err)
		}
	})
	servers[1].Resume()
	if placed != jobs/2 || open != jobs/2 || rep.Outstanding() != placed {
		t.Errorf("%d placed, %d open, %d outstanding", placed, open, rep.Outstanding())
	}
	rep.settled()
}

// sized is a job of so many slots. Jobs of different sizes are not chosen for together, which would
// send them all to one cell.
func sized(slots int) *freeslot.Job {
	j := job()
	j.Slots = slots
	return j
}

// After a panic everything is cleaned up in every cell, including the calls under way.
func TestPanicOverCells(t *testing.T) {
	t.Parallel()
	r := newCells(t, 4, redistest.Shared(t))
	for i := range r.layouts {
		r.agent(r.nodesIn(i, 1, 1000)[0])
	}
	rep := r.replica("r1")
	reqs := make([]Request, 40)
	for i := range reqs {
		reqs[i] = Request{Tenant: tenant, Job: sized(i + 1)}
	}
	answers := 0
	func() {
		defer func() {
			if recover() == nil {
				t.Error("there was no panic")
			}
		}()
		rep.Submit(deadline(t), reqs, newRecorder(t), func(int, Accepted, error) { answers++; panic("test") })
	}()
	if answers != 1 || rep.Outstanding() != 0 {
		t.Errorf("answered %d times, %d outstanding", answers, rep.Outstanding())
	}
	rep.settled()
}
