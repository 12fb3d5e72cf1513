package namelist

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/freeslot/freeslot"
)

// TestHistories: after each call of a random history its answer and the list are as the twin has
// them, and a reader of the serving version knows exactly the twin's ids.
func TestHistories(t *testing.T) {
	onBoth(t, func(t *testing.T, r *rig) {
		var lists atomic.Int64
		r.limits = limits{edits: 12, urgent: 15, log: 22}
		rapid.Check(t, func(t *rapid.T) {
			m := &model{
				rig: r, t: t, list: fmt.Sprint("l", lists.Add(1)),
				twin: &twin{limit: 12, urgent: 15, log: 22, versions: make(map[int64]*twinVersion), done: make(map[string]int64)},
				ops:  []Operation{{ID: "none", Holder: "r1"}},
			}
			m.create(t)
			m.publish(t)
			t.Repeat(map[string]func(*rapid.T){
				"": m.check, "create": m.create, "begin": m.begin, "begin again": m.begin, "hold": m.hold, "hold on": m.hold,
				"reserve": m.reserve, "put": m.put,
				"put more": m.put, "publish": m.publish, "switch": m.switches, "switch more": m.switches, "cancel": m.cancel,
				"take": m.take, "amend": m.amend, "simple": m.simple, "finish": m.finish, "edit": m.edit,
				"edit more": m.edit, "and more": m.edit, "stage": m.stage, "stage more": m.stage, "commit": m.commit,
				"pass": m.elapse,
			})
		})
	})
}

type model struct {
	*rig
	t    *rapid.T
	list string
	twin *twin
	ops  []Operation // that callers know, also stale ones
	ids  int         // of edits
}

func (m *model) want(t *rapid.T, what string, code freeslot.Code, err error) {
	t.Helper()
	if got := freeslot.CodeOf(err); got != code {
		t.Fatalf("%s: %v, expected %q", what, err, code)
	}
}

// op is an operation, mostly the newest one.
func (m *model) op(t *rapid.T) Operation {
	back := rapid.SampledFrom([]int{1, 1, 1, 1, 2, 3}).Draw(t, "operation")
	return m.ops[max(0, len(m.ops)-back)]
}

func (m *model) number(t *rapid.T) int64 {
	there := append(slices.Sorted(maps.Keys(m.twin.versions)), m.twin.number+1)
	return rapid.SampledFrom(there).Draw(t, "number")
}

func (m *model) saw(t *rapid.T) int64 {
	return rapid.SampledFrom([]int64{AnyVersion, m.twin.serving, m.twin.serving, m.twin.serving + 1}).Draw(t, "saw")
}

func (m *model) create(t *rapid.T) {
	_, err := m.Create(context.Background(), m.list, Spec{})
	m.want(t, "create", m.twin.create(), err)
}

func (m *model) begin(t *rapid.T) {
	kind := rapid.SampledFrom([]OpKind{OpImport, OpEdit, OpExpand, OpMove, OpSwitch, OpSwitch, OpCompact}).Draw(t, "kind")
	m.beginOf(t, kind, m.number(t), m.saw(t))
}

func (m *model) beginOf(t *rapid.T, kind OpKind, target, saw int64) {
	op, err := m.Begin(context.Background(), m.list, Begin{Kind: kind, Number: target, Holder: "r1", Serving: saw})
	m.want(t, "begin "+string(kind), m.twin.begin(kind, target, saw), err)
	if err == nil {
		m.ops, m.twin.op.id = append(m.ops, op), op.ID
	}
}

// publish lets a list serve a new version of some ids, if nothing is in the way.
func (m *model) publish(t *rapid.T) {
	if m.twin.op != nil {
		id := m.twin.op.id
		_, err := m.Cancel(context.Background(), m.list, id)
		m.want(t, "cancel", m.twin.cancel(id), err)
	}
	kind := rapid.SampledFrom([]OpKind{OpImport, OpImport, OpExpand}).Draw(t, "kind")
	number := m.twin.number + 1
	if m.beginOf(t, kind, 0, AnyVersion); m.twin.op == nil {
		return
	}
	m.putOf(t, m.ops[len(m.ops)-1], "", true)
	m.beginOf(t, OpSwitch, number, m.twin.serving)
	op := m.ops[len(m.ops)-1]
	_, err := m.Switch(context.Background(), m.list, op, m.twin.serving)
	m.want(t, "switch", m.twin.switches(op, false), err)
}

