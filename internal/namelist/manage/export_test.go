package manage

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"pgregory.net/rapid"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/namelist"
	"github.com/freeslot/freeslot/internal/namelist/version"
	"github.com/freeslot/freeslot/internal/testing/redistest"
)

const (
	past   = 1_000_000_000_000
	future = 4_000_000_000_000
)

// book knows what the versions of a list must have.
type book struct {
	*rig
	list     string
	versions map[int64]map[string]int64
	bases    map[int64]int64
	edits    []namelist.Edit
	serving  int64
}

// apply returns entries with the edits above after, up to last.
func (b *book) apply(entries map[string]int64, after, last int64) map[string]int64 {
	out := maps.Clone(entries)
	for _, e := range b.edits {
		for _, c := range e.Changes {
			switch {
			case e.Revision <= after || e.Revision > last:
			case c.Remove:
				delete(out, c.ID)
			default:
				out[c.ID] = c.ExpiresMS
			}
		}
	}
	return out
}

// current leaves out what has expired.
func current(entries map[string]int64) map[string]int64 {
	maps.DeleteFunc(entries, func(_ string, expires int64) bool { return expires == past })
	return entries
}

func drawEntries(t *rapid.T) map[string]int64 {
	ids := rapid.StringMatching(`[a-d]{1,2}[",é]?`)
	return rapid.MapOfN(ids, rapid.SampledFrom([]int64{0, 0, past, future, future + 1}), 1, 20).Draw(t, "entries")
}

func (b *book) imports(t *rapid.T, mode Mode) {
	entries := drawEntries(t)
	text := []byte(version.Header(version.CSV))
	for id, expires := range entries {
		text = version.AppendLine(text, version.CSV, id, expires)
	}
	if mode != Remove {
		entries = current(entries) // the others are refused
	}
	u := b.upload(Upload{List: b.list, Mode: mode, By: by}, string(text))
	if u.State != Ready {
		t.Fatalf("%+v; want u.State == Ready", u)
	}
	n := u.Version.Number
	// What a build gets has no base, which is of the operation.
	v, err := b.control.Version(b.ctx, b.list, n)
	b.check(err)
	want := make(map[string]int64)
	if mode != Replace && b.serving != 0 {
		want = b.apply(b.versions[b.serving], b.bases[b.serving], v.Base)
	}
	for id, expires := range entries {
		if want[id] = expires; mode == Remove {
			delete(want, id)
		}
	}
	b.versions[n], b.bases[n] = current(want), v.Base
}

func (b *book) switches(number int64) {
	_, err := b.control.Accept(b.ctx, b.list, number)
	b.check(err)
	_, err = b.Switch(b.ctx, b.list, SwitchRequest{Number: number, Serving: namelist.AnyVersion, Now: true, By: by})
	b.check(err)
	b.rig.serves(b.list, number)
	b.serving = number
}

func (b *book) edit(t *rapid.T) {
	e := namelist.Edit{}
	for id, expires := range drawEntries(t) {
		c := namelist.Change{Entry: namelist.Entry{ID: id, ExpiresMS: expires}}
		if rapid.Bool().Draw(t, "remove") {
			c.Remove, c.ExpiresMS = true, 0
		}
		e.Changes = append(e.Changes, c)
	}
	var err error
	e.Revision, err = b.control.Edit(b.ctx, b.list, namelist.EditRequest{Changes: e.Changes, By: by})
	b.check(err)
	b.edits = append(b.edits, e)
}

// Exports and diffs of versions say what maps of their entries and edits say.
func TestExportAndDiff(t *testing.T) {
	t.Parallel()
	r := newRig(t, redistest.Shared(t))
	var lists atomic.Int64
	rapid.Check(t, func(t *rapid.T) {
		b := &book{rig: r, list: fmt.Sprint("l", lists.Add(1)), versions: make(map[int64]map[string]int64), bases: make(map[int64]int64)}
		_, err := r.control.Create(r.ctx, b.list, namelist.Spec{})
		r.check(err)
		b.imports(t, Replace)
		b.switches(1)
		for range rapid.IntRange(1, 2).Draw(t, "imports") {
			b.edit(t)
			b.imports(t, rapid.SampledFrom([]Mode{Replace, Add, Remove}).Draw(t, "mode"))
		}
		if rapid.Bool().Draw(t, "switch") {
			b.switches(2)
		}
		b.edit(t)
		revision := r.head(b.list).Revision
		for n, entries := range b.versions {
			b.exports(t, ExportRequest{Version: n}, n, revision, current(b.apply(entries, b.bases[n], revision)))
			b.exports(t, ExportRequest{Version: n, Bare: true}, n, 0, entries)
			for other := range b.versions {
				if other != n {
					b.differs(t, n, other)
				}
			}
		}
		b.exports(t, ExportRequest{}, b.serving, revision, current(b.apply(b.versions[b.serving], b.bases[b.serving], revision)))
		r.check(func() error {
			_, err := r.control.Delete(r.ctx, b.list, namelist.AnyVersion, true, by)
			return err
		}())
	})
}

