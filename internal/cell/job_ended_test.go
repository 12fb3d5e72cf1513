package cell

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"go.uber.org/zap"
	"pgregory.net/rapid"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/testing/redistest"
)

// endedRecord writes the record of a job that ended, and its places in the indexes, as the scripts
// do.
func (r *rig) endedRecord(s freeslot.JobStatus) {
	r.t.Helper()
	record := jobRecord{
		tenant: s.Tenant, slots: 1, submittedMS: 1, retentionMS: 1, class: s.Class, attempts: 3,
		definition: mustJSON(ClassDefinition{Service: s.Service}),
	}
	fields := []string{
		"HSET", r.l.Job(s.ID), "state", string(s.State), "job", record.String(), "run", "1 " + s.Node + " e1 1",
		"finished_at_ms", strconv.FormatInt(s.FinishedAtMS, 10),
	}
	if s.Schedule != "" {
		fields = append(fields, "origin", Origin{Schedule: s.Schedule}.String())
	}
	if s.Error != nil {
		fields = append(fields, "error", mustJSON(s.Error))
	}
	r.do(fields...)
	us := strconv.FormatInt(s.FinishedAtMS*1000, 10)
	if s.State != freeslot.StateDead {
		r.do("ZADD", r.l.Finished(), us, s.ID)
	}
	if s.State != freeslot.StateSucceeded {
		r.do("ZADD", r.l.Ended(string(s.State)), us, s.ID)
	}
}

// TestEndedListing compares filtered listings with a slow twin that looks at all records.
func TestEndedListing(t *testing.T) {
	t.Parallel()
	redistest.Backends(t, func(t *testing.T, redis *redistest.Target) {
		t.Parallel()
		base := newRig(t, redis)
		rapid.Check(t, func(rt *rapid.T) {
			cfg := Config{Layout: base.l, CallTimeout: patience, HeartbeatLimit: time.Hour}
			cfg.Layout.Prefix = redis.Prefix(t)
			c, err := New(cfg, base.client, zap.NewNop(), nil)
			if err != nil {
				rt.Fatal(err)
			}
			r := &rig{Cell: c, t: t, redis: redis, raw: base.raw, l: cfg.Layout}
			names := rapid.SampledFrom([]string{"a", "b"})
			var all []freeslot.JobStatus
			for range rapid.IntRange(0, 40).Draw(rt, "jobs") {
				s := freeslot.JobStatus{
					ID: r.NewJobID(), State: rapid.SampledFrom(freeslot.States()[6:]).Draw(rt, "state"),
					Tenant: names.Draw(rt, "tenant"), Service: names.Draw(rt, "service"), Node: names.Draw(rt, "node"), Class: echo,
					Schedule:     rapid.SampledFrom([]string{"", "a"}).Draw(rt, "schedule"),
					FinishedAtMS: rapid.Int64Range(1, 20).Draw(rt, "at"), // many end together
				}
				if s.State == freeslot.StateFailed || s.State == freeslot.StateDead || s.State == freeslot.StateExpired && names.Draw(rt, "tried") == "a" {
					s.Error = &freeslot.JobError{Code: names.Draw(rt, "code")}
				}
				r.endedRecord(s)
				all = append(all, s)
			}
			slices.SortFunc(all, func(a, b freeslot.JobStatus) int {
				return cmp.Or(cmp.Compare(b.FinishedAtMS, a.FinishedAtMS), cmp.Compare(b.ID, a.ID))
			})
			one := rapid.SampledFrom([]string{"", "", "", "a"})
			for range 5 {
				f := JobFilter{
					Tenant: one.Draw(rt, "of tenant"), Service: one.Draw(rt, "of service"), Node: one.Draw(rt, "of node"),
					Code: one.Draw(rt, "of code"), Schedule: one.Draw(rt, "of schedule"),
					State:  rapid.SampledFrom(append(freeslot.States()[6:], "", "", "")).Draw(rt, "of state"),
					FromMS: rapid.Int64Range(0, 10).Draw(rt, "from"), ToMS: rapid.SampledFrom([]int64{0, 12, 25}).Draw(rt, "to"),
				}
				var want []string
				for i := range all {
					s := &all[i]
					if f.fits(s) && s.FinishedAtMS >= f.FromMS && (f.ToMS == 0 || s.FinishedAtMS < f.ToMS) {
						want = append(want, s.ID)
					}
				}
				got, _ := r.all(f, rapid.IntRange(1, 30).Draw(rt, "page"))
				if !slices.Equal(got, want) {
					rt.Fatalf("%+v lists %v; want %v", f, got, want)
				}
			}
		})
	})
}