func (m *model) hold(t *rapid.T) {
	op := m.op(t)
	_, err := m.Renew(context.Background(), m.list, op)
	m.want(t, "renew", m.twin.renew(op), err)
}

func (m *model) reserve(t *rapid.T) {
	op, n := m.op(t), rapid.Uint32Range(1, 9).Draw(t, "size")
	r := Reservation{Server: "far", Bytes: int64(n), Segments: n, Blocks: n - 1}
	m.want(t, "reserve", m.twin.reserve(op, r), m.Reserve(context.Background(), m.list, op, r))
}

func (m *model) put(t *rapid.T) {
	m.putOf(t, m.op(t), rapid.SampledFrom([]string{"", "", "", "doubt"}).Draw(t, "doubt"), rapid.Bool().Draw(t, "ends"))
}

func (m *model) putOf(t *rapid.T, op Operation, doubt string, ends bool) {
	v := Version{Number: op.Number, Build: "b", Doubt: doubt}
	put := m.PutVersion
	if ends {
		put = m.Done
	}
	_, err := put(context.Background(), m.list, op, v)
	m.want(t, "put", m.twin.put(op, v.Doubt != "", ends), err)
}

func (m *model) switches(t *rapid.T) {
	op := m.op(t)
	if rapid.Bool().Draw(t, "prepare") {
		_, err := m.Prepare(context.Background(), m.list, op)
		m.want(t, "prepare", m.twin.switches(op, true), err)
		return
	}
	_, err := m.Switch(context.Background(), m.list, op, AnyVersion)
	m.want(t, "switch", m.twin.switches(op, false), err)
}

func (m *model) cancel(t *rapid.T) {
	op := m.op(t)
	_, err := m.Cancel(context.Background(), m.list, op.ID)
	m.want(t, "cancel", m.twin.cancel(op.ID), err)
}

func (m *model) take(t *rapid.T) {
	op := m.op(t)
	holder := rapid.SampledFrom([]string{"r1", "r2"}).Draw(t, "holder")
	taken, err := m.Take(context.Background(), m.list, op.ID, holder)
	m.want(t, "take", m.twin.take(op.ID, holder), err)
	if err == nil {
		m.ops = append(m.ops, taken)
	}
}

func (m *model) amend(t *rapid.T) {
	n, what := m.number(t), rapid.SampledFrom([]string{"accept", "accept", "damage", "drop"}).Draw(t, "what")
	var err error
	switch what {
	case "accept":
		_, err = m.Accept(context.Background(), m.list, n)
	case "damage":
		_, err = m.Damage(context.Background(), m.list, n, "it is")
	default:
		_, err = m.DropVersion(context.Background(), m.list, n)
	}
	m.want(t, what, m.twin.amend(n, what), err)
}

func (m *model) simple(t *rapid.T) {
	what, saw := rapid.SampledFrom([]string{
		"freeze", "freeze", "unfreeze", "unfreeze", "set", "delete",
	}).Draw(t, "what"), int64(AnyVersion)
	var err error
	switch what {
	case "freeze":
		_, err = m.Freeze(context.Background(), m.list, ada)
	case "unfreeze":
		_, err = m.Unfreeze(context.Background(), m.list)
	case "set":
		_, err = m.Set(context.Background(), m.list, Settings{})
	default:
		saw = m.saw(t)
		if rapid.Bool().Draw(t, "stays") {
			return
		}
		_, err = m.Delete(context.Background(), m.list, saw, false, ada)
	}
	m.want(t, what, m.twin.simple(what, saw), err)
}

func (m *model) finish(t *rapid.T) {
	m.want(t, "finish", m.twin.finish(), m.FinishDelete(context.Background(), m.list))
}

func changes(t *rapid.T) []Change {
	return rapid.SliceOfNDistinct(rapid.Custom(func(t *rapid.T) Change {
		c := Change{Entry: Entry{ID: rapid.SampledFrom([]string{"a", "b", "c", "d", "e", "f"}).Draw(t, "id")}}
		c.Remove = rapid.Bool().Draw(t, "remove")
		return c
	}), 1, 4, func(c Change) string { return c.ID }).Draw(t, "changes")
}

func (m *model) edit(t *rapid.T) {
	e := EditRequest{Changes: changes(t), Urgent: rapid.Bool().Draw(t, "urgent"), By: ada}
	if repeat := rapid.IntRange(0, 3).Draw(t, "repeat"); repeat > 0 || m.ids == 0 {
		m.ids++
	}
	e.ID = fmt.Sprint("edit ", m.ids)
	code, revision := m.twin.edit(e.ID, e.Changes, e.Urgent)
	got, err := m.Edit(context.Background(), m.list, e)
	m.want(t, "edit", code, err)
	if err == nil && got != revision {
		t.Fatalf("edit at %d, expected %d", got, revision)
	}
}

