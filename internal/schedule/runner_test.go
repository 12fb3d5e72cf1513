package schedule

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/cell"
	"github.com/freeslot/freeslot/internal/dispatch"
	"github.com/freeslot/freeslot/internal/testing/redistest"
	"github.com/freeslot/freeslot/internal/testing/waittest"
)

// backends runs a suite with one cell and with three.
func backends(t *testing.T, suite func(t *testing.T, g *rig)) {
	t.Parallel()
	redistest.Backends(t, func(t *testing.T, redis *redistest.Target) {
		t.Parallel()
		for _, cells := range []int{1, 3} {
			t.Run(fmt.Sprintf("cells=%d", cells), func(t *testing.T) { t.Parallel(); suite(t, newRig(t, redis, cells)) })
		}
	})
}

// TestRun: a run makes one job of the template, under an id of its time.
func TestRun(t *testing.T) {
	backends(t, func(t *testing.T, g *rig) {
		g.node("n1", 4)
		r := g.replica("r1")
		s := g.put("a", change("@every 1h"))
		if s.NextRunMS != s.CreatedAtMS+3600_000 || s.Version != 1 {
			t.Errorf("%+v; want s.NextRunMS == s.CreatedAtMS+3600_000, s.Version == 1", s)
		}
		g.handle(r, "a")
		if ids := g.jobs(); len(ids) != 0 {
			t.Fatal("before its time:", ids)
		}
		run := g.overdue("a", 50*time.Millisecond)
		g.handle(r, "a")
		s = g.get("a")
		ids := g.jobs()
		if len(ids) != 1 || s.LastJobID != ids[0] || runTime(ids[0]) != run || s.LastRunMS != run || s.NextRunMS != run+3600_000 || s.Runs != 1 || s.Missed != 0 {
			t.Fatalf("%v %+v; want len(ids) == 1, s.LastJobID == ids[0], runTime(ids[0]) == %v, s.LastRunMS == %v, s.NextRunMS == run+3600_000, s.Runs == 1, s.Missed == 0", ids, s, run, run)
		}
		st, _ := g.state("a")
		home, _ := cell.JobCell(ids[0])
		if want := jobID(home, "acme/a", st.UID, run); ids[0] != want {
			t.Errorf("job %s, expected %s", ids[0], want)
		}
		job, owner, err := g.set.Spec(t.Context(), ids[0])
		if err != nil || owner != tenant || job.Service != "echo" || string(job.Payload) != "1" {
			t.Error(job, owner, err)
		}
		g.handle(r, "a")
		if again := g.jobs(); len(again) != 1 {
			t.Error(again)
		}
		if n := testutil.ToFloat64(r.metrics.runs.WithLabelValues("created")); n != 1 {
			t.Error(n)
		}
	})
}

// TestCrashBetween: a replica dies between any two steps; another one ends the run, with one
// job, also where the record of that is gone again.
func TestCrashBetween(t *testing.T) {
	backends(t, func(t *testing.T, g *rig) {
		g.node("n1", 100)
		g.node("n2", 100)
		g.node("n3", 100)
		first, second := g.replica("r1"), g.replica("r2")
		for i, died := range []string{"claimed", "claimed with a cell", "created", "created, gone"} {
			name := fmt.Sprintf("s%d", i)
			g.put(name, change("@every 1h"))
			run := g.overdue(name, time.Second)
			g.edit(name, func(st *state, nowMS int64) { st.Claim = &claim{RunMS: run, SinceMS: nowMS} })
			if died != "claimed" {
				g.edit(name, func(st *state, _ int64) {
					st.Claim.PlacedMS = st.Claim.SinceMS
					st.Claim.JobID = jobID(g.set.Len()-1, idOf(tenant, name), st.UID, run)
				})
			}
			st, _ := g.state(name)
			if strings.HasPrefix(died, "created") {
				job := g.get(name).Job
				first.jobs.Submit(t.Context(), []dispatch.Request{{Tenant: tenant, Job: &job, Run: &dispatch.Run{JobID: st.Claim.JobID, Once: st.once()}}}, nil,
					func(_ int, a dispatch.Accepted, err error) {
						if err != nil || a.JobID != st.Claim.JobID {
							t.Error(a, err)
						}
					})
			}
			if died == "created, gone" {
				c, _ := g.set.OfJob(st.Claim.JobID)
				if err := g.client.Do(t.Context(), g.client.B().Del().Key(c.Layout().Job(st.Claim.JobID)).Build()).Error(); err != nil {
					t.Fatal(err)
				}
			}
			before := len(g.jobs())
			g.handle(second, name)
			s := g.get(name)
			want := map[string]int{"claimed": 1, "claimed with a cell": 1}[died]
			if got := len(g.jobs()) - before; got != want || s.Runs != 1 || s.LastRunMS != run || died != "claimed" && s.LastJobID != st.Claim.JobID {
				t.Errorf("%s: %d jobs, %+v", died, got, s)
			}
		}
	})
}