// TestListingIsBounded: a page looks at a bounded number of jobs, says how many and since when it
// is complete, and goes on; the few that died are found at once.
func TestListingIsBounded(t *testing.T) {
	t.Parallel()
	r := newRig(t, redistest.New(t).Target)
	const jobs = MaxLook + 300
	for i := range jobs {
		r.endedRecord(freeslot.JobStatus{
			ID: NewJobID(0), State: freeslot.StateFailed, Tenant: "acme", Service: "echo", Node: "n1", Class: echo,
			FinishedAtMS: int64(1000 + i), Error: &freeslot.JobError{Code: "usual"},
		})
	}
	f := JobFilter{State: freeslot.StateFailed, Code: "rare"}
	page, err := r.Jobs(r.ctx(), f, "", 10)
	must(t, err)
	if len(page.Jobs) != 0 || page.LookedAt != MaxLook || page.SinceMS != 1000+300 || page.Cursor == "" {
		t.Errorf("%d jobs, looked at %d, since %d, cursor %q; want none of %d, since %d, and a cursor",
			len(page.Jobs), page.LookedAt, page.SinceMS, page.Cursor, MaxLook, 1300)
	}
	began := r.nowMS()
	_, err = r.KeepEnded(r.ctx())
	must(t, err)
	page, err = r.Jobs(r.ctx(), f, page.Cursor, 10)
	must(t, err)
	if page.LookedAt != 300 || page.SinceMS < began || page.SinceMS > r.nowMS() || page.Cursor != "" {
		t.Errorf("looked at %d, since %d, cursor %q; want 300, since the index began (%d), and no cursor", page.LookedAt, page.SinceMS, page.Cursor, began)
	}
	page, err = r.Jobs(r.ctx(), JobFilter{State: freeslot.StateDead}, "", 10)
	must(t, err)
	if page.LookedAt != 0 || page.Cursor != "" {
		t.Errorf("looked at %d for dead jobs, cursor %q; want none", page.LookedAt, page.Cursor)
	}
}

// TestDeadJobsAreKept: for dead_retention and not retention, as many as dead_limit says, and within
// the bytes of retention_bytes; drop forgets one.
func TestDeadJobsAreKept(t *testing.T) {
	backends(t, func(t *testing.T, r *rig) {
		r.cfg.DeadRetention, r.cfg.DeadLimit = 10*DefaultRetention, 3
		keep := func() EndedKept {
			t.Helper()
			did, err := r.KeepEnded(r.ctx())
			must(t, err)
			return did
		}
		keep()
		epoch := r.register(testNode("n1", 1))
		die := func() string {
			t.Helper()
			job := r.waits("", attempts(1))
			r.forgive(job)
			r.take("n1")
			r.complete1(r.fails("n1", epoch, job, Retry))
			return job
		}
		var jobs []string
		for range 5 {
			jobs = append(jobs, die())
		}
		for _, job := range jobs {
			if ttl := time.Duration(r.int("PTTL", r.l.Job(job))) * time.Millisecond; ttl < 9*DefaultRetention || ttl > 10*DefaultRetention {
				t.Errorf("job %s is kept for %s; want %s", job, ttl, 10*DefaultRetention)
			}
		}
		r.sound()
		if did := keep(); did.Dead != 3 || did.Dropped != 2 || did.More || r.exists(r.l.Job(jobs[0])) || r.exists(r.l.Job(jobs[1])) {
			t.Errorf("%+v; want the oldest two dropped", did)
		}
		if got, _ := r.all(JobFilter{State: freeslot.StateDead}, 10); !slices.Equal(got, []string{jobs[4], jobs[3], jobs[2]}) {
			t.Errorf("%v are listed; want %v, the newest first", got, jobs[2:])
		}
		if got, _ := r.all(JobFilter{}, 10); len(got) != 3 {
			t.Errorf("%v are listed without a filter; want %v", got, jobs[2:])
		}
		if _, err := r.Drop(r.ctx(), "", jobs[3]); err != nil || r.exists(r.l.Job(jobs[3])) {
			t.Error("not dropped:", err)
		}
		r.sound()
		r.do("DEL", r.l.Job(jobs[2])) // as its retention does
		if did := keep(); did.Dead != 1 || did.Dropped != 0 {
			t.Errorf("%+v; want one left", did)
		}
		r.cfg.RetentionBytes = 2 * r.recordBytes(jobs[4])
		for range 3 {
			jobs = append(jobs, die())
		}
		r.retain(r.Cell, 10)
		if got := r.strings("ZRANGE", r.l.Ended(string(freeslot.StateDead)), "0", "-1"); !slices.Equal(got, jobs[len(jobs)-1:]) {
			t.Errorf("%v are kept; want the newest, which takes the half of retention_bytes", got)
		}
		r.do("SET", r.l.Ended(string(freeslot.StateFailed)), "an operator's mistake")
		keep()
		r.sound()
	})
}

