package namelist

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/zap/zaptest"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/namelist/form"
	"github.com/freeslot/freeslot/internal/script"
	"github.com/freeslot/freeslot/internal/testing/redistest"
)

// log are all edits of a list, by pages.
func (r *rig) log(list string, after int64) (out []Edit) {
	r.t.Helper()
	for {
		d := ok[Delta](r.t)(r.Delta(bounded(r.t), list, after, false))
		out = append(out, d.Edits...)
		if !d.More {
			return out
		}
		after = out[len(out)-1].Revision
	}
}

// TestEdit: an edit is there once, as a whole, at one revision.
func TestEdit(t *testing.T) {
	onBoth(t, func(t *testing.T, r *rig) {
		ctx := bounded(t)
		_, err := r.Edit(ctx, "vip", EditRequest{Changes: add("a")})
		is(t, "an edit of no list", err, freeslot.CodeNotFound)
		r.create("vip")
		_, err = r.Edit(ctx, "vip", EditRequest{Changes: add("a")})
		is(t, "an edit of a draft", err, freeslot.CodeConflict)
		r.serve("vip", r.build("vip", OpImport))
		first := []Change{{Entry: Entry{ID: "ä\"\\", ExpiresMS: 5}}, {Entry: Entry{ID: "b"}, Remove: true}}
		revision := ok[int64](t)(r.Edit(ctx, "vip", EditRequest{ID: "once", Changes: first, By: ada}))
		r.edit("vip", add("c")...)
		r.unchanged("vip", "a repeated edit", func() {
			if again := ok[int64](t)(r.Edit(ctx, "vip", EditRequest{ID: "once", Changes: first, By: ada})); again != revision {
				t.Errorf("revision %d, and %d", revision, again)
			}
		})
		want := []Edit{{revision, first}, {revision + 1, add("c")}}
		if diff := cmp.Diff(want, r.log("vip", 0)); diff != "" {
			t.Error(diff)
		}
		if diff := cmp.Diff(want[1:], r.log("vip", revision)); diff != "" {
			t.Error(diff)
		}
		r.begin("vip", OpImport, 0)
		_, err = r.Edit(ctx, "vip", EditRequest{Changes: add("d")})
		is(t, "an edit while an import runs", err, freeslot.CodeConflict)
		ok[int64](t)(r.Edit(ctx, "vip", EditRequest{Changes: add("d"), Urgent: true, By: ada}))
		_, err = r.edit0(&editCall{list: "vip", birth: "other", states: []string{"importing"}, limit: 9, n: 1, entries: "[]"})
		is(t, "an edit of another life", err, freeslot.CodeConflict)
	})
}

func (r *rig) edit0(e *editCall) (int64, error) {
	r.t.Helper()
	return r.Control.edit(bounded(r.t), e)
}

// TestEditForm: ids are kept in the list's form.
func TestEditForm(t *testing.T) {
	onBoth(t, func(t *testing.T, r *rig) {
		ok[Head](t)(r.Create(bounded(t), "vip", Spec{Form: form.Lower}))
		r.serve("vip", r.build("vip", OpImport))
		r.edit("vip", add(" Ada ")...)
		if got := r.log("vip", 0)[0].Changes[0].ID; got != "ada" {
			t.Errorf(`%q; want got == "ada"`, got)
		}
		_, err := r.Edit(bounded(t), "vip", EditRequest{Changes: add("eve", "EVE")})
		is(t, "an id twice", err, freeslot.CodeInvalidArgument)
	})
}

