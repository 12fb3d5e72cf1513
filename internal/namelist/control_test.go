package namelist

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/namelist/filter"
	"github.com/freeslot/freeslot/internal/namelist/form"
	"github.com/freeslot/freeslot/internal/script"
	"github.com/freeslot/freeslot/internal/testing/redistest"
)

func TestKeys(t *testing.T) {
	t.Parallel()
	for got, want := range map[string]string{
		SegmentKey("p:ns", "vip", 3, 41):              "p:ns:lists:{vip_3_41}",
		BlockKey("p:ns", "vip", 3, 0):                 "p:ns:lists:{vip_3_f0}",
		keys{ControlLayout("p", false)}.record("vip"): "p:lists:record:vip",
		Channel(ControlLayout("p", false), "vip"):     "p:list_change:vip",
	} {
		if got != want {
			t.Errorf("%s, expected %s", got, want)
		}
	}
	for _, key := range []string{
		"p:ns:lists:{vip_3}", "p:ns:lists:{vip_0_1}", "p:ns:lists:{_3_1}", "p:lists:{vip_3_1}", "p:ns:lists:{vip_x_1}",
	} {
		if list, version, _, ok := ParseDataKey("p:ns", key); ok {
			t.Errorf("%s is of version %d of list %s", key, version, list)
		}
	}
	for key, isBlock := range map[string]bool{
		SegmentKey("p:ns", "vip", 3, 41): false, BlockKey("p:ns", "vip", 3, 0): true,
	} {
		if list, version, block, ok := ParseDataKey("p:ns", key); list != "vip" || version != 3 || block != isBlock || !ok {
			t.Errorf(
				`%s: %s, %d, %v, %v; want list == "vip", version == 3, block == %v, ok`, key, list, version, block, ok, isBlock,
			)
		}
	}
	for name, ok := range map[string]bool{"vip": true, "a.b-c": true, "": false, "a_b": false, "-a": false, "ä": false} {
		if err := ValidateName("list", name); (err == nil) != ok {
			t.Errorf("%q: %v; want (err == nil) == %v", name, err, ok)
		}
	}
}

// TestStateTable: the table has all states, and every operation begins in the active one.
func TestStateTable(t *testing.T) {
	t.Parallel()
	table := StateTable()
	for _, line := range []string{
		"| `draft` |  | no: unknown | import, edit, switch | settings, delete |",
		"| `active` |  | yes | import, edit, expand, move, switch, compact | edits, urgent edits, settings, freeze, delete |",
		"| `expanding` | expand, move | yes |  | finish or cancel, urgent edits, settings |",
		"| `deleting` |  | no: unknown |  | nothing |",
	} {
		if !strings.Contains(table, line+"\n") {
			t.Errorf("no line %s in\n%s", line, table)
		}
	}
	page, err := os.ReadFile("../../docs/namelist.md")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(page), table) {
		t.Errorf("docs/namelist.md does not have\n%s", table)
	}
	for _, kind := range ruleOf(Active).begins {
		if in := entering(kind, Active); (in == Active) != (kind == OpCompact) {
			t.Errorf("%s leads to %s", kind, in)
		}
	}
}

