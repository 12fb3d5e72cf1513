package bulk

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"go.uber.org/zap/zaptest"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/cache"
	"github.com/freeslot/freeslot/internal/cell"
	"github.com/freeslot/freeslot/internal/dispatch"
	"github.com/freeslot/freeslot/internal/presence"
	"github.com/freeslot/freeslot/internal/script"
	"github.com/freeslot/freeslot/internal/testing/redistest"
	"github.com/freeslot/freeslot/internal/testing/redistest/acltest"
	"github.com/freeslot/freeslot/internal/testing/scripttest"
	"github.com/freeslot/freeslot/internal/testing/waittest"
)

func TestMain(m *testing.M) {
	scripttest.Guard(scripts)
	acltest.Main(m, script.RoleReplica, cell.Access, presence.Access, access)
}

const tenant = "acme"

// rig is two cells with a node of one slot, a dispatcher, and a service over them.
type rig struct {
	*Service
	t      *testing.T
	client rueidis.Client
	set    *cell.Set
	jobs   *dispatch.Dispatcher
	nodes  *cache.Cache
	again  Again
}

type part interface {
	Start(context.Context) error
	Stop(context.Context) error
}

func (g *rig) runs(p part) {
	g.t.Helper()
	if err := p.Start(g.t.Context()); err != nil {
		g.t.Fatal(err)
	}
	g.t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), waittest.Limit)
		defer cancel()
		if err := p.Stop(ctx); err != nil {
			g.t.Error(err)
		}
	})
}

func newRig(t *testing.T) *rig {
	t.Helper()
	redis := redistest.New(t)
	g := &rig{t: t, client: redis.Client(t)}
	layouts := cell.Layouts(redis.Prefix(t), 2, false)
	cells := make([]*cell.Cell, len(layouts))
	feeds := make([]cache.Feed, len(layouts))
	log := zaptest.NewLogger(t)
	for i, layout := range layouts {
		var err error
		cfg := cell.Config{
			Layout: layout, Index: i, Cells: len(layouts), HeartbeatLimit: time.Hour, CallTimeout: waittest.Limit,
		}
		if cells[i], err = cell.New(cfg, g.client, log, nil); err != nil {
			t.Fatal(err)
		}
		feeds[i] = cache.Feed{Source: cells[i]}
	}
	g.set = cell.NewSet(cells...)
	g.runs(g.set)
	n := freeslot.Node{ID: "n1", MaxConcurrency: 1, Services: []freeslot.Service{{Name: "echo"}}}
	if _, err := g.set.OfNode(n.ID).Register(t.Context(), n, cell.NewEpoch()); err != nil {
		t.Fatal(err)
	}
	g.nodes = cache.New(cache.Config{}, feeds, log, nil)
	g.runs(g.nodes)
	var err error
	if g.jobs, err = dispatch.New(dispatch.Config{Replica: "r1"}, g.set, g.nodes, log, nil); err != nil {
		t.Fatal(err)
	}
	g.runs(g.jobs)
	g.again = g.requeue
	g.Service = &Service{
		store: newStore(g.set.Runners()[0]), wake: func(string) {},
		finder: finder{jobs: g.jobs, byID: g.set.JobsByID, nodes: g.nodes},
	}
	return g
}

// requeue does what the API does.
func (g *rig) requeue(ctx context.Context, _, id string) (err error) {
	job, owner, err := g.set.Spec(ctx, id)
	if err != nil {
		return err
	}
	job.IdempotencyKey, job.TimeoutMS = "bulk-"+id, 0
	g.jobs.Submit(ctx, []dispatch.Request{{Tenant: owner, Job: job}}, nil, func(_ int, _ dispatch.Accepted, e error) { err = e })
	return err
}

// replica is one that works on operations, until the end of the test or its stop.
func (g *rig) replica(name string) *runner {
	g.t.Helper()
	r := newRunner(g.store, actor{jobs: g.jobs, control: g.set, again: g.again}, name, zaptest.NewLogger(g.t))
	g.runs(runnerPart{r})
	return r
}

type runnerPart struct{ *runner }

func (p runnerPart) Start(ctx context.Context) error { return p.start(ctx) }
func (p runnerPart) Stop(ctx context.Context) error  { return p.stop(ctx) }