func (m *model) stage(t *rapid.T) {
	op, what := m.op(t), changes(t)
	_, _, err := m.Stage(context.Background(), m.list, op.ID, what)
	m.want(t, "stage", m.twin.stage(op.ID, what), err)
}

func (m *model) commit(t *rapid.T) {
	op := m.op(t)
	code, revision := m.twin.commit(op.ID)
	got, err := m.Commit(context.Background(), m.list, op.ID, nil, ada)
	m.want(t, "commit", code, err)
	if err == nil && got != revision {
		t.Fatalf("commit at %d, expected %d", got, revision)
	}
}

func (m *model) elapse(t *rapid.T) {
	d := rapid.SampledFrom([]time.Duration{
		20 * time.Second, 20 * time.Second, 40 * time.Second, 5 * time.Minute,
	}).Draw(t, "time")
	if m.pass(m.list, d); m.twin.op != nil {
		m.twin.op.left -= d
	}
}

// seen is what is compared.
type seen struct {
	State                           State
	Serving, Next                   int64
	Revision, Number, Edited, Floor int64
	Op                              Operation
	Lapsed                          bool
	Versions                        map[int64][3]bool
	Staged                          map[string]Change
	IDs                             map[string]bool // of the serving version
	Behind                          int             // entries behind its base
}

func (m *model) check(t *rapid.T) {
	w := m.twin
	d, err := m.Delta(context.Background(), m.list, 0, false)
	if err != nil {
		t.Fatal(err)
	}
	if !w.exists {
		if d.Head.exists() || d.Head.Number != w.number || d.Head.Revision != w.revision || len(d.Edits) > 0 {
			t.Fatalf("a deleted list is %+v", d)
		}
		return
	}
	h := &d.Head
	want := seen{
		State: w.state, Serving: w.serving, Next: w.next, Revision: w.revision, Number: w.number, Edited: int64(w.entries(0)),
		Floor:    w.floor(),
		Versions: make(map[int64][3]bool), Staged: w.staged,
	}
	got := seen{
		State: h.State, Serving: h.serving(), Revision: h.Revision, Number: h.Number, Edited: h.Edited, Floor: h.Floor,
		Op: h.Op, Lapsed: h.Lapsed(), Versions: make(map[int64][3]bool), Staged: make(map[string]Change),
	}
	if h.Next != nil {
		got.Next = h.Next.Number
	}
	got.Op.Since, got.Op.Lease, got.Op.Why, got.Op.Edited = time.Time{}, time.Time{}, "", 0
	if w.op != nil {
		want.Op = Operation{
			ID: w.op.id, Kind: w.op.kind, Number: w.op.number, Base: w.op.base, Former: w.op.former, Holder: w.op.holder,
			Reservation: w.op.reserved,
		}
		want.Lapsed = w.op.left <= 0
	}
	versions, err := m.Versions(context.Background(), m.list)
	if err != nil {
		t.Fatal(err)
	}
	for _, v := range versions {
		got.Versions[v.Number] = [3]bool{v.Doubt != "", v.Damaged != "", v.StoppedMS != 0}
	}
	for n, v := range w.versions {
		want.Versions[n] = [3]bool{v.doubt, v.damaged, v.stopped}
	}
	staged, err := m.Staged(context.Background(), m.list)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range staged {
		got.Staged[c.ID] = c
	}
	if v := w.versions[w.serving]; v != nil {
		want.IDs, want.Behind = w.holds(v), w.entries(v.base)
		got.IDs, got.Behind = maps.Clone(v.content), int(h.Edited-h.Serving.Edited)
		for _, e := range d.Edits {
			if e.Revision <= h.Serving.Base {
				continue
			}
			for _, c := range e.Changes {
				delete(got.IDs, c.ID)
				if !c.Remove {
					got.IDs[c.ID] = true
				}
			}
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Fatal(diff)
	}
	revisions := make([]int64, 0, len(d.Edits))
	for _, e := range d.Edits {
		revisions = append(revisions, e.Revision)
	}
	if len(revisions) != len(w.edits)-w.trimmed || !slices.IsSorted(revisions) {
		t.Fatalf("%d edits are left of %d, %d are trimmed: %v", len(revisions), len(w.edits), w.trimmed, revisions)
	}
}
