package schedule

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/cell"
	"github.com/freeslot/freeslot/internal/cron"
	"github.com/freeslot/freeslot/internal/testing/redistest"
)

func TestService(t *testing.T) {
	backends(t, func(t *testing.T, g *rig) {
		ctx := t.Context()
		zero, one, two := uint64(0), uint64(1), uint64(2)
		wrong := func(err error, code freeslot.Code, field string) {
			t.Helper()
			var e *freeslot.Error
			if !errors.As(err, &e) || e.Code != code || e.Field != field {
				t.Errorf("%v, expected %s of %q", err, code, field)
			}
		}
		_, _, err := g.Put(ctx, tenant, "a", change("@daily", func(c *Change) { c.Version = &one }))
		wrong(err, freeslot.CodeConflict, "version")
		s, created, err := g.Put(ctx, tenant, "a", change("30 2 * * *", func(c *Change) { c.Version, c.TimeZone = &zero, "Europe/Berlin" }))
		if err != nil || !created || s.Version != 1 || s.OnMissed != Latest || s.GraceMS != 60_000 || s.NextRunMS <= s.CreatedAtMS || s.Tenant != tenant || s.Name != "a" {
			t.Fatalf(`%+v, %v, %v; want no error, created, s.Version == 1, s.OnMissed == Latest, s.GraceMS == 60_000, s.NextRunMS > %v, s.Tenant == %v, s.Name == "a"`, s, created, err, s.CreatedAtMS, tenant)
		}
		if got := g.get("a"); cmp.Diff(s, got) != "" {
			t.Error(cmp.Diff(s, got))
		}
		again, created, err := g.Put(ctx, tenant, "a", change("30 2 * * *", func(c *Change) { c.TimeZone = "Europe/Berlin" }))
		if err != nil || created || cmp.Diff(s, again) != "" {
			t.Errorf("the same again: %v, %v, %s", created, err, cmp.Diff(s, again))
		}
		_, _, err = g.Put(ctx, tenant, "a", change("@daily", func(c *Change) { c.Version = &two }))
		wrong(err, freeslot.CodeConflict, "version")
		// What does not change the times leaves the next run as it is.
		next := g.overdue("a", time.Second)
		s, _, err = g.Put(ctx, tenant, "a", change("30 2 * * *", func(c *Change) { c.TimeZone, c.Version, c.Job.Priority = "Europe/Berlin", &one, 3 }))
		if err != nil || s.Version != 2 || s.Job.Priority != 3 || s.NextRunMS != next {
			t.Errorf("%+v, %v; want no error, s.Version == 2, s.Job.Priority == 3, s.NextRunMS == %v", s, err, next)
		}
		if s = g.put("a", change("@every 1h")); s.NextRunMS != s.UpdatedAtMS+3600_000 || s.Version != 3 {
			t.Errorf("%+v; want s.NextRunMS == s.UpdatedAtMS+3600_000, s.Version == 3", s)
		}
		// A pause stays over a Put that does not speak of it.
		if s, err = g.Pause(ctx, tenant, "a"); err != nil || !s.Paused || s.NextRunMS != 0 || s.Version != 4 {
			t.Errorf("%+v, %v; want no error, s.Paused, s.NextRunMS == 0, s.Version == 4", s, err)
		}
		if s, err = g.Pause(ctx, tenant, "a"); err != nil || s.Version != 4 {
			t.Errorf("%+v, %v; want no error, s.Version == 4", s, err)
		}
		if due, _, err := g.store.of("acme/a").due(ctx, 48*time.Hour, 1); err != nil || len(due) != 0 {
			t.Error(due, err)
		}
		if s = g.put("a", change("@every 2h")); !s.Paused {
			t.Errorf("%+v; want s.Paused", s)
		}
		s, err = g.Get(ctx, tenant, "a", 3)
		if err != nil || len(s.NextRunsMS) != 3 || s.NextRunsMS[2]-s.NextRunsMS[0] != 4*3600_000 {
			t.Errorf("%+v, %v; want no error, len(s.NextRunsMS) == 3, s.NextRunsMS[2]-s.NextRunsMS[0] == 4*3600_000", s, err)
		}
		if s, err = g.Resume(ctx, tenant, "a"); err != nil || s.Paused || s.NextRunMS < s.UpdatedAtMS+2*3600_000 {
			t.Errorf("%+v, %v", s, err)
		}
		off := true
		if s = g.put("a", change("@every 2h", func(c *Change) { c.Pause = &off })); !s.Paused {
			t.Errorf("%+v; want s.Paused", s)
		}
		for _, f := range []func() error{
			func() error { _, err := g.Get(ctx, "other", "a", 0); return err },
			func() error { _, err := g.Delete(ctx, "other", "a", nil); return err },
			func() error { _, err := g.Pause(ctx, tenant, "b"); return err },
		} {
			wrong(f(), freeslot.CodeNotFound, "name")
		}
		_, err = g.Get(ctx, tenant, "a/b", 0)
		wrong(err, freeslot.CodeInvalidArgument, "name")
		_, err = g.List(ctx, "", "x", 1)
		wrong(err, freeslot.CodeInvalidArgument, "cursor")
		large := change("@daily", func(c *Change) { c.Job.Payload = json.RawMessage(`"` + strings.Repeat("x", 1<<10) + `"`) })
		_, _, err = g.Put(ctx, tenant, "a", large)
		wrong(err, freeslot.CodePayloadTooLarge, "job.payload")
		for i := range 5 {
			g.put(fmt.Sprint("b", i), change("@daily"))
		}
		var names []string
		for cursor := ""; ; {
			page, err := g.List(ctx, tenant, cursor, 2)
			if err != nil {
				t.Fatal(err)
			}
			for _, s := range page.Schedules {
				names = append(names, s.Name)
			}
			if cursor = page.Cursor; cursor == "" {
				break
			}
		}
		if strings.Join(names, " ") != "a b0 b1 b2 b3 b4" {
			t.Error(names)
		}
		// A preview says what Put would, and changes nothing.
		was, _ := g.Get(ctx, tenant, "a", 0)
		seen, stale := was.Version, was.Version-1
		preview := func(name string, c *Change, version *uint64) (Schedule, bool, error) {
			c.Version = version
			return g.Preview(ctx, tenant, name, c, 5)
		}
		s, created, err = preview("a", change("@every 3h"), &seen)
		if err != nil || created || s.Version != seen+1 || s.Cron != "@every 3h" || len(s.NextRunsMS) != 5 || s.NextRunsMS[4]-s.NextRunsMS[0] != 12*3600_000 {
			t.Errorf("%+v, %t, %v; want the next version with five runs", s, created, err)
		}
		if s, created, err = preview("new", change("@hourly"), new(uint64)); err != nil || !created || len(s.NextRunsMS) != 5 {
			t.Errorf("%+v, %t, %v; want a new schedule with five runs", s, created, err)
		}
		_, _, err = preview("a", change("@every 3h"), &stale)
		wrong(err, freeslot.CodeConflict, "version")
		_, _, err = preview("a", change("@every 0s"), nil)
		wrong(err, freeslot.CodeInvalidArgument, "cron")
		_, err = g.Get(ctx, tenant, "new", 0)
		wrong(err, freeslot.CodeNotFound, "name")
		if s, err = g.Get(ctx, tenant, "a", 0); err != nil || !cmp.Equal(s, was) {
			t.Errorf("%+v, %v after previews; want %+v", s, err, was)
		}
		_, err = g.Delete(ctx, tenant, "a", &stale)
		wrong(err, freeslot.CodeConflict, "version")
		if s, err = g.Delete(ctx, tenant, "a", &seen); err != nil || s.Name != "a" || s.Cron != "@every 2h" {
			t.Errorf(`%+v, %v; want no error, s.Name == "a", s.Cron == "@every 2h"`, s, err)
		}
		_, err = g.Delete(ctx, tenant, "a", nil)
		wrong(err, freeslot.CodeNotFound, "name")
	})
}

