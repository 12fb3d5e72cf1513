package schedule

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/freeslot/freeslot/internal/script"
	"github.com/freeslot/freeslot/internal/testing/redistest"
	"github.com/freeslot/freeslot/internal/testing/scripttest"
)

func TestScripts(t *testing.T) {
	t.Parallel()
	scripttest.Check(t, sources)
}

func TestAccess(t *testing.T) {
	t.Parallel()
	scripttest.CheckAccess(t, access)
}

func TestKeyNames(t *testing.T) {
	t.Parallel()
	scripttest.CheckKeys(t, keysOf)
}

func TestRecords(t *testing.T) {
	t.Parallel()
	r := newStoreRig(t, scripttest.NewRig(t, redistest.Shared(t), func(c *script.Config) { c.Layout = script.Layouts(c.Layout.Prefix, 3, false)[2] }))
	r.writes(true, write{id: "acme/nightly", state: `{"s":1}`, definition: `{"d":1}`, dueMS: r.NowMS() + 60_000})
	r.CheckRecords(t)
}

// storeRig is the schedules of one cell.
type storeRig struct {
	*scripttest.Rig
	*cellStore
	t *testing.T
}

func newStoreRig(t *testing.T, r *scripttest.Rig) *storeRig {
	return &storeRig{Rig: r, cellStore: newStore([]*script.Runner{r.Runner})[0], t: t}
}

func storeBackends(t *testing.T, suite func(t *testing.T, r *storeRig)) {
	t.Helper()
	scripttest.Backends(t, func(t *testing.T, r *scripttest.Rig) { suite(t, newStoreRig(t, r)) })
}

// sound: a schedule is in all keys or in none, and only then it can be due.
func (r *storeRig) sound() {
	r.t.Helper()
	ids := slices.Sorted(maps.Keys(r.Hash(r.keys.states)))
	if diff := cmp.Diff(ids, slices.Sorted(maps.Keys(r.Hash(r.keys.definitions)))); diff != "" {
		r.t.Errorf("states and definitions of schedules: %s", diff)
	}
	if diff := cmp.Diff(ids, slices.Sorted(maps.Keys(r.Scores(r.keys.index)))); diff != "" {
		r.t.Errorf("states and index of schedules: %s", diff)
	}
	for id := range r.Scores(r.keys.due) {
		if !slices.Contains(ids, id) {
			r.t.Errorf("schedule %s is due, and there is none", id)
		}
	}
}

// writes makes a change, or is refused one.
func (r *storeRig) writes(want bool, c write) {
	r.t.Helper()
	if made, err := r.write(r.t.Context(), c); err != nil || made != want {
		r.t.Errorf("%+v: %v, %v; want no error, made == %v", c, made, err, want)
	}
	r.sound()
}

func TestStoreWrite(t *testing.T) {
	storeBackends(t, func(t *testing.T, r *storeRig) {
		const id = "acme/nightly"
		read := func(definition, state string) {
			t.Helper()
			got, now, err := r.read(r.t.Context(), id)
			if want := (record{id: id, definition: definition, state: state}); err != nil || got != want || now == 0 {
				t.Errorf("%+v at %d, %v, expected %+v", got, now, err, want)
			}
		}
		dueAt := func(ahead time.Duration, want ...dueTime) {
			t.Helper()
			got, now, err := r.due(r.t.Context(), ahead, 2)
			if err != nil || now == 0 || !slices.Equal(got, want) {
				t.Errorf("%v at %d, %v, expected %v", got, now, err, want)
			}
		}
		read("", "")
		r.writes(false, write{id: id, seen: "s0", state: "s1", definition: "d1", dueMS: 5})
		first := write{id: id, state: "s1", definition: "d1", dueMS: 5}
		r.writes(true, first)
		read("d1", "s1")
		dueAt(0, dueTime{id, 5})
		second := write{id: id, seen: "s1", state: "s2", dueMS: r.NowMS() + 3600_000}
		r.writes(true, second)
		read("d1", "s2")
		dueAt(0)
		dueAt(2*time.Hour, dueTime{id, second.dueMS})
		// What was made is not made again, in whichever order calls arrive.
		r.Unchanged("late calls", func() { r.writes(false, first); r.writes(false, second) })
		r.writes(true, write{id: id, seen: "s2", state: "s3"})
		dueAt(2 * time.Hour)
		r.writes(true, write{id: id, seen: "s3"})
		read("", "")
		r.writes(true, write{id: id})
		for i := range 3 {
			r.writes(true, write{id: fmt.Sprintf("acme/n%d", i), state: "s", definition: "d", dueMS: int64(10 - i)})
		}
		dueAt(0, dueTime{"acme/n2", 8}, dueTime{"acme/n1", 9})
		r.sound()
	})
}

// TestStoreRaces: of those who saw the same state one makes a change.
func TestStoreRaces(t *testing.T) {
	storeBackends(t, func(t *testing.T, r *storeRig) {
		const racers, rounds = 8, 10
		state := ""
		for round := range rounds {
			won, seen := make(chan string, racers), state
			for i := range racers {
				go func() {
					next := fmt.Sprintf("%d-%d", round, i)
					made, err := r.write(r.t.Context(), write{id: "acme/a", seen: seen, state: next, definition: "d", dueMS: 1})
					if err != nil {
						t.Error(err)
					}
					if !made {
						next = ""
					}
					won <- next
				}()
			}
			winners := 0
			for range racers {
				if next := <-won; next != "" {
					state = next
					winners++
				}
			}
			if winners != 1 {
				t.Fatalf("%d made the change", winners)
			}
		}
		r.sound()
	})
}