// TestBadInput: all bad fields are named at once.
func TestBadInput(t *testing.T) {
	t.Parallel()
	r := newRig(t, redistest.Shared(t))
	fields := func(err error) (out []string) {
		var e *freeslot.Error
		if errors.As(err, &e) {
			for _, f := range e.Errors {
				out = append(out, f.Field)
			}
		}
		return out
	}
	_, err := r.Create(bounded(t), "a_b", Spec{
		Form: "x", Server: "a b", Expected: MaxExpected + 1,
		Settings: Settings{Filter: "x", Whole: true, Expires: time.UnixMilli(-1)},
	})
	if diff := cmp.Diff(
		[]string{"list", "form", "server", "expected_ids", "filter", "whole", "expires"}, fields(err),
	); diff != "" {
		t.Error(diff)
	}
	_, err = r.Create(bounded(t), "vip", Spec{Server: "far"})
	is(t, "an unknown server", err, freeslot.CodeInvalidArgument)
	r.create("vip")
	_, err = r.Edit(bounded(t), "vip", EditRequest{
		ID: strings.Repeat("x", 257), Urgent: true, By: By{Author: "a\n"},
		Changes: []Change{
			{},
			{Entry: Entry{ID: "a", ExpiresMS: -1}},
			{Entry: Entry{ID: "a"}},
			{Entry: Entry{ID: "b", ExpiresMS: 1}, Remove: true},
		},
	})
	want := []string{
		"author", "id", "urgent", "entries[0].id", "entries[1].expires_ms", "entries[2].id", "entries[3].expires_ms",
	}
	if diff := cmp.Diff(want, fields(err)); diff != "" {
		t.Error(diff)
	}
	for what, call := range map[string]func() error{
		"too many entries": func() error {
			_, err := r.Edit(
				bounded(t), "vip", EditRequest{Changes: many(1001)},
			)
			return err
		},
		"no holder": func() error { _, err := r.Begin(bounded(t), "vip", Begin{Kind: OpImport}); return err },
		"a long note": func() error {
			_, err := r.Freeze(
				bounded(t), "vip", By{Note: strings.Repeat("x", 257)},
			)
			return err
		},
		"a list's name": func() error { _, err := r.Head(bounded(t), "a_b"); return err },
		"whole": func() error {
			_, err := r.Create(bounded(t), "b", Spec{Expected: MaxWhole + 1, Settings: Settings{Whole: true}})
			return err
		},
		"a client's name": func() error { return r.Report(bounded(t), "", nil) },
		"a server's name": func() error { return r.PutServer(bounded(t), Server{}) },
	} {
		is(t, what, call(), freeslot.CodeInvalidArgument)
	}
}

// TestHead: what is set is read.
func TestHead(t *testing.T) {
	onBoth(t, func(t *testing.T, r *rig) {
		ctx := bounded(t)
		if err := r.PutServer(ctx, Server{Name: "far", Addresses: []string{"redis://far:1"}, MaxBytes: 5}); err != nil {
			t.Fatal(err)
		}
		if got := ok[[]Server](t)(r.Servers(ctx)); len(got) != 1 || got[0].Addresses[0] != "redis://far:1" {
			t.Errorf(`%+v; want len(got) == 1, got[0].Addresses[0] == "redis://far:1"`, got)
		}
		spec := Spec{
			Form: form.Lower, Server: "far", Expected: 7,
			Settings: Settings{Filter: filter.Bloom, Expires: time.UnixMilli(99), ExpiredNo: true, Whole: true},
		}
		made := ok[Head](t)(r.Create(ctx, "vip", spec))
		want := Head{
			Name: "vip", Revision: 1, State: Draft, Form: form.Lower, Server: "far", Expected: 7, Filter: filter.Bloom,
			Expires: time.UnixMilli(99), ExpiredNo: true, Whole: true,
		}
		ignored := []cmp.Option{cmpopts.IgnoreFields(Head{}, "At", "Birth", "Seed"), cmpopts.IgnoreUnexported(Head{})}
		if diff := cmp.Diff(want, made, ignored...); diff != "" || made.At.IsZero() || len(made.Birth) != 32 {
			t.Error(diff, made)
		}
		_, err := r.Create(ctx, "vip", spec)
		is(t, "a second list of that name", err, freeslot.CodeConflict)
		want.Revision, want.Filter, want.Expires, want.ExpiredNo, want.Whole = 2, filter.Fuse, time.Time{}, false, false
		if diff := cmp.Diff(want, ok[Head](t)(r.Set(ctx, "vip", Settings{})), ignored...); diff != "" {
			t.Error(diff)
		}
		_, err = r.Set(ctx, "gone", Settings{})
		is(t, "settings of no list", err, freeslot.CodeNotFound)
		for i := range 5 {
			r.create(fmt.Sprint("x", i))
		}
		var names []string
		for after := ""; ; after = names[len(names)-1] {
			page := ok[[]Head](t)(r.Heads(ctx, after, 4, nil))
			if len(page) == 0 {
				break
			}
			for _, h := range page {
				names = append(names, h.Name)
			}
		}
		if !slices.Equal(names, []string{"vip", "x0", "x1", "x2", "x3", "x4"}) {
			t.Error(names)
		}
		even := func(h *Head) bool { return strings.ContainsAny(h.Name, "024") }
		if page := ok[[]Head](t)(r.Heads(ctx, "x0", 1, even)); len(page) != 1 || page[0].Name != "x2" {
			t.Errorf("the page behind x0 is %v; want x2 alone, the first that is kept", page)
		}
	})
}