// A tenant has no more schedules, and no larger ones, than it may have. Others are not held back by
// it.
func TestBound(t *testing.T) {
	t.Parallel()
	g := newRig(t, redistest.Shared(t), 3)
	g.bounds = Bounds{Schedules: 5, Bytes: 2000}
	put := func(tenant, name string, size int) freeslot.Code {
		t.Helper()
		c := change("@daily")
		c.Job.Payload = json.RawMessage(`"` + strings.Repeat("x", size) + `"`)
		_, _, err := g.Put(t.Context(), tenant, name, c)
		return freeslot.CodeOf(err)
	}
	for i := range 5 {
		if code := put(tenant, fmt.Sprint("s", i), 10); code != "" {
			t.Fatalf("schedule %d is refused as %s, expected room for 5", i, code)
		}
	}
	for _, tt := range []struct {
		tenant, name string
		size         int
		want         freeslot.Code
	}{
		{tenant, "further", 10, freeslot.CodeOverloaded},
		{tenant, "s0", 900, ""}, // it replaces a smaller one
		{tenant, "s1", 1000, freeslot.CodeOverloaded},
		{tenant, "s0", 800, ""},
		{"other", "first", 10, ""},
	} {
		if code := put(tt.tenant, tt.name, tt.size); code != tt.want {
			t.Errorf("%s/%s with %d bytes gets %q, expected %q", tt.tenant, tt.name, tt.size, code, tt.want)
		}
	}
}

