package dispatch

import (
	"testing"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/cell"
	"github.com/freeslot/freeslot/internal/testing/redistest"
)

// run submits the job of a run.
func (rep *replica) run(job *freeslot.Job, run Run) (accepted Accepted, err error) {
	rep.rig.t.Helper()
	rep.Submit(deadline(rep.rig.t), []Request{{Tenant: tenant, Job: job, Run: &run}}, nil, func(_ int, a Accepted, e error) { accepted, err = a, e })
	rep.settled()
	return accepted, err
}

// TestHome: a later job goes near, if nodes could run it; with a key it goes to the key's cell.
func TestHome(t *testing.T) {
	t.Parallel()
	r := newCells(t, 3, redistest.Shared(t))
	r.agent(r.nodesIn(0, 1, 1)[0])
	r.agent(r.nodesIn(1, 1, 2)[0])
	rep := r.replica("x")
	for near, want := range map[int]int{0: 0, 1: 1} {
		if home, err := rep.Home(tenant, job(), near); err != nil || home != want {
			t.Errorf("near %d: %d, %v", near, home, err)
		}
	}
	if home, err := rep.Home(tenant, job(), 2); err != nil || home == 2 {
		t.Errorf("%d, %v; want no error, home != 2", home, err)
	}
	large := job()
	large.Slots = 2
	if home, err := rep.Home(tenant, large, 0); err != nil || home != 1 {
		t.Errorf("%d, %v; want no error, home == 1", home, err)
	}
	keyed := job()
	keyed.ConcurrencyKey = "k"
	home, err := rep.Home(tenant, keyed, 0)
	if id, placed := rep.place(keyed, nil); err != nil || placed != nil || ofJob(t, id) != home {
		t.Errorf("%d, %v; a submit goes to %s, %v", home, err, id, placed)
	}
	large.Slots = 3
	if _, err := rep.Home(tenant, large, 0); freeslot.CodeOf(err) != freeslot.CodeNoMatchingNode {
		t.Error(err)
	}
	rep.goBy(expecting("1h")) // a node of four slots, in any cell
	if home, err := rep.Home(tenant, large, 2); err != nil || home != 2 {
		t.Errorf("%d, %v; want cell 2, to which a node may come", home, err)
	}
	large.Slots = 5
	if _, err := rep.Home(tenant, large, 2); freeslot.CodeOf(err) != freeslot.CodeNoMatchingNode {
		t.Errorf("%v; want that a job larger than the expected node is refused", err)
	}
}

// TestRunsJob: the job of a run is in the cell of its id, and is created once, whichever replica
// submits it and whether or not its record still exists.
func TestRunsJob(t *testing.T) {
	t.Parallel()
	r := newCells(t, 3, redistest.Shared(t))
	r.agent(r.nodesIn(0, 1, 4)[0])
	x, y := r.replica("x"), r.replica("y")
	for index := range 3 { // two of them have no node
		run := Run{JobID: cell.NewJobID(index), Once: "1"}
		for _, rep := range []*replica{x, y, x} {
			if a, err := rep.run(job(), run); err != nil || a.JobID != run.JobID {
				t.Fatalf("%+v, %v; want no error, a.JobID == %v", a, err, run.JobID)
			}
		}
		s, err := x.Job(deadline(t), tenant, run.JobID)
		if want := map[bool]freeslot.State{true: freeslot.StateRunning, false: freeslot.StateWaiting}[index == 0]; err != nil || s.State != want {
			t.Errorf("in cell %d: %+v, %v", index, s, err)
		}
	}
	run := Run{JobID: cell.NewJobID(0), Once: "2"}
	if _, err := x.run(job(), run); err != nil {
		t.Fatal(err)
	}
	r.do("DEL", r.layout.Job(run.JobID))
	if a, err := y.run(job(), run); err != nil || a.JobID != run.JobID {
		t.Errorf("%+v, %v; want no error, a.JobID == %v", a, err, run.JobID)
	}
	if n := r.do("EXISTS", r.layout.Job(run.JobID)); n != 0 {
		t.Error("it was created a second time")
	}
}