// submit submits jobs of a tenant and returns their ids. The first job of all runs, the others
// wait.
func (g *rig) submit(tenant string, n int, job freeslot.Job) (ids []string) {
	g.t.Helper()
	job.Service, job.Payload = "echo", json.RawMessage(`1`)
	for range n {
		g.jobs.Submit(g.t.Context(), []dispatch.Request{{Tenant: tenant, Job: &job}}, nil, func(_ int, a dispatch.Accepted, err error) {
			if err != nil {
				g.t.Fatal(err)
			}
			ids = append(ids, a.JobID)
		})
	}
	return ids
}

func (g *rig) plan(tenant string, r BulkRequest) *BulkOperation {
	g.t.Helper()
	o, err := g.Plan(g.t.Context(), tenant, &r)
	if err != nil {
		g.t.Fatal(err)
	}
	return o
}

// launch starts a plan.
func (g *rig) launch(tenant string, o *BulkOperation) {
	g.t.Helper()
	if _, err := g.Start(g.t.Context(), tenant, o.ID, o.Count, "ann", "a test"); err != nil {
		g.t.Fatal(err)
	}
}

// ends waits until an operation is over.
func (g *rig) ends(id string) (o *BulkOperation) {
	g.t.Helper()
	waittest.Until(g.t, "the end of the operation", func() bool {
		var err error
		o, err = g.Get(waittest.Context(g.t), "", id)
		return err == nil && o.over()
	}, func() any { return o })
	return o
}

// states counts jobs by state.
func (g *rig) states(tenant string) map[freeslot.State]int {
	g.t.Helper()
	seen := map[string]freeslot.State{}
	for cursor, more := "", true; more; {
		page, err := g.jobs.Jobs(g.t.Context(), cell.JobFilter{Tenant: tenant}, cursor, cell.MaxPage)
		if err != nil {
			g.t.Fatal(err)
		}
		for _, j := range page.Jobs {
			seen[j.ID] = j.State
		}
		cursor, more = page.Cursor, page.Cursor != ""
	}
	states := map[freeslot.State]int{}
	for _, state := range seen {
		states[state]++
	}
	return states
}

func (g *rig) expectStates(tenant string, want map[freeslot.State]int) {
	g.t.Helper()
	if got := g.states(tenant); !maps.Equal(got, want) {
		g.t.Errorf("jobs of %s are %v; want %v", tenant, got, want)
	}
}

func refused(t *testing.T, err error, code freeslot.Code, field string) {
	t.Helper()
	var e *freeslot.Error
	if !errors.As(err, &e) || e.Code != code || e.Field != field {
		t.Errorf("the error is %+v; want code %s, field %s", err, code, field)
	}
}

// TestOperation: a plan touches its own targets and no others, once its count is known.
func TestOperation(t *testing.T) {
	t.Parallel()
	g := newRig(t)
	r := g.replica("r1")
	g.wake = r.work
	g.submit(tenant, 31, freeslot.Job{})
	g.submit("other", 3, freeslot.Job{})
	plan := g.plan(tenant, BulkRequest{Action: Cancel, Filter: &BulkFilter{State: freeslot.StateWaiting}})
	if plan.Count != 30 || !plan.Complete || plan.Services["echo"] != 30 || plan.Tenants[tenant] != 30 || len(plan.Samples) != 10 {
		t.Fatalf("the plan is %+v; want 30 complete targets of %s", plan, tenant)
	}
	g.submit(tenant, 2, freeslot.Job{}) // after the plan
	_, err := g.Start(t.Context(), tenant, plan.ID, 29, "ann", "")
	refused(t, err, freeslot.CodeConflict, "count")
	_, err = g.Start(t.Context(), "other", plan.ID, 30, "ann", "")
	refused(t, err, freeslot.CodeConflict, "plan")
	g.launch(tenant, plan)
	if o := g.ends(plan.ID); o.State != Ended || o.Done != 30 || o.Outcomes[outcomeDone] != 30 || o.By != "ann" || o.Reason != "a test" || o.Owner != "" {
		t.Errorf("the operation ends as %+v; want 30 done, by ann", o)
	}
	g.expectStates(tenant, map[freeslot.State]int{freeslot.StateRunning: 1, freeslot.StateWaiting: 2, freeslot.StateCancelled: 30})
	g.expectStates("other", map[freeslot.State]int{freeslot.StateWaiting: 3})
	_, err = g.Start(t.Context(), tenant, plan.ID, 30, "ann", "")
	refused(t, err, freeslot.CodeConflict, "plan")

	none := g.plan("", BulkRequest{Action: Drop, Filter: &BulkFilter{State: freeslot.StateCancelled, Service: "tts"}})
	if none.Count != 0 || !none.Complete {
		t.Errorf("the plan for another service is %+v; want no targets", none)
	}
	drop := g.plan("", BulkRequest{Action: Drop, Filter: &BulkFilter{State: freeslot.StateCancelled, Tenant: tenant}})
	g.launch("", drop)
	if o := g.ends(drop.ID); o.Outcomes[outcomeDone] != 30 {
		t.Errorf("the drop ends as %+v; want 30 done", o)
	}
	g.expectStates(tenant, map[freeslot.State]int{freeslot.StateRunning: 1, freeslot.StateWaiting: 2})

	drain := g.plan("", BulkRequest{Action: Drain, Filter: &BulkFilter{Services: []string{"echo"}}})
	g.launch("", drain)
	if o := g.ends(drain.ID); o.Count != 1 || o.Outcomes[outcomeDone] != 1 {
		t.Errorf("the drain ends as %+v; want 1 done", o)
	}
}