// TestMissed: what the policies make of runs whose time has passed.
func TestMissed(t *testing.T) {
	t.Parallel()
	g := newRig(t, redistest.Shared(t), 1)
	g.node("n1", 1)
	r := g.replica("r1")
	const minutes = 150
	for policy, want := range map[OnMissed]struct{ runs, missed uint64 }{"": {1, minutes}, Latest: {1, minutes}, Skip: {0, minutes + 1}, All: {MaxMissed, minutes + 1 - MaxMissed}} {
		name := "p" + string(policy)
		g.put(name, change("@every 1m", func(c *Change) { c.OnMissed, c.GraceMS = policy, 1000 }))
		before := len(g.jobs())
		next := g.overdue(name, minutes*time.Minute+10*time.Second)
		g.handle(r, name)
		s := g.get(name)
		jobs := len(g.jobs()) - before
		if s.LastMissedAtMS < s.CreatedAtMS || s.LastMissedAtMS > s.CreatedAtMS+time.Hour.Milliseconds() {
			t.Errorf("%q: runs were left out at %d; want a time after %d", policy, s.LastMissedAtMS, s.CreatedAtMS)
		}
		if s.Runs != want.runs || s.Missed != want.missed || jobs != int(want.runs) || s.NextRunMS != next+(minutes+1)*60_000 {
			t.Errorf("%q: %d jobs, %+v", policy, jobs, s)
		}
		if last := next + minutes*60_000; want.runs > 0 && (s.LastRunMS != last || runTime(s.LastJobID) != last) {
			t.Errorf("%q: the last run is %d, expected %d", policy, s.LastRunMS, last)
		}
	}
	g.put("often", change("@every 1s"))
	g.overdue("often", 10*time.Second) // within the grace
	g.handle(r, "often")
	if s := g.get("often"); s.Missed != 10 || s.LastMissedAtMS != 0 {
		t.Errorf("%d runs were left out, the last at %d; want 10 without a time", s.Missed, s.LastMissedAtMS)
	}
	if n := testutil.ToFloat64(r.metrics.missed); n != 3*minutes+1+minutes+1-MaxMissed+10 {
		t.Error(n)
	}
}