// TestStep: a step changes a list that is as its caller saw it, once.
func TestStep(t *testing.T) {
	onBoth(t, func(t *testing.T, r *rig) {
		ctx := bounded(t)
		r.active("vip")
		n := r.build("vip", OpImport)
		h := ok[Head](t)(r.Head(ctx, "vip"))
		_, text, err := r.version(ctx, "vip", n)
		if err != nil {
			t.Fatal(err)
		}
		once := func(what string, want int64, ch change, saw *Head) {
			t.Helper()
			code, now, err := r.stepOnce(ctx, saw, &ch)
			if err != nil || code != want || now.Birth != h.Birth {
				t.Errorf("%s: code %d, %+v, %v", what, code, now, err)
			}
		}
		r.unchanged("vip", "what the caller did not see", func() {
			for i, field := range decided {
				saw := h
				parts := strings.Split(h.raw, " ")
				parts[i] += "x"
				saw.raw = strings.Join(parts, " ")
				once(field, codeDiffer, change{fields: []string{"filter", "none"}}, &saw)
			}
			once(
				"another version", codeDiffer, change{fields: []string{"filter", "none"}, watched: []string{number(n), text + " "}},
				&h,
			)
			once(
				"a missing version", codeDiffer,
				change{fields: []string{"filter", "none"}, watched: []string{number(n), text, "99", text}}, &h,
			)
		})
		once("as seen", codeDone, change{fields: []string{"filter", "none"}, watched: []string{number(n), text}}, &h)
		if again := ok[Head](t)(r.Head(ctx, "vip")); again.Revision != h.Revision+1 || again.Filter != filter.None {
			t.Errorf("%+v; want again.Revision == h.Revision+1, again.Filter == filter.None", again)
		}
		// The same call again, as after an answer that was lost.
		args := []string{"vip", r.k.change("vip"), "id", "", h.raw, "0", "2", "", "0", "", "state", "frozen"}
		for _, want := range []int64{codeDone, codeRepeat} {
			before := r.keysOf("vip")
			a := script.ReadReply(r.runner.Call(ctx, scripts["step"], append(r.k.all("vip"), r.k.requests("")), args))
			if code := a.Number(); code != want || a.Err != nil || want == codeRepeat && r.keysOf("vip") != before {
				t.Errorf("code %d, %v", code, a.Err)
			}
		}
	})
}

// TestRacers: of many who begin at once one wins, and the others hear who.
func TestRacers(t *testing.T) {
	onBoth(t, func(t *testing.T, r *rig) {
		ctx := bounded(t)
		r.active("vip")
		errs := make(chan error, 30)
		for i := range cap(errs) {
			go func() {
				_, err := r.Begin(ctx, "vip", Begin{Kind: OpImport, Holder: fmt.Sprint("r", i), Serving: 1, By: ada})
				errs <- err
			}()
		}
		won := 0
		for range cap(errs) {
			err := receive(t, errs)
			if err == nil {
				won++
				continue
			}
			is(t, "a loser", err, freeslot.CodeConflict)
			if !strings.Contains(err.Error(), "(import) of r") || !strings.Contains(err.Error(), "ada: test, since 20") {
				t.Error(err)
			}
		}
		if h := ok[Head](t)(r.Head(ctx, "vip")); won != 1 || h.Number != 2 {
			t.Errorf("%d have begun, %+v", won, h)
		}
	})
}

