package cell

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/redis/redistest"
)

// soundCron: a schedule is in all keys or in none, and only then it can be due.
func (r *rig) soundCron() {
	r.t.Helper()
	ids := slices.Sorted(maps.Keys(r.hash(r.l.CronState())))
	if diff := cmp.Diff(ids, slices.Sorted(maps.Keys(r.hash(r.l.Cron())))); diff != "" {
		r.t.Errorf("states and definitions of schedules: %s", diff)
	}
	if diff := cmp.Diff(ids, slices.Sorted(maps.Keys(r.scores(r.l.CronIndex())))); diff != "" {
		r.t.Errorf("states and index of schedules: %s", diff)
	}
	for id := range r.scores(r.l.CronDue()) {
		if !slices.Contains(ids, id) {
			r.t.Errorf("schedule %s is due, and there is none", id)
		}
	}
}

// writes makes a change, or is refused one.
func (r *rig) writes(want bool, c CronChange) {
	r.t.Helper()
	if made, err := r.CronWrite(r.ctx(), c); err != nil || made != want {
		r.t.Errorf("%+v: %v, %v", c, made, err)
	}
	r.soundCron()
}

// schedules goes once through all that is done to a schedule.
func (r *rig) schedules(id string) {
	r.t.Helper()
	r.writes(true, CronChange{ID: id, State: "s1", Definition: "d1", DueMS: 1})
	if due, _, err := r.CronDue(r.ctx(), 0, 10); err != nil || len(due) != 1 {
		r.t.Error(due, err)
	}
	if page, err := r.CronList(r.ctx(), "", "", 10); err != nil || len(page.Records) != 1 {
		r.t.Error(page, err)
	}
	r.writes(true, CronChange{ID: id, Seen: "s1"})
}

func TestCronWrite(t *testing.T) {
	backends(t, func(t *testing.T, r *rig) {
		const id = "acme/nightly"
		read := func(definition, state string) {
			t.Helper()
			got, now, err := r.CronRead(r.ctx(), id)
			if want := (CronRecord{ID: id, Definition: definition, State: state}); err != nil || got != want || now == 0 {
				t.Errorf("%+v at %d, %v, expected %+v", got, now, err, want)
			}
		}
		dueAt := func(ahead time.Duration, want ...CronTime) {
			t.Helper()
			got, now, err := r.CronDue(r.ctx(), ahead, 2)
			if diff := cmp.Diff(want, got); err != nil || now == 0 || diff != "" {
				t.Error(now, err, diff)
			}
		}
		read("", "")
		r.writes(false, CronChange{ID: id, Seen: "s0", State: "s1", Definition: "d1", DueMS: 5})
		first := CronChange{ID: id, State: "s1", Definition: "d1", DueMS: 5}
		r.writes(true, first)
		read("d1", "s1")
		dueAt(0, CronTime{id, 5})
		second := CronChange{ID: id, Seen: "s1", State: "s2", DueMS: r.nowMS() + 3600_000}
		r.writes(true, second)
		read("d1", "s2")
		dueAt(0)
		dueAt(2*time.Hour, CronTime{id, second.DueMS})
		// What was made is not made again, in whichever order calls arrive.
		r.unchanged("late calls", func() { r.writes(false, first); r.writes(false, second) }, nil)
		r.writes(true, CronChange{ID: id, Seen: "s2", State: "s3"})
		dueAt(2 * time.Hour)
		r.writes(true, CronChange{ID: id, Seen: "s3"})
		read("", "")
		r.writes(true, CronChange{ID: id})
		for i := range 3 {
			r.writes(true, CronChange{ID: fmt.Sprintf("acme/n%d", i), State: "s", Definition: "d", DueMS: int64(10 - i)})
		}
		dueAt(0, CronTime{"acme/n2", 8}, CronTime{"acme/n1", 9})
		r.sound()
	})
}