// TestRefused: what becomes of runs that cannot be made.
func TestRefused(t *testing.T) {
	t.Parallel()
	g := newRig(t, redistest.Shared(t), 1)
	f := &fake{}
	r := g.runner("r1", f)
	gone := func(name string) { // the claim is older than the grace
		g.edit(name, func(st *state, nowMS int64) { st.Claim.SinceMS = nowMS - DefaultGrace.Milliseconds() })
	}
	t.Run("for good", func(t *testing.T) {
		*f = fake{submit: coded(freeslot.CodeInvalidArgument), job: coded(freeslot.CodeNotFound)}
		g.put("a", change("@every 1h"))
		run := g.overdue("a", time.Second)
		g.handle(r, "a")
		if s := g.get("a"); s.Failed != 1 || s.Runs != 0 || s.LastError != "invalid_argument: as told" || s.LastErrorAtMS == 0 || s.LastRunMS != run || s.NextRunMS <= run || s.LastJobID != "" {
			t.Errorf(`%+v; want s.Failed == 1, s.Runs == 0, s.LastError == "invalid_argument: as told", s.LastErrorAtMS != 0, s.LastRunMS == %v, s.NextRunMS > %v, s.LastJobID == ""`, s, run, run)
		}
		*f = fake{}
		g.overdue("a", time.Second)
		g.handle(r, "a")
		if s := g.get("a"); s.Failed != 1 || s.Runs != 1 || s.LastError != "" || s.LastErrorAtMS != 0 {
			t.Errorf("the next run: %+v", s)
		}
	})
	for i, refuse := range []fake{{home: coded(freeslot.CodeNoMatchingNode)}, {submit: coded(freeslot.CodeOverloaded)}, {submit: coded(freeslot.CodeUnavailable)}} {
		refuse.job = coded(freeslot.CodeNotFound)
		t.Run("for a while", func(t *testing.T) {
			*f = refuse
			g.put("b", change("@every 1h"))
			g.overdue("b", time.Duration(3-i)*time.Second) // each run later than the one before
			before := g.get("b")
			g.handle(r, "b")
			s := g.get("b")
			due, _, err := g.store[0].due(t.Context(), 2*retryPause, 10)
			if s.Failed != before.Failed || s.LastError == "" || s.LastRunMS != before.LastRunMS || err != nil || !slices.ContainsFunc(due, func(d dueTime) bool {
				return d.id == "acme/b" && d.atMS == s.LastErrorAtMS+retryPause.Milliseconds()
			}) {
				t.Errorf("%+v, due %v", s, due)
			}
			gone("b")
			g.handle(r, "b")
			if s := g.get("b"); s.Failed != before.Failed+1 || s.Runs != before.Runs || s.LastRunMS == before.LastRunMS {
				t.Errorf("after its grace: %+v", s)
			}
		})
	}
	t.Run("answer lost", func(t *testing.T) {
		*f = fake{submit: coded(freeslot.CodeUnavailable)}
		g.put("c", change("@every 1h"))
		g.overdue("c", time.Second)
		g.handle(r, "c")
		gone("c")
		f.job = coded(freeslot.CodeUnavailable)
		g.handle(r, "c")
		if s := g.get("c"); s.Failed != 0 || s.Runs != 0 {
			t.Errorf("it is not known: %+v", s)
		}
		f.job = nil
		g.edit("c", func(*state, int64) {})
		g.handle(r, "c")
		if s := g.get("c"); s.Failed != 0 || s.Runs != 1 || s.LastJobID == "" {
			t.Errorf("it was created: %+v", s)
		}
	})
	t.Run("after too long", func(t *testing.T) {
		*f = fake{job: coded(freeslot.CodeNotFound)}
		g.put("d", change("@every 1h"))
		g.overdue("d", time.Second)
		g.edit("d", func(st *state, nowMS int64) {
			st.Claim = &claim{RunMS: st.NextMS, SinceMS: nowMS, PlacedMS: nowMS - 13*3600_000, JobID: jobID(0, "acme/d", st.UID, st.NextMS)}
		})
		g.handle(r, "d")
		if s := g.get("d"); len(f.made) != 0 || s.Failed != 1 || !strings.Contains(s.LastError, "not known") {
			t.Errorf("%d submits, %+v", len(f.made), s)
		}
	})
	t.Run("placed late", func(t *testing.T) { // so it cannot have been created before
		*f = fake{}
		g.put("f", change("@every 1h"))
		g.overdue("f", time.Second)
		g.edit("f", func(st *state, nowMS int64) { st.Claim = &claim{RunMS: st.NextMS, SinceMS: nowMS - 13*3600_000} })
		g.handle(r, "f")
		if s := g.get("f"); len(f.made) != 1 || s.Runs != 1 {
			t.Errorf("%d submits, %+v", len(f.made), s)
		}
	})
	t.Run("limits changed", func(t *testing.T) {
		*f = fake{job: coded(freeslot.CodeNotFound)}
		g.put("e", change("@every 1h", func(c *Change) { c.Job.Payload = json.RawMessage(`"` + strings.Repeat("x", 500) + `"`) }))
		g.overdue("e", time.Second)
		r := NewRunner(Config{Replica: "r1", MaxPayloadBytes: 100}, g.set.Runners(), g.set, f, r.log, nil)
		g.handle(r, "e")
		if s := g.get("e"); len(f.made) != 0 || s.Failed != 1 || !strings.Contains(s.LastError, "payload_too_large: job.payload has 502 bytes") {
			t.Errorf(`%+v; want len(f.made) == 0, s.Failed == 1, strings.Contains(s.LastError, "payload_too_large: job.payload has 502 bytes")`, s)
		}
	})
}

