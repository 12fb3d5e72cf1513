package cell

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/events"
)

// TestEditedProfile: whatever an operator does to a profile, the node can still beat,
// register and leave, its events can be read, and no job goes to it wrongly.
func TestEditedProfile(t *testing.T) {
	backends(t, func(t *testing.T, r *rig) {
		for name, edit := range map[string][]string{
			"no pools":         {"HDEL", "pool_ids"},
			"pools no JSON":    {"HSET", "pool_ids", "{"},
			"pools null":       {"HSET", "pool_ids", "null"},
			"pools a string":   {"HSET", "pool_ids", `"gpu"`},
			"pools of numbers": {"HSET", "pool_ids", `[1,{"a":[]},null,"gpu"]`},
			"no maximum":       {"HDEL", "max_concurrency"},
			"maximum no digit": {"HSET", "max_concurrency", "many slots"},
			"maximum 0":        {"HSET", "max_concurrency", "0"},
			"no status":        {"HDEL", "status"},
			"odd status":       {"HSET", "status", "on line"},
			"version":          {"HSET", "version", "x"},
		} {
			epoch := r.register(richNode("n1"))
			job := r.place("", 3, "n1")
			hear := r.listen()
			r.do(append([]string{edit[0], r.l.Node("n1")}, edit[1:]...)...)
			if p, err := r.Submit(r.ctx(), submission("", "n1")); err != nil || p.Assigned {
				t.Errorf("%s: submit: %+v, %v", name, p, err)
			}
			if _, err := r.Changes(r.ctx(), 0, 10); err != nil {
				t.Errorf("%s: changes: %v", name, err)
			}
			r.end("n1", epoch, job)
			if _, err := r.Heartbeat(r.ctx(), Heartbeat{Node: "n1", Epoch: epoch}); err != nil {
				t.Errorf("%s: heartbeat: %v", name, err)
			}
			if reg, err := r.Register(r.ctx(), richNode("n1"), epoch); err != nil || len(reg.Lost) != 0 {
				t.Errorf("%s: register: %+v, %v", name, reg, err)
			}
			last := Revision(0)
			for _, e := range hear.drain() { // which fails for what cannot be read
				if last != 0 && e.Revision != last+1 {
					t.Errorf("%s: event %+v after revision %d", name, e, last)
				}
				last = e.Revision
			}
			if p, err := r.Submit(r.ctx(), submission("", "n1")); name != "version" && (err != nil || !p.Assigned) {
				t.Errorf("%s: the node is not mended: %+v, %v", name, p, err)
			}
			r.do(append([]string{edit[0], r.l.Node("n1")}, edit[1:]...)...)
			if _, err := r.Deregister(r.ctx(), "n1", epoch); err != nil {
				t.Errorf("%s: deregister: %v", name, err)
			}
			r.cancelWaiting()
		}
	})
}

// TestKeysOfAnotherType: what is wrong with one node fails no other's jobs.
func TestKeysOfAnotherType(t *testing.T) {
	backends(t, func(t *testing.T, r *rig) {
		r.register(testNode("n1", 9))
		r.register(testNode("profile", 9))
		r.do("DEL", r.l.Node("profile"))
		r.do("SET", r.l.Node("profile"), "x")
		r.register(testNode("slots", 9))
		r.do("SET", r.l.Slots("slots"), "x")
		stream := r.register(testNode("stream", 9))
		r.do("SET", r.l.Dispatch("stream"), "x")
		subs := []Submission{submission("", "profile", "slots"), submission("", "slots", "n1"), submission("", "stream"), submission("", "n1")}
		got, err := r.Cell.submit(r.ctx(), encoded(t, subs...))
		if err != nil || got[0].Assigned || !got[1].Assigned || !got[2].Assigned || !got[3].Assigned || len(got[0].Refusals) != 2 {
			t.Fatalf("%+v, %v", got, err)
		}
		// A job that no stream could take reaches its node by the heartbeat.
		hb, err := r.Heartbeat(r.ctx(), Heartbeat{Node: "stream", Epoch: stream})
		if err != nil || !slices.Equal(hb.Start, []Attempt{{subs[2].JobID, 1}}) {
			t.Errorf("heartbeat: %+v, %v", hb, err)
		}
		for _, refusal := range got[0].Refusals {
			if refusal.Reason != RefusedGone {
				t.Errorf("%+v; want refusal.Reason == RefusedGone", refusal)
			}
		}
	})
}

