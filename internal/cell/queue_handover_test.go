package cell

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
)

// TestCompleteTellsWhatBegan: jobs that begin with a completion come with its answer where somebody wants
// them there, whole or, where they are large, by name; else by the dispatch stream. Said again, it tells nothing.
func TestCompleteTellsWhatBegan(t *testing.T) {
	backends(t, func(t *testing.T, r *rig) {
		epoch := r.register(testNode("n1", 2))
		large, err := json.Marshal(strings.Repeat("x", inlineSpec))
		if err != nil {
			t.Fatal(err)
		}
		first := []string{r.waits(""), r.waits("")}
		r.take("n1")
		next := []string{r.waits("", of("a", 1)), r.waits("", func(s *Submission) { s.Job.Payload = large }), r.waits("")}
		delivered := r.int("XLEN", r.l.Dispatch("n1"))

		var begun []Dispatch
		told := func(job string) Completion {
			c := succeed("n1", epoch, job)
			c.Begun = func(ds []Dispatch) { begun = append(begun, ds...) }
			return c
		}
		out, err := r.Cell.complete(r.ctx(), []Completion{succeed("n1", epoch, first[0]), told(first[1])})
		if err != nil || !slices.Equal(out, []CompletionOutcome{Completed, Completed}) {
			t.Fatalf("%v, %v; want no error, slices.Equal(out, []CompletionOutcome{Completed, Completed})", out, err)
		}
		r.sound()
		if len(begun) != 2 || begun[0].Attempt != (Attempt{Job: next[0], N: 1}) || begun[0].Tenant != "a" || begun[0].Job == nil ||
			begun[1].Attempt != (Attempt{Job: next[1], N: 1}) || begun[1].Job != nil {
			t.Fatalf(`%+v; want len(begun) == 2, begun[0].Attempt == (Attempt{Job: next[0], N: 1}), begun[0].Tenant == "a", begun[0].Job != nil, begun[1].Attempt == (Attempt{Job: next[1], N: 1}), begun[1].Job == nil`, begun)
		}
		if begun[0].Job.Service != testJob().Service || string(begun[0].Job.Payload) != string(testJob().Payload) {
			t.Errorf("%+v; want begun[0].Job.Service == testJob().Service, string(begun[0].Job.Payload) == string(testJob().Payload)", begun[0].Job)
		}
		if now := r.int("XLEN", r.l.Dispatch("n1")); now != delivered {
			t.Errorf("%d entries of the stream, %d before", now, delivered)
		}

		begun = nil
		if again, err := r.Complete(r.ctx(), told(first[1])); err != nil || again != CompletedBefore || begun != nil {
			t.Errorf("said again: %v, %v, began %v", again, err, begun)
		}
		if none, err := r.Complete(r.ctx(), told(NewJobID(0))); err != nil || none != CompletedStale || begun != nil {
			t.Errorf("of a job that is not its own: %v, %v, began %v", none, err, begun)
		}
		r.complete1(succeed("n1", epoch, next[0]))
		if now := r.int("XLEN", r.l.Dispatch("n1")); now != delivered+1 {
			t.Errorf("%d entries of the stream, %d before, expected the one of job %s", now, delivered, next[2])
		}
	})
}

// TestCompleteTellsWhatItCanRead: a record that an operator edited is passed over: heartbeats name the job.
func TestCompleteTellsWhatItCanRead(t *testing.T) {
	backends(t, func(t *testing.T, r *rig) {
		epoch := r.register(testNode("n1", 1))
		first := r.waits("")
		r.take("n1")
		broken := r.waits("")
		r.do("HSET", r.l.Job(broken), "spec", "{")
		c := succeed("n1", epoch, first)
		var begun []Dispatch
		c.Begun = func(ds []Dispatch) { begun = append(begun, ds...) }
		r.complete1(c)
		if len(begun) != 0 {
			t.Errorf("began %+v", begun)
		}
		reply, err := r.Heartbeat(r.ctx(), Heartbeat{Node: "n1", Epoch: epoch})
		if err != nil || !slices.Equal(reply.Start, []Attempt{{Job: broken, N: 1}}) {
			t.Errorf("%+v, %v; want no error, slices.Equal(reply.Start, []Attempt{{Job: broken, N: 1}})", reply, err)
		}
	})
}

// TestAnswersAreBounded: of many large jobs that begin at once some come by name alone.
func TestAnswersAreBounded(t *testing.T) {
	backends(t, func(t *testing.T, r *rig) {
		const jobs, most = 30, 128 << 10 // ANSWER of lib/fill_node.lua
		epoch := r.register(testNode("n1", jobs))
		first := r.waits("", slots(jobs))
		r.take("n1")
		payload, err := json.Marshal(strings.Repeat("x", inlineSpec-1024))
		if err != nil {
			t.Fatal(err)
		}
		for range jobs {
			r.waits("", func(s *Submission) { s.Job.Payload = payload })
		}
		c := succeed("n1", epoch, first)
		var begun []Dispatch
		c.Begun = func(ds []Dispatch) { begun = append(begun, ds...) }
		r.complete1(c)
		whole := 0
		for _, d := range begun {
			if d.Job != nil {
				whole++
			}
		}
		if len(begun) != jobs || whole == 0 || whole*len(payload) > most {
			t.Errorf("%d began, %d of them came whole, %d bytes each", len(begun), whole, len(payload))
		}
	})
}
