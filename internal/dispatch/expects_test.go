package dispatch

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/cell"
	"github.com/freeslot/freeslot/internal/selection"
	"github.com/freeslot/freeslot/internal/testing/redistest"
	"github.com/freeslot/freeslot/internal/testing/waittest"
)

// expecting makes a configuration whose pool gpu expects nodes with the service echo.
func expecting(wait string) *selection.Config {
	return &selection.Config{Version: 1, Generation: "g", Enabled: true, Pools: selection.Pools{{
		ID: "gpu", MaxWaitForNode: wait, Expects: &selection.Expects{Services: []string{"echo"}, Slots: 4},
	}}}
}

// A job waits for a node that does not run yet, and starts with its registration: no sweep runs,
// and the node sends no heartbeat.
func TestJobWaitsForExpectedNode(t *testing.T) {
	t.Parallel()
	redistest.Backends(t, func(t *testing.T, redis *redistest.Target) {
		t.Parallel()
		r := newRig(t, redis)
		rep := r.replica("r1", idle)
		sink := newRecorder(t)
		_, err := rep.place(job(), sink)
		wantCode(t, err, freeslot.CodeNoMatchingNode)
		rep.goBy(expecting("1h"))
		first := rep.mustWait(job(), 1, sink)
		large := rep.mustWait(&freeslot.Job{Service: "echo", Slots: 3, IdempotencyKey: "k"}, 2, sink)
		_, err = rep.place(&freeslot.Job{Service: "echo", Slots: 5}, sink)
		wantCode(t, err, freeslot.CodeNoMatchingNode)
		s, err := rep.Job(deadline(t), tenant, large)
		if err != nil || s.WaitsForPool != "gpu" || s.Position != 2 || s.NodeByMS-s.SubmittedAtMS != time.Hour.Milliseconds() {
			t.Errorf(`%+v, %v; want no error, s.WaitsForPool == "gpu", s.Position == 2, s.NodeByMS an hour after s.SubmittedAtMS`, s, err)
		}
		if a, err := rep.submit(&freeslot.Job{Service: "echo", Slots: 3, IdempotencyKey: "k"}, nil); err != nil || a.JobID != large {
			t.Errorf("the key names %+v, %v; want %s", a, err, large)
		}
		rep.byCell[0].swept(t) // the last sweep that these jobs have woken
		// A node that does not fit changes nothing.
		other := node("other", 4)
		other.Services = []freeslot.Service{{Name: "upper"}}
		r.agent(other)
		waittest.Until(t, "the replica to know the node", func() bool { return rep.cache.Size() == 1 })
		sink.want(first, "")
		n := node("n1", 4)
		n.Pools = []string{"gpu"}
		r.agent(n)
		for _, id := range []string{first, large} {
			if b := sink.begun(id, 1); b.Node != "n1" {
				t.Errorf("job %s began on %s; want the new node", id, b.Node)
			}
		}
		if s, err := rep.Job(deadline(t), tenant, first); err != nil || s.WaitsForPool != "" || s.NodeByMS != 0 {
			t.Errorf(`%+v, %v; want no error, s.WaitsForPool == "", s.NodeByMS == 0`, s, err)
		}
	})
}

// Without a node the job expires. Which replica accepted it does not matter, and neither does a
// change of the configuration meanwhile.
func TestNoExpectedNodeComes(t *testing.T) {
	t.Parallel()
	r := newRig(t, redistest.Shared(t))
	// It accepts the job and never looks at what is due.
	accepts := r.unstarted("accepts")
	start(t, accepts.cache)
	accepts.cache.SetConfig(expecting("1ms"))
	id := accepts.mustWait(job(), 1, nil)
	rep := r.replica("r1", idle)
	waittest.Until(t, "the end of the job", func() bool {
		s, err := rep.Job(deadline(t), tenant, id)
		if err != nil {
			t.Fatal(err)
		}
		if s.State != freeslot.StateExpired {
			return false
		}
		if s.Error == nil || s.Error.Code != freeslot.JobErrorNoMatchingNode {
			t.Errorf("%+v, %v; want the code no_matching_node", s, s.Error)
		}
		return true
	})
}