// TestSubmitBesideDueOfAnotherType: the jobs of a call are placed whole, and their deadlines are kept.
func TestSubmitBesideDueOfAnotherType(t *testing.T) {
	backends(t, func(t *testing.T, r *rig) {
		epoch := r.register(testNode("n1", 9))
		r.do("SET", r.l.Due(), "x")
		subs := make([]Submission, 5)
		for i := range subs {
			subs[i] = submission("", "n1")
			subs[i].Job.TimeoutMS = int64(i%2) * time.Hour.Milliseconds()
		}
		got, err := r.Cell.submit(r.ctx(), encoded(t, subs...))
		if err != nil {
			t.Fatal(err)
		}
		for i, p := range got {
			if !p.Assigned || r.status(subs[i].JobID).State != freeslot.StateRunning {
				t.Errorf("job %d: %+v", i, p)
			}
		}
		if held, sum := r.slots("n1"); len(held) != 5 || sum != 5 {
			t.Errorf("%d hold %d slots", len(held), sum)
		}
		if found, err := r.Dispatches(r.ctx(), "n1", "", 0, 9); err != nil || len(found) != 5 {
			t.Errorf("delivered %+v, %v", found, err)
		}
		if due := r.scores(r.l.Due()); len(due) != 2 || due[subs[1].JobID] == 0 || due[subs[3].JobID] == 0 {
			t.Errorf("due %v", due)
		}
		r.end("n1", epoch, subs[1].JobID)
	})
}

// TestEndsAreToldBesideAnEdit: what an operator made of one job keeps nothing from those that end in the same call.
func TestEndsAreToldBesideAnEdit(t *testing.T) {
	backends(t, func(t *testing.T, r *rig) {
		must(t, r.OpenReplies(r.ctx(), "r1"))
		epoch := r.register(testNode("n1", 9))
		first, edited, running, last := r.place("r1", 1, "n1"), r.place("r1", 1, "n1"), r.place("r1", 1, "n1"), r.place("r1", 1, "n1")
		r.end("n1", epoch, edited)
		for _, job := range []string{edited, running} {
			r.do("DEL", r.l.Job(job))
			r.do("SET", r.l.Job(job), "x")
		}
		got, err := r.complete(r.ctx(), []Completion{
			succeed("n1", epoch, first), succeed("n1", epoch, edited), succeed("n1", epoch, running), succeed("n1", epoch, last),
		})
		if err != nil || !slices.Equal(got, []CompletionOutcome{Completed, CompletedStale, Completed, Completed}) {
			t.Fatalf("%v, %v; want no error, slices.Equal(got, []CompletionOutcome{Completed, CompletedStale, Completed, Completed})", got, err)
		}
		if used := r.field(r.l.Slots("n1"), "sum"); used != "0" {
			t.Errorf("%s slots are in use", used)
		}
		told, err := r.Replies(r.ctx(), "r1", "", 0, 9)
		if err != nil || len(told) != 4 || told[2].Status.ID != first || told[3].Status.ID != last {
			t.Errorf("%+v, %v; want no error, len(told) == 4, told[2].Status.ID == %v, told[3].Status.ID == %v", told, err, first, last)
		}

		lost := submission("r1", "n1")
		lost.Job.TimeoutMS = time.Hour.Milliseconds()
		if p, err := r.Submit(r.ctx(), lost); err != nil || !p.Assigned {
			t.Fatal(p, err)
		}
		waits := r.waits("r1", timeout(60_000))
		r.pass(lost.JobID)
		r.pass(waits)
		r.do("DEL", r.l.Slots("n1"))
		r.do("SET", r.l.Slots("n1"), "x")
		if d := r.due(10); d.Expired != 2 {
			t.Errorf("%+v; want d.Expired == 2", d)
		}
		if told, err = r.Replies(r.ctx(), "r1", told[len(told)-1].ID, 0, 9); err != nil || len(told) != 1 || told[0].Status.ID != waits {
			t.Errorf("%+v, %v; want no error, len(told) == 1, told[0].Status.ID == %v", told, err, waits)
		}
	})
}