func (b *book) exports(t *rapid.T, q ExportRequest, number, revision int64, want map[string]int64) {
	t.Helper()
	var out bytes.Buffer
	got, err := b.Export(b.ctx, b.list, q, func(x Exported) io.Writer {
		if x.Version != number || x.Revision != revision {
			t.Errorf("%+v: %+v, expected version %d, revision %d", q, x, number, revision)
		}
		return &out
	})
	if err != nil {
		t.Fatal(err)
	}
	lines := []string{strings.TrimSuffix(version.Header(version.CSV), "\n")}
	for id, expires := range want {
		lines = append(lines, strings.TrimSuffix(string(version.AppendLine(nil, version.CSV, id, expires)), "\n"))
	}
	is := strings.Split(strings.TrimSuffix(out.String(), "\n"), "\n")
	slices.Sort(is[1:])
	slices.Sort(lines[1:])
	if !slices.Equal(is, lines) || got.Count != int64(len(want)) || [sha256.Size]byte(got.SHA256) != sha256.Sum256(out.Bytes()) {
		t.Fatalf("%+v:\n%q, expected\n%q", q, is, lines)
	}
}

func (b *book) differs(t *rapid.T, n, other int64) {
	t.Helper()
	got, err := b.Diff(b.ctx, b.list, n, other, 1000)
	if err != nil {
		t.Fatal(err)
	}
	entries, before := b.versions[n], b.versions[other]
	want := map[string][]string{}
	for id, expires := range entries {
		switch had, ok := before[id]; {
		case !ok:
			want["added"] = append(want["added"], fmt.Sprint(id, expires))
		case had != expires:
			want["changed"] = append(want["changed"], fmt.Sprint(id, expires, had))
		default:
			want["same"] = append(want["same"], "")
		}
	}
	for id, expires := range before {
		if _, ok := entries[id]; !ok {
			want["removed"] = append(want["removed"], fmt.Sprint(id, expires))
		}
	}
	newest := make(map[string]namelist.Change)
	for _, e := range b.edits {
		for _, c := range e.Changes {
			if e.Revision > b.bases[other] && e.Revision <= b.bases[n] {
				newest[c.ID] = c
			}
		}
	}
	for id, c := range newest {
		expires, has := entries[id]
		gone := c.Remove || c.ExpiresMS == past && !has
		if gone == has || has && expires != c.ExpiresMS {
			want["dropped"] = append(want["dropped"], fmt.Sprint(id, c.ExpiresMS, c.Remove))
		}
	}
	is := map[string][]string{}
	for kind, of := range map[string]Differences[DiffEntry]{"added": got.Added, "removed": got.Removed, "changed": got.Changed} {
		for _, e := range of.Examples {
			text := fmt.Sprint(e.ID, e.ExpiresMS)
			if kind == "changed" {
				text = fmt.Sprint(e.ID, e.ExpiresMS, e.BeforeMS)
			}
			is[kind] = append(is[kind], text)
		}
		if of.Count != int64(len(of.Examples)) {
			t.Fatalf("%s: %+v; want of.Count == int64(len(of.Examples))", kind, of)
		}
	}
	for _, c := range got.Dropped.Examples {
		is["dropped"] = append(is["dropped"], fmt.Sprint(c.ID, c.ExpiresMS, c.Remove))
	}
	is["same"] = make([]string, got.Same)
	for _, kind := range []string{"added", "removed", "changed", "same", "dropped"} {
		slices.Sort(is[kind])
		slices.Sort(want[kind])
		if !slices.Equal(is[kind], want[kind]) {
			t.Fatalf("%d against %d, %s: %q, expected %q", n, other, kind, is[kind], want[kind])
		}
	}
}