// TestCronRaces: of those who saw the same state one makes a change.
func TestCronRaces(t *testing.T) {
	backends(t, func(t *testing.T, r *rig) {
		const racers, rounds = 8, 10
		state := ""
		for round := range rounds {
			won, seen := make(chan string, racers), state
			for i := range racers {
				go func() {
					next := fmt.Sprintf("%d-%d", round, i)
					made, err := r.CronWrite(r.ctx(), CronChange{ID: "acme/a", Seen: seen, State: next, Definition: "d", DueMS: 1})
					if err != nil {
						t.Error(err)
					}
					if !made {
						next = ""
					}
					won <- next
				}()
			}
			winners := 0
			for range racers {
				if next := receive(t, won); next != "" {
					state = next
					winners++
				}
			}
			if winners != 1 {
				t.Fatalf("%d made the change", winners)
			}
		}
		r.sound()
	})
}

// TestCronList pages through tenants whose names begin alike.
func TestCronList(t *testing.T) {
	backends(t, func(t *testing.T, r *rig) {
		ids := []string{"a-b/x", "a.b/x", "a/x", "a/y", "a/z", "a0/x", "ab/x", "b/x"}
		for _, id := range ids {
			r.writes(true, CronChange{ID: id, State: "s " + id, Definition: "d " + id})
		}
		for tenant, want := range map[string][]string{"": ids, "a": {"a/x", "a/y", "a/z"}, "b": {"b/x"}, "c": nil} {
			for limit := 1; limit <= 9; limit++ {
				var got []string
				for after, more := "", true; more; {
					page, err := r.CronList(r.ctx(), tenant, after, limit)
					if err != nil || len(page.Records) > limit || page.More && len(page.Records) == 0 {
						t.Fatal(page, err)
					}
					for _, record := range page.Records {
						if record.State != "s "+record.ID || record.Definition != "d "+record.ID {
							t.Error(record)
						}
						got = append(got, record.ID)
						after = record.ID
					}
					more = page.More
				}
				if diff := cmp.Diff(want, got); diff != "" {
					t.Errorf("tenant %q by %d: %s", tenant, limit, diff)
				}
			}
			if tenant == "" {
				continue
			}
			if n, err := r.CronCount(r.ctx(), tenant); err != nil || n != len(want) {
				t.Error(tenant, n, err)
			}
		}
		// A cursor of a schedule that was deleted, or of another tenant.
		for after, want := range map[string]int{"a/xx": 2, "0/x": 3, "b/x": 0} {
			if page, err := r.CronList(r.ctx(), "a", after, 9); err != nil || len(page.Records) != want {
				t.Error(after, page, err)
			}
		}
	})
}

// TestMergeCron: pages of cells, which may end early, make pages of all.
func TestMergeCron(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		cells := make([][]string, rapid.IntRange(1, 4).Draw(t, "cells"))
		total := rapid.IntRange(0, 20).Draw(t, "schedules")
		for i := range total {
			at := rapid.IntRange(0, len(cells)-1).Draw(t, "cell")
			cells[at] = append(cells[at], fmt.Sprintf("a/%02d", i))
		}
		limit := rapid.IntRange(1, 8).Draw(t, "limit")
		after := ""
		for n := 0; ; {
			parts := make([]CronPage, len(cells))
			for i, ids := range cells {
				rest := slices.DeleteFunc(slices.Clone(ids), func(id string) bool { return id <= after })
				end := min(limit, rapid.IntRange(1, 8).Draw(t, "room"), len(rest))
				for _, id := range rest[:end] {
					parts[i].Records = append(parts[i].Records, CronRecord{ID: id})
				}
				parts[i].More = end < len(rest)
			}
			page := mergeCron(parts, limit)
			for _, r := range page.Records {
				if r.ID != fmt.Sprintf("a/%02d", n) {
					t.Fatalf("%s at %d", r.ID, n)
				}
				n++
				after = r.ID
			}
			if !page.More {
				if n != total {
					t.Fatalf("%d of %d", n, total)
				}
				return
			}
			if len(page.Records) == 0 || len(page.Records) > limit {
				t.Fatalf("%d records with a limit of %d", len(page.Records), limit)
			}
		}
	})
}