// TestEditLimits: ordinary edits stop before urgent ones, and the log drops the oldest.
func TestEditLimits(t *testing.T) {
	onBoth(t, func(t *testing.T, r *rig) {
		ctx := bounded(t)
		r.limits = limits{edits: 10, urgent: 12, log: 20}
		r.active("vip")
		r.edit("vip", many(7)...)
		_, err := r.Edit(ctx, "vip", EditRequest{Changes: many(4)})
		is(t, "entries too many", err, freeslot.CodeOverloaded)
		if !strings.Contains(
			err.Error(), "an edit of 4 entries is refused: list vip has 7 since its version was built, of at most 10",
		) {
			t.Error(err)
		}
		urgent := EditRequest{Changes: many(5), Urgent: true, By: ada}
		ok[int64](t)(r.Edit(ctx, "vip", urgent))
		_, err = r.Edit(ctx, "vip", urgent)
		is(t, "urgent entries too many", err, freeslot.CodeOverloaded)
		op := r.begin("vip", OpCompact, 0)
		ok[Head](t)(r.Done(ctx, "vip", op, Version{Number: op.Number}))
		h := r.serve("vip", op.Number)
		if h.Floor != 0 || h.Edited != 12 || h.Serving.Edited != 12 {
			t.Errorf("%+v; want h.Floor == 0, h.Edited == 12, h.Serving.Edited == 12", h)
		}
		var last int64
		for range 9 {
			last = r.edit("vip", add("x")...)
		}
		h = ok[Head](t)(r.Head(ctx, "vip"))
		log := r.log("vip", 0)
		if n := len(log); n != 10 || log[0].Revision <= h.Floor || log[9].Revision != last || h.Serving.Base < h.Floor {
			t.Errorf("%d edits from %+v, %+v", n, log[0], h)
		}
		_, err = r.Begin(ctx, "vip", Begin{Kind: OpSwitch, Number: 1, Holder: "r1", Serving: AnyVersion})
		is(t, "a version whose edits were trimmed", err, freeslot.CodeConflict)
		if !strings.Contains(err.Error(), "the log does not have all edits") {
			t.Error(err)
		}
	})
}

// TestSession: what is staged becomes one edit, or nothing.
func TestSession(t *testing.T) {
	onBoth(t, func(t *testing.T, r *rig) {
		ctx := bounded(t)
		r.active("vip")
		op := r.begin("vip", OpEdit, 0)
		if op.Number != 0 || op.Lease.Sub(op.Since) != SessionLease {
			t.Errorf("%+v; want op.Number == 0, op.Lease.Sub(op.Since) == SessionLease", op)
		}
		stage := func(changes ...Change) int64 {
			t.Helper()
			n, lease, err := r.Stage(ctx, "vip", op.ID, changes)
			if err != nil || time.Until(lease) < SessionLease-time.Minute {
				t.Fatal(n, lease, err)
			}
			return n
		}
		stage(add("a", "b")...)
		r.pass("vip", SessionLease-time.Minute)
		if n := stage(remove("b", "c")...); n != 3 {
			t.Errorf("%d are staged", n)
		}
		r.pass("vip", 2*time.Minute)
		if n := stage(); n != 3 {
			t.Errorf("%d are staged", n)
		}
		sorted := func(changes []Change) []Change {
			slices.SortFunc(changes, func(a, b Change) int { return strings.Compare(a.ID, b.ID) })
			return changes
		}
		want := append(add("a"), remove("b", "c")...)
		if diff := cmp.Diff(want, sorted(ok[[]Change](t)(r.Staged(ctx, "vip")))); diff != "" {
			t.Error(diff)
		}
		before := ok[Head](t)(r.Head(ctx, "vip"))
		r.unchanged("vip", "a commit of more than were counted", func() {
			_, err := r.Commit(ctx, "vip", op.ID, &Quota{Most: 2}, ada)
			is(t, "a commit of three entries, of which two were counted", err, freeslot.CodeConflict)
		})
		revision := ok[int64](t)(r.Commit(ctx, "vip", op.ID, &Quota{Most: 3}, ada))
		r.unchanged("vip", "a repeated commit", func() {
			if again := ok[int64](t)(r.Commit(ctx, "vip", op.ID, nil, ada)); again != revision || revision != before.Revision+1 {
				t.Errorf("revision %d, and %d", revision, again)
			}
		})
		log := r.log("vip", 0)
		if h := ok[Head](t)(r.Head(ctx, "vip")); h.State != Active || h.Op.ID != "" || h.Edited != 3 || len(log) != 1 {
			t.Errorf(`%+v, %+v; want h.State == Active, h.Op.ID == "", h.Edited == 3, len(log) == 1`, h, log)
		}
		if diff := cmp.Diff(want, sorted(log[0].Changes)); diff != "" {
			t.Error(diff)
		}
		r.unchanged("vip", "a session that is over", func() {
			_, _, err := r.Stage(ctx, "vip", op.ID, add("z"))
			is(t, "stage", err, freeslot.CodeConflict)
			_, err = r.Commit(ctx, "vip", "other", nil, ada)
			is(t, "commit", err, freeslot.CodeConflict)
		})

		op = r.begin("vip", OpEdit, 0)
		stage(add("d")...)
		ok[Head](t)(r.Cancel(ctx, "vip", op.ID))
		if got := ok[[]Change](t)(r.Staged(ctx, "vip")); len(got) > 0 {
			t.Errorf("%+v; want len(got) <= 0", got)
		}

		op = r.begin("vip", OpEdit, 0)
		r.pass("vip", SessionLease)
		_, _, err := r.Stage(ctx, "vip", op.ID, add("d"))
		is(t, "stage in a lapsed session", err, freeslot.CodeConflict)
		_, err = r.Commit(ctx, "vip", op.ID, nil, ada)
		is(t, "commit of a lapsed session", err, freeslot.CodeConflict)
		_, _, err = r.Stage(ctx, "none", op.ID, add("d"))
		is(t, "stage in no list", err, freeslot.CodeNotFound)
	})
}

