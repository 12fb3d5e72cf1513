package pool

import (
	"fmt"
	"strings"
	"testing"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/selection"
)

// TestPauseWithoutDocument: what is paused counts beside the replicas' own files, which go
// on to count.
func TestPauseWithoutDocument(t *testing.T) {
	backends(t, func(t *testing.T, r *rig) {
		ctx := deadline(t)
		f := r.follow(Config{Interval: neverCompare, File: pools("file")})
		out, paused, err := r.store.ChangePaused(ctx, func(p *selection.Paused) { p.Services = append(p.Services, "tts") }, "pause service tts", "alice", "it is broken")
		if err != nil || out.Version != 1 || paused.Text() != `{"services":["tts"]}` {
			t.Fatalf("%+v %v %v; want no error, out.Version == 1, paused.Text() == `{\"services\":[\"tts\"]}`", out, paused, err)
		}
		got := f.sync(t)
		if got.Source != SourceFile || got.Version != 1 || text(got.Config) != text(pools("file")) || !got.Config.Paused.Equal(paused) || got.Config.Generation == "" {
			t.Errorf(`%+v %+v; want got.Source == SourceFile, got.Version == 1, text(got.Config) == text(pools("file")), got.Config.Paused.Equal(paused), got.Config.Generation != ""`, got, got.Config)
		}
		versions, err := r.store.Versions(ctx)
		if err != nil || len(versions) != 1 || versions[0].Action != "pause service tts" || versions[0].Author != "alice" || versions[0].Note != "it is broken" {
			t.Errorf(`%+v %v; want no error, len(versions) == 1, versions[0].Action == "pause service tts", versions[0].Author == "alice", versions[0].Note == "it is broken"`, versions, err)
		}
		_, err = r.store.Rollback(ctx, 1, 1, "", "")
		if freeslot.CodeOf(err) != freeslot.CodeNotFound || !strings.Contains(err.Error(), "changed what is paused") {
			t.Error(err)
		}
		if out, _, err = r.store.ChangePaused(ctx, func(p *selection.Paused) { p.Services = nil }, "", "alice", ""); err != nil || out.Version != 2 {
			t.Fatalf("%+v %v; want no error, out.Version == 2", out, err)
		}
		if got := f.sync(t); got.Source != SourceFile || got.Version != 0 || got.Config.Pauses() {
			t.Errorf("%+v; want got.Source == SourceFile, got.Version == 0, not got.Config.Pauses()", got)
		}
	})
}

// TestPauseBesideDocument: a pause changes nothing of the document but its version, which
// releases that know no pauses read as ever, and a change of the document by one of them leaves
// what is paused alone.
func TestPauseBesideDocument(t *testing.T) {
	backends(t, func(t *testing.T, r *rig) {
		ctx := deadline(t)
		f := r.follow(Config{Interval: neverCompare})
		r.apply(0, pools("a"))
		if out, err := r.store.Pause(ctx, 1, &selection.Paused{Pools: []string{"a"}}, "", "", ""); err != nil || out.Version != 2 {
			t.Fatalf("%+v %v; want no error, out.Version == 2", out, err)
		}
		state, err := r.store.stored(ctx)
		if want := strings.TrimSuffix(text(pools("a")), "}") + `,"version":2}`; err != nil || string(state.content) != want {
			t.Errorf("%s, expected %s, %v", state.content, want, err)
		}
		doc, err := r.store.Read(ctx)
		if err != nil || doc.Edited || doc.Entry == nil || doc.Paused.Text() != `{"pools":["a"]}` || doc.Config.Paused != doc.Paused {
			t.Errorf("%+v %v", doc, err)
		}
		r.applyAsBefore(3, pools("b"))
		if got := f.sync(t); got.Version != 3 || text(got.Config) != text(pools("b")) || got.Config.Paused.Text() != `{"pools":["a"]}` {
			t.Errorf("%+v; want got.Version == 3, text(got.Config) == text(pools(\"b\")), got.Config.Paused.Text() == `{\"pools\":[\"a\"]}`", got)
		}
		// Nothing is known of what was paused in a version of such a release, so it stays.
		if out, err := r.store.Rollback(ctx, 3, 3, "", ""); err != nil || !out.Unchanged {
			t.Errorf("%+v %v; want no error, out.Unchanged", out, err)
		}
		if out, err := r.store.Rollback(ctx, 3, 1, "", ""); err != nil || out.Version != 4 {
			t.Errorf("%+v %v; want no error, out.Version == 4", out, err)
		}
		if got := f.sync(t); got.Config.Pauses() || text(got.Config) != text(pools("a")) {
			t.Errorf(`%+v; want not got.Config.Pauses(), text(got.Config) == text(pools("a"))`, got)
		}
		with := pools("a")
		with.Paused = &selection.Paused{Classes: []string{"0123456789abcdef"}}
		r.apply(4, with)
		r.apply(5, pools("c"))
		if got := f.sync(t); got.Config.Paused.Text() != `{"classes":["0123456789abcdef"]}` {
			t.Errorf("%+v; want got.Config.Paused.Text() == `{\"classes\":[\"0123456789abcdef\"]}`", got)
		}
		with = pools("c")
		with.Paused = &selection.Paused{}
		r.apply(6, with)
		if got := f.sync(t); got.Config.Pauses() {
			t.Errorf("%+v; want not got.Config.Pauses()", got)
		}
	})
}