func TestDecodeChangeRefuses(t *testing.T) {
	t.Parallel()
	for text, field := range map[string]string{
		`{`:                       "schedule",
		`{"cron":"@daily"}`:       "job",
		`{"cron":"@daily","x":1}`: "x",
		`{"cron":"@daily","job":{"service":"echo","x":1}}`:                      "job.x",
		`{"cron":"@daily","job":{}}`:                                            "job.service",
		`{"cron":"@dail","job":{"service":"echo"}}`:                             "cron",
		`{"cron":"@daily","time_zone":"X","job":{"service":"echo"}}`:            "time_zone",
		`{"cron":"@daily","on_missed":"x","job":{"service":"echo"}}`:            "on_missed",
		`{"cron":"@daily","grace_ms":-1,"job":{"service":"echo"}}`:              "grace_ms",
		`{"cron":"@daily","job":{"service":"echo","run_at_ms":1}}`:              "job.run_at_ms",
		`{"cron":"@daily","job":{"service":"echo","idempotency_key":"x"}}`:      "job.idempotency_key",
		`{"cron":"@daily","job":{"service":"echo","traceparent":"00-1-1-00"}}`:  "job.traceparent",
		`{"cron":"@daily","job":{"service":"echo","requirement":{"pool":"?"}}}`: "job.requirement.pool",
	} {
		_, err := DecodeChange([]byte(text))
		var e *freeslot.Error
		if !errors.As(err, &e) || e.Code != freeslot.CodeInvalidArgument || e.Field != field || !strings.Contains(e.Message, field) {
			t.Errorf("%s: %v, expected %s", text, err, field)
		}
	}
}

// TestDecodeChangeNamesAll: what is wrong is named at once, the first bad field first.
func TestDecodeChangeNamesAll(t *testing.T) {
	t.Parallel()
	for text, fields := range map[string][]string{
		`{"cron":"@dail","time_zone":"X","on_missed":"x","grace_ms":-1,"paused":"y","x":2}`: {"paused", "cron", "grace_ms", "on_missed", "time_zone", "x", "job"},
		`{"job":1}`: {"job", "cron"},
		`{"cron":"@dail","job":{"slots":-1,"priority":10,"x":1,"concurrency_key":"k","concurrency_limit":2,"run_at_ms":1,
			"requirement":{"pool":"?","preferred_pool":"p","source_language":"?"}}}`: {
			"job.x", "cron", "job.priority", "job.requirement.pool", "job.requirement.source_language", "job.run_at_ms", "job.slots", "job.service",
		},
		`{"cron":"@daily","job":{"service":"echo","concurrency_limit":2,"requirement":1}}`: {"job.requirement", "job.concurrency_limit"},
	} {
		_, err := DecodeChange([]byte(text))
		var e *freeslot.Error
		if !errors.As(err, &e) {
			t.Fatalf("%s: %v; want errors.As(err, &e)", text, err)
		}
		var got []string
		for _, f := range e.Errors {
			got = append(got, f.Field)
			if !strings.HasPrefix(f.Message, f.Field) {
				t.Errorf("%s: %s; want strings.HasPrefix(f.Message, f.Field)", f.Field, f.Message)
			}
		}
		more := fmt.Sprintf(" (and %d more)", len(fields)-1)
		if d := cmp.Diff(fields, got); d != "" || e.Field != fields[0] || !strings.HasSuffix(e.Message, more) {
			t.Errorf("%s: %s\n%s; want d == \"\", e.Field == fields[0], strings.HasSuffix(e.Message, more)", text, d, e.Message)
		}
	}
	_, err := DecodeChange([]byte(`{"cron":"@dail","job":{"service":"echo"}}`))
	var e *freeslot.Error
	if !errors.As(err, &e) || len(e.Errors) != 0 {
		t.Errorf("%+v; want errors.As(err, &e), len(e.Errors) == 0", e)
	}
}

