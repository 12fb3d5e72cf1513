package cell

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"go.uber.org/zap"
	"pgregory.net/rapid"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/testing/redistest"
)

// TestMoveModel compares random histories with an obvious model: movers that stop after any step and
// go on later, or never, beside everything else that happens to a job. Whatever they do, a job is
// in one place, ends once, and is found by the id that its client knows.
func TestMoveModel(t *testing.T) {
	t.Parallel()
	redis := redistest.Shared(t)
	client := redis.Client(t)
	rapid.Check(t, func(rt *rapid.T) {
		h := &moveHistory{m: &movers{t: t}, jobs: map[string]*movedJob{}}
		var cells []*Cell
		h.cells = rapid.IntRange(2, 3).Draw(rt, "cells")
		for i, l := range Layouts(redis.Prefix(t), h.cells, false) {
			c, err := New(Config{Layout: l, Index: i, Cells: h.cells, CallTimeout: patience, HeartbeatLimit: time.Hour}, client, zap.NewNop(), nil)
			if err != nil {
				rt.Fatal(err)
			}
			cells = append(cells, c)
			r := &rig{Cell: c, t: t, redis: redis, raw: client, l: l}
			h.m.rigs = append(h.m.rigs, r)
			h.epochs = append(h.epochs, r.register(testNode(fmt.Sprintf("n%d", i), 2)))
		}
		h.m.Set = NewSet(cells...)
		actions := map[string]func(*rapid.T){
			"submit": h.submit, "attach": h.attach, "take": h.take, "time": h.time, "drive": h.drive, "stop": h.stop, "": h.check,
		}
		// What takes several steps comes as often as the whole of what takes one.
		for i := range 4 {
			actions[fmt.Sprintf("begin %d", i)], actions[fmt.Sprintf("step %d", i)] = h.begin, h.step
			actions[fmt.Sprintf("read %d", i)] = h.read
		}
		rt.Repeat(actions)
		h.end(rt)
	})
}

// movedJob is what the model knows of a job.
type movedJob struct {
	state    freeslot.State
	attempt  int
	replyTo  string
	deadline bool
	// dropped is true once it ended so long ago that its record is gone.
	dropped bool
}

// held is a mover that has stopped: what it read, how far it came, and until when it may act.
type held struct {
	from int
	move Move
	till int64
	next int // 0 create, 1 forward, 2 settle
}

type moveHistory struct {
	m      *movers
	cells  int
	epochs []Epoch
	jobs   map[string]*movedJob
	order  []string
	held   []*held
}

func (h *moveHistory) drawCell(rt *rapid.T, label string) int {
	return rapid.IntRange(0, h.cells-1).Draw(rt, label)
}

func (h *moveHistory) draw(rt *rapid.T) (string, *movedJob) {
	if len(h.order) == 0 {
		rt.Skip()
	}
	id := rapid.SampledFrom(h.order).Draw(rt, "job")
	return id, h.jobs[id]
}

func (h *moveHistory) submit(rt *rapid.T) {
	if len(h.order) == 2 {
		rt.Skip()
	}
	cell := h.drawCell(rt, "cell")
	j := &movedJob{state: freeslot.StateWaiting, deadline: rapid.Bool().Draw(rt, "deadline"), replyTo: "r0"}
	id := h.m.waitsIn(cell, "r0", func(s *Submission) {
		if j.deadline {
			s.Job.TimeoutMS = 3600_000
		}
	})
	h.jobs[id], h.order = j, append(h.order, id)
}

func (h *moveHistory) begin(rt *rapid.T) {
	from := h.drawCell(rt, "from")
	to := (from + rapid.IntRange(1, h.cells-1).Draw(rt, "to")) % h.cells
	if _, err := h.m.At(from).BeginMoves(h.m.ctx(), echo, Target{Cell: to, Slots: 9}, 0, rapid.IntRange(1, 2).Draw(rt, "limit")); err != nil {
		rt.Fatal(err)
	}
}

// read has a mover read what moves, which then stops: before, others may have read the same.
func (h *moveHistory) read(rt *rapid.T) {
	from := h.drawCell(rt, "from")
	found, _, err := h.m.At(from).moves(h.m.ctx(), h.m.rigs[from].l.Moves(), 0, 10)
	if err != nil {
		rt.Fatal(err)
	}
	for _, m := range found {
		if len(h.held) < 6 {
			h.held = append(h.held, &held{from: from, move: m, till: 1e15})
		}
	}
}

// step has a mover go on, by one call.
func (h *moveHistory) step(rt *rapid.T) {
	if len(h.held) == 0 {
		rt.Skip()
	}
	i := rapid.IntRange(0, len(h.held)-1).Draw(rt, "mover")
	x := h.held[i]
	from, to := h.m.At(x.from), h.m.At(x.move.Cell)
	var err error
	gone := false
	switch x.next {
	case 0:
		var what []int64
		if what, err = to.moveIn(h.m.ctx(), []*Move{&x.move}, x.till, nil); err == nil {
			gone = what[0] == moveLate
		}
	case 1:
		err = from.noteMoves(h.m.ctx(), []moveNote{isThere(&x.move)})
	default:
		err, gone = h.m.lookAfter(h.m.ctx(), from, to, []*Move{&x.move}), true
	}
	if err != nil {
		rt.Fatal(err)
	}
	x.next++
	if gone {
		h.held = slices.Delete(h.held, i, i+1)
	}
}

