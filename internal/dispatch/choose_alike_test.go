package dispatch

import (
	"fmt"
	"testing"
	"time"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/cell"
	"github.com/freeslot/freeslot/internal/testing/redistest"
)

// submitAll submits jobs in one call and returns on which nodes they are, by index.
func (rep *replica) submitAll(jobs []*freeslot.Job) []string {
	rep.rig.t.Helper()
	reqs, sink, ids := make([]Request, len(jobs)), newRecorder(rep.rig.t), make([]string, len(jobs))
	for i, j := range jobs {
		reqs[i] = Request{Tenant: tenant, Job: j}
	}
	rep.Submit(deadline(rep.rig.t), reqs, sink, func(i int, a Accepted, err error) {
		if err != nil || ids[i] != "" {
			rep.rig.t.Errorf("job %d: %+v, %v", i, a, err)
		}
		ids[i] = a.JobID
	})
	rep.settled()
	nodes := make([]string, len(jobs))
	for i, id := range ids {
		nodes[i] = sink.begun(id, 1).Node
	}
	return nodes
}

func distinct(nodes []string) map[string]int {
	count := make(map[string]int)
	for _, n := range nodes {
		count[n]++
	}
	return count
}

// Jobs of one call that are alike share few nodes, and each node keeps half of its free slots; jobs
// between them that are not alike are chosen by themselves.
func TestJobsAlikeShareNodes(t *testing.T) {
	t.Parallel()
	r := newRig(t, redistest.Shared(t))
	for i := range 40 {
		n := node(fmt.Sprintf("n%d", i), 16)
		if i%2 == 1 {
			n.Services[0].Name = "other"
		}
		r.agent(n)
	}
	rep := r.replica("r1")
	jobs := make([]*freeslot.Job, 64)
	for i := range jobs {
		jobs[i] = job()
		if i%2 == 1 {
			jobs[i].Service = "other"
		}
	}
	jobs[10].AffinityKey, jobs[20].Slots = "session", 3
	jobs[30].IdempotencyKey = "once"
	nodes := rep.submitAll(jobs)
	var alike []string
	for i, n := range nodes {
		if i != 10 && i != 20 && i != 30 {
			alike = append(alike, n)
		}
	}
	// 29 and 32 jobs, in groups of eight.
	if got := distinct(alike); len(got) != 8 {
		t.Errorf("the jobs are on %v, expected four nodes of each service", got)
	}
	for n, count := range distinct(nodes) {
		if _, used := r.owned(n); count > 10 || used > 12 {
			t.Errorf("%s has %d jobs in %d slots", n, count, used)
		}
	}
}

// More jobs than a batch has, and more than groups of half the free slots take, fill the fleet to
// the last slot.
func TestCallFillsTheFleet(t *testing.T) {
	t.Parallel()
	redistest.Backends(t, func(t *testing.T, redis *redistest.Target) {
		t.Parallel()
		const nodes, slots = 13, 12
		r := newRig(t, redis)
		for i := range nodes {
			r.agent(node(fmt.Sprintf("n%d", i), slots))
		}
		jobs := make([]*freeslot.Job, nodes*slots)
		for i := range jobs {
			jobs[i] = job()
		}
		for n, count := range distinct(r.replica("r1").submitAll(jobs)) {
			if count != slots {
				t.Errorf("%s has %d jobs", n, count)
			}
		}
	})
}

// Jobs of a group for which a node has less room than the cache says go elsewhere.
func TestGroupOnANodeThatIsFull(t *testing.T) {
	t.Parallel()
	r := newRig(t, redistest.Shared(t))
	for i := range 8 {
		r.agent(node(fmt.Sprintf("n%d", i), 16))
	}
	jobs := make([]*freeslot.Job, 96)
	for i := range jobs {
		jobs[i] = job()
	}
	rep := r.replica("r1", blind)
	r.replica("r2", blind).submitAll(jobs) // r1 does not hear of them
	rep.submitAll(jobs[:32])
	for i := range 8 {
		if _, used := r.owned(fmt.Sprintf("n%d", i)); used != 16 {
			t.Errorf("n%d has %d slots in use", i, used)
		}
	}
	if rep.refusals(cell.RefusedFull) == 0 {
		t.Error("no node was full; the test means nothing")
	}
}