// TestSessionLimit: a session has at most as many entries as a list has edits.
func TestSessionLimit(t *testing.T) {
	onBoth(t, func(t *testing.T, r *rig) {
		ctx := bounded(t)
		r.limits.edits = 5
		r.create("vip")
		op := r.begin("vip", OpEdit, 0)
		if n, _, err := r.Stage(ctx, "vip", op.ID, many(5)); err != nil || n != 5 {
			t.Fatal(n, err)
		}
		_, _, err := r.Stage(ctx, "vip", op.ID, append(many(4), add("x")...))
		is(t, "an entry too many", err, freeslot.CodeOverloaded)
		ok[int64](t)(r.Commit(ctx, "vip", op.ID, nil, ada))
		op = r.begin("vip", OpEdit, 0)
		if n, _, err := r.Stage(ctx, "vip", op.ID, many(1)); err != nil || n != 1 {
			t.Fatal(n, err)
		}
		_, err = r.Commit(ctx, "vip", op.ID, nil, ada)
		is(t, "a commit of too many", err, freeslot.CodeOverloaded)
		if h := ok[Head](t)(r.Cancel(ctx, "vip", op.ID)); h.State != Draft || h.Edited != 5 {
			t.Errorf("%+v; want h.State == Draft, h.Edited == 5", h)
		}
	})
}

// TestEditRacers: of the edits of many callers none is lost, and each has its own revision.
func TestEditRacers(t *testing.T) {
	onBoth(t, func(t *testing.T, r *rig) {
		ctx := bounded(t)
		h := r.active("vip")
		errs := make(chan error, 20)
		for i := range cap(errs) {
			go func() {
				var err error
				for j := 0; j < 10 && err == nil; j++ {
					id := fmt.Sprint(i, "-", j)
					var one, again int64
					one, err = r.Edit(ctx, "vip", EditRequest{ID: id, Changes: add(id)})
					if err == nil && j%3 == 0 {
						if again, err = r.Edit(ctx, "vip", EditRequest{ID: id, Changes: add(id)}); again != one && err == nil {
							err = fmt.Errorf("edit %s is at %d and at %d", id, one, again)
						}
					}
				}
				errs <- err
			}()
		}
		for range cap(errs) {
			if err := receive(t, errs); err != nil {
				t.Error(err)
			}
		}
		seen := make(map[string]bool)
		for i, e := range r.log("vip", 0) {
			if e.Revision != h.Revision+int64(i)+1 || seen[e.Changes[0].ID] {
				t.Fatalf("%+v is at place %d", e, i)
			}
			seen[e.Changes[0].ID] = true
		}
		if len(seen) != 200 {
			t.Errorf("%d edits", len(seen))
		}
	})
}