// TestNumbers: no number is given twice, also of a list that is deleted and made again.
func TestNumbers(t *testing.T) {
	onBoth(t, func(t *testing.T, r *rig) {
		ctx := bounded(t)
		h := r.active("vip")
		r.edit("vip", add("a")...)
		ok[Head](t)(r.Cancel(ctx, "vip", r.begin("vip", OpExpand, 0).ID))
		if err := r.Report(ctx, "c1", map[string]ClientReport{"vip": {Birth: h.Birth}}); err != nil {
			t.Fatal(err)
		}
		_, err := r.Delete(ctx, "vip", 1, false, ada)
		if is(t, "delete of a used list", err, freeslot.CodeConflict); !strings.Contains(err.Error(), "force deletes it") {
			t.Error(err)
		}
		_, err = r.Delete(ctx, "vip", 9, true, ada)
		is(t, "delete of another version", err, freeslot.CodeConflict)
		is(t, "the end of no delete", r.FinishDelete(ctx, "vip"), freeslot.CodeConflict)
		if h := ok[Head](t)(r.Delete(ctx, "vip", 1, true, ada)); h.State != Deleting || h.Serving == nil {
			t.Errorf("%+v; want h.State == Deleting, h.Serving != nil", h)
		}
		if err := r.FinishDelete(ctx, "vip"); err != nil {
			t.Fatal(err)
		}
		_, err = r.Head(ctx, "vip")
		is(t, "a deleted list", err, freeslot.CodeNotFound)
		d := ok[Delta](t)(r.Delta(ctx, "vip", 0, false))
		if d.Head.State != Deleted || d.Head.Birth != h.Birth || d.Head.Number != 2 || d.Head.Revision <= h.Revision ||
			len(d.Edits) > 0 {
			t.Errorf("tombstone: %+v", d)
		}
		for _, key := range []string{r.k.versions("vip"), r.k.edits("vip"), r.k.clients("vip")} {
			m := r.do("EXISTS", key)
			if n, _ := m.AsInt64(); n != 0 {
				t.Errorf("%s is left", key)
			}
		}
		again := r.create("vip")
		if again.Birth == h.Birth || again.Seed == h.Seed || again.Revision != d.Head.Revision+1 || again.Edited != 0 {
			t.Errorf("made again: %+v", again)
		}
		if n := r.build("vip", OpImport); n != 3 {
			t.Errorf("version %d", n)
		}
	})
}

// TestTakeOver: a lapsed operation is taken once, and its former holder is refused.
func TestTakeOver(t *testing.T) {
	onBoth(t, func(t *testing.T, r *rig) {
		ctx := bounded(t)
		r.active("vip")
		op := r.begin("vip", OpImport, 0)
		_, err := r.Take(ctx, "vip", op.ID, "r2")
		is(t, "take of a live operation", err, freeslot.CodeConflict)
		r.pass("vip", Lease-2*time.Second)
		op = ok[Operation](t)(r.Renew(ctx, "vip", op))
		r.pass("vip", Lease-2*time.Second)
		_, err = r.Take(ctx, "vip", op.ID, "r2")
		is(t, "take of a renewed operation", err, freeslot.CodeConflict)
		r.pass("vip", 2*time.Second)
		if h := ok[Head](t)(r.Head(ctx, "vip")); !h.Lapsed() {
			t.Errorf("%+v; want h.Lapsed()", h.Op)
		}
		taken := make(chan error, 10)
		for i := range cap(taken) {
			go func() { _, err := r.Take(ctx, "vip", op.ID, fmt.Sprint("t", i)); taken <- err }()
		}
		won := 0
		for range cap(taken) {
			if receive(t, taken) == nil {
				won++
			}
		}
		if won != 1 {
			t.Errorf("%d have taken it", won)
		}
		h := ok[Head](t)(r.Head(ctx, "vip"))
		r.unchanged("vip", "a stale holder", func() {
			_, err := r.Renew(ctx, "vip", op)
			is(t, "renew", err, freeslot.CodeConflict)
			_, err = r.Done(ctx, "vip", op, Version{Number: op.Number})
			is(t, "done", err, freeslot.CodeConflict)
		})
		_, err = r.Done(ctx, "vip", h.Op, Version{Number: 99})
		is(t, "another number", err, freeslot.CodeInvalidArgument)
		if h := ok[Head](t)(r.Done(ctx, "vip", h.Op, Version{Number: op.Number})); h.State != Active || h.serving() != 1 ||
			h.Op.ID != "" {
			t.Errorf(`%+v; want h.State == Active, h.serving() == 1, h.Op.ID == ""`, h)
		}
	})
}