// applyAsBefore does what a release does that knows no pauses.
func (r *rig) applyAsBefore(version int, cfg *selection.Config) {
	r.t.Helper()
	content := text(cfg)
	r.Do("SET", r.keys.document, fmt.Sprintf(`%s,"version":%d}`, strings.TrimSuffix(content, "}"), version))
	r.Do("HSET", r.keys.version, "revision", fmt.Sprint(version))
	r.Do("HSET", r.keys.history, fmt.Sprint(version), content, fmt.Sprintf("%d:meta", version), fmt.Sprintf(`{"author":"x","version":%d,"at_ms":1}`, version))
}

// TestPauseTogether: whoever pauses while others do loses nothing of what they did.
func TestPauseTogether(t *testing.T) {
	backends(t, func(t *testing.T, r *rig) {
		r.apply(0, pools("a"))
		const operators = 8
		group(operators, func(i int) {
			edit := func(p *selection.Paused) { p.Pools = append(p.Pools, fmt.Sprint("p", i)) }
			if _, _, err := r.store.ChangePaused(deadline(t), edit, "", "", ""); err != nil {
				t.Error(err)
			}
		})
		doc, err := r.store.Read(deadline(t))
		if err != nil || doc.Version != 1+operators || len(doc.Paused.Pools) != operators {
			t.Errorf("%+v %v; want no error, doc.Version == 1+operators, len(doc.Paused.Pools) == %v", doc, err, operators)
		}
	})
}

// TestPauseEdited: what an operator broke by hand is told, and what was in force before stays.
func TestPauseEdited(t *testing.T) {
	backends(t, func(t *testing.T, r *rig) {
		ctx := deadline(t)
		f := r.follow(Config{Interval: neverCompare})
		r.apply(0, pools("a"))
		pause := func(seen uint64) {
			t.Helper()
			if _, err := r.store.Pause(ctx, seen, &selection.Paused{Pools: []string{"a"}}, "", "", ""); err != nil {
				t.Fatal(err)
			}
		}
		pause(1)
		f.sync(t)
		for i, broken := range []string{"", "{", "[]", `{"pool":["a"]}`, `{"pools":["?"]}`} {
			r.Do("SET", r.keys.paused, broken)
			got := f.sync(t)
			if got.Problem == nil || got.Version != 2+uint64(i) || got.Config.Paused.Text() != `{"pools":["a"]}` {
				t.Errorf("%q: %+v; want got.Problem != nil, got.Version == 2+uint64(i), got.Config.Paused.Text() == `{\"pools\":[\"a\"]}`", broken, got)
			}
			if _, _, err := r.store.ChangePaused(ctx, func(*selection.Paused) {}, "", "", ""); freeslot.CodeOf(err) != freeslot.CodeConflict {
				t.Errorf("%q: %v; want freeslot.CodeOf(err) == freeslot.CodeConflict", broken, err)
			}
			// A replica that starts now goes by the newest version of the history.
			if got := r.follow(Config{Interval: neverCompare}).Current(); got.Source != SourceHistory || got.Config.Paused.Text() != `{"pools":["a"]}` {
				t.Errorf("%q: %+v; want got.Source == SourceHistory, got.Config.Paused.Text() == `{\"pools\":[\"a\"]}`", broken, got)
			}
			pause(2 + uint64(i))
			if got := f.sync(t); got.Problem != nil || got.Version != 3+uint64(i) {
				t.Errorf("%q: %+v; want got.Problem == nil, got.Version == 3+uint64(i)", broken, got)
			}
		}
		r.Do("DEL", r.keys.paused)
		if got := f.sync(t); got.Problem != nil || got.Config.Pauses() {
			t.Errorf("%+v; want got.Problem == nil, not got.Config.Pauses()", got)
		}
		r.Do("SADD", r.keys.paused, "x")
		if got := f.sync(t); got.Problem == nil {
			t.Errorf("%+v; want got.Problem != nil", got)
		}
	})
}
