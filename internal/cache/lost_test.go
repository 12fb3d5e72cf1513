package cache

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/cell"
)

// TestLost: a node that fell silent is remembered for an hour, with how often, and one that left or
// drained is not.
func TestLost(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := New(Config{}, []Feed{{Source: noSource{}}}, zap.NewNop(), nil)
		defer c.cancel()
		f := c.followers[0]
		put := func(id string, status freeslot.Status) {
			f.put(&cell.NodeState{Node: testNode(id, 1), Epoch: "e", Status: status})
		}
		for _, id := range []string{"flaps", "gone", "left"} {
			put(id, freeslot.StatusOnline)
		}
		put("drained", freeslot.StatusDrained)
		f.remove("left", false)
		f.remove("drained", true)
		f.remove("gone", true)
		for range 3 {
			f.remove("flaps", true)
			put("flaps", freeslot.StatusOnline)
			time.Sleep(20 * time.Minute)
		}
		lost := c.Lost()
		if len(lost) != 2 || lost[0].ID != "flaps" || lost[1].ID != "gone" {
			t.Fatalf("lost %+v; want flaps and gone", lost)
		}
		if !lost[0].Back || len(lost[0].At) != 3 || lost[1].Back || len(lost[1].At) != 1 {
			t.Errorf("lost %+v; want flaps back after 3 losses, and gone after one", lost)
		}
		time.Sleep(time.Second)
		if lost := c.Lost(); len(lost) != 1 || len(lost[0].At) != 2 {
			t.Errorf("after an hour %+v; want two losses of flaps", lost)
		}
		for i := range maxLost + 10 {
			c.lost.add(fmt.Sprint(i), time.Now())
			time.Sleep(time.Millisecond)
		}
		if lost := c.Lost(); len(lost) != maxLost {
			t.Errorf("%d nodes remembered; want %d", len(lost), maxLost)
		}
	})
}
