package dispatch

import (
	"encoding/json"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/cell"
	"github.com/freeslot/freeslot/internal/testing/redistest"
	"github.com/freeslot/freeslot/internal/testing/waittest"
)

// moving makes a replica that moves jobs soon.
func moving(c *replicaConfig) {
	c.dispatch.MoveGrace = 50 * time.Millisecond
	c.dispatch.RecheckInterval = 200 * time.Millisecond
}

// leave takes an agent's node out of its cell.
func (a *agent) leave() {
	a.rig.t.Helper()
	if _, err := a.cell.Deregister(deadline(a.rig.t), a.node.ID, a.epoch); err != nil {
		a.rig.t.Fatal(err)
	}
}

// ends completes the next n attempts that come to the node, with the id that it knows as result.
func (a *agent) ends(n int) (ids []string) {
	a.rig.t.Helper()
	for range n {
		d := a.next()
		ids = append(ids, d.Attempt.Job)
		a.end(cell.Completion{Attempt: d.Attempt, State: freeslot.StateSucceeded, Result: json.RawMessage(`"` + d.Attempt.Job + `"`)})
	}
	return ids
}

func (rep *replica) listed(state freeslot.State) (ids []string) {
	rep.rig.t.Helper()
	for cursor, more := "", true; more; more = cursor != "" {
		page, err := rep.Jobs(deadline(rep.rig.t), cell.JobFilter{State: state}, cursor, 3)
		if err != nil {
			rep.rig.t.Fatal(err)
		}
		for _, s := range page.Jobs {
			ids = append(ids, s.ID)
		}
		cursor = page.Cursor
	}
	slices.Sort(ids)
	return ids
}

// The last node of a cell leaves. The jobs that wait there end on the nodes of another cell, and
// every client sees them under the ids that it knows.
func TestJobsMove(t *testing.T) {
	t.Parallel()
	redistest.Backends(t, func(t *testing.T, redis *redistest.Target) {
		t.Parallel()
		r := newCells(t, 2, redis)
		old := r.agent(r.nodesIn(0, 1, 1)[0])
		x, y := r.replica("x", moving), r.replica("y", moving)
		x.SetReplicas([]string{"x", "y"})
		y.SetReplicas([]string{"x", "y"})
		first, second := newRecorder(t), newRecorder(t)
		keyed := func() *freeslot.Job {
			j := job()
			j.IdempotencyKey = "once"
			return j
		}
		var ids []string
		for i := range 6 {
			j := job()
			if i == 5 {
				j = keyed()
			}
			rep := []*replica{x, y}[i%2]
			ids = append(ids, rep.mustWait(j, i, first))
		}
		if _, err := y.Cancel(deadline(t), tenant, ids[2]); err != nil {
			t.Error(err)
		}
		fresh := r.agent(r.nodesIn(1, 1, 9)[0])
		old.leave()
		for _, id := range ids {
			if id == ids[2] {
				continue
			}
			attempt := 1
			if id == ids[0] {
				attempt = 2
			}
			if a := first.begun(id, attempt); a.Node != fresh.node.ID {
				t.Errorf("job %s runs on %s", id, a.Node)
			}
		}
		if got := x.listed(freeslot.StateRunning); !slices.Equal(got, slices.Sorted(slices.Values(slices.Delete(slices.Clone(ids), 2, 3)))) {
			t.Errorf("%v run, of %v", got, ids)
		}
		// Another session attaches to a job by the id that it knows, and one job is cancelled by
		// it.
		if s, err := x.Attach(deadline(t), tenant, ids[1], second); err != nil || s.ID != ids[1] || s.State != freeslot.StateRunning {
			t.Errorf("%+v, %v; want no error, s.ID == ids[1], s.State == freeslot.StateRunning", s, err)
		}
		if s, err := y.Cancel(deadline(t), tenant, ids[3]); err != nil || s.State != freeslot.StateCancelling || s.ID != ids[3] {
			t.Errorf("%+v, %v; want no error, s.State == freeslot.StateCancelling, s.ID == ids[3]", s, err)
		}
		if a, err := y.submit(keyed(), nil); err != nil || a.JobID != ids[5] {
			t.Errorf("the key names %+v, %v; want %s", a, err, ids[5])
		}
		ran := fresh.ends(5)
		for i, id := range ids {
			sink, want := first, freeslot.StateSucceeded
			switch i {
			case 1:
				sink = second
			case 2:
				want = freeslot.StateCancelled
			}
			s := sink.result(id)
			if s.State != want || want == freeslot.StateSucceeded && string(s.Result) != fmt.Sprintf("%q", cell.MovedID(id, 1)) {
				t.Errorf("job %s: %+v", id, s)
			}
			if s.Node != "" && !slices.Contains(ran, cell.MovedID(id, 1)) {
				t.Errorf("job %s did not run where it went", id)
			}
			for _, rep := range []*replica{x, y} {
				if s, err := rep.Job(deadline(t), tenant, id); err != nil || s.ID != id || s.State != want {
					t.Errorf("%+v, %v; want no error, s.ID == %v, s.State == %v", s, err, id, want)
				}
			}
		}
		if got := y.listed(""); !slices.Equal(got, slices.Sorted(slices.Values(ids))) {
			t.Errorf("%v are listed, want each of %v once", got, ids)
		}
		waittest.Until(t, "the earlier one gets Detached", func() bool { return first.kinds(ids[1]) == "assigned detached" })
		count := testutil.ToFloat64(x.byCell[0].metrics.moved) + testutil.ToFloat64(y.byCell[0].metrics.moved)
		if count != 5 {
			t.Errorf("%v moves are counted", count)
		}
		for _, rep := range []*replica{x, y} {
			waittest.Until(t, "nothing outstanding", func() bool { return rep.Outstanding() == 0 })
		}
	})
}