// TestDelta: pages end between edits, and have all of them.
func TestDelta(t *testing.T) {
	onBoth(t, func(t *testing.T, r *rig) {
		ctx := bounded(t)
		d := ok[Delta](t)(r.Delta(ctx, "vip", 0, true))
		if d.Head.Birth != "" || d.Head.Revision != 0 || d.Head.At.IsZero() || len(strings.Fields(d.History)) != 2 {
			t.Errorf(
				`%+v; want d.Head.Birth == "", d.Head.Revision == 0, not d.Head.At.IsZero(), len(strings.Fields(d.History)) == 2`,
				d,
			)
		}
		h := r.active("vip")
		want := []int{1000, 1000, 1000, 1000, 999, 1000, 3}
		for _, n := range want {
			r.edit("vip", many(n)...)
		}
		for range 50 {
			r.edit("vip", add("x")...)
			want = append(want, 1)
		}
		d = ok[Delta](t)(r.Delta(ctx, "vip", h.Revision, false))
		if len(d.Edits) != 6 || !d.More || d.Head.Revision != h.Revision+57 || d.History != "" {
			t.Errorf("%d edits, %+v", len(d.Edits), d.Head)
		}
		for i, e := range r.log("vip", 0) {
			if len(e.Changes) != want[i] || e.Revision != h.Revision+int64(i)+1 {
				t.Errorf("edit %d has %d entries at %d", i, len(e.Changes), e.Revision)
			}
		}
	})
}

// TestEvents: each revision is one event. A reader that follows them, and reads the delta where
// they say so, knows what Redis has.
func TestEvents(t *testing.T) {
	onBoth(t, func(t *testing.T, r *rig) {
		ctx := bounded(t)
		events := r.hear("vip")
		r.active("vip")
		r.edit("vip", add("a")...)
		op := r.begin("vip", OpEdit, 0)
		ok[int64](t)(r.Edit(ctx, "vip", EditRequest{Changes: add("u"), Urgent: true, By: ada}))
		for part := range slices.Chunk(many(1500), 1000) {
			if _, _, err := r.Stage(ctx, "vip", op.ID, part); err != nil {
				t.Fatal(err)
			}
		}
		ok[int64](t)(r.Commit(ctx, "vip", op.ID, nil, ada))
		op = r.begin("vip", OpEdit, 0)
		if _, _, err := r.Stage(ctx, "vip", op.ID, remove("a")); err != nil {
			t.Fatal(err)
		}
		ok[int64](t)(r.Commit(ctx, "vip", op.ID, nil, ada))
		op = r.begin("vip", OpImport, 0)
		ok[Operation](t)(r.Renew(ctx, "vip", op)) // no event
		ok[Head](t)(r.Done(ctx, "vip", op, Version{Number: op.Number}))
		op = r.begin("vip", OpSwitch, op.Number)
		ok[Head](t)(r.Prepare(ctx, "vip", op))
		ok[Head](t)(r.Switch(ctx, "vip", op, 1))
		ok[Head](t)(r.Freeze(ctx, "vip", ada))
		_, err := r.Edit(ctx, "vip", EditRequest{Changes: add("u"), Urgent: true, By: ada})
		is(t, "an edit of a frozen list", err, freeslot.CodeConflict)
		if !strings.Contains(err.Error(), "list vip is frozen, ada: test, since 20") {
			t.Error(err)
		}
		ok[Head](t)(r.Unfreeze(ctx, "vip"))
		ok[Head](t)(r.Delete(ctx, "vip", 2, false, ada))
		final := ok[Head](t)(r.Head(ctx, "vip"))
		log := r.log("vip", 0)
		if err := r.FinishDelete(ctx, "vip"); err != nil {
			t.Fatal(err)
		}
		var head Head
		var edits []Edit
		for revision := int64(1); revision <= final.Revision; revision++ {
			e := receive(t, events)
			if e.Revision != revision || e.Birth != final.Birth || e.At.IsZero() {
				t.Fatalf("event %d is %+v", revision, e)
			}
			if e.Head != nil {
				head = *e.Head
			}
			switch {
			case len(e.Changes) > 0:
				edits = append(edits, Edit{revision, e.Changes})
			case e.Head == nil:
				i := slices.IndexFunc(log, func(e Edit) bool { return e.Revision == revision })
				edits = append(edits, log[i])
			}
		}
		options := cmp.FilterPath(func(p cmp.Path) bool { return p.String() == "At" || p.String() == "raw" }, cmp.Ignore())
		if diff := cmp.Diff(final, head, options, cmp.AllowUnexported(Head{})); diff != "" {
			t.Error(diff)
		}
		if diff := cmp.Diff(log, edits); diff != "" {
			t.Error(diff)
		}
		if e := receive(t, events); e.Head == nil || e.Head.State != Deleted || len(events) > 0 {
			t.Errorf("%+v; want e.Head != nil, e.Head.State == Deleted, len(events) <= 0", e)
		}
	})
}