// TestReapBesideAnEdit: what an operator made of one job keeps no other from its next attempt, and no node from coming back.
func TestReapBesideAnEdit(t *testing.T) {
	backends(t, func(t *testing.T, r *rig) {
		epoch := r.register(testNode("n1", 9))
		r.register(testNode("n2", 9))
		other := r.place("", 1, "n1")
		for _, node := range []string{"n1", "n2"} {
			job := r.place("", 1, node)
			r.do("DEL", r.l.Job(job))
			r.do("SET", r.l.Job(job), "x")
		}
		r.register(testNode("n2", 9)) // after a crash
		r.silence("n1")
		if got, err := r.Reap(r.ctx(), "n1", epoch); err != nil || !got.Gone || len(got.Jobs) != 2 {
			t.Fatalf("%+v, %v, expected gone, 2 jobs", got, err)
		}
		if s := r.status(other); s.State != freeslot.StateWaiting || s.Failures != 1 {
			t.Errorf("%+v; want s.State == freeslot.StateWaiting, s.Failures == 1", s)
		}
	})
}

// TestEditedSlots: the next heartbeat counts the slots in use anew.
func TestEditedSlots(t *testing.T) {
	backends(t, func(t *testing.T, r *rig) {
		epoch := r.register(testNode("n1", 4))
		a, b := r.place("", 1, "n1"), r.place("", 2, "n1")
		hear := r.listen()
		for name, edit := range map[string]struct {
			command []string
			used    int
		}{
			"sum too high":  {[]string{"HSET", "sum", "9"}, 3},
			"sum too low":   {[]string{"HSET", "sum", "0"}, 3},
			"sum no number": {[]string{"HSET", "sum", "x"}, 3},
			"no sum":        {[]string{"HDEL", "sum"}, 3},
			"odd entry":     {[]string{"HSET", "x", "y"}, 3},
			"odd value":     {[]string{"HSET", "0-x", "1:e"}, 3},
		} {
			r.do(append([]string{edit.command[0], r.l.Slots("n1")}, edit.command[1:]...)...)
			hb, err := r.Heartbeat(r.ctx(), Heartbeat{Node: "n1", Epoch: epoch, Running: []Attempt{{a, 1}, {b, 1}}})
			if err != nil || hb.Used != edit.used || len(hb.Start)+len(hb.Stop)+len(hb.Cancel) != 0 {
				t.Errorf("%s: %+v, %v; want no error, hb.Used == %v, len(hb.Start)+len(hb.Stop)+len(hb.Cancel) == 0", name, hb, err, edit.used)
			}
			if got := r.field(r.l.Slots("n1"), "sum"); got != "3" {
				t.Errorf("%s: sum is %s", name, got)
			}
			if heard := hear.drain(); len(heard) != 1 || heard[0].Kind != events.Heartbeat || heard[0].Used != 3 {
				t.Errorf("%s: events %+v", name, heard)
			}
		}
		// A job that was taken out is stopped, and its slot is free.
		r.do("HDEL", r.l.Slots("n1"), b, "x", "0-x")
		hb, err := r.Heartbeat(r.ctx(), Heartbeat{Node: "n1", Epoch: epoch, Running: []Attempt{{a, 1}, {b, 1}}})
		if err != nil || hb.Used != 1 || !slices.Equal(hb.Stop, []Attempt{{b, 1}}) {
			t.Errorf("%+v, %v; want no error, hb.Used == 1, slices.Equal(hb.Stop, []Attempt{{b, 1}})", hb, err)
		}
		r.end("n1", epoch, a)
		r.do("DEL", r.l.Slots("n1"))
		if _, err := r.Heartbeat(r.ctx(), Heartbeat{Node: "n1", Epoch: epoch}); err != nil || r.field(r.l.Slots("n1"), "sum") != "00" {
			t.Errorf("%v, slots %v, want a sum", err, r.hash(r.l.Slots("n1")))
		}
	})
}