// TestTwoReplicas: whoever is faster, a run makes one job.
func TestTwoReplicas(t *testing.T) {
	backends(t, func(t *testing.T, g *rig) {
		g.node("n1", 2)
		g.node("n2", 2)
		replicas := []*Runner{g.replica("r1"), g.replica("r2"), g.replica("r3")}
		const schedules, rounds = 4, 4
		for i := range schedules {
			g.put(fmt.Sprint("s", i), change("@every 1h", func(c *Change) { c.OnMissed = All }))
		}
		for round := range rounds {
			var all sync.WaitGroup
			for i := range schedules {
				// Three runs, at times of which none has been.
				g.overdue(fmt.Sprint("s", i), 150*time.Minute-time.Duration(round)*time.Minute)
				for _, r := range replicas {
					all.Go(func() { g.handle(r, fmt.Sprint("s", i)) })
				}
			}
			all.Wait()
		}
		runs := uint64(0)
		for i := range schedules {
			// Whoever was overtaken may have left the rest to one that had given up.
			g.handle(replicas[0], fmt.Sprint("s", i))
			s := g.get(fmt.Sprint("s", i))
			if s.Runs < 3*rounds || s.Failed != 0 || s.Missed != 0 {
				t.Errorf("%+v; want s.Runs >= 3*rounds, s.Failed == 0, s.Missed == 0", s)
			}
			runs += s.Runs
		}
		if ids := g.jobs(); len(ids) != int(runs) {
			t.Errorf("%d jobs of %d runs", len(ids), runs)
		}
	})
}

// TestChangesRace: clients change schedules while their runs are made.
func TestChangesRace(t *testing.T) {
	backends(t, func(t *testing.T, g *rig) {
		g.node("n1", 2)
		replicas := []*Runner{g.replica("r1"), g.replica("r2")}
		crons := []string{"@every 1h", "@every 2h", "@every 3h"}
		g.put("a", change(crons[0]))
		const rounds = 12
		kept, deleted := uint64(0), 0 // runs of schedules that were deleted; how often that was
		for round := range rounds {
			g.overdue("a", time.Second)
			before := g.get("a")
			var all sync.WaitGroup
			for _, r := range replicas {
				all.Go(func() { g.handle(r, "a") })
			}
			all.Go(func() {
				var err error
				switch round % 4 {
				case 0:
					_, err = g.Pause(t.Context(), tenant, "a")
				case 1:
					_, err = g.Resume(t.Context(), tenant, "a")
				case 2:
					_, _, err = g.Put(t.Context(), tenant, "a", change(crons[rand.IntN(len(crons))]))
				case 3:
					_, err = g.Delete(t.Context(), tenant, "a", nil)
				}
				if err != nil {
					t.Error(err)
				}
			})
			all.Wait()
			if round%4 == 3 {
				// It was made or not; nobody counts it any more.
				kept, deleted = kept+before.Runs, deleted+1
				g.put("a", change(crons[0]))
				continue
			}
			g.handle(replicas[0], "a")
			if st, _ := g.state("a"); st.Claim != nil || st.Made > before.Runs+1 || st.NextMS <= st.LastMS {
				t.Errorf("round %d: %+v", round, st)
			}
		}
		made := kept + g.get("a").Runs
		if n := uint64(len(g.jobs())); n < made || n > made+uint64(deleted) {
			t.Errorf("%d jobs of %d runs", n, made)
		}
	})
}