// TestMovedAndFirstCellEmpty: the first cell of a job has lost its data; the job runs in another
// cell. It is not lost, unlike a job that is in neither.
func TestMovedAndFirstCellEmpty(t *testing.T) {
	t.Parallel()
	r := newCells(t, 2, redistest.Shared(t))
	old := r.agent(r.nodesIn(0, 1, 1)[0])
	x := r.replica("x", moving)
	sink := newRecorder(t)
	x.mustWait(job(), 0, sink)
	running, lost := x.mustWait(job(), 1, sink), x.mustWait(job(), 2, sink)
	fresh := r.agent(r.nodesIn(1, 1, 9)[0])
	old.leave()
	for _, id := range []string{running, lost} {
		sink.begun(id, 1)
		drop(t, r, 0, id)
	}
	drop(t, r, 1, cell.MovedID(lost, 1))
	if s := sink.result(lost); s.Error == nil || s.Error.Code != freeslot.JobErrorLost {
		t.Errorf("%+v; want s.Error != nil, s.Error.Code == freeslot.JobErrorLost", s)
	}
	sink.want(running, "assigned")
	fresh.complete(cell.MovedID(running, 1), `1`)
	if s := sink.result(running); s.State != freeslot.StateSucceeded {
		t.Errorf("%+v %+v; want s.State == freeslot.StateSucceeded", s, s.Error)
	}
	// As for a job whose end in the stream was missed.
	late, found := newRecorder(t), map[string]bool{}
	x.byCell[0].adopt(&freeslot.JobStatus{ID: running, Tenant: tenant}, late)
	x.byCell[0].deliverFromOtherCells([]string{running}, found)
	if s := late.result(running); s.State != freeslot.StateSucceeded || string(s.Result) != `1` || !found[running] {
		t.Errorf("%+v %v; want s.State == freeslot.StateSucceeded, string(s.Result) == `1`, found[running]", s, found)
	}
}

// drop deletes a job's record in a cell.
func drop(t *testing.T, r *rig, at int, id string) {
	t.Helper()
	if err := r.clients[0].Do(deadline(t), r.clients[0].B().Del().Key(r.layouts[at].Job(id)).Build()).Error(); err != nil {
		t.Fatal(err)
	}
}

// TestMovedPatience: a job whose record is gone is looked for as long as another cell may have it,
// but not for ever.
func TestMovedPatience(t *testing.T) {
	t.Parallel()
	server := redistest.New(t)
	r := newCells(t, 2, redistest.Shared(t), server.Target)
	x := r.replica("x")
	id := cell.NewJobID(0)
	x.byCell[0].adopt(&freeslot.JobStatus{ID: id, Tenant: tenant}, newRecorder(t))
	w, _ := x.byCell[0].outstanding.Load(id)
	look := func(missing time.Duration) bool {
		w.mu.Lock()
		w.missingAt = x.nodes.Now() - int64(missing)
		w.checkedAt = x.nodes.Now() // the replica's own recheck would end it meanwhile
		w.mu.Unlock()
		found := map[string]bool{}
		x.byCell[0].deliverFromOtherCells([]string{id}, found)
		return found[id]
	}
	if look(time.Second) {
		t.Error("looked for although no cell has it")
	}
	server.Pause()
	defer server.Resume()
	if !look(time.Second) || look(2*movedPatience) {
		t.Error("a cell does not answer: to be looked for, and not for ever")
	}
}