// Figures that are none, or that nothing exceeds, make a node full: no slot is given
// beyond the maximum, no job is left half done, and others in the call are not harmed.
func TestEditedFigures(t *testing.T) {
	backends(t, func(t *testing.T, r *rig) {
		r.register(testNode("other", 100))
		epoch := r.register(testNode("n1", 2))
		refused := func(what string) {
			t.Helper()
			edited, other := submission("", "n1"), submission("", "other")
			results := r.SubmitAll(r.ctx(), []Submission{edited, other})
			if res := results[0]; res.Err != nil || res.Placement.Assigned || len(res.Placement.Refusals) != 1 || res.Placement.Refusals[0].Reason != RefusedFull {
				t.Errorf("%s: %+v", what, res)
			}
			if res := results[1]; res.Err != nil || !res.Placement.Assigned {
				t.Errorf("%s: another node: %+v", what, res)
			}
			if _, err := r.Job(r.ctx(), "", edited.JobID); freeslot.CodeOf(err) != freeslot.CodeNotFound {
				t.Errorf("%s: a job that was refused is there, %v", what, err)
			}
		}
		for _, sum := range []string{"nan", "-nan", "inf", "-inf", "x", "1.5", "-3", "0x0", "1e0", "", "100000"} {
			r.do("HSET", r.l.Slots("n1"), "sum", sum)
			refused("sum " + sum)
			if _, err := r.Heartbeat(r.ctx(), Heartbeat{Node: "n1", Epoch: epoch}); err != nil {
				t.Fatal(err)
			}
			job := r.place("", 1, "n1")
			r.do("HSET", r.l.Slots("n1"), "sum", sum)
			r.end("n1", epoch, job)
			if _, err := r.Heartbeat(r.ctx(), Heartbeat{Node: "n1", Epoch: epoch}); err != nil {
				t.Fatal(err)
			}
			if got := r.field(r.l.Slots("n1"), "sum"); got != "00" {
				t.Errorf("sum %s: %s after a heartbeat", sum, got)
			}
		}
		for _, most := range []string{"nan", "inf", "x", "1e5", "0x10", "-1", "", "100000"} {
			r.do("HSET", r.l.Node("n1"), "max_concurrency", most)
			refused("maximum " + most)
		}
	})
}

// TestEditedRecord: a record that was deleted or spoiled harms nobody else.
func TestEditedRecord(t *testing.T) {
	backends(t, func(t *testing.T, r *rig) {
		epoch := r.register(testNode("n1", 9))
		whole, deleted, spoiled := submission("", "n1"), submission("", "n1"), submission("", "n1")
		for _, res := range r.SubmitAll(r.ctx(), []Submission{whole, deleted, spoiled}) {
			if res.Err != nil || !res.Placement.Assigned {
				t.Fatal(res)
			}
		}
		r.do("DEL", r.l.Job(deleted.JobID))
		r.do("HSET", r.l.Job(spoiled.JobID), "run", "x n1 y")
		r.do("HDEL", r.l.Job(spoiled.JobID), "job")

		page, err := r.Jobs(r.ctx(), JobFilter{}, "", 10)
		if err != nil || len(page.Jobs) != 1 || page.Jobs[0].ID != whole.JobID {
			t.Errorf("listing: %+v, %v", page, err)
		}
		if got, err := r.JobsByID(r.ctx(), []string{spoiled.JobID, whole.JobID}); err != nil || len(got) != 1 {
			t.Errorf("by id: %+v, %v", got, err)
		}
		if _, err := r.Job(r.ctx(), "", spoiled.JobID); err == nil || freeslot.CodeOf(err) != freeslot.CodeInternal {
			t.Errorf("read: %v", err)
		}
		// A repeated submit in one call with others.
		got, err := r.Cell.submit(r.ctx(), encoded(t, spoiled, whole))
		if err != nil || !got[0].Repeated || !got[1].Repeated || got[1].Node != "n1" {
			t.Errorf("repeated: %+v, %v", got, err)
		}
		// The end of a job without a record frees its slot and writes nothing.
		if out, err := r.Complete(r.ctx(), succeed("n1", epoch, deleted.JobID)); err != nil || out != Completed {
			t.Errorf("complete: %v, %v", out, err)
		}
		if r.exists(r.l.Job(deleted.JobID)) || len(r.scores(r.l.Finished())) != 0 {
			t.Error("a record was made of the end alone")
		}
		r.end("n1", epoch, spoiled.JobID)
		r.end("n1", epoch, whole.JobID)
		if held, sum := r.slots("n1"); len(held) != 0 || sum != 0 {
			t.Errorf("slots %v, sum %d", held, sum)
		}
	})
}

