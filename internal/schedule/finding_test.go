package schedule

import (
	"strings"
	"testing"
	"time"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/testing/redistest"
)

// TestFindings: schedules whose last run could not be made are one finding, since the first of
// them; paused ones are none.
func TestFindings(t *testing.T) {
	t.Parallel()
	g := newRig(t, redistest.Shared(t), 1)
	source := findings(g.Service, 0)
	fails := func(name string, at int64, paused bool) {
		g.put(name, change("@every 1h"))
		g.edit(name, func(st *state, _ int64) { st.LastError, st.LastErrorMS, st.Paused = "no node of "+name, at, paused })
	}
	g.put("well", change("@every 1h"))
	if found, err := source.Look(t.Context()); len(found) != 0 || err != nil {
		t.Fatalf("findings %+v, %v; want none", found, err)
	}
	fails("b", 2000, false)
	fails("a", 3000, false)
	fails("paused", 1000, true)
	found, err := source.Look(t.Context())
	if err != nil || len(found) != 1 {
		t.Fatalf("findings %+v, %v; want one", found, err)
	}
	f := found[0]
	if f.SinceMS != 2000 || !strings.HasPrefix(f.Text, "2 schedules could not make the last run") ||
		!strings.Contains(f.Text, "no node of b") || len(f.Names) != 2 {
		t.Errorf("finding %+v; want 2 schedules since 2000, b for the longest", f)
	}
}

// TestCausesAreFound: a run that cannot be made is a finding until the next one is made, and so are
// runs that no replica was there to make, until the time for that is over.
func TestCausesAreFound(t *testing.T) {
	t.Parallel()
	g := newRig(t, redistest.Shared(t), 1)
	const window = 24 * time.Hour
	says := func(when string, want ...string) {
		t.Helper()
		found, err := findings(g.Service, window).Look(t.Context())
		if err != nil || len(found) != len(want) {
			t.Fatalf("%s found %+v, %v; want %q", when, found, err, want)
		}
		for i, f := range found {
			if got := f.ID + ": " + f.Text; got != want[i] || f.SinceMS == 0 || f.Names[0] != tenant+"/a" {
				t.Errorf("%s found %s, %+v; want %s", when, got, f, want[i])
			}
		}
	}
	jobs := &fake{submit: coded(freeslot.CodePermissionDenied), job: coded(freeslot.CodeNotFound)}
	r := g.runner("r1", jobs)
	g.put("a", change("@every 1h"))
	says("before a run")
	g.overdue("a", time.Second)
	g.handle(r, "a")
	const failing = "schedules.failing: 1 schedule could not make the last run; longest a of tenant acme: "
	says("after a refused run", failing+coded(freeslot.CodePermissionDenied).Error())
	jobs.submit = nil
	g.overdue("a", time.Second)
	g.handle(r, "a")
	says("after a run that was made")

	g.overdue("a", 3*time.Hour)
	g.handle(r, "a")
	const missed = "schedules.missed: 1 schedule left out runs within the last 24h; first a of tenant acme: 3 runs in all"
	says("after three hours without a replica", missed)
	g.overdue("a", time.Second)
	g.handle(r, "a")
	says("after the next run", missed)
	if found, err := findings(g.Service, 0).Look(t.Context()); len(found) != 0 || err != nil {
		t.Errorf("without a time found %+v, %v; want nothing", found, err)
	}
	g.edit("a", func(st *state, _ int64) { st.Paused = true })
	says("while it is paused")
	g.edit("a", func(st *state, _ int64) { st.Paused, st.LastMissedMS = false, st.LastMissedMS-window.Milliseconds() })
	says("a day later")
}
