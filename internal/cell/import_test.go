package cell

import (
	"slices"
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
