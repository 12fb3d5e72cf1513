package demand

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/freeslot/freeslot/internal/dispatch"
	"github.com/freeslot/freeslot/internal/selection"
)

const none = -1 // is no proposal

// proposed returns how many nodes are wanted in the first pool.
func proposed(w *Watch) int {
	if n := w.Current().Pools[0].NodesWanted; n != nil {
		return *n
	}
	return none
}

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
		settle := func() { // until each node has had the time for a heartbeat
			if w.Refresh(); proposed(w) != none {
				t.Errorf("%d nodes are wanted as soon as all is known; want no proposal yet", proposed(w))
			}
			time.Sleep(s.SilenceLimit())
		}
		settle()
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
			settle()
		}
		row := poolRow{expected: 8}
		if got := row.slotsPerNode(4); got != 8 {
			t.Errorf("a new node of an empty pool has %v slots; want the 8 that the pool expects", got)
		}
		s.nodes = nil
		s.backlogs = map[dispatch.Kind]dispatch.KindBacklog{asr: {Waiting: 2}}
		if got := wanted(); got != 1 {
			t.Errorf("%d nodes are wanted for two jobs in an empty pool; want 1, whose jobs tell how long they run", got)
		}
	})
}

// TestNodesWantedAfterOutage: an outage of Redis that is longer than proposals count, after which
// all nodes seem silent, removes no nodes.
func TestNodesWantedAfterOutage(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newSystem()
		s.cfg = &selection.Config{Enabled: true, Pools: selection.Pools{
			{ID: "gpu", Services: []string{"asr"}, TargetWait: "30s"},
		}}
		s.backlogs = map[dispatch.Kind]dispatch.KindBacklog{asr: {Waiting: 9}}
		w := s.watch()
		for range 2 {
			w.Refresh()
			time.Sleep(interval)
		}
		want := func(n int, when string) {
			t.Helper()
			if w.Refresh(); proposed(w) != n {
				t.Errorf("%d nodes are wanted %s; want %d", proposed(w), when, n)
			}
		}
		want(4, "before the outage")
		nodes := s.nodes
		s.stale, s.nodes, s.backlogs = true, nil, nil
		for range 3 {
			time.Sleep(downAfter)
			w.Refresh()
		}
		s.stale = false
		want(none, "as Redis returns")
		time.Sleep(s.SilenceLimit())
		want(4, "once a heartbeat of each node can have come, although none has")
		s.nodes = nodes
		time.Sleep(downAfter - s.SilenceLimit())
		want(4, "five minutes after the return")
		time.Sleep(interval)
		want(1, "later")
	})
}

// TestEmptiedPool: a pool that has lost its nodes counts new ones with as many slots.
func TestEmptiedPool(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newSystem()
		s.cfg = &selection.Config{Enabled: true, Pools: selection.Pools{
			{ID: "gpu", Services: []string{"asr"}, TargetWait: "30s"},
		}}
		s.tell(false, []Told{{Pool: "gpu", Service: "asr", Came: 0.01, Slots: 0.01, Ended: 0.01, Ran: 100}})
		s.backlogs = map[dispatch.Kind]dispatch.KindBacklog{asr: {Waiting: 11}}
		w := s.watch()
		for range 2 { // until run times and nodes are known
			w.Refresh()
			time.Sleep(interval)
		}
		s.nodes = nil
		w.Refresh()
		time.Sleep(downAfter + interval)
		if w.Refresh(); proposed(w) != 3 {
			t.Errorf("%d nodes are wanted for eleven long jobs; want 3 of four slots, as there were before", proposed(w))
		}
	})
}