// TestForeignJobs: ids of another tenant's jobs come out as not_found, and the jobs stay.
func TestForeignJobs(t *testing.T) {
	t.Parallel()
	g := newRig(t)
	g.wake = g.replica("r1").work
	ids := g.submit("other", 3, freeslot.Job{})
	_, err := g.Plan(t.Context(), tenant, &BulkRequest{Action: Cancel, Filter: &BulkFilter{State: freeslot.StateWaiting, Tenant: "other"}})
	refused(t, err, freeslot.CodePermissionDenied, "filter.tenant")
	plan := g.plan(tenant, BulkRequest{Action: Cancel, IDs: ids})
	if len(plan.Tenants) != 0 {
		t.Errorf("the plan tells of %v; want nothing of jobs of another tenant", plan.Tenants)
	}
	g.launch(tenant, plan)
	if o := g.ends(plan.ID); o.Outcomes["not_found"] != 3 {
		t.Errorf("the operation ends as %+v; want 3 not_found", o)
	}
	g.expectStates("other", map[freeslot.State]int{freeslot.StateRunning: 1, freeslot.StateWaiting: 2})
	_, err = g.Get(t.Context(), "other", plan.ID)
	refused(t, err, freeslot.CodeNotFound, "id")
	_, err = g.Stop(t.Context(), "other", plan.ID)
	refused(t, err, freeslot.CodeNotFound, "id")
	if all, err := g.List(t.Context(), "other"); err != nil || len(all) != 0 {
		t.Errorf("other sees %v, %v; want nothing", all, err)
	}
}

// TestTakeOver: a replica that died had touched more targets than it had counted. The next one goes
// on once the lease ends, and submits each job again once.
func TestTakeOver(t *testing.T) {
	t.Parallel()
	g := newRig(t)
	g.submit(tenant, 1, freeslot.Job{}) // takes the slot
	g.submit(tenant, 40, freeslot.Job{TimeoutMS: 1})
	waittest.Until(t, "40 expired jobs", func() bool { return g.states(tenant)[freeslot.StateExpired] == 40 })
	plan := g.plan(tenant, BulkRequest{Action: Requeue, Filter: &BulkFilter{State: freeslot.StateExpired}})
	g.launch(tenant, plan)
	o, targets, err := g.store.read(t.Context(), plan.ID)
	if err != nil || len(targets) != 40 {
		t.Fatalf("%v, %d targets; want 40", err, len(targets))
	}
	dead := actor{jobs: g.jobs, control: g.set, again: g.again}
	for _, target := range targets[:25] {
		if err := dead.act(t.Context(), o.BulkOperation, target); err != nil {
			t.Fatal(err)
		}
	}
	o.Owner, o.LeaseMS, o.Done, o.Outcomes = "r0/1", o.nowMS+300, 10, map[string]int{outcomeDone: 10}
	if err := g.store.write(t.Context(), &o, nil); err != nil {
		t.Fatal(err)
	}
	var touched atomic.Int32
	g.again = func(ctx context.Context, tenant, id string) error {
		touched.Add(1)
		return g.requeue(ctx, tenant, id)
	}
	g.replica("r1")
	g.replica("r2")
	if o := g.ends(plan.ID); o.State != Ended || o.Outcomes[outcomeDone] != 40 {
		t.Errorf("the operation ends as %+v; want 40 done", o)
	}
	if touched.Load() != 30 {
		t.Errorf("two replicas touched %d targets; want the 30 that were not counted, by one of them", touched.Load())
	}
	g.expectStates(tenant, map[freeslot.State]int{freeslot.StateRunning: 1, freeslot.StateWaiting: 40, freeslot.StateExpired: 40})

	// What was submitted again is left out the next time.
	if err := g.set.Requeued(t.Context(), targets[0], targets[1]); err != nil {
		t.Fatal(err)
	}
	if next := g.plan(tenant, BulkRequest{Action: Requeue, Filter: &BulkFilter{State: freeslot.StateExpired}}); next.Count != 39 || next.Again != 1 {
		t.Errorf("the next plan has %d targets and leaves out %d; want 39 and 1", next.Count, next.Again)
	}
}