// TestLook: a runner takes what is due and its own, the rest when it is late, and sleeps until
// the next that is its own.
func TestLook(t *testing.T) {
	t.Parallel()
	g := newRig(t, redistest.Shared(t), 1)
	f := &fake{}
	r := g.runner("r1", f)
	r.cfg.Interval, r.cfg.TakeOver = time.Minute, 30*time.Minute
	r.SetReplicas([]string{"r1", "r2"})
	var mine, other string
	for i := 0; mine == "" || other == ""; i++ {
		if name := fmt.Sprint("s", i); r.first(idOf(tenant, name)) {
			mine = name
		} else {
			other = name
		}
	}
	look := func() time.Duration {
		t.Helper()
		pause, err := r.poll(g.store[0])
		if err != nil {
			t.Fatal(err)
		}
		return pause
	}
	g.put(mine, change("@every 1h"))
	g.put(other, change("@every 1h"))
	if pause := look(); pause < time.Minute*7/8 {
		t.Errorf("nothing is due, and it sleeps for %s", pause)
	}
	g.edit(mine, func(st *state, now int64) { st.NextMS = now + 30_000 })
	g.edit(other, func(st *state, now int64) { st.NextMS = now - 1 })
	if pause := look(); pause > 30*time.Second || pause < shortest || len(f.made) != 0 {
		t.Errorf("one of its own is due in 30s, and it sleeps for %s", pause)
	}
	g.overdue(mine, time.Millisecond)
	if look(); len(f.made) != 1 || g.get(mine).Runs != 1 || g.get(other).Runs != 0 {
		t.Errorf("%+v; want len(f.made) == 1, g.get(mine).Runs == 1, g.get(other).Runs == 0", f.made)
	}
	g.overdue(other, r.cfg.TakeOver)
	if look(); len(f.made) != 2 || g.get(other).Runs != 1 {
		t.Errorf("%+v; want len(f.made) == 2, g.get(other).Runs == 1", f.made)
	}
}