// TestNoRightToTheIndex: an agent whose user of Redis has no right to the new index ends its jobs
// as before: a dead one is among the finished ones, and listed.
func TestNoRightToTheIndex(t *testing.T) {
	t.Parallel()
	server := redistest.New(t)
	r := newRig(t, server.Target)
	epoch := r.register(testNode("n1", 2))
	dead, failed := r.waits("", attempts(1)), r.waits("")
	r.take("n1")
	patterns := []string{"ACL", "SETUSER", "old", "on", ">secret", "allcommands", "allchannels", "resetkeys"}
	for _, kind := range strings.Fields("nodes load metrics slots dispatch jobs replies finished due waiting version index fair gates gate parked serves pool drained") {
		patterns = append(patterns, "~"+r.l.Prefix+":"+kind+"*")
	}
	r.do(patterns...)
	old, err := New(Config{Layout: r.l, CallTimeout: patience}, server.Client(t, func(o *rueidis.ClientOption) {
		o.Username, o.Password, o.ClientSetInfo = "old", "secret", rueidis.DisableClientSetInfo
	}), zap.NewNop(), nil)
	must(t, err)
	for _, end := range []Completion{r.fails("n1", epoch, dead, Retry), r.fails("n1", epoch, failed, Never)} {
		if got := old.CompleteNode(r.ctx(), []Completion{end}); got[0].Err != nil || got[0].Outcome != Completed {
			t.Fatalf("%+v; want it completed", got)
		}
	}
	if got, _ := r.all(JobFilter{}, 10); len(got) != 2 || r.exists(r.l.Ended(string(freeslot.StateDead))) || r.exists(r.l.Ended(string(freeslot.StateFailed))) {
		t.Errorf("%v are listed; want both, and no index", got)
	}
	if s := r.status(dead); s.State != freeslot.StateDead || len(s.Attempts) != 1 {
		t.Errorf("%+v; want it dead after one attempt", s)
	}
}

// TestOwnersAlone: a listing asks only the nodes that may own jobs, in pages that end at a bound
// where too many may.
func TestOwnersAlone(t *testing.T) {
	t.Parallel()
	r := newRig(t, redistest.New(t).Target)
	r.register(testNode("n1", 1))
	r.register(testNode("n2", 1))
	first, second := r.place("", 1, "n1"), r.place("", 1, "n2")
	set := NewSet(r.Cell)
	owners := []string{"n1"}
	set.SetOwners(func(int) ([]string, bool) { return owners, owners != nil })
	list := func() (ids []string, pages int) {
		t.Helper()
		for cursor := ""; ; {
			page, err := set.Jobs(r.ctx(), JobFilter{State: freeslot.StateRunning}, cursor, 10)
			must(t, err)
			for _, j := range page.Jobs {
				ids = append(ids, j.ID)
			}
			if pages++; page.Cursor == "" {
				return ids, pages
			}
			cursor = page.Cursor
		}
	}
	if got, _ := list(); !slices.Equal(got, []string{first}) {
		t.Errorf("%v are listed; want %s, which the only owner has", got, first)
	}
	if owners = nil; true {
		if got, _ := list(); !slices.Equal(got, []string{first, second}) {
			t.Errorf("%v are listed; want both, since owners are not known", got)
		}
	}
	for i := range maxRounds*maxNodes + 1 {
		owners = append(owners, fmt.Sprintf("a%06d", i))
	}
	owners = append(owners, "n2")
	if got, pages := list(); !slices.Equal(got, []string{second}) || pages != 2 {
		t.Errorf("%v are listed on %d pages; want %s on the second", got, pages, second)
	}
}