// TestTwoOperations: two operations by the same filter submit each job again once. Neither sees
// what the other has submitted: the rig notes nothing on the jobs, as a call that lost its note.
func TestTwoOperations(t *testing.T) {
	t.Parallel()
	g := newRig(t)
	g.submit(tenant, 1, freeslot.Job{}) // takes the slot
	g.submit(tenant, 12, freeslot.Job{TimeoutMS: 1})
	waittest.Until(t, "12 expired jobs", func() bool { return g.states(tenant)[freeslot.StateExpired] == 12 })
	g.wake = g.replica("r1").work
	filter := &BulkFilter{State: freeslot.StateExpired}
	plans := []*BulkOperation{g.plan("", BulkRequest{Action: Requeue, Filter: filter}), g.plan("", BulkRequest{Action: Requeue, Filter: filter})}
	for _, plan := range plans {
		g.launch("", plan)
	}
	for _, plan := range plans {
		if o := g.ends(plan.ID); o.Outcomes[outcomeDone] != 12 {
			t.Errorf("the operation ends as %+v; want 12 done", o)
		}
	}
	g.expectStates(tenant, map[freeslot.State]int{freeslot.StateRunning: 1, freeslot.StateWaiting: 12, freeslot.StateExpired: 12})
}

// TestLostTargets: an operation of which Redis has lost targets ends. It must not end the replicas
// that take it over, one after the other.
func TestLostTargets(t *testing.T) {
	t.Parallel()
	g := newRig(t)
	plan := g.plan("", BulkRequest{Action: Undrain, IDs: []string{"n1", "n2", "n3"}})
	g.launch("", plan)
	o, _, err := g.store.read(t.Context(), plan.ID)
	if err != nil {
		t.Fatal(err)
	}
	o.Done, o.Outcomes = 2, map[string]int{outcomeDone: 2}
	if err := g.store.write(t.Context(), &o, []string{"n1"}); err != nil {
		t.Fatal(err)
	}
	g.replica("r1")
	if o := g.ends(plan.ID); o.State != Ended || o.Count != 1 || o.Done != 2 {
		t.Errorf("the operation ends as %+v; want it ended after 2 of 1 targets", o)
	}
}

// TestStop: an operation ends before its next targets.
func TestStop(t *testing.T) {
	t.Parallel()
	g := newRig(t)
	ids := make([]string, 2000)
	for i := range ids {
		ids[i] = fmt.Sprintf("gone-%d", i)
	}
	plan := g.plan("", BulkRequest{Action: Undrain, IDs: ids})
	g.wake = g.replica("r1").work
	g.launch("", plan)
	waittest.Until(t, "some targets", func() bool {
		o, err := g.Get(waittest.Context(t), "", plan.ID)
		return err == nil && o.Done > 0
	})
	if o, err := g.Stop(t.Context(), "", plan.ID); err != nil || !o.Stopping {
		t.Fatalf("%+v, %v; want an operation that is stopping", o, err)
	}
	if o := g.ends(plan.ID); o.State != Stopped || o.Done == 2000 || o.Outcomes["not_found"] != o.Done || o.Stopping {
		t.Errorf("the operation ends as %+v; want it stopped on the way", o)
	}
}

// TestBounds: a tenant takes the places of its own plans alone, and runs two operations at a time.
func TestBounds(t *testing.T) {
	t.Parallel()
	g := newRig(t) // nothing works on operations
	other := g.plan("other", BulkRequest{Action: Drop, Filter: &BulkFilter{State: freeslot.StateDead}})
	running := g.plan(tenant, BulkRequest{Action: Drop, Filter: &BulkFilter{State: freeslot.StateDead}})
	g.launch(tenant, running)
	var last *BulkOperation
	for range mostOfTenant + 2 {
		last = g.plan(tenant, BulkRequest{Action: Drop, Filter: &BulkFilter{State: freeslot.StateDead}})
	}
	all, err := g.List(t.Context(), "")
	own := 0
	for _, o := range all {
		if o.Tenant == tenant {
			own++
		}
	}
	if err != nil || own > mostOfTenant+1 || len(all) != own+1 || all[len(all)-1].ID != other.ID || all[len(all)-2].ID != running.ID {
		t.Errorf("kept are %d of the tenant, %+v, %v; want at most %d, what runs, and the other tenant's", own, all, err, mostOfTenant+1)
	}
	g.launch(tenant, last)
	third := g.plan(tenant, BulkRequest{Action: Drop, Filter: &BulkFilter{State: freeslot.StateDead}})
	_, err = g.Start(t.Context(), tenant, third.ID, 0, "", "")
	refused(t, err, freeslot.CodeOverloaded, "")
	g.launch("other", other)
}

