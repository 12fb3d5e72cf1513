package cell

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/testing/redistest"
)

// movers is a system of several cells between which jobs move.
type movers struct {
	*Set
	t    *testing.T
	rigs []*rig // by cell, of the same cells
}

func newMovers(t *testing.T, redis *redistest.Target, cells int) *movers {
	t.Helper()
	m := &movers{Set: newSet(t, redis.Prefix(t), cells, redis), t: t}
	for _, c := range m.All() {
		m.rigs = append(m.rigs, &rig{Cell: c, t: t, redis: redis, raw: c.client, l: c.layout})
	}
	return m
}

// onMovers runs a test on one server and on a cluster, with three cells.
func onMovers(t *testing.T, test func(t *testing.T, m *movers)) {
	t.Parallel()
	redistest.Backends(t, func(t *testing.T, redis *redistest.Target) {
		t.Parallel()
		test(t, newMovers(t, redis, 3))
	})
}

// waitsIn has a job wait in a cell, and returns its id.
func (m *movers) waitsIn(cell int, replica string, change ...func(*Submission)) string {
	m.t.Helper()
	id := m.At(cell).NewJobID()
	return m.rigs[cell].waits(replica, append(change, func(s *Submission) { s.JobID = id })...)
}

// begin has all jobs of the usual class leave a cell for another one.
func (m *movers) begin(from, to, want int) {
	m.t.Helper()
	got, err := m.At(from).BeginMoves(m.t.Context(), echo, Target{Cell: to, Slots: 100}, 0, 100)
	if err != nil || got.Jobs != want {
		m.t.Fatalf("%+v, %v, want %d jobs to move", got, err, want)
	}
}

// arrives is begin and what follows.
func (m *movers) arrives(from, to, want int) {
	m.t.Helper()
	m.begin(from, to, want)
	m.driven(from, want)
}

func (m *movers) driven(from, want int) {
	m.t.Helper()
	got, err := m.DriveMoves(m.t.Context(), m.At(from), 0, 100)
	if err != nil || got.Jobs != want {
		m.t.Fatalf("%+v, %v, want %d jobs to come", got, err, want)
	}
}

func (m *movers) job(id string) freeslot.JobStatus {
	m.t.Helper()
	s, err := m.Job(m.t.Context(), "", id)
	if err != nil {
		m.t.Fatal(err)
	}
	return s
}

// runsIn lets a job run on a node of the cell, and complete with its own id there as result.
func (m *movers) runsIn(cell int, id string) {
	m.t.Helper()
	r, node := m.rigs[cell], fmt.Sprintf("n%d", cell)
	epoch := r.register(testNode(node, 4))
	if r.take(node) != 1 {
		m.t.Fatalf("nothing waits in cell %d", cell)
	}
	here, _ := r.slots(node)
	attempt := here[MovedID(id, cell)].attempt
	c := succeed(node, epoch, MovedID(id, cell))
	c.Attempt.N = attempt
	r.complete1(c)
}

// sound is that of every cell, and what moves and where.
func (m *movers) sound() {
	m.t.Helper()
	for _, r := range m.rigs {
		r.sound()
	}
}

// listed are the ids of a state, "" for all.
func (m *movers) listed(state freeslot.State) (ids []string) {
	m.t.Helper()
	f := fleet{Set: m.Set, t: m.t}
	ids, failed := f.list(JobFilter{State: state}, 2)
	if failed != nil {
		m.t.Error(failed)
	}
	slices.Sort(ids)
	return ids
}

// soundMoves: a job that moves is where those look who have it move on; what is left of one that has moved is
// looked at until its end is known.
func (r *rig) soundMoves(jobs []string) {
	r.t.Helper()
	moves, moved := r.scores(r.l.Moves()), r.scores(r.l.Moved())
	for _, job := range jobs {
		record := r.hash(r.l.Job(job))
		state := freeslot.State(record["state"])
		_, inMoves := moves[job]
		_, inMoved := moved[job]
		ttl := r.int("PTTL", r.l.Job(job))
		if inMoves != (state == freeslot.StateMoving) || inMoved != (state == stateMoved && ttl < 0) {
			r.t.Errorf("job %s is %s for %d ms: in moves %v, in moved %v", job, state, ttl, inMoves, inMoved)
		}
		if _, _, err := decodeMove(record["move"]); OnTheMove(state) && err != nil || !OnTheMove(state) && record["move"] != "" {
			r.t.Errorf("job %s is %s and goes to %q", job, state, record["move"])
		}
		if state == stateMoved && (record["spec"] != "" || record["run"] != "" || r.jobRecord(job).class == "") {
			r.t.Errorf("what is left of job %s is %v", job, record)
		}
		delete(moves, job)
		delete(moved, job)
	}
	if len(moves)+len(moved) > 0 {
		r.t.Errorf("there are no jobs %v and %v, and they move", moves, moved)
	}
}

// later lets the time pass after which a cell is asked whether jobs are still there.
func (m *movers) later() {
	m.t.Helper()
	for _, r := range m.rigs {
		for job := range r.scores(r.l.Moved()) {
			r.do("ZADD", r.l.Moved(), "1", job)
		}
		for job := range r.scores(r.l.Moves()) {
			r.do("ZADD", r.l.Moves(), "1", job)
		}
	}
}

func (m *movers) ctx() context.Context { return m.t.Context() }

const keptMS = int64(DefaultRetention / time.Millisecond)

// holdMS is HOLD of move_in.lua.
const holdMS = 30 * 24 * int64(time.Hour/time.Millisecond)

// strictMoves calls every script of a move, with two items where they take several.
func (r *rig) strictMoves() {
	r.t.Helper()
	r.waits("r1", timeout(time.Hour.Milliseconds()))
	r.waits("r1", func(s *Submission) { s.Limits = []Limit{WaitingLimit("acme", 9)} })
	begun, err := r.BeginMoves(r.ctx(), echo, Target{Cell: 9, Slots: 1}, 0, 10)
	if err != nil || begun.Jobs < 2 {
		r.t.Fatalf("%+v, %v; want no error, begun.Jobs >= 2", begun, err)
	}
	found, _, err := r.moves(r.ctx(), r.l.Moves(), 0, 10)
	if err != nil || len(found) < 2 {
		r.t.Fatal(found, err)
	}
	var all []*Move
	var notes []moveNote
	for i := range found {
		m := found[i]
		m.Cell = r.Index() // as it would come from another one
		_, ulid, _ := strings.Cut(r.NewJobID(), "-")
		m.Job = "9-" + ulid
		all, notes = append(all, &m), append(notes, isThere(&found[i]))
	}
	if what, err := r.moveIn(r.ctx(), all, r.nowMS()+patience.Milliseconds(), nil); err != nil || what[0] != moveCame {
		r.t.Error(what, err)
	}
	must(r.t, r.noteMoves(r.ctx(), notes))
	if left, err := r.moveAck(r.ctx(), all); err != nil || left[0] != -1 {
		r.t.Error(left, err)
	}
	notes[0], notes[1] = keptFor(notes[0].move, 0), lookLater(notes[1].move, 0)
	must(r.t, r.noteMoves(r.ctx(), notes[:2]))
	if _, _, err := r.moves(r.ctx(), r.l.Moved(), 0, 10, found[1].Job); err != nil {
		r.t.Error(err)
	}
	if routes, err := r.routes(r.ctx(), []string{found[1].Job, all[0].there()}); err != nil || routes[0].state != stateMoved || routes[1].hop != 1 {
		r.t.Error(routes, err)
	}
}