// TestCronEdited: what an operator made of the keys is made anew.
func TestCronEdited(t *testing.T) {
	backends(t, func(t *testing.T, r *rig) {
		for _, key := range []string{r.l.Cron(), r.l.CronState(), r.l.CronIndex(), r.l.CronDue()} {
			r.do("DEL", r.l.Cron())
			r.do("DEL", r.l.CronState())
			r.do("DEL", r.l.CronIndex())
			r.do("DEL", r.l.CronDue())
			r.do("SET", key, "x")
			r.writes(true, CronChange{ID: "acme/a", State: "s1", Definition: "d", DueMS: 1})
			r.do("DEL", key)
			r.do("SET", key, "x")
			seen := "s1"
			if key == r.l.CronState() {
				seen = ""
			}
			r.do("DEL", r.l.CronDue())
			if made, err := r.CronWrite(r.ctx(), CronChange{ID: "acme/a", Seen: seen}); err != nil || !made {
				t.Error(key, made, err)
			}
		}
	})
}

// TestOnce: the job of a run is created once although its record is gone.
func TestOnce(t *testing.T) {
	backends(t, func(t *testing.T, r *rig) {
		epoch := r.register(testNode("n1", 1))
		s := submission("", "n1")
		s.JobID, s.Once = r.NewJobID(), "cron x 1"
		if got := r.enqueued(s)[0]; !got.Assigned || got.Owner != "" {
			t.Fatalf("%+v", got)
		}
		if got := r.enqueued(s)[0]; !got.Assigned || !got.Repeated {
			t.Errorf("while it runs: %+v", got)
		}
		r.end("n1", epoch, s.JobID)
		if got := r.enqueued(s)[0]; !got.Repeated {
			t.Errorf("while its record is kept: %+v", got)
		}
		r.do("DEL", r.l.Job(s.JobID))
		other := *s.Job
		other.Priority = 3
		for _, again := range []Submission{s, {JobID: s.JobID, Tenant: s.Tenant, Job: &other, Once: s.Once}} {
			r.unchanged("again", func() {
				if got := r.enqueued(again)[0]; got.Owner != s.JobID || got.Assigned || got.Waiting {
					t.Errorf("after that: %+v", got)
				}
			}, nil)
		}
		set := make([]*Cell, r.Index()+1)
		set[r.Index()] = r.Cell
		if err := NewSet(set...).ForgetOnce(r.ctx(), s.Tenant, s.JobID, s.Once); err != nil {
			t.Error(err)
		}
		if left := r.int("PTTL", onceKey(r.l, s.Tenant, s.Once)); left <= 0 || left > onceStays.Milliseconds() {
			t.Errorf("the marker stays for %d ms", left)
		}
		// A client's key is another one, whatever it is.
		s.Job = &freeslot.Job{Service: "echo", IdempotencyKey: s.Once}
		s.JobID, s.Once = r.NewJobID(), ""
		if got := r.enqueued(s)[0]; got.Owner != "" {
			t.Errorf("%+v", got)
		}
	})
}

// TestCronOutOfMemory: nothing is changed halfway, and schedules can be deleted.
func TestCronOutOfMemory(t *testing.T) {
	t.Parallel()
	server := redistest.New(t)
	r := newRig(t, server.Target)
	r.writes(true, CronChange{ID: "acme/a", State: "s1", Definition: "d1", DueMS: 1})
	r.do("CONFIG", "SET", "maxmemory", "1")
	defer r.do("CONFIG", "SET", "maxmemory", "0")
	r.unchanged("refused", func() {
		for _, c := range []CronChange{{ID: "acme/a", Seen: "s1", State: "s2", DueMS: 2}, {ID: "acme/b", State: "s1", Definition: "d1", DueMS: 1}} {
			if _, err := r.CronWrite(r.ctx(), c); err == nil || !strings.Contains(err.Error(), "OOM") {
				t.Error(err)
			}
		}
	}, nil)
	if due, _, err := r.CronDue(r.ctx(), 0, 10); err != nil || len(due) != 1 {
		t.Error(due, err)
	}
	r.writes(true, CronChange{ID: "acme/a", Seen: "s1"})
}