// A node fits when the time is over, but is full: the job waits on. A replica that cannot be sure
// says nothing about the job.
func TestJudge(t *testing.T) {
	t.Parallel()
	r := newRig(t, redistest.Shared(t))
	r.agent(node("n1", 2))
	rep := r.unstarted("r1")
	start(t, rep.cache)
	due := newDueJobs(rep.byCell[0])
	unplaced := func(service string, slots int) cell.Unplaced {
		return cell.Unplaced{JobID: service, Slots: slots, Class: cell.ClassOf(&freeslot.Job{Service: service})}
	}
	all := []cell.Unplaced{unplaced("echo", 2), unplaced("echo", 3), unplaced("upper", 1), {JobID: "x", Class: cell.Class{Definition: "?"}}}
	want := []cell.Judged{{JobID: "echo", Fits: true}, {JobID: "echo"}, {JobID: "upper"}}
	if diff := cmp.Diff(want, due.judge(all)); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	rep.byCell[0].noteFailure()
	if got := due.judge(all); len(got) != 0 {
		t.Errorf("%+v although the cell does not answer; want none", got)
	}
}

// The first node of a class comes to another cell than the one in which its jobs wait. They do not
// wait for the time that a node has to come back.
func TestExpectedNodeInAnotherCell(t *testing.T) {
	t.Parallel()
	redistest.Backends(t, func(t *testing.T, redis *redistest.Target) {
		t.Parallel()
		r := newCells(t, 2, redis)
		rep := r.replica("r1", idle, func(c *replicaConfig) { c.dispatch.MoveGrace = time.Hour })
		now := rep.cache.Now()
		for _, c := range rep.byCell {
			c.contact.at.Store(&proofs{since: now - int64(2*time.Hour), sent: now})
		}
		rep.goBy(expecting("1h"))
		sink := newRecorder(t)
		var ids []string
		in := make(map[int]bool)
		for len(in) < 2 || len(ids) < 4 {
			id := rep.mustPlace(job(), sink)
			in[ofJob(t, id)] = true
			ids = append(ids, id)
		}
		fresh := r.nodesIn(1, 1, len(ids))[0]
		r.agent(fresh)
		for _, id := range ids {
			if b := sink.begun(id, 1); b.Node != fresh.ID {
				t.Errorf("job %s began on %s; want the new node", id, b.Node)
			}
		}
	})
}

// A round of the mover that is late, just when the first node of a class has come, does not make
// the jobs of the class wait for the time that a node has to come back.
func TestLateRound(t *testing.T) {
	t.Parallel()
	r := newCells(t, 2, redistest.Shared(t))
	rep := r.unstarted("r1", func(c *replicaConfig) { c.dispatch.MoveGrace = time.Hour })
	start(t, rep.cache)
	c := rep.byCell[0]
	now := rep.cache.Now()
	c.contact.at.Store(&proofs{since: now - int64(2*time.Hour), sent: now + int64(time.Hour)})
	class := rep.cache.Settle("echo", &freeslot.Requirement{})
	c.queues.add(cell.ClassOf(job()), c.log) // another replica enqueued them
	m := newMover(c)
	m.beginMoves(true)
	r.agent(r.nodesIn(1, 1, 1)[0])
	waittest.Until(t, "a node that fits", func() bool { return rep.cache.Settle("echo", &freeslot.Requirement{}).Fits() == 1 })
	m.ranAt -= int64(time.Minute)
	m.beginMoves(true)
	waittest.Until(t, "the moves to begin", func() bool {
		m.beginMoves(true)
		at, stranded := m.since[class.ID()]
		return stranded && now-at > int64(50*time.Minute)
	})
}

// The bounds of waiting jobs hold for these jobs, too.
func TestExpectedNodeBounds(t *testing.T) {
	t.Parallel()
	r := newRig(t, redistest.Shared(t))
	rep := r.replica("r1", idle, func(c *replicaConfig) {
		c.cell = func(c *cell.Config) { c.WaitingLimit = 3 }
		c.dispatch.Limits = func(string) Limits { return Limits{Waiting: 2} }
	})
	rep.goBy(expecting("1h"))
	rep.mustWait(job(), 1, nil)
	rep.mustWait(job(), 2, nil)
	_, err := rep.place(job(), nil)
	wantCode(t, err, freeslot.CodeOverloaded)
}