// A lost or foreign segment ends an export: before the first byte as a refusal, later as a cut.
func TestExportEnds(t *testing.T) {
	t.Parallel()
	r := newRig(t, redistest.Shared(t))
	_, err := r.control.Create(r.ctx, "vip", namelist.Spec{})
	r.check(err)
	r.upload(Upload{List: "vip", Format: version.TXT, Switch: true, By: by}, lines(0, 30_000))
	r.serves("vip", 1)
	_, err = r.control.Freeze(r.ctx, "vip", by)
	r.check(err)
	exported := func() (begun bool, text string, err error) {
		return r.exportTo("vip", ExportRequest{Format: version.TXT})
	}
	_, text, err := exported()
	if got := strings.Count(text, "\n"); err != nil || got != 30_000 {
		t.Fatalf("a frozen list: %d lines, %v", got, err)
	}
	for range maxReads {
		r.reads <- struct{}{}
	}
	if begun, _, err := exported(); freeslot.CodeOf(err) != freeslot.CodeOverloaded || begun {
		t.Errorf("beside %d others: begun %v, %v", maxReads, begun, err)
	}
	for range maxReads {
		<-r.reads
	}
	v := r.head("vip").Serving
	key := func(segment uint32) string { return namelist.SegmentKey(r.prefix, "vip", 1, segment) }
	client := r.redis.Client(t)
	r.check(client.Do(r.ctx, client.B().Hset().Key(key(v.Segments-1)).FieldValue().FieldValue("", "another 80").Build()).Error())
	damage := func(err error) bool { return errors.As(err, new(*version.DamageError)) }
	if begun, text, err := exported(); !damage(err) || !begun || strings.Count(text, "\n") >= 30_000 {
		t.Errorf("a foreign last segment: begun %v, %v", begun, err)
	}
	if _, err := r.Diff(r.ctx, "vip", 1, 1, 0); freeslot.CodeOf(err) != freeslot.CodeInvalidArgument {
		t.Errorf("with itself: %v", err)
	}
	r.check(client.Do(r.ctx, client.B().Del().Key(key(0)).Build()).Error())
	if begun, _, err := exported(); !damage(err) || begun {
		t.Errorf("a lost first segment: begun %v, %v", begun, err)
	}
	_, err = r.control.Damage(r.ctx, "vip", 1, "gone")
	r.check(err)
	if begun, _, err := exported(); freeslot.CodeOf(err) != freeslot.CodeConflict || begun {
		t.Errorf("a version that is known to be damaged: begun %v, %v", begun, err)
	}
	if _, err := r.Sample(r.ctx, "vip", 1, 5); freeslot.CodeOf(err) != freeslot.CodeConflict {
		t.Errorf("a sample of it: %v", err)
	}
	if _, _, err := r.exportTo("vip", ExportRequest{Format: "xml"}); freeslot.CodeOf(err) != freeslot.CodeInvalidArgument {
		t.Errorf("as xml: %v", err)
	}
}

func (r *rig) exportTo(list string, q ExportRequest) (begun bool, text string, err error) {
	var out bytes.Buffer
	_, err = r.Export(r.ctx, list, q, func(Exported) io.Writer { begun = true; return &out })
	return begun, out.String(), err
}

// Refused lines are read page by page, as long as their upload is there.
func TestRejects(t *testing.T) {
	t.Parallel()
	r := newRig(t, redistest.Shared(t))
	_, err := r.control.Create(r.ctx, "vip", namelist.Spec{})
	r.check(err)
	open, err := r.OpenUpload(r.ctx, Upload{List: "vip", By: by})
	r.check(err)
	if _, err := r.Rejects(open.ID, 0, 10); freeslot.CodeOf(err) != freeslot.CodeConflict {
		t.Errorf("of an open upload: %v", err)
	}
	u := r.upload(Upload{List: "vip", Format: version.TXT, By: by}, "a\n"+strings.Repeat("\n", version.MaxRejects+5)+"b\n")
	var lines []int64
	for after, pages := int64(0), 0; ; pages++ {
		page, err := r.RejectsOf(r.ctx, "vip", 1, after, 3000)
		r.check(err)
		for _, reject := range page.Rejects {
			lines = append(lines, reject.Line)
		}
		if page.Rejected != version.MaxRejects+5 {
			t.Fatalf("%d are rejected", page.Rejected)
		}
		if after = page.After; after == 0 {
			if pages != 3 {
				t.Errorf("%d pages", pages+1)
			}
			break
		}
	}
	if len(lines) != version.MaxRejects || lines[0] != 2 || lines[len(lines)-1] != version.MaxRejects+1 {
		t.Errorf("%d lines, from %d to %d", len(lines), lines[0], lines[len(lines)-1])
	}
	if _, err := r.RejectsOf(r.ctx, "vip", 2, 0, 10); freeslot.CodeOf(err) != freeslot.CodeNotFound {
		t.Errorf("of no version: %v", err)
	}
	other := r.replica("r2", t.TempDir())
	if _, err := other.RejectsOf(r.ctx, "vip", 1, 0, 10); !errors.As(err, new(*ElsewhereError)) {
		t.Errorf("on another replica: %v", err)
	}
	if got := r.Uploads("vip"); len(got) != 2 || got[0].ID != open.ID || got[1].ID != u.ID || len(r.Uploads("other")) != 0 {
		t.Errorf("uploads: %+v", got)
	}
	r.check(r.DropUpload(r.ctx, u.ID))
	if _, err := r.RejectsOf(r.ctx, "vip", 1, 0, 10); freeslot.CodeOf(err) != freeslot.CodeNotFound {
		t.Errorf("of an upload that has gone: %v", err)
	}
}
