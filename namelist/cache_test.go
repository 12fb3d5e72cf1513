package namelist

import (
	"fmt"
	"testing"

	"pgregory.net/rapid"

	lists "github.com/freeslot/freeslot/internal/namelist"
	"github.com/freeslot/freeslot/internal/namelist/form"
)

// What the cache has is what was put last for that build; it stays within its limit.
func TestCache(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		c := newCache(rapid.Int64Range(400, 4000).Draw(t, "limit"))
		builds := []*build{{"1"}, {"2"}}
		last := make(map[string]entry)
		for range rapid.IntRange(1, 200).Draw(t, "steps") {
			b := rapid.IntRange(0, 1).Draw(t, "build")
			id := fmt.Sprint(rapid.IntRange(0, 30).Draw(t, "id"))
			hash := form.Sum(0, id) % 8 // many are equal
			key := fmt.Sprint(b, id)
			if rapid.Bool().Draw(t, "put") {
				last[key] = entry{has: rapid.Bool().Draw(t, "has"), expires: rapid.Int64Range(0, 9).Draw(t, "expires")}
				c.put(builds[b], hash, id, last[key])
				if e, ok := c.get(builds[b], hash, id); !ok || e != last[key] {
					t.Fatalf("%+v %t, want %+v", e, ok, last[key])
				}
			} else if e, ok := c.get(builds[b], hash, id); ok && e != last[key] {
				t.Fatalf("%+v, want %+v", e, last[key])
			}
			total := int64(0)
			for i := range c.sets {
				for j := range cacheWays {
					if at := c.sets[i].entries[j].Load(); at != nil {
						total += at.bytes()
					}
				}
			}
			if total != c.bytes || total > c.limit {
				t.Fatalf("%d bytes, counted %d, limit %d", total, c.bytes, c.limit)
			}
		}
	})
}

// Edits are those of a map.
func TestEdits(t *testing.T) {
	t.Parallel()
	const seed = 5
	rapid.Check(t, func(t *rapid.T) {
		e, twin, revision := noEdits, make(map[string]change), int64(0)
		for range rapid.IntRange(0, 60).Draw(t, "edits") {
			revision++
			var changes []lists.Change
			first, n := rapid.IntRange(0, 3000).Draw(t, "first"), rapid.IntRange(1, 60).Draw(t, "n")
			for i := range n {
				id := fmt.Sprint(first + i)
				c := lists.Change{Entry: lists.Entry{ID: id, ExpiresMS: int64(i % 3)}}
				at := change{revision, int64(i % 3)}
				if i%5 == 0 {
					c, at.expires = drop(id), removed
				}
				changes, twin[id] = append(changes, c), at
			}
			e = e.with(seed, revision, changes)
		}
		base := rapid.Int64Range(0, revision).Draw(t, "base")
		for _, e := range []*edits{e, e.above(seed, base)} {
			for i := range 3100 {
				id := fmt.Sprint(i)
				got, ok := e.get(form.Sum(seed, id), id, base)
				want, there := twin[id]
				if there = there && want.revision > base; ok != there || ok && got != want {
					t.Fatalf("%s above %d: %+v %t, want %+v %t", id, base, got, ok, want, there)
				}
			}
		}
	})
}