// A group that is refused as a whole counts as one refusal of its node.
func TestGroupIsRefusedOnce(t *testing.T) {
	t.Parallel()
	r := newRig(t, redistest.Shared(t))
	bad := r.agent(node("bad", 16))
	r.agent(node("good", 64))
	rep := r.replica("r1", blind)
	good, _ := rep.cache.Node("good")
	good.SetUsed(40) // so that the other is tried first
	bad.heartbeat(freeslot.StatusDraining)
	jobs := make([]*freeslot.Job, 20) // so many that the draws for them find both nodes
	for i := range jobs {
		jobs[i] = job()
	}
	rep.submitAll(jobs)
	if n := rep.refusals(cell.RefusedDraining); n != 8 {
		t.Fatalf("%d jobs are refused, expected a group of half of the node's 16 slots", n)
	}
	n, _ := rep.cache.Node("bad")
	n.SetDraining(false)
	if rep.quarantined(rep.cache.Now()) {
		t.Error("one refused group begins the quarantine")
	}
}

// Jobs that come alone while others are under way share a node, too, for a short time and until
// half of what was free there is taken. A job without others has a choice of its own.
func TestJobsThatComeAloneShareNodes(t *testing.T) {
	t.Parallel()
	r := newRig(t, redistest.Shared(t))
	for i := range 40 {
		r.agent(node(fmt.Sprintf("n%d", i), 16))
	}
	rep, now := r.replica("r1", blind), time.Now()
	var placed []*placement
	join := func(j *freeslot.Job) string {
		t.Helper()
		p := &placement{request: Request{Tenant: tenant, Job: j}}
		p.class = rep.nodes.Class(j.Service, &j.Requirement)
		rep.joinGroup(p, now)
		if err := rep.chooseNode(p); err != nil || p.taken == nil || len(p.candidates) != 2 {
			t.Fatalf("error %v, took slots of %v, %d candidates; expected none, those of a node, 2", err, p.taken, len(p.candidates))
		}
		placed = append(placed, p)
		return p.candidates[0].ID()
	}
	rep.submits.Store(16)
	var nodes []string
	for range 16 {
		nodes = append(nodes, join(job()))
	}
	if first, second := distinct(nodes[:8]), distinct(nodes[8:]); len(first) != 1 || len(second) != 1 || len(distinct(nodes)) != 2 {
		t.Errorf("the jobs are on %q, expected two groups of eight", nodes)
	}
	open := rep.openGroups.place(placed[0].class, 1)
	again := func(what string, chosen bool) {
		t.Helper()
		before := open.until
		now = now.Add(1)
		join(job())
		if got := !open.until.Equal(before); got != chosen {
			t.Errorf("%s: groups are chosen again: %t", what, got)
		}
	}
	again("after all places", true)
	join(sized(2))
	again("after a job of another size", false)
	now = now.Add(openLife)
	again("later", true)
	for _, n := range rep.cache.AllNodes() {
		n.SetUsed(9)
	}
	again("nodes more than half full", false) // the groups are older
	now = now.Add(openLife)
	again("nodes more than half full, later", true)
	if open.left() {
		t.Error("there are groups on nodes that are more than half full")
	}
	again("no groups a moment ago", false)
	now = now.Add(openLife)
	again("no groups earlier", true)
	now = now.Add(openLife)
	open.class = nil
	again("a place of another class, later", true)
	open.class = nil
	again("a place of another class", false)
	last := open.until
	for _, p := range placed {
		p.giveBack()
	}
	rep.submits.Store(0)
	rep.mustPlace(job(), nil)
	if !open.until.Equal(last) {
		t.Error("a job without others took a place of a group")
	}
}