func (h *moveHistory) drive(rt *rapid.T) {
	h.m.later()
	limit := rapid.IntRange(1, 4).Draw(rt, "limit")
	for cell := range h.cells {
		if _, err := h.m.DriveMoves(h.m.ctx(), h.m.At(cell), 0, limit); err != nil {
			rt.Fatal(err)
		}
	}
}

// stop is one of the ways in which a job ends or an attempt does.
func (h *moveHistory) stop(rt *rapid.T) {
	rapid.SampledFrom([]func(*rapid.T){h.cancel, h.expire, h.complete, h.complete}).Draw(rt, "way")(rt)
}

func (h *moveHistory) cancel(rt *rapid.T) {
	id, j := h.draw(rt)
	s, err := h.m.Cancel(h.m.ctx(), "acme", id)
	if j.dropped {
		h.gone(rt, id, err)
		return
	}
	switch j.state {
	case freeslot.StateWaiting:
		j.state = freeslot.StateCancelled
	case freeslot.StateRunning:
		j.state = freeslot.StateCancelling
	default:
	}
	h.is(rt, id, s, err)
}

func (h *moveHistory) attach(rt *rapid.T) {
	id, j := h.draw(rt)
	replica := rapid.SampledFrom([]string{"r1", "r2"}).Draw(rt, "replica")
	s, err := h.m.Attach(h.m.ctx(), "acme", id, replica)
	if j.dropped {
		h.gone(rt, id, err)
		return
	}
	if !j.state.Terminal() {
		j.replyTo = replica
	}
	h.is(rt, id, s, err)
}

// expire lets the deadline pass of a job that waits.
func (h *moveHistory) expire(rt *rapid.T) {
	id, j := h.draw(rt)
	if !j.deadline || j.state != freeslot.StateWaiting {
		rt.Skip()
	}
	for _, r := range h.m.rigs {
		here := MovedID(id, r.Index())
		if r.field(r.l.Job(here), "state") != string(freeslot.StateWaiting) {
			continue
		}
		r.pass(here)
		if d := r.due(10); d.Expired != 1 {
			rt.Fatalf("%+v; want d.Expired == 1", d)
		}
		j.state = freeslot.StateExpired
	}
}

func (h *moveHistory) take(rt *rapid.T) {
	cell := h.drawCell(rt, "cell")
	r, node := h.m.rigs[cell], fmt.Sprintf("n%d", cell)
	before, _ := r.slots(node)
	r.take(node)
	h.began(rt, cell, before)
}

// began takes in which jobs began on a cell's node, by a take or because a slot was handed over.
func (h *moveHistory) began(rt *rapid.T, cell int, before map[string]owned) {
	after, _ := h.m.rigs[cell].slots(fmt.Sprintf("n%d", cell))
	for here, o := range after {
		if before[here].attempt == o.attempt {
			continue
		}
		j := h.jobs[h.known(rt, here)]
		j.attempt++
		if j.state != freeslot.StateWaiting || o.attempt != j.attempt {
			rt.Fatalf("job %s is %s and begins attempt %d, of which it had %d", here, j.state, o.attempt, j.attempt-1)
		}
		j.state = freeslot.StateRunning
	}
}

// known is the id by which the client of a job knows it.
func (h *moveHistory) known(rt *rapid.T, here string) string {
	for _, id := range h.order {
		if id[1:] == here[1:] {
			return id
		}
	}
	rt.Fatalf("nobody submitted %s", here)
	return ""
}

// complete ends one attempt.
func (h *moveHistory) complete(rt *rapid.T) {
	cell := h.drawCell(rt, "cell")
	r, node := h.m.rigs[cell], fmt.Sprintf("n%d", cell)
	owned, _ := r.slots(node)
	if len(owned) == 0 {
		rt.Skip()
	}
	here := rapid.SampledFrom(slices.Sorted(maps.Keys(owned))).Draw(rt, "owned")
	j := h.jobs[h.known(rt, here)]
	c := succeed(node, h.epochs[cell], here)
	c.Attempt.N = owned[here].attempt
	again := rapid.Bool().Draw(rt, "again") && j.state == freeslot.StateRunning
	if again {
		c.State, c.Result, c.Error, c.Next = freeslot.StateFailed, nil, &freeslot.JobError{Code: "boom"}, HandBack
	}
	if out, err := r.Cell.complete(h.m.ctx(), []Completion{c}); err != nil || out[0] != Completed {
		rt.Fatal(out, err)
	}
	if j.state = freeslot.StateSucceeded; again {
		j.state = freeslot.StateWaiting
		r.forgive(here)
	}
	h.began(rt, cell, owned)
}