// TestDecodeChangeNamesNotTooMany: nor does it take long to look for them.
func TestDecodeChangeNamesNotTooMany(t *testing.T) {
	t.Parallel()
	var text strings.Builder
	for i := range 50_000 {
		fmt.Fprintf(&text, `"x%d":1,`, i)
	}
	_, err := DecodeChange([]byte("{" + text.String() + `"cron":"@daily"}`))
	var e *freeslot.Error
	if !errors.As(err, &e) || len(e.Errors) != freeslot.MaxFieldErrors {
		t.Errorf("%v; want errors.As(err, &e), len(e.Errors) == freeslot.MaxFieldErrors", err)
	}
}

// TestJobID: of a run it is always the same, of any two it is not.
func TestJobID(t *testing.T) {
	t.Parallel()
	if got, want := jobID(2, "acme/a", "01JD5Y8G6W9V0M5T2C3Q4R7X8Z", 1_800_000_000_000), "2-01MCC5RM009W7RY97TFBB92Q3V"; got != want {
		t.Errorf("%s, expected %s, by which replicas of other releases know it", got, want)
	}
	seen := map[string]bool{}
	for _, id := range []string{"acme/a", "acme/b"} {
		for _, uid := range []string{"01JD5Y8G6W9V0M5T2C3Q4R7X8Z", "01JD5Y8G6W9V0M5T2C3Q4R7X8Y"} {
			for _, run := range []int64{1_800_000_000_000, 1_800_000_001_000} {
				job := jobID(0, id, uid, run)
				if seen[job] || runTime(job) != run || cell.ValidateJobID("id", job) != nil {
					t.Errorf("%s of %s, %s, %d", job, id, uid, run)
				}
				seen[job] = true
			}
		}
	}
}

// FuzzStored: whatever is in Redis, it is refused or understood, and what is understood can
// be written and read again.
func FuzzStored(f *testing.F) {
	e := parsed(f, "@daily", "")
	st := newState(&e, 1_700_000_000_000, false)
	st.Claim = &claim{RunMS: 5, SinceMS: 6, JobID: jobID(3, "acme/a", st.UID, 5)}
	definition, err := change("@every 5m").Definition.encode()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(definition, st.encode(), int64(1_800_000_000_000))
	f.Add(`{"cron":"* * * * *","job":null}`, `{"uid":""}`, int64(0))
	f.Fuzz(func(t *testing.T, definition, text string, now int64) {
		found := decodeFound(record{id: "acme/a", definition: definition, state: text}, now&(1<<45-1))
		if found.broken != nil || found.state == nil {
			return
		}
		again, err := decodeState(found.state.encode())
		if err != nil || cmp.Diff(found.state, again) != "" {
			t.Fatal(err, cmp.Diff(found.state, again))
		}
		if found.state.step().encode() == found.state.encode() {
			t.Fatal("a step changes nothing")
		}
		scheduleOf("acme/a", found.schedule, found.state)
		comingRuns(found, 3)
		if st := found.state; st.NextMS > 0 && st.NextMS <= found.nowMS && found.nowMS-st.NextMS < 24*3600_000 {
			e, _ := cron.Parse(found.schedule.Cron, found.schedule.TimeZone)
			if d := due(&e, found.schedule, st.NextMS, found.nowMS); d.runMS == 0 && d.missed == 0 {
				t.Fatal("neither made nor missed")
			}
		}
		if c := found.state.Claim; c != nil {
			e, _ := cron.Parse(found.schedule.Cron, found.schedule.TimeZone)
			if found.state.over(&e); found.state.Claim != nil || found.state.LastMS < c.RunMS || found.state.NextMS != 0 && found.state.NextMS <= c.RunMS {
				t.Fatalf("after the run at %d: %+v", c.RunMS, found.state)
			}
		}
	})
}
