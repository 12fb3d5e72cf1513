package pool

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/selection"
	"github.com/freeslot/freeslot/internal/testing/redistest"
)

// twin is Redis and the replicas, told in the plainest way.
type twin struct {
	version  uint64                       // of the counter
	versions map[uint64]*selection.Config // the history
	document *selection.Config            // nil without one, or a broken one
	broken   bool
	paused   *selection.Paused
	then     map[uint64]*selection.Paused // by version of the history
	// could are what a replica could have in force when it has not looked since the last sync.
	could map[string]bool
}

func (w *twin) truth() string {
	if w.document == nil {
		return text(pools("file"))
	}
	return text(w.document)
}

// note is called after each operation.
func (w *twin) note() {
	if !w.broken {
		w.could[w.truth()] = true
	}
}

// TestProperty: after random applies, rollbacks, edits, losses and flushes, every
// follower has in force what is in Redis, or when that is broken, what it last saw valid.
func TestProperty(t *testing.T) {
	t.Parallel()
	// A server of its own for each: the test flushes.
	t.Run("single", func(t *testing.T) {
		t.Parallel()
		property(t, newRig(t, redistest.New(t).Target))
	})
	t.Run("cluster", func(t *testing.T) {
		t.Parallel()
		property(t, newRig(t, redistest.NewCluster(t).Target))
	})
}

func property(t *testing.T, r *rig) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	replicas := make([]*replica, 3)
	for i := range replicas {
		// One compares only when it is told to or hears something, one never hears anything.
		replicas[i] = r.follow(Config{Interval: neverCompare, File: pools("file"), NoEvents: i == 2})
	}
	w := &twin{then: map[uint64]*selection.Paused{}, versions: map[uint64]*selection.Config{}, could: map[string]bool{text(pools("file")): true}}
	for step := range 400 {
		what := r.operation(t, w, random, step)
		w.note()
		if random.IntN(3) > 0 {
			continue
		}
		for i, f := range replicas {
			got := f.sync(t)
			switch {
			case w.broken != (got.Problem != nil):
				t.Fatalf("step %d, %s: replica %d says %v", step, what, i, got.Problem)
			case !w.broken && !got.Config.Paused.Equal(w.paused):
				t.Fatalf("step %d, %s: replica %d pauses %s, expected %s", step, what, i, got.Config.Paused.Text(), w.paused.Text())
			case !w.broken && text(got.Config) != w.truth(), !w.could[text(got.Config)]:
				t.Fatalf("step %d, %s: replica %d has %s, expected %s", step, what, i, text(got.Config), w.truth())
			}
			for range len(f.told) - 1 {
				<-f.told
			}
			if last := <-f.told; text(last) != text(got.Config) || !last.Paused.Equal(got.Config.Paused) || last.Version != got.Version {
				t.Fatalf("step %d, %s: replica %d was told %s and has %s", step, what, i, text(last), text(got.Config))
			}
			f.told <- got.Config // so that the next round finds one
		}
		if !w.broken {
			w.could = map[string]bool{w.truth(): true}
		}
	}
	versions, err := r.store.Versions(deadline(t))
	if err != nil || len(versions) != len(w.versions) {
		t.Errorf("%d versions, expected %d, %v", len(versions), len(w.versions), err)
	}
}

// operation does something to Redis and to the twin, and says what.
func (r *rig) operation(t *testing.T, w *twin, random *rand.Rand, step int) string {
	t.Helper()
	ctx := deadline(t)
	fresh := pools(fmt.Sprint("p", random.IntN(12)), fmt.Sprint("q", random.IntN(4)))
	paused := &selection.Paused{Pools: [][]string{nil, {"p1"}, {"p2", "p1"}}[random.IntN(3)]}
	if random.IntN(4) == 0 {
		fresh.Paused = paused // else what is paused stays
	}
	applied := func(what string, cfg *selection.Config, out Outcome, err error) string {
		if err != nil {
			t.Fatalf("step %d, %s: %v", step, what, err)
		}
		if out.Unchanged {
			if w.broken || w.truth() != text(cfg) || cfg.Paused != nil && !cfg.Paused.Equal(w.paused) {
				t.Fatalf("step %d, %s: called unchanged", step, what)
			}
			return what
		}
		next := w.version
		for v := range w.versions {
			next = max(next, v)
		}
		if out.Version != next+1 {
			t.Fatalf("step %d, %s: version %d, expected %d", step, what, out.Version, next+1)
		}
		w.version, w.document, w.broken = out.Version, cfg, false
		if cfg.Paused != nil {
			w.paused = cfg.Paused
		}
		w.then[out.Version] = w.paused
		w.versions[out.Version] = cfg
		delete(w.versions, out.Version-historyKept)
		return what
	}
	switch n := random.IntN(20); {
	case n < 8:
		out, err := r.store.Apply(ctx, Change{Seen: w.version, Config: fresh})
		return applied("apply", fresh, out, err)
	case n < 10 && len(w.versions) > 0:
		for v, cfg := range w.versions {
			out, err := r.store.Rollback(ctx, w.version, v, "", "")
			if cfg == nil { // a pause without a document
				if freeslot.CodeOf(err) != freeslot.CodeNotFound {
					t.Fatalf("step %d: rollback to %d: %v", step, v, err)
				}
				return "rollback to no document"
			}
			restored := *cfg
			restored.Paused = w.then[v].Normal()
			return applied("rollback", &restored, out, err)
		}
	case n < 11:
		_, err := r.store.Apply(ctx, Change{Seen: w.version + 1 + random.Uint64N(5), Config: pools("conflict")})
		var conflict *ConflictError
		if !errors.As(err, &conflict) || conflict.Current != w.version {
			t.Fatalf("step %d: %v, expected a conflict with %d", step, err, w.version)
		}
		return "conflict"
	case n < 13 && !w.broken:
		before := w.paused
		out, err := r.store.Pause(ctx, w.version, paused, "", "", "")
		if err != nil || out.Unchanged != paused.Equal(before) {
			t.Fatalf("step %d, pause %s after %s: %+v, %v", step, paused.Text(), before.Text(), out, err)
		}
		if out.Unchanged {
			return "pause what is paused"
		}
		w.version, w.paused = out.Version, paused
		w.versions[out.Version], w.then[out.Version] = w.document, paused
		delete(w.versions, out.Version-historyKept)
		return "pause"
	case n < 14:
		fresh.Paused = nil
		r.Do("SET", r.keys.document, text(fresh))
		w.document, w.broken = fresh, false
		return "edit"
	case n < 16:
		r.Do("SET", r.keys.document, []string{"{", `{"mode":"x"}`, "", `{"pools":[{"id":""}]}`}[random.IntN(4)])
		w.broken = true
		return "break"
	case n < 17:
		r.Do("DEL", r.keys.document)
		w.document, w.broken = nil, false
		return "delete"
	case n < 18:
		r.Do("DEL", r.keys.version)
		w.version = 0
		return "lose the counter"
	case n < 19:
		r.Do("DEL", r.keys.pairs)
		return "lose the index"
	default:
		r.flush()
		w.version, w.document, w.broken, w.paused = 0, nil, false, nil
		clear(w.versions)
		return "flush"
	}
	return "nothing"
}
