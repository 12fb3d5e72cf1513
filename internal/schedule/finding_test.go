package schedule

import (
	"strings"
	"testing"

	"github.com/freeslot/freeslot/internal/testing/redistest"
)

// TestFindings: schedules whose last run could not be made are one finding, since the first of
// them; paused ones are none.
func TestFindings(t *testing.T) {
	t.Parallel()
	g := newRig(t, redistest.Shared(t), 1)
	source := findings(g.Service)
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
