package manage

import (
	"strings"
	"testing"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/namelist"
	"github.com/freeslot/freeslot/internal/namelist/version"
	"github.com/freeslot/freeslot/internal/testing/redistest"
)

// What a cancelled build wrote is removed by its names, without a look through all keys.
func TestCancelledBuild(t *testing.T) {
	t.Parallel()
	pace, writing, goOn := held()
	r := newRig(t, redistest.New(t).Target, func(r *rig) { r.put(namelist.Server{Name: "slow"}, version.SegmentsConfig{Pace: pace}) })
	_, err := r.control.Create(r.ctx, "vip", namelist.Spec{Server: "slow"})
	r.check(err)
	u := r.begin(r.Manager, Upload{List: "vip", Format: version.TXT, By: by}, lines(0, 1000))
	<-writing
	if len(r.dataKeys()) == 0 {
		t.Fatal("nothing was written")
	}
	_, err = r.control.Cancel(r.ctx, "vip", u.Op.ID)
	r.check(err)
	close(goOn)
	if u = r.ended(u.ID); u.Why != "the operation was cancelled; import the file anew" {
		t.Errorf("the upload failed: %q", u.Why)
	}
	r.until("no segment and no block is left", func() bool { return len(r.dataKeys()) == 0 })
	stats, err := r.redis.Client(t).Do(r.ctx, r.redis.Client(t).B().Info().Section("commandstats").Build()).ToString()
	r.check(err)
	if strings.Contains(stats, "cmdstat_scan:") {
		t.Error("all keys of the server were looked through")
	}
}

// A list on a server that is not configured any more says so, and goes when that is asked for.
func TestDeleteWithoutServer(t *testing.T) {
	t.Parallel()
	r := newRig(t, redistest.Shared(t))
	_, err := r.control.Create(r.ctx, "vip", namelist.Spec{Server: "second"})
	r.check(err)
	r.upload(Upload{List: "vip", Format: version.TXT, Switch: true, By: by}, lines(0, 1000))
	r.serves("vip", 1)
	r.check(r.Stop(r.ctx))
	delete(r.servers, "second")
	logs := r.observed()
	_, left, err := r.Delete(r.ctx, "vip", false, by)
	if err != nil || len(left) > 0 {
		t.Fatalf("delete: %v, %v", left, err)
	}
	_, _, err = r.Delete(r.ctx, "vip", false, by)
	if freeslot.CodeOf(err) != freeslot.CodeConflict || !strings.Contains(err.Error(), "second") {
		t.Errorf("delete again: %v", err)
	}
	if h := r.head("vip"); h.State != namelist.Deleting {
		t.Errorf("the list is %s", h.State)
	}
	for range 3 {
		r.tendAll()
	}
	if n := logs.FilterMessage("lists.not_tended").Len(); n != 1 {
		t.Errorf("told %d times", n)
	}
	_, left, err = r.Delete(r.ctx, "vip", true, by)
	if r.check(err); len(left) != 1 || !strings.Contains(left[0], "second") {
		t.Errorf("what stays: %q", left)
	}
	if _, err := r.control.Head(r.ctx, "vip"); freeslot.CodeOf(err) != freeslot.CodeNotFound {
		t.Errorf("the list is still there: %v", err)
	}
	r.check(r.Start(r.ctx))
	// Made again it goes on behind the number of before.
	_, err = r.control.Create(r.ctx, "vip", namelist.Spec{})
	r.check(err)
	if u := r.upload(Upload{List: "vip", Format: version.TXT, By: by}, lines(0, 10)); u.Version == nil || u.Version.Number != 2 {
		t.Errorf("upload: %+v", u)
	}
}
