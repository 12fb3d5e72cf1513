package cell

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/freeslot/freeslot"
)

// TestJobsOfAClass: those that wait come first, in the order in which they are served, whatever
// the size of the pages, then the others of the class; a job that leaves meanwhile moves nobody.
func TestJobsOfAClass(t *testing.T) {
	backends(t, func(t *testing.T, r *rig) {
		epoch := r.register(testNode("n1", 4))
		ended, runs := r.place("", 1, "n1"), r.place("", 1, "n1")
		r.end("n1", epoch, ended)
		for i := range 12 {
			r.waits("", priority(i%3), of(fmt.Sprint("t", i%2), 1))
		}
		other := r.waits("", service("other"))
		line := r.line(echo)
		for _, limit := range []int{1, 2, 5, 12, 13, 100} {
			if got, _ := r.all(JobFilter{Class: echo, State: freeslot.StateWaiting}, limit); !slices.Equal(got, line) {
				t.Errorf("pages of %d: %v, expected %v", limit, got, line)
			}
			if got, _ := r.all(JobFilter{Class: echo}, limit); !slices.Equal(got, append(slices.Clone(line), runs, ended)) {
				t.Errorf("pages of %d: %v, expected the queue, %s and %s", limit, got, runs, ended)
			}
		}
		for state, want := range map[freeslot.State]string{freeslot.StateRunning: runs, freeslot.StateSucceeded: ended} {
			if got, _ := r.all(JobFilter{Class: echo, State: state}, 1); !slices.Equal(got, []string{want}) {
				t.Errorf("%s: %v; want slices.Equal(got, []string{want})", state, got)
			}
		}
		if got, _ := r.all(JobFilter{Class: ClassOf(&freeslot.Job{Service: "other"}).ID}, 1); !slices.Equal(got, []string{other}) {
			t.Errorf("%v, expected %s", got, other)
		}
		page, err := r.Jobs(r.ctx(), JobFilter{Class: echo}, "", 3)
		if err != nil || len(page.Jobs) != 3 || page.Jobs[2].Class != echo {
			t.Fatal(page, err)
		}
		for _, id := range []string{line[2], line[0], line[5]} {
			if _, err := r.Cancel(r.ctx(), "", id); err != nil {
				t.Fatal(err)
			}
		}
		page, err = r.Jobs(r.ctx(), JobFilter{Class: echo}, page.Cursor, 3)
		if err != nil || len(page.Jobs) != 3 || page.Jobs[0].ID != line[3] || page.Jobs[1].ID != line[4] || page.Jobs[2].ID != line[6] {
			t.Errorf("%+v, %v; want no error, len(page.Jobs) == 3, page.Jobs[0].ID == line[3], page.Jobs[1].ID == line[4], page.Jobs[2].ID == line[6]", page, err)
		}
		if _, err := r.Jobs(r.ctx(), JobFilter{}, page.Cursor, 3); freeslot.CodeOf(err) != freeslot.CodeInvalidArgument {
			t.Error(err)
		}
	})
}

// TestJobsOfAClassTies: many jobs can have the same score, of which none is missed.
func TestJobsOfAClassTies(t *testing.T) {
	backends(t, func(t *testing.T, r *rig) {
		for range 7 {
			id := r.waits("")
			r.do("ZADD", r.l.Queue(echo), "5", id)
		}
		for _, limit := range []int{1, 2, 3} {
			if got, _ := r.all(JobFilter{Class: echo, State: freeslot.StateWaiting}, limit); !slices.Equal(got, r.line(echo)) {
				t.Errorf("pages of %d: %v", limit, got)
			}
		}
	})
}

