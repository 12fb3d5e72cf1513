package manage

import (
	"context"
	"slices"
	"testing"
	"time"

	"go.uber.org/zap/zaptest"

	"github.com/freeslot/freeslot/internal/namelist"
	"github.com/freeslot/freeslot/internal/namelist/version"
	"github.com/freeslot/freeslot/internal/testing/redistest"
)

// Old versions stay while a client serves them, for a day at most, and two stay in any case.
func TestOldVersions(t *testing.T) {
	t.Parallel()
	r := newRig(t, redistest.Shared(t))
	serve := func(list string, number int64) {
		t.Helper()
		r.upload(Upload{List: list, Format: version.TXT, Switch: true, By: by}, lines(0, 100))
		r.serves(list, number)
	}
	for _, list := range []string{"vip", "bad"} {
		_, err := r.control.Create(r.ctx, list, namelist.Spec{})
		r.check(err)
	}
	r.check(r.Stop(r.ctx)) // it drops versions by itself
	m := New(Config{Self: "r2", Dir: t.TempDir(), Pause: time.Hour, Server: r.server}, r.control, zaptest.NewLogger(t))
	r.check(m.Start(r.ctx))
	t.Cleanup(func() { r.check(m.Stop(context.Background())) })
	r.Manager = m
	left := func(list string, later time.Duration, want ...int64) {
		t.Helper()
		r.check(r.control.Report(r.ctx, "asleep", map[string]namelist.ClientReport{"vip": {Birth: "any", Serves: 1}}))
		h := r.head(list)
		h.At = h.At.Add(later)
		r.check(m.dropVersions(r.ctx, &h))
		versions, err := r.control.Versions(r.ctx, list)
		r.check(err)
		var got []int64
		for _, v := range versions {
			got = append(got, v.Number)
		}
		if !slices.Equal(got, want) {
			t.Errorf("after %s versions %d are left, want %d", later, got, want)
		}
	}
	for n := range int64(4) {
		serve("vip", n+1)
	}
	left("vip", time.Hour, 4, 3, 1)
	left("vip", 25*time.Hour, 4, 3)
	for n := range int64(3) {
		if serve("bad", n+1); n < 2 {
			_, err := r.control.Damage(r.ctx, "bad", n+1, "a test")
			r.check(err)
		}
	}
	left("bad", 25*time.Hour, 3, 2)
}

// A list whose compaction is due, and cannot be, still loses the versions that nobody needs.
func TestOldVersionsOfLateCompaction(t *testing.T) {
	t.Parallel()
	r := newRig(t, redistest.Shared(t))
	r.edited("vip") // version 1 is damaged
	r.observed()
	for range 3 {
		r.upload(Upload{List: "vip", Format: version.TXT, By: by}, lines(0, 100))
	}
	h := r.head("vip")
	r.check(r.tend(&h))
	versions, err := r.control.Versions(r.ctx, "vip")
	r.check(err)
	if len(versions) != 3 || versions[1].Number != 3 {
		t.Errorf("versions %+v are left, want 4, 3, 1", versions)
	}
}

// What waits to be accepted or switched to stays when a rebuild serves meanwhile, and so does the
// version that served before.
func TestWaitingVersionsStay(t *testing.T) {
	t.Parallel()
	r := newRig(t, redistest.Shared(t))
	_, err := r.control.Create(r.ctx, "vip", namelist.Spec{})
	r.check(err)
	r.observed()
	r.upload(Upload{List: "vip", Format: version.TXT, Switch: true, By: by}, lines(0, 100))
	r.serves("vip", 1)
	for range 2 {
		r.upload(Upload{List: "vip", Format: version.TXT, By: by}, lines(0, 100)+"bad\x01\n")
	}
	_, err = r.control.Accept(r.ctx, "vip", 3)
	r.check(err)
	_, err = r.Rebuild(r.ctx, "vip", namelist.OpExpand, "", by)
	r.check(err)
	r.serves("vip", 4)
	h := r.head("vip")
	r.check(r.tend(&h))
	versions, err := r.control.Versions(r.ctx, "vip")
	r.check(err)
	if len(versions) != 4 {
		t.Errorf("versions %+v are left, want 4, 3, 2, 1", versions)
	}
}

// TestVersionsOfDraft: of versions that wait to be accepted, the two newest stay, also before a
// version serves.
func TestVersionsOfDraft(t *testing.T) {
	t.Parallel()
	r := newRig(t, redistest.Shared(t))
	_, err := r.control.Create(r.ctx, "vip", namelist.Spec{})
	r.check(err)
	r.check(r.Stop(r.ctx)) // it drops versions by itself
	m := New(Config{Self: "r2", Dir: t.TempDir(), Pause: time.Hour, Server: r.server}, r.control, zaptest.NewLogger(t))
	r.check(m.Start(r.ctx))
	t.Cleanup(func() { r.check(m.Stop(context.Background())) })
	r.Manager = m
	for range 4 {
		r.upload(Upload{List: "vip", Format: version.TXT, By: by}, lines(0, 100))
	}
	h := r.head("vip")
	r.check(m.dropVersions(r.ctx, &h))
	versions, err := r.control.Versions(r.ctx, "vip")
	r.check(err)
	if len(versions) != 2 || versions[0].Number != 4 || versions[1].Number != 3 {
		t.Errorf("versions %+v are left; want 4 and 3", versions)
	}
}