func TestLook(t *testing.T) {
	onBoth(t, func(t *testing.T, r *rig) {
		ctx := bounded(t)
		h := r.active("vip")
		revision := r.edit("vip", add("a")...)
		marks, history, at, err := r.Look(ctx, []string{"none", "vip"}, true)
		if diff := cmp.Diff([]Mark{{}, {revision, h.Birth}}, marks); diff != "" || err != nil || at.IsZero() ||
			len(strings.Fields(history)) != 2 {
			t.Error(diff, history, at, err)
		}
		ok[Head](t)(r.Delete(ctx, "vip", AnyVersion, false, ada))
		if err := r.FinishDelete(ctx, "vip"); err != nil {
			t.Fatal(err)
		}
		if marks, history, _, err := r.Look(ctx, []string{"vip"}, false); err != nil || history != "" ||
			marks[0] != (Mark{}) {
			t.Error(marks, history, err)
		}
		if marks, _, _, err := r.Look(ctx, nil, false); err != nil || len(marks) != 0 {
			t.Error(marks, err)
		}
	})
}

// TestClients: those are live that have reported within 15 s; silent ones go.
func TestClients(t *testing.T) {
	onBoth(t, func(t *testing.T, r *rig) {
		ctx := bounded(t)
		h := r.active("vip")
		r.active("other")
		report := ClientReport{Birth: h.Birth, Revision: 3, Serves: 1, Loaded: []int64{1, 2}, SDK: "go/1"}
		said := func(client string) {
			t.Helper()
			if err := r.Report(ctx, client, map[string]ClientReport{"vip": report, "other": {}, "none": report}); err != nil {
				t.Fatal(err)
			}
		}
		names := func(list string) (out []string) {
			t.Helper()
			live, at, err := r.Clients(ctx, list)
			if err != nil {
				t.Fatal(err)
			}
			for _, c := range live {
				if list == "vip" && (cmp.Diff(report, c.ClientReport) != "" || at.Sub(c.At) > Live) {
					t.Errorf(`%+v; want list != "vip" or (cmp.Diff(report, c.ClientReport) == "" and at.Sub(c.At) <= Live)`, c)
				}
				out = append(out, c.ID)
			}
			return out
		}
		for _, client := range []string{"a", "b", "c"} {
			said(client)
		}
		r.pass("vip", 13*time.Second)
		said("b")
		if got := names("vip"); !slices.Equal(got, []string{"a", "b", "c"}) {
			t.Error(got)
		}
		if err := r.Report(ctx, "c", map[string]ClientReport{"vip": {}}); err != nil {
			t.Fatal(err)
		}
		if got := names("vip"); !slices.Equal(got, []string{"a", "b"}) {
			t.Error(got)
		}
		r.pass("vip", 2*time.Second)
		if got := names("vip"); !slices.Equal(got, []string{"b"}) {
			t.Error(got)
		}
		r.pass("vip", 45*time.Second)
		if got, kept := names("vip"), len(r.hash(r.k.clients("vip"))); len(got) != 0 || kept != 1 {
			t.Error(got, kept)
		}
		if got := names("none"); len(got) != 0 || len(r.hash(r.k.clients("none"))) != 0 {
			t.Error(got)
		}
		m := r.do("PTTL", r.k.clients("vip"))
		if ttl, _ := m.AsInt64(); ttl <= 0 || ttl > 60_000 {
			t.Errorf("reports last %d ms", ttl)
		}
	})
}