func TestQueues(t *testing.T) {
	backends(t, func(t *testing.T, r *rig) {
		if qs, err := r.Queues(r.ctx()); err != nil || len(qs) != 0 {
			t.Fatal(qs, err)
		}
		begin := time.Now().UnixMilli()
		oldest := r.waits("", priority(0))
		for i := range 3 {
			r.waits("", priority(9-i))
		}
		other := r.waits("", service("other"))
		qs, err := r.Queues(r.ctx())
		if err != nil || len(qs) != 2 {
			t.Fatal(qs, err)
		}
		if qs[0].ID != echo {
			qs[0], qs[1] = qs[1], qs[0]
		}
		if q := qs[0]; q.ID != echo || q.Waiting != 4 || q.OldestMS != submittedMS(oldest) || q.OldestMS < begin || q.First != r.line(echo)[0] ||
			q.Definition != ClassOf(testJob()).Definition {
			t.Errorf("%+v, the oldest is %s", q, oldest)
		}
		if q := qs[1]; q.Waiting != 1 || q.First != other {
			t.Errorf("%+v; want q.Waiting == 1, q.First == %v", q, other)
		}
		if n, err := r.QueueLength(r.ctx(), echo); err != nil || n != 4 {
			t.Error(n, err)
		}
		// A class whose queue was lost by hand is none, and what is no job counts as one without a time.
		r.do("DEL", r.l.Queue(qs[1].ID))
		r.do("ZADD", r.l.Queue(echo), "-5", "x")
		qs, err = r.Queues(r.ctx())
		if err != nil || len(qs) != 1 || qs[0].Waiting != 5 || qs[0].OldestMS != submittedMS(oldest) {
			t.Error(qs, err)
		}
		r.do("ZREM", r.l.Queue(echo), "x")
		r.do("HDEL", r.l.Waiting(), ClassOf(&freeslot.Job{Service: "other"}).ID)
	})
}

func TestDrop(t *testing.T) {
	backends(t, func(t *testing.T, r *rig) {
		epoch := r.register(testNode("n1", 4))
		ended, runs, waits := r.place("", 1, "n1"), r.place("", 1, "n1"), r.waits("", service("other"))
		r.end("n1", epoch, ended)
		r.unchanged("what is refused", func() {
			for _, id := range []string{runs, waits} {
				if _, err := r.Drop(r.ctx(), "", id); freeslot.CodeOf(err) != freeslot.CodeConflict {
					t.Errorf("%s: %v; want freeslot.CodeOf(err) == freeslot.CodeConflict", id, err)
				}
			}
			if _, err := r.Drop(r.ctx(), "somebody", ended); freeslot.CodeOf(err) != freeslot.CodeNotFound {
				t.Error(err)
			}
		}, nil)
		s, err := r.Drop(r.ctx(), "acme", ended)
		if err != nil || s.ID != ended || s.State != freeslot.StateSucceeded || s.Class != echo {
			t.Errorf("%+v, %v; want no error, s.ID == %v, s.State == freeslot.StateSucceeded, s.Class == %v", s, err, ended, echo)
		}
		if _, err := r.Drop(r.ctx(), "acme", ended); freeslot.CodeOf(err) != freeslot.CodeNotFound {
			t.Error(err)
		}
		if r.int("EXISTS", r.l.Job(ended)) != 0 || len(r.scores(r.l.Finished())) != 0 {
			t.Error("something is left of it")
		}
		if got, _ := r.all(JobFilter{}, 10); len(got) != 2 {
			t.Errorf("%v are listed", got)
		}
		if _, err := r.Cancel(r.ctx(), "", waits); err != nil {
			t.Fatal(err)
		}
		if _, err := r.Drop(r.ctx(), "", waits); err != nil {
			t.Error(err)
		}
		r.sound()
	})
}

// TestConfigToldDoesNotGoBack: within the versions of one counter.
func TestConfigToldDoesNotGoBack(t *testing.T) {
	backends(t, func(t *testing.T, r *rig) {
		for i, step := range []struct {
			version    uint64
			generation string
			counts     bool
			told       string
		}{
			{3, "g", true, "3"},
			{2, "g", false, "3"},
			{3, "g", true, "3"},
			{10, "g", true, "10"},
			{9, "g", false, "10"},
			{1, "h", true, "1"},
			{0, "", true, "0"},
			{2, "h", true, "2"},
		} {
			counts, err := r.ConfigTold(r.ctx(), step.version, step.generation)
			m := r.do("GET", r.l.ServesVersion())
			if told, _ := m.ToString(); err != nil || counts != step.counts || told != step.told {
				t.Errorf("step %d: %t, told %s, %v", i, counts, told, err)
			}
		}
	})
}
