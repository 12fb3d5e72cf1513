package cell

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/testing/redistest"
)

// TestDeadLetters: dead jobs are counted by what they have in common, the largest groups first.
func TestDeadLetters(t *testing.T) {
	t.Parallel()
	r := newRig(t, redistest.New(t).Target)
	ids := make([]string, 5)
	for i, s := range []freeslot.JobStatus{
		{Tenant: "acme", Service: "tts", Node: "n1", Error: &freeslot.JobError{Code: "boom"}},
		{Tenant: "acme", Service: "tts", Node: "n2", Error: &freeslot.JobError{Code: "boom"}},
		{Tenant: "other", Service: "tts", Node: "n1", Error: &freeslot.JobError{Code: "node_lost"}},
		{Tenant: "acme", Service: "echo", Node: "n1", Error: &freeslot.JobError{Code: "boom"}},
		{Tenant: "acme", Service: "echo", Node: "n1", Error: &freeslot.JobError{Code: "old"}},
	} {
		s.ID, s.State, s.Class, s.FinishedAtMS = NewJobID(0), freeslot.StateDead, echo, int64(100-i)
		ids[i] = s.ID
		r.endedRecord(s)
	}
	r.endedRecord(freeslot.JobStatus{ID: NewJobID(0), State: freeslot.StateFailed, Tenant: "acme", Service: "tts", Node: "n1", Class: echo, FinishedAtMS: 100, Error: &freeslot.JobError{Code: "boom"}})
	set := NewSet(r.Cell)
	got, err := set.DeadLetters(r.ctx(), JobFilter{FromMS: 97}, []DeadKey{DeadByService, DeadByCode})
	must(t, err)
	if got.LookedAt != 4 || got.Total != 4 || got.SinceMS == 0 {
		t.Errorf("%+v; want 4 jobs of 4 looked at, since the index began", got)
	}
	want := []DeadGroup{
		{Service: "tts", Code: "boom", Jobs: 2, LastMS: 100, LastJob: ids[0]},
		{Service: "tts", Code: "node_lost", Jobs: 1, LastMS: 98, LastJob: ids[2]},
		{Service: "echo", Code: "boom", Jobs: 1, LastMS: 97, LastJob: ids[3]},
	}
	if d := cmp.Diff(want, got.Groups); d != "" {
		t.Errorf("groups (-want +got):\n%s", d)
	}
	got, err = set.DeadLetters(r.ctx(), JobFilter{Tenant: "acme"}, []DeadKey{DeadByNode})
	must(t, err)
	want = []DeadGroup{{Node: "n1", Jobs: 3, LastMS: 100, LastJob: ids[0]}, {Node: "n2", Jobs: 1, LastMS: 99, LastJob: ids[1]}}
	if d := cmp.Diff(want, got.Groups); d != "" || got.LookedAt != 5 {
		t.Errorf("%d looked at, expected 5; groups (-want +got):\n%s", got.LookedAt, d)
	}
	part, err := r.deadLetters(r.ctx(), JobFilter{State: freeslot.StateDead}, 2, true)
	must(t, err)
	if part.looked != 2 || part.total != 5 || part.since != 99 || len(part.jobs) != 2 {
		t.Errorf("%+v; want the newest 2 of 5, since 99", part)
	}
	// A look at fewer still counts all.
	got, err = set.NewestDead(r.ctx(), JobFilter{}, []DeadKey{DeadByCode}, 2)
	must(t, err)
	if got.LookedAt != 2 || got.Total != 5 || len(got.Groups) != 1 || got.Groups[0].Jobs != 2 {
		t.Errorf("%+v; want one group of the newest 2, of 5", got)
	}
}
