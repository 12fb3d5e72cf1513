package cell

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/events"
)

// TestManyEndsAtOnce: a script tells a replica of however many jobs it ends, in entries of a bounded size.
func TestManyEndsAtOnce(t *testing.T) {
	backends(t, func(t *testing.T, r *rig) {
		const jobs = 600
		must(t, r.OpenReplies(r.ctx(), "r1"))
		epoch := r.register(testNode("n1", jobs))
		subs := make([]Submission, jobs)
		for i := range subs {
			subs[i] = submission("r1", "n1")
			subs[i].Job.MaxAttempts = 1
		}
		for i := 0; i < jobs; i += batchItems {
			if got, err := r.submit(r.ctx(), encoded(t, subs[i:min(i+batchItems, jobs)]...)); err != nil || !got[0].Assigned {
				t.Fatal(got, err)
			}
		}
		r.silence("n1")
		if got, err := r.Reap(r.ctx(), "n1", epoch); err != nil || len(got.Jobs) != jobs {
			t.Fatalf("%d jobs, %v", len(got.Jobs), err)
		}
		told, err := r.Replies(r.ctx(), "r1", "", 0, jobs)
		if err != nil || len(told) != jobs+1 {
			t.Fatalf("told of %d jobs, %v", len(told)-1, err)
		}
		for _, reply := range told[1:] {
			if reply.Status.State != freeslot.StateDead || reply.Status.Error == nil || reply.Status.Failures != 1 {
				t.Fatalf("%+v; want reply.Status.State == freeslot.StateDead, reply.Status.Error != nil, reply.Status.Failures == 1", reply)
			}
		}
		if entries := len(r.stream(r.l.Replies("r1"))) - 1; entries < jobs/100 || entries > jobs/20 {
			t.Errorf("%d entries", entries)
		}

		epoch = r.register(testNode("n2", 9))
		after := told[len(told)-1].ID
		var ends []Completion
		for range 6 {
			end := succeed("n2", epoch, r.place("r1", 1, "n2"))
			end.Result = []byte(`"` + strings.Repeat("x", 40<<10) + `"`)
			ends = append(ends, end)
		}
		if _, err := r.complete(r.ctx(), ends); err != nil {
			t.Fatal(err)
		}
		if told, err = r.Replies(r.ctx(), "r1", after, 0, 9); err != nil || len(told) != 6 || told[1].ID != told[0].ID || told[2].ID == told[1].ID || told[5].Partial {
			t.Errorf("told of %d jobs, %v", len(told), err)
		}
	})
}

