package demand

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/freeslot/freeslot/internal/dispatch"
	"github.com/freeslot/freeslot/internal/selection"
)

// TestNodesWanted: a pool with a target gets a proposal, which is gone while nodes or cells are not
// known, and which a restart does not lower.
func TestNodesWanted(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newSystem()
		s.cfg = &selection.Config{Enabled: true, Pools: selection.Pools{
			{ID: "gpu", Services: []string{"asr"}, TargetWait: "30s"}, {ID: "idle"},
		}}
		w := s.watch()
		wanted := func() int {
			t.Helper()
			w.Refresh()
			gpu := w.Current().Pools[0]
			if gpu.NodesWanted == nil || gpu.TargetWaitMS != 30_000 {
				t.Fatalf("%+v; want a proposal for 30 s", gpu)
			}
			return *gpu.NodesWanted
		}
		if got := wanted(); got != 2 { // four of its eight slots are used, and nothing waits
			t.Errorf("%d nodes are wanted at the start; want 2, which are there", got)
		}
		s.backlogs = map[dispatch.Kind]dispatch.KindBacklog{asr: {Waiting: 9}}
		if got := wanted(); got != 4 {
			t.Errorf("%d nodes are wanted for 4 slots in use and 9 jobs of unknown length; want 4", got)
		}
		s.backlogs = nil
		time.Sleep(downAfter)
		if got := wanted(); got != 4 {
			t.Errorf("%d nodes are wanted after %s; want 4 still", got, downAfter)
		}
		time.Sleep(interval)
		if got := wanted(); got != 1 {
			t.Errorf("%d nodes are wanted after more time; want the 1 that the used slots need", got)
		}
		if n := testutil.CollectAndCount(w.Collector(), "freeslot_pool_nodes_wanted"); n != 1 {
			t.Errorf("%d pools have a proposal; want the one with a target", n)
		}
		for _, unknown := range []func(bool){
			func(on bool) { s.stale = on },
			func(on bool) {
				s.unreachable = nil
				if on {
					s.unreachable = []int{0}
				}
			},
		} {
			unknown(true)
			w.Refresh()
			if got := w.Current().Pools[0].NodesWanted; got != nil {
				t.Errorf("%d nodes are wanted although not all is known; want no proposal", *got)
			}
			if n := testutil.CollectAndCount(w.Collector(), "freeslot_pool_nodes_wanted"); n != 0 {
				t.Errorf("%d pools have a proposal; want none", n)
			}
			unknown(false)
		}
		row := poolRow{expected: 8}
		if got := row.slotsPerNode(); got != 8 {
			t.Errorf("a new node of an empty pool has %v slots; want the 8 that the pool expects", got)
		}
		s.nodes = nil
		s.backlogs = map[dispatch.Kind]dispatch.KindBacklog{asr: {Waiting: 2}}
		if got := wanted(); got != 1 {
			t.Errorf("%d nodes are wanted for two jobs in an empty pool; want 1, whose jobs tell how long they run", got)
		}
	})
}
