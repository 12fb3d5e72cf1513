package pool

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/redis/rueidis"

	"github.com/freeslot/freeslot/internal/script"
	"github.com/freeslot/freeslot/internal/testing/redistest"
	"github.com/freeslot/freeslot/internal/testing/scripttest"
	"github.com/freeslot/freeslot/internal/testing/waittest"
)

// TestMigration: while the keys' hash slot goes from one master to another, a change is made whole or not at all, and
// made once it is repeated behind that.
func TestMigration(t *testing.T) {
	t.Parallel()
	cluster := redistest.NewReplicaCluster(t)
	all := func(k keys) []string {
		return []string{k.document, k.version, k.pairsVersion, k.pairs, k.history, k.paused}
	}
	for i := range 2 * len(all(keys{})) {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			layout := script.Layout{Prefix: cluster.Prefix(t), Tag: fmt.Sprint("m", i), Sharded: true}
			r := rigOn(t, scripttest.NewRig(t, cluster.Target, func(c *script.Config) { c.Layout = layout }))
			before := editTo(0, "a")
			before.paused = []byte(`{"pools":["a"]}`)
			r.putNew(before)
			number, _ := layout.Slot()
			slot, to := uint16(number), cluster.Owner(uint16((number+script.HashSlots/3)%script.HashSlots))
			one := all(r.keys)[i/2]
			moved := []string{one}
			if i%2 == 1 { // all but one
				moved = slices.DeleteFunc(all(r.keys), func(key string) bool { return key == one })
			}
			content := r.Dump()
			cluster.BeginMigration(slot, to, moved...)
			ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
			_, err := r.store.put(ctx, editTo(1, "b"))
			cancel()
			refused := errors.As(err, new(*rueidis.RedisError))
			cluster.MigrateSlot(slot, to)
			if diff := cmp.Diff(content, r.Dump()); refused && diff != "" {
				t.Errorf("%v, and it was made in part: %s", err, diff)
			}
			if err != nil {
				waittest.Succeeds(t, "success when tried again", func() error {
					_, err := r.store.put(deadline(t), editTo(1, "b"))
					return err
				})
			}
			if state := r.stored(); state.version != 2 || !maps.Equal(r.Hash(r.keys.pairs), editTo(1, "b").pairs) {
				t.Errorf(`%+v; want state.version == 2, maps.Equal(r.Hash(r.keys.pairs), editTo(1, "b").pairs)`, state)
			}
		})
	}
}