// time lets as much pass that what was read before is too old to act upon, and that what is kept for its
// retention is gone: that takes longer. What is kept until a move is settled stays.
func (h *moveHistory) time(*rapid.T) {
	for _, x := range h.held {
		x.till = 1
	}
	for _, r := range h.m.rigs {
		for _, id := range h.order {
			here := r.l.Job(MovedID(id, r.Index()))
			ttl := r.int("PTTL", here)
			if ttl <= 0 || ttl > holdMS/2 {
				continue
			}
			if freeslot.State(r.field(here, "state")).Terminal() {
				h.jobs[id].dropped = true
			}
			r.do("DEL", here)
			r.do("ZREM", r.l.Finished(), MovedID(id, r.Index()))
		}
	}
}

func (h *moveHistory) is(rt *rapid.T, id string, s freeslot.JobStatus, err error) {
	j := h.jobs[id]
	if err != nil || s.ID != id || s.Attempt != j.attempt && s.State != freeslot.StateMoving {
		rt.Fatalf("job %s: %+v, %v; want %+v", id, s, err, j)
	}
	if s.State != j.state && !(s.State == freeslot.StateMoving && j.state == freeslot.StateWaiting) {
		rt.Fatalf("job %s is %s, want %s", id, s.State, j.state)
	}
}

func (h *moveHistory) gone(rt *rapid.T, id string, err error) {
	if freeslot.CodeOf(err) != freeslot.CodeNotFound {
		rt.Fatalf("job %s ended long ago: %v", id, err)
	}
}

// check looks at every record: of one job there is one that is neither on the move nor gone.
func (h *moveHistory) check(rt *rapid.T) {
	for _, id := range h.order {
		j, bodies := h.jobs[id], 0
		records := make([]map[string]string, h.cells)
		for i, r := range h.m.rigs {
			records[i] = r.hash(r.l.Job(MovedID(id, i)))
		}
		for _, record := range records {
			switch state := freeslot.State(record["state"]); state {
			case "", stateMoved:
			case freeslot.StateMoving:
				to, hop, err := decodeMove(record["move"])
				if err != nil {
					rt.Fatal(err)
				}
				if came, _ := strconv.Atoi(records[to]["hop"]); records[to]["state"] == "" || came < hop {
					bodies++
				}
			default:
				bodies++
				if !state.Terminal() && record["reply_to"] != j.replyTo {
					rt.Fatalf("job %s tells %s, want %s", id, record["reply_to"], j.replyTo)
				}
			}
		}
		if j.dropped == (bodies == 1) || bodies > 1 {
			rt.Fatalf("job %s is in %d places, %+v: %v", id, bodies, j, records)
		}
		s, err := h.m.Job(h.m.ctx(), "acme", id)
		if j.dropped {
			h.gone(rt, id, err)
		} else {
			h.is(rt, id, s, err)
		}
	}
}

// end brings every job to its end, and looks at the cells as wholes.
func (h *moveHistory) end(rt *rapid.T) {
	h.check(rt)
	found, failed := h.m.Elsewhere(h.m.ctx(), h.order)
	for _, s := range found {
		h.is(rt, s.ID, s, nil)
	}
	for _, id := range h.order {
		seen := failed[id] || slices.ContainsFunc(found, func(s freeslot.JobStatus) bool { return s.ID == id })
		if seen == h.jobs[id].dropped {
			rt.Fatalf("job %s, %+v, was found: %v", id, h.jobs[id], seen)
		}
	}
	h.m.later()
	for cell := range h.cells {
		if _, err := h.m.DriveMoves(h.m.ctx(), h.m.At(cell), 0, 100); err != nil {
			rt.Fatal(err)
		}
	}
	h.check(rt)
	page, err := h.m.Jobs(h.m.ctx(), JobFilter{}, "", 100)
	if err != nil {
		rt.Fatal(err)
	}
	var listed, want []string
	for _, s := range page.Jobs {
		h.is(rt, s.ID, s, nil)
		listed = append(listed, s.ID)
	}
	for _, id := range h.order {
		if !h.jobs[id].dropped {
			want = append(want, id)
		}
	}
	slices.Sort(listed)
	slices.Sort(want)
	if !slices.Equal(listed, want) {
		rt.Fatalf("listed %v, want %v", listed, want)
	}
	for _, r := range h.m.rigs {
		r.soundMoves(r.recordIDs())
	}
	if h.m.t.Failed() {
		rt.Fatal(errors.New("a cell is not sound"))
	}
}

// recordIDs are the ids of those of the cell.
func (r *rig) recordIDs() (ids []string) {
	for _, key := range r.keys() {
		if id, ok := strings.CutPrefix(key, r.l.Job("")+":"); ok {
			ids = append(ids, id)
		}
	}
	return ids
}