// TestLostCell: everything is gone, as after a restart of a Redis without a file.
// The agent registers again under its epoch and is told to stop what it runs.
func TestLostCell(t *testing.T) {
	backends(t, func(t *testing.T, r *rig) {
		epoch := r.register(testNode("n1", 2))
		job := r.place("", 1, "n1")
		before := r.field(r.l.Version(), "generation")
		for _, key := range r.keys() {
			r.do("DEL", key)
		}
		running := []Attempt{{job, 1}}
		if _, err := r.Heartbeat(r.ctx(), Heartbeat{Node: "n1", Epoch: epoch, Running: running}); !errors.Is(err, ErrUnknownNode) {
			t.Errorf("heartbeat: %v", err)
		}
		if out, err := r.Complete(r.ctx(), succeed("n1", epoch, job)); err != nil || out != CompletedStale {
			t.Errorf("complete: %v, %v", out, err)
		}
		if _, err := r.Register(r.ctx(), testNode("n1", 2), epoch); err != nil {
			t.Fatal(err)
		}
		hb, err := r.Heartbeat(r.ctx(), Heartbeat{Node: "n1", Epoch: epoch, Running: running})
		if err != nil || !slices.Equal(hb.Stop, running) || hb.Used != 0 {
			t.Errorf("heartbeat: %+v, %v", hb, err)
		}
		ch, err := r.Changes(r.ctx(), 0, 10)
		if err != nil || ch.Generation == before || ch.Generation == "" || ch.Revision != 2 {
			t.Errorf("changes: %+v, %v", ch, err)
		}
		r.sound()
	})
}

// TestEditedSlotsOfAnIdleNode: what looks like a node without jobs is looked at as closely.
func TestEditedSlotsOfAnIdleNode(t *testing.T) {
	backends(t, func(t *testing.T, r *rig) {
		epoch := r.register(testNode("n1", 4))
		r.do("HSET", r.l.Slots("n1"), "sum", "3")
		if hb, err := r.Heartbeat(r.ctx(), Heartbeat{Node: "n1", Epoch: epoch}); err != nil || hb.Used != 0 || r.field(r.l.Slots("n1"), "sum") != "00" {
			t.Errorf("%+v, %v, slots %v", hb, err, r.hash(r.l.Slots("n1")))
		}
		r.do("HSET", r.l.Slots("n1"), "sum", "3")
		epoch = r.register(testNode("n1", 4))
		if _, sum := r.slots("n1"); sum != 0 {
			t.Errorf("a restarted agent begins with %d slots in use", sum)
		}
		job := r.place("", 1, "n1")
		r.do("HDEL", r.l.Slots("n1"), "sum")
		if hb, err := r.Heartbeat(r.ctx(), Heartbeat{Node: "n1", Epoch: epoch}); err != nil || !slices.Equal(hb.Start, []Attempt{{job, 1}}) || hb.Used != 1 {
			t.Errorf("a job without a sum: %+v, %v", hb, err)
		}
		r.do("HDEL", r.l.Slots("n1"), "sum")
		if reg, err := r.Register(r.ctx(), testNode("n1", 4), NewEpoch()); err != nil || !slices.Equal(reg.Lost, []string{job}) {
			t.Errorf("a job without a sum, restarted: %+v, %v", reg, err)
		}
		r.sound()
	})
}

