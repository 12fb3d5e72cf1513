package cell

import (
	"slices"
	"testing"

	"github.com/freeslot/freeslot"
)

// TestJobsByKey: a job is found by its key while it waits, after it has moved to another cell, and
// after it has ended, until it is dropped. A key that names a job in each of two cells finds both.
func TestJobsByKey(t *testing.T) {
	onMovers(t, func(t *testing.T, m *movers) {
		find := func(f JobFilter, key string) (found []freeslot.JobStatus) {
			t.Helper()
			page, err := m.JobsByKey(m.ctx(), f, key)
			if err != nil {
				t.Errorf("key %s: %v; want no error", key, err)
			}
			return page.Jobs
		}
		ours := JobFilter{Tenant: "acme"}
		expect := func(id string, state freeslot.State) {
			t.Helper()
			if got := find(ours, "k"); len(got) != 1 || got[0].ID != id || got[0].State != state || got[0].Result != nil {
				t.Errorf("by its key: %+v; want job %s, %s, without a result", got, id, state)
			}
		}
		keyed := func(s *Submission) { s.Job.IdempotencyKey = "k" }
		id := m.waitsIn(0, "", keyed)
		expect(id, freeslot.StateWaiting)
		for what, got := range map[string][]freeslot.JobStatus{
			"another key": find(ours, "other"), "another tenant": find(JobFilter{Tenant: "other"}, "k"),
			"another state": find(JobFilter{Tenant: "acme", State: freeslot.StateRunning}, "k"),
			"those ended":   find(JobFilter{Tenant: "acme", ToMS: 1 << 50}, "k"),
		} {
			if len(got) != 0 {
				t.Errorf("%s finds %+v; want nothing", what, got)
			}
		}
		m.arrives(0, 1, 1)
		expect(id, freeslot.StateWaiting)
		m.runsIn(1, id)
		expect(id, freeslot.StateSucceeded)

		second := m.waitsIn(2, "", keyed)
		got := find(ours, "k")
		if len(got) != 2 || !slices.ContainsFunc(got, func(s freeslot.JobStatus) bool { return s.ID == second }) {
			t.Errorf("with a second job in another cell: %+v; want jobs %s and %s", got, id, second)
		}
		if _, err := m.CancelIf(m.ctx(), "acme", second, Seen{}); err != nil {
			t.Fatal(err)
		}
		if _, err := m.Drop(m.ctx(), "acme", second); err != nil {
			t.Fatal(err)
		}
		expect(id, freeslot.StateSucceeded)
		m.rigs[1].do("DEL", m.rigs[1].l.Job(MovedID(id, 1))) // as at the end of its retention
		if got := find(ours, "k"); len(got) != 0 {
			t.Errorf("after its record is gone: %+v; want nothing", got)
		}
	})
}
