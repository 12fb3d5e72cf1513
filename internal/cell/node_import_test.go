package cell

import (
	"errors"
	"slices"
	"strconv"
	"testing"

	"github.com/freeslot/freeslot"
)

// TestImportEpoch: a node without an agent takes no job from its first moment on, is
// online once an agent has taken it over, and no more once it is taken back.
func TestImportEpoch(t *testing.T) {
	backends(t, func(t *testing.T, r *rig) {
		for i, step := range []struct {
			epoch  Epoch
			status freeslot.Status
			online []string
		}{
			{ImportEpoch, freeslot.StatusDraining, nil},
			{ImportEpoch, freeslot.StatusDraining, nil},
			{NewEpoch(), freeslot.StatusOnline, []string{"n1"}},
			{ImportEpoch, freeslot.StatusDraining, nil},
		} {
			// Another profile each time, so that no call finds that nothing is to be done.
			if _, err := r.Register(r.ctx(), testNode("n1", 1+i), step.epoch); err != nil {
				t.Fatal(err)
			}
			page, err := r.Nodes(r.ctx(), []string{"n1"})
			if err != nil || page.Nodes[0].Status != step.status || page.Nodes[0].Epoch != step.epoch {
				t.Errorf("step %d: %v %+v", i, err, page.Nodes)
			}
			online, err := r.raw.Do(r.ctx(), r.raw.B().Smembers().Key(r.l.Online()).Build()).AsStrSlice()
			if err != nil || !slices.Equal(online, step.online) {
				t.Errorf("step %d: online are %q %v", i, online, err)
			}
			placed, err := r.Submit(r.ctx(), submission("r1", "n1"))
			if err != nil || placed.Assigned != (step.status == freeslot.StatusOnline) {
				t.Errorf("step %d: %v %+v", i, err, placed)
			}
		}
	})
}

// TestImportHeard: a node that was heard since it was seen is left alone.
func TestImportHeard(t *testing.T) {
	backends(t, func(t *testing.T, r *rig) {
		node, load := testNode("n1", 1), r.l.Load("n1")
		epoch, now := r.register(node), r.nowMS()
		beat := func(at int64) { r.do("SET", load, strconv.FormatInt(at, 10)) }
		beat(now)
		page, err := r.Nodes(r.ctx(), []string{"n1"})
		if err != nil || page.Nodes[0].LastHeartbeatMS != now {
			t.Fatalf("%v %+v; want no error, page.Nodes[0].LastHeartbeatMS == %v", err, page.Nodes, now)
		}
		seen := page.Nodes[0]
		beat(now + 1)
		if _, err := r.Import(r.ctx(), node, seen); !errors.Is(err, ErrSuperseded) || r.field(r.l.Node("n1"), "epoch") != epoch {
			t.Errorf("heard since: %v, it is of epoch %s", err, r.field(r.l.Node("n1"), "epoch"))
		}
		beat(now)
		if _, err := r.Import(r.ctx(), node, seen); err != nil || r.field(r.l.Node("n1"), "epoch") != ImportEpoch {
			t.Errorf("not heard since: %v, it is of epoch %s", err, r.field(r.l.Node("n1"), "epoch"))
		}
	})
}
