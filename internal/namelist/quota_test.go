package namelist

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/freeslot/freeslot"
)

// TestQuota: edits, sessions and switches are added up for a day, whoever makes them at the same
// time. An approved change begins anew.
func TestQuota(t *testing.T) {
	onBoth(t, func(t *testing.T, r *rig) {
		ctx, most := bounded(t), &Quota{Most: 10}
		r.active("vip")
		ok[int64](t)(r.Edit(ctx, "vip", EditRequest{Changes: add("free")})) // nothing counts it
		var passed, refused atomic.Int64
		var racers sync.WaitGroup
		for i := range 12 {
			racers.Go(func() {
				_, err := r.Edit(ctx, "vip", EditRequest{Changes: add(fmt.Sprint("n", i)), Quota: most})
				switch _, over := errors.AsType[*QuotaError](err); {
				case over:
					refused.Add(1)
				case err == nil:
					passed.Add(1)
				}
			})
		}
		racers.Wait()
		if passed.Load() != 10 || refused.Load() != 2 {
			t.Errorf("of 12 edits of an id each, %d passed and %d were over; want 10 and 2", passed.Load(), refused.Load())
		}
		again := EditRequest{ID: "once", Changes: add("urgent"), Quota: &Quota{Most: -1}, Urgent: true, By: ada}
		ok[int64](t)(r.Edit(ctx, "vip", again))
		ok[int64](t)(r.Edit(ctx, "vip", again)) // a repetition counts once
		r.wantUnapproved("vip", 11)

		build := r.build("vip", OpImport)
		begin := Begin{Kind: OpSwitch, Number: build, Holder: "r1", Serving: AnyVersion, Quota: &Quota{IDs: 1, Most: 11}}
		_, err := r.Begin(ctx, "vip", begin)
		is(t, "a switch beyond what is left", err, freeslot.CodeConflict)
		begin.Quota.Most = 12
		ok[Head](t)(r.Switch(ctx, "vip", ok[Operation](t)(r.Begin(ctx, "vip", begin)), AnyVersion))
		session := r.begin("vip", OpEdit, 0)
		_, _, err = r.Stage(ctx, "vip", session.ID, add("s1", "s2"))
		is(t, "a stage", err, "")
		_, err = r.Commit(ctx, "vip", session.ID, &Quota{Most: 13}, ada)
		is(t, "a session beyond what is left", err, freeslot.CodeConflict)
		ok[int64](t)(r.Commit(ctx, "vip", session.ID, &Quota{Most: 14}, ada))
		r.wantUnapproved("vip", 14)

		// A day later, to the hour, they no longer count.
		older := func(hours int64) {
			fields := strings.Fields(r.hash(r.k.record("vip"))["unapproved"])
			for i, one := range fields {
				at, n, _ := strings.Cut(one, ":")
				hour := ok[int64](t)(strconv.ParseInt(at, 10, 64))
				fields[i] = number(hour-hours) + ":" + n
			}
			r.do("HSET", r.k.record("vip"), "unapproved", strings.Join(fields, " "))
		}
		older(23)
		_, err = r.Edit(ctx, "vip", EditRequest{Changes: add("x"), Quota: &Quota{Most: 14}})
		is(t, "an edit within the day", err, freeslot.CodeConflict)
		older(2)
		ok[int64](t)(r.Edit(ctx, "vip", EditRequest{Changes: add("x"), Quota: &Quota{Most: 14}}))
		r.wantUnapproved("vip", 1)

		h := ok[Head](t)(r.Head(ctx, "vip"))
		change := []byte("{}")
		mark := Mark{Revision: h.Revision, Birth: h.Birth}
		open := ok[ChangeRequest](t)(r.OpenRequest(ctx, ChangeRequest{
			Kind: EditList, Target: "vip", Tenant: "shop", Author: "olga", State: RequestPending, Mark: mark, Change: change,
		}))
		approved, err := Deciding(ctx, &Decision{ID: open.ID, By: "ada", Digest: DigestOf(EditList, "vip", change, mark)})
		is(t, "a decision", err, "")
		ok[int64](t)(r.Edit(approved, "vip", EditRequest{Changes: add("y", "z"), Quota: &Quota{Most: 1}}))
		r.wantUnapproved("vip", 0)
	})
}

func (r *rig) wantUnapproved(list string, want int64) {
	r.t.Helper()
	h := ok[Head](r.t)(r.Head(bounded(r.t), list))
	if got := h.Unapproved(); got != want {
		r.t.Errorf("%d ids changed without approval (%q); want %d", got, h.unapproved, want)
	}
}
