package manage

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/finding"
	"github.com/freeslot/freeslot/internal/namelist"
	"github.com/freeslot/freeslot/internal/namelist/version"
	"github.com/freeslot/freeslot/internal/testing/redistest"
)

// observed is a replica instead of the rig's, which is started by hand, and what it logs.
func (r *rig) observed() *observer.ObservedLogs {
	r.t.Helper()
	r.check(r.Stop(r.ctx))
	core, logs := observer.New(zapcore.WarnLevel)
	m := New(Config{Self: "r2", Dir: r.t.TempDir(), Pause: 20 * time.Millisecond, Server: r.server}, r.control, zap.New(core))
	r.t.Cleanup(func() { r.check(m.Stop(context.Background())) })
	r.Manager = m
	return logs
}

// edited has a list serve a version with so many edits that it is due for compaction.
func (r *rig) edited(list string) {
	r.t.Helper()
	_, err := r.control.Create(r.ctx, list, namelist.Spec{})
	r.check(err)
	r.upload(Upload{List: list, Format: version.TXT, Switch: true, By: by}, lines(0, 100))
	r.serves(list, 1)
	for i := range namelist.CompactFrom / namelist.EditEntries {
		changes := make([]namelist.Change, namelist.EditEntries)
		for j := range changes {
			changes[j].ID = fmt.Sprint(i, "-", j)
		}
		if i == 0 { // so that nothing begins before the test does
			_, err := r.control.Damage(r.ctx, list, 1, "a test")
			r.check(err)
		}
		_, err := r.control.Edit(r.ctx, list, namelist.EditRequest{Changes: changes, By: by})
		r.check(err)
	}
}

// A compaction that cannot be is told once a pause, with the reason.
func TestLateCompaction(t *testing.T) {
	t.Parallel()
	r := newRig(t, redistest.Shared(t))
	r.edited("vip")
	logs := r.observed()
	tend := func(damaged bool, reason string) {
		t.Helper()
		for range 3 {
			h := r.head("vip")
			if !damaged {
				h.Serving.Damaged = ""
			}
			r.check(r.tend(&h))
		}
		var told []observer.LoggedEntry
		for _, e := range logs.TakeAll() {
			if e.Message == "lists.compaction_late" {
				told = append(told, e)
			}
		}
		if len(told) != 1 || !strings.Contains(fmt.Sprint(told[0].ContextMap()["error"]), reason) {
			t.Errorf("told %v, want once %q", told, reason)
		}
	}
	again := func() { // the pause is over
		c := r.compactions["vip"]
		c.next = time.Time{}
		r.compactions["vip"] = c
	}
	tend(true, "damaged: a test")
	again()
	tend(true, "damaged: a test")
	op, err := r.OpenSession(r.ctx, "vip", by)
	r.check(err)
	again()
	tend(false, "(edit) of r2")
	_, err = r.control.Cancel(r.ctx, "vip", op.ID)
	r.check(err)
	for range maxBuilds {
		r.slots <- struct{}{}
	}
	again()
	tend(false, "makes 4 versions")
}

// The versions that serve are read once a day, by one replica, and damage is told and found, until
// the list was imported anew.
func TestDailyVerify(t *testing.T) {
	t.Parallel()
	r := newRig(t, redistest.Shared(t))
	_, err := r.control.Create(r.ctx, "vip", namelist.Spec{})
	r.check(err)
	r.upload(Upload{List: "vip", Format: version.TXT, Switch: true, By: by}, lines(0, 1000))
	r.serves("vip", 1)
	revision := r.head("vip").Revision
	logs := r.observed()
	for _, every := range []time.Duration{0, time.Hour} {
		if mine, err := r.control.BeginVerify(r.ctx, "vip", 1, every); mine != (every == 0) || err != nil {
			t.Errorf("begin to verify: %v, %v", mine, err)
		}
	}
	if err := r.damage(r.ctx, "vip", 9, &version.DamageError{Why: "it was dropped"}); freeslot.CodeOf(err) != freeslot.CodeNotFound || logs.Len() > 0 {
		t.Errorf("damage of a version that has gone: %v, told %v", err, logs.All())
	}
	r.verifyEvery = time.Millisecond
	r.check(r.Start(r.ctx))
	before := r.head("vip").Serving.VerifiedMS
	r.until("the version was verified", func() bool { return r.head("vip").Serving.VerifiedMS > before })
	if h := r.head("vip"); h.Revision != revision || h.Serving.Damaged != "" {
		t.Errorf("verifying has changed the list: %+v", h)
	}
	client := r.redis.Client(t)
	r.check(client.Do(r.ctx, client.B().Del().Key(r.dataKeys()[0]).Build()).Error())
	r.until("the damage is marked", func() bool { return r.head("vip").Serving.Damaged != "" })
	r.until("the damage is told", func() bool {
		return logs.FilterMessage("lists.version_damaged").FilterLevelExact(zapcore.ErrorLevel).Len() == 1
	})
	var found []finding.Finding
	look := func() int {
		found, err = r.Damaged().Look(r.ctx)
		r.check(err)
		return len(found)
	}
	r.until("the damage is found", func() bool { return look() == 1 })
	since := r.head("vip").Serving.DamagedMS
	if f := found[0]; f.ID != "lists.damaged" || f.Severity != finding.Critical || !slices.Equal(f.Names, []string{"vip"}) ||
		f.SinceMS != since || since == 0 || !strings.HasPrefix(f.Text, "1 list serves a damaged version") {
		t.Errorf("found %+v; want lists.damaged of vip since %d", f, since)
	}
	r.upload(Upload{List: "vip", Format: version.TXT, Switch: true, By: by}, lines(0, 1000))
	r.serves("vip", 2)
	r.until("the finding to go", func() bool { return look() == 0 })
}
