package version

import (
	"errors"
	"fmt"
	"maps"
	"strconv"
	"testing"

	"pgregory.net/rapid"

	"github.com/freeslot/freeslot/internal/namelist/form"
)

// What an export writes, an import reads, of all ids that the forms allow.
func TestLinesAreReadAgain(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		id, err := form.Exact.Clean(rapid.StringN(1, 40, 256).Draw(rt, "id"))
		if err != nil {
			rt.Skip(err)
		}
		expires := rapid.OneOf(rapid.Just(int64(0)), rapid.Int64Range(1, 1<<42)).Draw(rt, "expires")
		entries, report, err := parseText(t, CSV, form.Exact, Header(CSV)+string(AppendLine(nil, CSV, id, expires)))
		want := id
		if expires != 0 {
			want += "," + strconv.FormatInt(expires, 10)
		}
		if err != nil || len(entries) != 1 || entries[0] != want {
			rt.Fatalf("%q, %v, %v; expected %q", entries, report, err, want)
		}
	})
}

// Versions of different segments are read in the same order, and a sample has each entry once.
func TestOrdered(t *testing.T) {
	onBoth(t, func(t *testing.T, r *rig) {
		want := make(map[string]int64)
		for i := range 3000 {
			want["id-"+strconv.Itoa(i)] = int64(i % 3 * 2_000_000_000_000)
		}
		few := r.build(r.plan(upload(file(want)))).Version
		other := newRig(t, r.redis, func(c *SegmentsConfig) { c.Entries = 16 })
		other.number = r.number
		many := other.build(other.plan(upload(file(want)))).Version
		if many.Segments == few.Segments {
			t.Fatalf("both have %d segments", few.Segments)
		}
		var orders [2][]Hashed
		for e, err := range other.Ordered(bounded(t), "vip", &many, seed) {
			if err != nil {
				t.Fatal(err)
			}
			orders[0] = append(orders[0], e)
		}
		for e, err := range r.Ordered(bounded(t), "vip", &few, seed) {
			if err != nil {
				t.Fatal(err)
			}
			orders[1] = append(orders[1], e)
		}
		got := make(map[string]int64)
		for i, e := range orders[0] {
			if e != orders[1][i] || i > 0 && orders[0][i-1].Compare(e) >= 0 {
				t.Fatalf("entry %d: %v and %v after %v", i, e, orders[1][i], orders[0][max(i, 1)-1])
			}
			got[e.ID] = e.ExpiresMS
		}
		if !maps.Equal(got, want) || len(orders[1]) != len(want) {
			t.Fatalf("%d and %d entries, expected %d", len(got), len(orders[1]), len(want))
		}
		for _, err := range other.Ordered(bounded(t), "vip", &many, seed) {
			if err != nil {
				t.Fatal(err)
			}
			break // nothing may stay behind: leaks are looked for
		}
		for _, count := range []int{1, 20, 1000, 5000} {
			sample, err := r.Sample(bounded(t), "vip", &few, count)
			if err != nil || len(sample) != min(count, 3000) {
				t.Fatalf("%d of %d: %v", len(sample), count, err)
			}
			seen := make(map[string]bool)
			for _, e := range sample {
				if expires, ok := want[e.ID]; !ok || expires != e.ExpiresMS || seen[e.ID] {
					t.Fatalf("%+v is twice in the sample, or not in the version", e)
				}
				seen[e.ID] = true
			}
		}
		other.do("DEL", other.segmentKey("vip", &many, many.Segments-1))
		damage := &DamageError{}
		for e, err := range other.Ordered(bounded(t), "vip", &many, seed) {
			if err != nil && !errors.As(err, &damage) {
				t.Fatal(e, err)
			}
		}
		if want := fmt.Sprintf("segment %d has no seal", many.Segments-1); damage.Why != want {
			t.Errorf("%q, expected %q", damage.Why, want)
		}
	})
}
