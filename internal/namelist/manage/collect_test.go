package manage

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"slices"
	"testing"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/namelist"
	"github.com/freeslot/freeslot/internal/namelist/filter"
	"github.com/freeslot/freeslot/internal/namelist/form"
	"github.com/freeslot/freeslot/internal/namelist/version"
	"github.com/freeslot/freeslot/internal/testing/redistest"
)

// leave writes a version that no record names, as a replica does that is killed later. It returns
// how many keys that has.
func (r *rig) leave(server, list string, number int64) int64 {
	r.t.Helper()
	var random [16]byte
	_, _ = rand.Read(random[:])
	b := version.Builder{Dir: r.t.TempDir() + "/spool", To: r.servers[server]}
	id := hex.EncodeToString(random[:])
	got, err := b.Build(r.ctx, &version.Plan{List: list, Number: number, Build: id, Form: form.Exact, Filter: filter.Fuse, Edits: edits(2000)})
	r.check(err)
	return int64(got.Version.Segments) + 1
}

func edits(n int) map[string]namelist.Change {
	out := make(map[string]namelist.Change, n)
	for i := range n {
		id := hex.EncodeToString([]byte{byte(i >> 8), byte(i)})
		out[id] = namelist.Change{Entry: namelist.Entry{ID: id}}
	}
	return out
}

// collect goes through all pages.
func (r *rig) collect(q CollectRequest) (all Collected) {
	r.t.Helper()
	for {
		page, err := r.Collect(r.ctx, q)
		r.check(err)
		all.Looked += page.Looked
		all.Removed += page.Removed
		all.Foreign += page.Foreign
		all.Builds = append(all.Builds, page.Builds...)
		all.Failed = append(all.Failed, page.Failed...)
		if q.After = page.Next; page.Next == "" {
			return all
		}
	}
}

func found(c *Collected) (keys int64) {
	for _, b := range c.Builds {
		keys += b.Keys
	}
	return keys
}

// What no record names is removed: not what serves or is being written, and nothing of which the
// control server knows less than the list server.
func TestCollect(t *testing.T) {
	t.Parallel()
	redistest.Backends(t, func(t *testing.T, redis *redistest.Target) {
		t.Parallel()
		pace, writing, goOn := held()
		r := newRig(t, redis, func(r *rig) { r.put(namelist.Server{Name: "slow"}, version.SegmentsConfig{Pace: pace}) })
		for list, server := range map[string]string{"vip": "", "running": "slow", "gone": ""} {
			_, err := r.control.Create(r.ctx, list, namelist.Spec{Server: server})
			r.check(err)
			op, err := r.control.Begin(r.ctx, list, namelist.Begin{Kind: namelist.OpImport, Holder: "killed", Serving: 0, By: by})
			r.check(err)
			_, err = r.control.Cancel(r.ctx, list, op.ID)
			r.check(err)
		}
		r.upload(Upload{List: "vip", Format: version.TXT, Switch: true, By: by}, lines(0, 1000))
		r.serves("vip", 2)
		left := r.leave("", "vip", 1) + r.leave("second", "running", 1) + r.leave("second", "gone", 1)
		foreign := r.leave("", "vip", 99) + r.leave("", "never", 1)
		_, err := r.control.Delete(r.ctx, "gone", namelist.AnyVersion, false, by)
		r.check(err)
		r.until("the list is gone", func() bool { _, err := r.control.Head(r.ctx, "gone"); return err != nil })
		u := r.begin(r.Manager, Upload{List: "running", Format: version.TXT, By: by}, lines(0, 1000))
		<-writing

		all := int64(len(r.dataKeys()))
		dry := r.collect(CollectRequest{DryRun: true})
		if dry.Looked < all || found(&dry) != left || dry.Removed != 0 || dry.Foreign != foreign || int64(len(r.dataKeys())) != all {
			t.Errorf("a dry run found %+v; %d keys are left over, %d foreign", dry, left, foreign)
		}
		if one := r.collect(CollectRequest{Server: "second", DryRun: true}); found(&one) == 0 || slices.ContainsFunc(one.Builds, func(b LeftBuild) bool { return b.Server != "second" }) {
			t.Errorf("one server has %+v", one)
		}
		if did := r.collect(CollectRequest{}); did.Removed != left || len(did.Failed) > 0 {
			t.Errorf("removed %+v, expected %d", did, left)
		}
		if again := r.collect(CollectRequest{}); found(&again) != 0 || again.Foreign != foreign || int64(len(r.dataKeys())) != all-left {
			t.Errorf("after it: %+v, %d of %d keys", again, len(r.dataKeys()), all)
		}
		close(goOn)
		if u = r.ended(u.ID); u.State != Ready {
			t.Errorf("the build that ran is %s: %s", u.State, u.Why)
		}
		v, err := r.Verify(r.ctx, "vip", 2)
		if r.check(err); v.Damaged != "" {
			t.Errorf("the serving version is damaged: %s", v.Damaged)
		}
		for field, q := range map[string]CollectRequest{"server": {Server: "none"}, "after": {After: "none/"}} {
			_, err := r.Collect(r.ctx, q)
			if e, ok := errors.AsType[*freeslot.Error](err); !ok || e.Code != freeslot.CodeInvalidArgument || e.Field != field {
				t.Errorf("a bad %s: %v", field, err)
			}
		}
	})
}

// A list that has lost its versions, and not its record, keeps its keys.
func TestCollectLostVersions(t *testing.T) {
	t.Parallel()
	r := newRig(t, redistest.Shared(t))
	_, err := r.control.Create(r.ctx, "vip", namelist.Spec{})
	r.check(err)
	r.upload(Upload{List: "vip", Format: version.TXT, Switch: true, By: by}, lines(0, 1000))
	r.serves("vip", 1)
	client := r.redis.Client(t)
	keys, err := client.Do(r.ctx, client.B().Keys().Pattern(r.prefix+"*lists:versions:vip").Build()).AsStrSlice()
	r.check(err)
	if len(keys) != 1 {
		t.Fatalf("versions are in %q", keys)
	}
	r.check(client.Do(r.ctx, client.B().Del().Key(keys[0]).Build()).Error())
	all := int64(len(r.dataKeys()))
	if got := r.collect(CollectRequest{}); got.Removed != 0 || got.Foreign != all {
		t.Errorf("%+v; %d keys are of the list", got, all)
	}
}

// A collection beside builds never takes a key of a version that they make.
func TestCollectBesideBuilds(t *testing.T) {
	t.Parallel()
	r := newRig(t, redistest.Shared(t))
	_, err := r.control.Create(r.ctx, "vip", namelist.Spec{})
	r.check(err)
	ctx, stop := context.WithCancel(r.ctx)
	collected := make(chan error, 1)
	go func() {
		var q CollectRequest
		for ctx.Err() == nil {
			page, err := r.Collect(r.ctx, q)
			if err != nil {
				collected <- err
				return
			}
			q.After = page.Next
		}
		collected <- nil
	}()
	for n := range int64(10) {
		r.upload(Upload{List: "vip", Format: version.TXT, Switch: true, By: by}, lines(0, 2000))
		r.serves("vip", n+1)
	}
	stop()
	r.check(<-collected)
	v, err := r.Verify(r.ctx, "vip", 10)
	if r.check(err); v.Damaged != "" {
		t.Errorf("the serving version is damaged: %s", v.Damaged)
	}
}