// TestStoreList pages through tenants whose names begin alike.
func TestStoreList(t *testing.T) {
	storeBackends(t, func(t *testing.T, r *storeRig) {
		ids := []string{"a-b/x", "a.b/x", "a/x", "a/y", "a/z", "a0/x", "ab/x", "b/x"}
		for _, id := range ids {
			r.writes(true, write{id: id, state: "s " + id, definition: "d " + id})
		}
		for tenant, want := range map[string][]string{"": ids, "a": {"a/x", "a/y", "a/z"}, "b": {"b/x"}, "c": nil} {
			for limit := 1; limit <= 9; limit++ {
				var got []string
				for after, more := "", true; more; {
					page, err := r.list(r.t.Context(), tenant, after, limit)
					if err != nil || len(page.records) > limit || page.more && len(page.records) == 0 {
						t.Fatal(page, err)
					}
					for _, record := range page.records {
						if record.state != "s "+record.id || record.definition != "d "+record.id {
							t.Error(record)
						}
						got = append(got, record.id)
						after = record.id
					}
					more = page.more
				}
				if diff := cmp.Diff(want, got); diff != "" {
					t.Errorf("tenant %q by %d: %s", tenant, limit, diff)
				}
			}
			if tenant == "" {
				continue
			}
			if used, err := r.used(r.t.Context(), tenant); err != nil || used.Schedules != len(want) {
				t.Errorf("tenant %s has %d schedules, %v; expected %d", tenant, used.Schedules, err, len(want))
			}
		}
		// A cursor of a schedule that was deleted, or of another tenant.
		for after, want := range map[string]int{"a/xx": 2, "0/x": 3, "b/x": 0} {
			if page, err := r.list(r.t.Context(), "a", after, 9); err != nil || len(page.records) != want {
				t.Error(after, page, err)
			}
		}
	})
}

// TestMerge: pages of cells, which may end early, make pages of all.
func TestMerge(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		cells := make([][]string, rapid.IntRange(1, 4).Draw(t, "cells"))
		total := rapid.IntRange(0, 20).Draw(t, "schedules")
		for i := range total {
			at := rapid.IntRange(0, len(cells)-1).Draw(t, "cell")
			cells[at] = append(cells[at], fmt.Sprintf("a/%02d", i))
		}
		limit := rapid.IntRange(1, 8).Draw(t, "limit")
		after := ""
		for n := 0; ; {
			parts := make([]page, len(cells))
			for i, ids := range cells {
				rest := slices.DeleteFunc(slices.Clone(ids), func(id string) bool { return id <= after })
				end := min(limit, rapid.IntRange(1, 8).Draw(t, "room"), len(rest))
				for _, id := range rest[:end] {
					parts[i].records = append(parts[i].records, record{id: id})
				}
				parts[i].more = end < len(rest)
			}
			page := merge(parts, limit)
			for _, r := range page.records {
				if r.id != fmt.Sprintf("a/%02d", n) {
					t.Fatalf("%s at %d", r.id, n)
				}
				n++
				after = r.id
			}
			if !page.more {
				if n != total {
					t.Fatalf("%d of %d", n, total)
				}
				return
			}
			if len(page.records) == 0 || len(page.records) > limit {
				t.Fatalf("%d records with a limit of %d", len(page.records), limit)
			}
		}
	})
}

// TestStoreEdited: what an operator made of the keys is made anew.
func TestStoreEdited(t *testing.T) {
	storeBackends(t, func(t *testing.T, r *storeRig) {
		for _, key := range []string{r.keys.definitions, r.keys.states, r.keys.index, r.keys.due} {
			r.Do("DEL", r.keys.definitions)
			r.Do("DEL", r.keys.states)
			r.Do("DEL", r.keys.index)
			r.Do("DEL", r.keys.due)
			r.Do("SET", key, "x")
			r.writes(true, write{id: "acme/a", state: "s1", definition: "d", dueMS: 1})
			r.Do("DEL", key)
			r.Do("SET", key, "x")
			seen := "s1"
			if key == r.keys.states {
				seen = ""
			}
			r.Do("DEL", r.keys.due)
			if made, err := r.write(r.t.Context(), write{id: "acme/a", seen: seen}); err != nil || !made {
				t.Error(key, made, err)
			}
		}
	})
}

// TestStoreOutOfMemory: nothing is changed halfway, and schedules can be deleted.
func TestStoreOutOfMemory(t *testing.T) {
	t.Parallel()
	server := redistest.New(t)
	r := newStoreRig(t, scripttest.NewRig(t, server.Target))
	r.writes(true, write{id: "acme/a", state: "s1", definition: "d1", dueMS: 1})
	r.Do("CONFIG", "SET", "maxmemory", "1")
	defer r.Do("CONFIG", "SET", "maxmemory", "0")
	r.Unchanged("refused", func() {
		for _, c := range []write{{id: "acme/a", seen: "s1", state: "s2", dueMS: 2}, {id: "acme/b", state: "s1", definition: "d1", dueMS: 1}} {
			if _, err := r.write(r.t.Context(), c); err == nil || !strings.Contains(err.Error(), "OOM") {
				t.Error(err)
			}
		}
	})
	if due, _, err := r.due(r.t.Context(), 0, 10); err != nil || len(due) != 1 {
		t.Error(due, err)
	}
	r.writes(true, write{id: "acme/a", seen: "s1"})
}