func TestBadRequests(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		r     BulkRequest
		field string
	}{
		{BulkRequest{Action: Drop}, "filter"},
		{BulkRequest{Action: Drop, Filter: &BulkFilter{}, IDs: []string{"x"}}, "filter"},
		{BulkRequest{Action: Drop, Filter: &BulkFilter{}}, "filter.state"},
		{BulkRequest{Action: Drop, Filter: &BulkFilter{State: freeslot.StateWaiting}}, "filter.state"},
		{BulkRequest{Action: Requeue, Filter: &BulkFilter{State: freeslot.StateSucceeded}}, "filter.state"},
		{BulkRequest{Action: Cancel, Filter: &BulkFilter{State: freeslot.StateDead}}, "filter.state"},
		{BulkRequest{Action: Cancel, Filter: &BulkFilter{State: freeslot.StateWaiting, Pool: "gpu"}}, "filter"},
		{BulkRequest{Action: Cancel, Filter: &BulkFilter{State: freeslot.StateWaiting, Tenant: "a b"}}, "filter.tenant"},
		{BulkRequest{Action: Cancel, Filter: &BulkFilter{State: freeslot.StateWaiting, Class: "x"}}, "filter.class"},
		{BulkRequest{Action: Cancel, Filter: &BulkFilter{State: freeslot.StateWaiting, Service: "a b"}}, "filter.service"},
		{BulkRequest{Action: Cancel, Filter: &BulkFilter{State: freeslot.StateWaiting, Node: "a b"}}, "filter.node"},
		{BulkRequest{Action: Drain, Filter: &BulkFilter{Pool: "gpu", Code: "x"}}, "filter"},
		{BulkRequest{Action: Drain, Filter: &BulkFilter{}}, "filter"},
		{BulkRequest{Action: Drain, Filter: &BulkFilter{State: freeslot.StateWaiting}}, "filter"},
		{BulkRequest{Action: Drain, Filter: &BulkFilter{Pool: "a b"}}, "filter.pool"},
		{BulkRequest{Action: Drain, Filter: &BulkFilter{Services: []string{"a", "b c"}}}, "filter.node_services[1]"},
		{BulkRequest{Action: Drop, IDs: []string{"0-01JD5Y8G6W9V0M5T2C3Q4R7X8Z", "x y"}}, "ids[1]"},
		{BulkRequest{Action: Drain, IDs: []string{"a b"}}, "ids[0]"},
	} {
		err := test.r.validate()
		var e *freeslot.Error
		if !errors.As(err, &e) || e.Field != test.field {
			t.Errorf("%+v is refused with %v; want field %s", test.r, err, test.field)
		}
	}
}

func TestGroupsAreBounded(t *testing.T) {
	t.Parallel()
	groups, sum := map[string]int{}, 0
	for i := range 100 {
		groups[strings.Repeat("x", i+1)] = i
		sum += i
	}
	kept := 0
	bounded := bound(groups)
	for _, n := range bounded {
		kept += n
	}
	if len(bounded) != mostGroups+1 || kept != sum || bounded[strings.Repeat("x", 100)] != 99 {
		t.Errorf("%d groups with %d are kept; want %d with %d, the largest among them", len(bounded), kept, mostGroups+1, sum)
	}
}

// FuzzDecode: what decode accepts, encode writes such that it is read as the same.
func FuzzDecode(f *testing.F) {
	f.Add((&BulkOperation{ID: "a", State: Running, Count: 3, Outcomes: map[string]int{outcomeDone: 2}}).encode())
	f.Add(`{"id":"a","count":-1}`)
	f.Add(`{`)
	f.Fuzz(func(t *testing.T, text string) {
		o, err := decode(text)
		if err != nil {
			return
		}
		again, err := decode(o.encode())
		if err != nil || again.encode() != o.encode() {
			t.Errorf("%q is read as %+v, and then as %+v, %v", text, o, again, err)
		}
	})
}