// TestTargets: what cannot serve is not switched to, also if that shows after the begin.
func TestTargets(t *testing.T) {
	onBoth(t, func(t *testing.T, r *rig) {
		ctx := bounded(t)
		r.active("vip")
		doubted := r.begin("vip", OpImport, 0)
		ok[Head](t)(r.Done(ctx, "vip", doubted, Version{Number: doubted.Number, Doubt: "half of the ids are gone"}))
		_, err := r.Begin(ctx, "vip", Begin{Kind: OpSwitch, Number: 2, Holder: "r1", Serving: AnyVersion})
		is(t, "a doubted version", err, freeslot.CodeConflict)
		_, err = r.Accept(ctx, "vip", 9)
		is(t, "accept of no version", err, freeslot.CodeNotFound)
		ok[Head](t)(r.Accept(ctx, "vip", 2))
		_, err = r.Begin(ctx, "vip", Begin{Kind: OpSwitch, Number: 2, Holder: "r1", Serving: 7})
		is(t, "another version seen", err, freeslot.CodeConflict)
		op := r.begin("vip", OpSwitch, 2)
		if h := ok[Head](t)(r.Prepare(ctx, "vip", op)); h.State != Switching || h.Next.Number != 2 || h.serving() != 1 {
			t.Errorf("%+v; want h.State == Switching, h.Next.Number == 2, h.serving() == 1", h)
		}
		ok[Head](t)(r.Damage(ctx, "vip", 2, "segment 3"))
		_, err = r.Switch(ctx, "vip", op, 1)
		is(t, "a damaged version", err, freeslot.CodeConflict)
		if h := ok[Head](t)(r.Cancel(ctx, "vip", op.ID)); h.State != Active || h.Next != nil || h.serving() != 1 {
			t.Errorf("%+v; want h.State == Active, h.Next == nil, h.serving() == 1", h)
		}
		_, err = r.DropVersion(ctx, "vip", 1)
		is(t, "drop of the serving version", err, freeslot.CodeConflict)
		ok[Head](t)(r.DropVersion(ctx, "vip", 2))
		if v := ok[[]Version](t)(r.Versions(ctx, "vip")); len(v) != 1 || v[0].Number != 1 {
			t.Errorf("%+v; want len(v) == 1, v[0].Number == 1", v)
		}
	})
}

// TestCompaction: it is no state, switches by itself, and any operation ends it.
func TestCompaction(t *testing.T) {
	onBoth(t, func(t *testing.T, r *rig) {
		ctx := bounded(t)
		r.active("vip")
		r.edit("vip", add("a")...)
		op := r.begin("vip", OpCompact, 0)
		_, err := r.Begin(ctx, "vip", Begin{Kind: OpCompact, Holder: "r2", Serving: AnyVersion})
		is(t, "a second compaction", err, freeslot.CodeConflict)
		r.edit("vip", add("b")...)
		ok[Head](t)(r.PutVersion(ctx, "vip", op, Version{Number: op.Number}))
		ok[Head](t)(r.Prepare(ctx, "vip", op))
		h := ok[Head](t)(r.Switch(ctx, "vip", op, 1))
		if h.State != Active || h.serving() != 2 || h.Next != nil || h.Edited-h.Serving.Edited != 1 {
			t.Errorf("%+v; want h.State == Active, h.serving() == 2, h.Next == nil, h.Edited-h.Serving.Edited == 1", h)
		}
		op = r.begin("vip", OpCompact, 0)
		r.begin("vip", OpEdit, 0)
		_, err = r.PutVersion(ctx, "vip", op, Version{Number: op.Number})
		is(t, "a compaction that was ended", err, freeslot.CodeConflict)
	})
}

// TestFull: where Redis has no memory left edits are refused, and operations end.
func TestFull(t *testing.T) {
	t.Parallel()
	server := redistest.New(t, redistest.Args("--maxmemory-policy", "noeviction"))
	r := newRig(t, server.Target)
	ctx := bounded(t)
	r.active("vip")
	op := r.begin("vip", OpImport, 0)
	r.do("CONFIG", "SET", "maxmemory", "1")
	r.unchanged("vip", "an edit", func() {
		_, err := r.Edit(ctx, "vip", EditRequest{Changes: add("a"), Urgent: true, By: ada})
		is(t, "an edit", err, freeslot.CodeOverloaded)
	})
	if h := ok[Head](t)(r.Cancel(ctx, "vip", op.ID)); h.State != Active {
		t.Errorf("%+v; want h.State == Active", h)
	}
	ok[Head](t)(r.Delete(ctx, "vip", 1, true, ada))
	if err := r.FinishDelete(ctx, "vip"); err != nil {
		t.Error(err)
	}
}