// TestQueueKeysOfAnotherType: whatever an operator made of a queue's keys, no job is lost that a
// script has in hand: it ends, or goes on, and waits where its client is told so.
func TestQueueKeysOfAnotherType(t *testing.T) {
	backends(t, func(t *testing.T, r *rig) {
		node := testNode("n1", 1)
		epoch := r.register(node)
		for name, edit := range map[string][]string{
			"tags":        {r.l.Fair(echo), "x"},
			"version":     {r.l.WaitingVersion(), "x"},
			"classes":     {r.l.Waiting(), "x"},
			"no tag nan":  {r.l.Fair(echo), "v", "nan"},
			"no tag text": {r.l.Fair(echo), "v", "x"},
		} {
			spoil := func() {
				t.Helper()
				r.do("DEL", edit[0])
				if len(edit) == 3 {
					r.do(append([]string{"HSET"}, edit...)...)
				} else {
					r.do(append([]string{"SET"}, edit...)...)
				}
			}
			state := func(job string, want freeslot.State) {
				t.Helper()
				if s := r.status(job); s.State != want || want == freeslot.StateWaiting && s.Position == 0 {
					t.Errorf("%s: %+v, expected state %s", name, s, want)
				}
			}
			a := r.place("", 1, "n1")
			b := r.waits("")
			r.take("n1") // which has its completions hand slots over
			spoil()
			r.end("n1", epoch, a)
			state(a, freeslot.StateSucceeded)
			state(b, freeslot.StateRunning)
			spoil()
			c := r.waits("")
			state(c, freeslot.StateWaiting)
			spoil()
			failed := r.fails("n1", epoch, b, Retry)
			failed.RetryDelay = time.Hour
			r.complete1(failed)
			state(c, freeslot.StateRunning)
			r.pass(b)
			spoil()
			r.due(10)
			state(b, freeslot.StateWaiting)
			spoil()
			epoch = r.register(node)
			state(c, freeslot.StateWaiting)
			r.forgive(b)
			r.forgive(c)
			spoil()
			r.take("n1")
			spoil()
			r.silence("n1")
			if got, err := r.Reap(r.ctx(), "n1", epoch); err != nil || !got.Gone || len(got.Jobs) != 1 {
				t.Errorf("%s: reap: %+v, %v", name, got, err)
			}
			for _, job := range []string{b, c} {
				state(job, freeslot.StateWaiting)
				spoil()
				if _, err := r.Cancel(r.ctx(), "", job); err != nil {
					t.Errorf("%s: cancel: %v", name, err)
				}
			}
			r.do("DEL", r.l.Fair(echo), r.l.Waiting())
			epoch = r.register(node)
		}
		r.sound()
	})
}

// TestQueueDeleted: a job whose queue is gone stands in line again when it is enqueued once more.
func TestQueueDeleted(t *testing.T) {
	backends(t, func(t *testing.T, r *rig) {
		s := submission("")
		r.enqueued(s)
		r.do("DEL", r.l.Queue(echo), r.l.Fair(echo), r.l.Waiting())
		if p := r.enqueued(s)[0]; !p.Waiting || p.Position != 1 {
			t.Errorf("%+v; want p.Waiting, p.Position == 1", p)
		}
		r.sound()
	})
}

// TestDueOfAnotherType: one key that is no job holds up none that is due.
func TestDueOfAnotherType(t *testing.T) {
	backends(t, func(t *testing.T, r *rig) {
		epoch := r.register(testNode("n1", 1))
		job := r.place("", 1, "n1")
		failed := r.fails("n1", epoch, job, Retry)
		failed.RetryDelay = time.Hour
		r.complete1(failed)
		r.pass(job)
		r.do("SET", r.l.Job("0-x"), "x")
		r.do("ZADD", r.l.Due(), "1", "0-x")
		r.due(10)
		if s := r.status(job); s.State != freeslot.StateWaiting {
			t.Errorf("%+v; want s.State == freeslot.StateWaiting", s)
		}
		if r.exists(r.l.Due()) {
			t.Errorf("still due: %v", r.scores(r.l.Due()))
		}
		r.do("DEL", r.l.Job("0-x"))
		r.sound()
	})
}

// TestEditedSumHandsNothingOver: nobody knows what is free until the next heartbeat counts.
func TestEditedSumHandsNothingOver(t *testing.T) {
	backends(t, func(t *testing.T, r *rig) {
		epoch := r.register(testNode("n1", 2))
		a, b := r.place("", 1, "n1"), r.place("", 1, "n1")
		for range 4 {
			r.waits("")
		}
		r.take("n1")
		r.do("HSET", r.l.Slots("n1"), "sum", "nan")
		r.end("n1", epoch, a)
		if owned := r.hash(r.l.Slots("n1")); len(owned) != 2 {
			t.Errorf("owned: %v", owned)
		}
		if _, err := r.Heartbeat(r.ctx(), Heartbeat{Node: "n1", Epoch: epoch, Running: []Attempt{{b, 1}}}); err != nil {
			t.Fatal(err)
		}
		if n := r.take("n1"); n != 1 {
			t.Errorf("%d jobs began, expected 1", n)
		}
		r.sound()
	})
}