// TestReap: a node is taken out when it is silent, and only then; its jobs go to their next
// attempts, which counts.
func TestReap(t *testing.T) {
	backends(t, func(t *testing.T, r *rig) {
		must(t, r.OpenReplies(r.ctx(), "r1"))
		epoch := r.register(richNode("n1"))
		second := r.register(testNode("n2", 2))
		job, cancelled := r.place("r1", 1, "n1"), r.place("r1", 1, "n1")
		last := submission("r1", "n1")
		last.Job.MaxAttempts = 1
		if p, err := r.Submit(r.ctx(), last); err != nil || !p.Assigned {
			t.Fatal(p, err)
		}
		if _, err := r.Cancel(r.ctx(), "", cancelled); err != nil {
			t.Fatal(err)
		}
		untouched := func(what, node string, epoch Epoch) {
			t.Helper()
			r.unchanged(what, func() {
				if got, err := r.Reap(r.ctx(), node, epoch); err != nil || got.Gone || len(got.Jobs) != 0 {
					t.Errorf("%s: %+v, %v", what, got, err)
				}
			}, nil)
		}
		untouched("a node that lives", "n1", epoch)
		untouched("a node that is not there", "n3", epoch)
		r.silence("n1")
		untouched("another epoch", "n1", NewEpoch())
		r.heard("n1", r.nowMS()-r.HeartbeatLimit().Milliseconds()/2)
		untouched("a node that is late", "n1", epoch)
		r.silence("n1")
		hear := r.listen()
		got, err := r.Reap(r.ctx(), "n1", epoch)
		slices.Sort(got.Jobs)
		if want := slices.Sorted(slices.Values([]string{job, cancelled, last.JobID})); err != nil || !got.Gone || !slices.Equal(got.Jobs, want) {
			t.Fatalf("%+v, %v; want no error, got.Gone, slices.Equal(got.Jobs, want)", got, err)
		}
		untouched("again", "n1", epoch)
		if heard := hear.drain(); len(heard) != 1 || heard[0].Kind != events.Offline || heard[0].Node != "n1" || heard[0].Epoch != epoch || heard[0].Body != events.Reaped {
			t.Errorf("events %+v", heard)
		}
		if got := r.scores(r.l.Revisions()); got["-n1"] != float64(r.revision()) {
			t.Errorf("revisions %v at %d", got, r.revision())
		}
		for _, key := range []string{r.l.Node("n1"), r.l.Load("n1"), r.l.Slots("n1"), r.l.Dispatch("n1"), r.l.PoolMembers("gpu"), r.l.Serves("n1")} {
			if r.exists(key) {
				t.Errorf("key %s is still there", key)
			}
		}
		lost := &freeslot.JobError{Code: freeslot.JobErrorNodeLost, Message: "the node fell silent"}
		if s := r.status(job); s.State != freeslot.StateWaiting || s.Failures != 1 || s.Attempt != 1 {
			t.Errorf("%+v; want s.State == freeslot.StateWaiting, s.Failures == 1, s.Attempt == 1", s)
		}
		if s := r.status(last.JobID); s.State != freeslot.StateDead || !cmp.Equal(s.Error, lost) {
			t.Errorf("%+v; want s.State == freeslot.StateDead, cmp.Equal(s.Error, lost)", s)
		}
		if s := r.status(cancelled); s.State != freeslot.StateCancelled {
			t.Errorf("%+v; want s.State == freeslot.StateCancelled", s)
		}
		r.sound()
		// The agent lives after all: its attempt is nobody's.
		if out, err := r.Complete(r.ctx(), succeed("n1", epoch, job)); err != nil || out != CompletedBefore {
			t.Errorf("%v, %v, expected %v", out, err, CompletedBefore)
		}
		if n := r.take("n2"); n != 1 {
			t.Fatalf("%d began", n)
		}
		if out, err := r.Complete(r.ctx(), succeed("n1", epoch, job)); err != nil || out != CompletedStale {
			t.Errorf("%v, %v, expected %v", out, err, CompletedStale)
		}
		comp := succeed("n2", second, job)
		comp.Attempt.N = 2
		r.complete1(comp)
		r.sound()
	})
}

// TestReapWithoutHeartbeat: what was never heard was last heard when it registered; an
// imported node has nobody who could be heard.
func TestReapWithoutHeartbeat(t *testing.T) {
	backends(t, func(t *testing.T, r *rig) {
		epoch := r.register(testNode("n1", 1))
		if got, err := r.Reap(r.ctx(), "n1", epoch); err != nil || got.Gone {
			t.Errorf("registered a moment ago: %+v, %v", got, err)
		}
		r.do("HSET", r.l.Node("n1"), "registered_at_ms", "1000000000000")
		if got, err := r.Reap(r.ctx(), "n1", epoch); err != nil || !got.Gone {
			t.Errorf("registered long ago: %+v, %v", got, err)
		}
		if _, err := r.Register(r.ctx(), testNode("n2", 1), ImportEpoch); err != nil {
			t.Fatal(err)
		}
		r.do("HSET", r.l.Node("n2"), "registered_at_ms", "1000000000000")
		if got, err := r.Reap(r.ctx(), "n2", ImportEpoch); err != nil || got.Gone {
			t.Errorf("imported: %+v, %v", got, err)
		}
		if _, err := r.Reap(r.ctx(), "n 1", epoch); freeslot.CodeOf(err) != freeslot.CodeInvalidArgument {
			t.Error(err)
		}
	})
}