// TestHistoryOfEvents: an event says whose data it is of, as a delta does, also after a failover.
func TestHistoryOfEvents(t *testing.T) {
	t.Parallel()
	redis := redistest.NewWithReplicas(t, 1)
	replica := redis.Replicas[0]
	prefix := redis.Prefix(t)
	on := func(t *testing.T, target *redistest.Target) *rig {
		return &rig{
			Control: NewControl(target.Client(t), prefix, false, zaptest.NewLogger(t), nil), t: t, redis: target,
			client: target.Client(t),
		}
	}
	// What it subscribes to ends with its own test, before a server is killed.
	history := func(name string, target *redistest.Target) (history string) {
		t.Run(name, func(t *testing.T) {
			r := on(t, target)
			d := ok[Delta](t)(r.Delta(bounded(t), "vip", 0, true))
			events := r.hear("vip")
			r.edit("vip", add("a")...)
			edit := receive(t, events)
			ok[Head](t)(r.Set(bounded(t), "vip", Settings{}))
			head := receive(t, events)
			if d.History == "" || edit.History != d.History || head.History != d.History {
				t.Errorf("the delta is of %q, an edit of %q, a head of %q", d.History, edit.History, head.History)
			}
			history = d.History
		})
		return history
	}
	r := on(t, redis.Target)
	r.active("vip")
	before := history("master", redis.Target)
	last := ok[Head](t)(r.Head(bounded(t), "vip")).Revision
	after := on(t, replica.Target)
	if err := redistest.Await(func(ctx context.Context) bool {
		h, err := after.Head(ctx, "vip")
		return err == nil && h.Revision == last
	}); err != nil {
		t.Fatal(err)
	}
	redis.Kill()
	redis.Promote(replica)
	if history("promoted", replica.Target) == before {
		t.Error("a replica that was promoted has the history of its master")
	}
}

// FuzzEvent: no message harms a reader, and what Redis writes is read.
func FuzzEvent(f *testing.F) {
	f.Add(
		`{"revision":3,"at":1700000000000,"birth":"b","head":{"record":["birth","b","seed","ff","lease","5","serving","1"],"serving":"{\"number\":1}","next":""}}`,
	)
	f.Add(`{"revision":3,"at":1,"birth":"b","entries":[{"id":"a","expires_ms":5},{"id":"b","remove":true}]}`)
	f.Add(`{"revision":3,"at":1,"birth":"b","history":"r h","entries":[{"id":"a"}]}`)
	f.Add(`{"revision":1,"birth":"b","head":{"record":["seed"]}}`)
	f.Fuzz(func(t *testing.T, message string) {
		e, err := DecodeEvent("vip", message)
		if err == nil && (e.Revision < 1 || e.Birth == "" || e.Head != nil && e.Head.Name != "vip") {
			t.Errorf(`%+v; want an error or (e.Revision >= 1 and e.Birth != "" and (e.Head == nil or e.Head.Name == "vip"))`, e)
		}
	})
}

// FuzzHead: no record harms a reader. Fields that this release does not know change nothing.
func FuzzHead(f *testing.F) {
	f.Add("birth b seed ff revision 7 lease 5", `{"number":1}`, "")
	f.Add("revision -1", "", "{")
	f.Fuzz(func(t *testing.T, record, serving, next string) {
		fields := strings.Split(record, " ")
		h, err := DecodeHead("vip", fields, serving, next)
		if err == nil && (h.Revision < 0 || h.Number < 0 || (h.Serving == nil) != (serving == "")) {
			t.Errorf(`%+v; want an error or (h.Revision >= 0 and h.Number >= 0 and (h.Serving == nil) == (serving == ""))`, h)
		}
		also, err2 := DecodeHead("vip", append([]string{"later", "x"}, fields...), serving, next)
		if (err == nil) != (err2 == nil) || err == nil && !cmp.Equal(h, also, cmp.AllowUnexported(Head{})) {
			t.Errorf("%+v, %v, and %+v, %v", h, err, also, err2)
		}
	})
}

// TestDecode: an answer that is cut short is an error.
func TestDecode(t *testing.T) {
	t.Parallel()
	r := script.Reply{}
	if readDelta(&r, "vip"); r.Err == nil {
		t.Error("an empty answer is a delta")
	}
	for _, bad := range [][]string{{"seed"}, {"seed", "x"}, {"revision", "x"}, {"lease", "-1"}} {
		if _, err := DecodeHead("vip", bad, "", ""); err == nil {
			t.Errorf("%q is a head", bad)
		}
	}
	for _, bad := range []string{
		"", "{}", `{"revision":1}`, `{"revision":1,"birth":"b","entries":{}}`,
		`{"revision":1,"birth":"b","head":{"serving":"x"}}`,
	} {
		if _, err := DecodeEvent("vip", bad); err == nil {
			t.Errorf("%q is an event", bad)
		}
	}
}