// TestEdited: what an operator made unreadable harms nothing else, and can be put anew.
func TestEdited(t *testing.T) {
	t.Parallel()
	g := newRig(t, redistest.Shared(t), 1)
	f := &fake{}
	r := g.runner("r1", f)
	c := g.store[0]
	hset := func(key, id, value string) {
		t.Helper()
		if err := g.client.Do(t.Context(), g.client.B().Hset().Key(key).FieldValue().FieldValue(id, value).Build()).Error(); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"ok", "state", "definition", "lost"} {
		g.put(name, change("@every 1h"))
		g.overdue(name, time.Second)
	}
	hset(c.keys.states, "acme/state", "{")
	hset(c.keys.definitions, "acme/definition", `{"cron":"x"}`)
	if err := g.client.Do(t.Context(), g.client.B().Hdel().Key(c.keys.states).Field("acme/lost").Build()).Error(); err != nil {
		t.Fatal(err)
	}
	if made, err := c.write(t.Context(), write{id: "no id", state: "{}", definition: "{}", dueMS: 1}); err != nil || !made {
		t.Fatal(made, err)
	}
	if err := g.client.Do(t.Context(), g.client.B().Zadd().Key(c.keys.due).ScoreMember().ScoreMember(1, "acme/none").Build()).Error(); err != nil {
		t.Fatal(err)
	}
	if _, err := r.poll(c); err != nil {
		t.Error(err)
	}
	if g.get("ok").Runs != 1 || len(f.made) != 1 {
		t.Errorf(`%+v; want g.get("ok").Runs == 1, len(f.made) == 1`, f.made)
	}
	if due, now, err := c.due(t.Context(), 0, 10); err != nil || len(due) != 0 {
		t.Error("still due:", due, now, err)
	}
	if s := g.get("lost"); s.NextRunMS == 0 || s.Version != 1 {
		t.Errorf("%+v; want s.NextRunMS != 0, s.Version == 1", s)
	}
	if page, err := g.List(t.Context(), "", "", 10); err != nil || len(page.Schedules) != 2 {
		t.Error(page, err)
	}
	for _, name := range []string{"state", "definition"} {
		if _, err := g.Get(t.Context(), tenant, name, 0); freeslot.CodeOf(err) != freeslot.CodeConflict {
			t.Error(err)
		}
		if _, err := g.Pause(t.Context(), tenant, name); freeslot.CodeOf(err) != freeslot.CodeConflict {
			t.Error(err)
		}
		if s := g.put(name, change("@every 2h")); s.NextRunMS == 0 {
			t.Errorf("%+v; want s.NextRunMS != 0", s)
		}
		hset(c.keys.states, "acme/"+name, "{")
		if _, err := g.Delete(t.Context(), tenant, name, nil); err != nil {
			t.Error(err)
		}
	}
}

// TestLoop has everything run by itself: the only test in real time.
func TestLoop(t *testing.T) {
	t.Parallel()
	g := newRig(t, redistest.Shared(t), 3)
	g.node("n1", 1)
	for i := range 2 {
		r := g.replica(fmt.Sprint("r", i))
		r.SetReplicas([]string{"r0", "r1"})
		r.cfg.Interval = 50 * time.Millisecond
		g.runs(r)
	}
	g.put("a", change("@every 1s", func(c *Change) { c.OnMissed = All }))
	g.edit("a", func(st *state, now int64) { st.NextMS = now + 20 })
	waittest.Until(t, "two runs", func() bool { return g.get("a").Runs >= 2 }, func() any { return g.get("a") })
	s := g.get("a")
	ids := g.jobs()
	if s.Missed != 0 || s.Failed != 0 || len(ids) < 2 || runTime(ids[1])-runTime(ids[0]) != 1000 {
		t.Errorf("%v %+v; want s.Missed == 0, s.Failed == 0, len(ids) >= 2, runTime(ids[1])-runTime(ids[0]) == 1000", ids, s)
	}
}

// A run that the tenant's submit rate does not allow is made once it does, however late that is.
func TestRunBeyondTheRateIsLate(t *testing.T) {
	t.Parallel()
	g := newRig(t, redistest.Shared(t), 1)
	f := &fake{}
	r := g.runner("r1", f)
	g.put("a", change("@every 1h"))
	run := g.overdue("a", time.Second)
	f.submit = coded(freeslot.CodeRateLimited)
	g.handle(r, "a")
	g.edit("a", func(st *state, nowMS int64) { st.Claim.SinceMS = nowMS - 100*DefaultGrace.Milliseconds() })
	g.handle(r, "a")
	if s := g.get("a"); s.Runs != 0 || s.Failed != 0 || !strings.Contains(s.LastError, "rate_limited") {
		t.Errorf("while the rate is used up: %d runs, %d failed, %q; expected neither, and the reason", s.Runs, s.Failed, s.LastError)
	}
	f.submit = nil
	g.handle(r, "a")
	if s := g.get("a"); s.Runs != 1 || s.Failed != 0 || s.LastRunMS != run {
		t.Errorf("after that: %d runs, %d failed, the last at %d; expected one of %d", s.Runs, s.Failed, s.LastRunMS, run)
	}
}
