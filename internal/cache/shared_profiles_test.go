package cache

import (
	"fmt"
	"slices"
	"testing"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/testing/redistest"
)

// TestLoadedProfilesShare: nodes that are loaded together, also by different pages,
// share the lists of their profiles. A node whose profile an operator broke is left out
// alone, and what changes of one node later changes of no other.
func TestLoadedProfilesShare(t *testing.T) {
	t.Parallel()
	const nodes = 10
	r := newRig(t, redistest.Shared(t), Config{RefreshInterval: never, RefreshSize: 3})
	node := func(i int, pools ...string) freeslot.Node {
		n := testNode(fmt.Sprintf("node-%d", i), 4)
		n.Pools, n.Labels = pools, map[string]string{"zone": "eu-1"}
		n.Languages.ASR = []string{"de"}
		return n
	}
	for i := range nodes {
		r.register(node(i, "a", "b"))
		// Out of order, as no agent writes it: the order is mended once for all.
		r.do("HSET", r.cell.Layout().Node(fmt.Sprintf("node-%d", i)), "pool_ids", `["b","a","b"]`)
	}
	r.do("HSET", r.cell.Layout().Node("node-3"), "pool_ids", `["b","a","not a name"]`)
	r.do("HSET", r.cell.Layout().Node("node-4"), "labels", `{"zone":`)
	r.run()
	if r.Size() != nodes-2 {
		t.Fatalf("%d nodes, expected all but the two broken ones", r.Size())
	}
	profileOf := func(i int) *freeslot.Node {
		n, ok := r.Node(fmt.Sprintf("node-%d", i))
		if !ok {
			t.Fatalf("node-%d is missing", i)
		}
		return n.Profile().Node()
	}
	first, last := profileOf(0), profileOf(nodes-1)
	if !slices.Equal(last.Pools, []string{"a", "b"}) || last.Labels["zone"] != "eu-1" {
		t.Errorf(`%+v; want slices.Equal(last.Pools, []string{"a", "b"}), last.Labels["zone"] == "eu-1"`, last)
	}
	if &first.Pools[0] != &last.Pools[0] || &first.Services[0] != &last.Services[0] || &first.Languages.ASR[0] != &last.Languages.ASR[0] {
		t.Error("the first node and the last do not share their lists")
	}
	changed := node(0, "z", "b")
	changed.Labels["zone"] = "eu-2"
	r.register(changed)
	eventually(t, "the change", func() bool { return profileOf(0).Labels["zone"] == "eu-2" })
	for i := 1; i < nodes; i++ {
		if i == 3 || i == 4 {
			continue
		}
		if p := profileOf(i); !slices.Equal(p.Pools, []string{"a", "b"}) || p.Labels["zone"] != "eu-1" {
			t.Errorf("node-%d has changed too: %+v", i, p)
		}
	}
}
