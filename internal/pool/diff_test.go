package pool

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/selection"
)

func testNode(id string, labels map[string]string, pools ...string) freeslot.Node {
	return freeslot.Node{ID: id, MaxConcurrency: 1, Labels: labels, Pools: pools}
}

func TestCompareConfigs(t *testing.T) {
	t.Parallel()
	eu, us := map[string]string{"zone": "eu"}, map[string]string{"zone": "us"}
	nodes := []freeslot.Node{testNode("n1", eu), testNode("n2", us), testNode("n3", us, "own"), testNode("n4", nil, "a")}
	before := &selection.Config{Enabled: true, Pools: selection.Pools{{ID: "a", Labels: eu}, {ID: "b"}, {ID: "c"}}}
	after := &selection.Config{Enabled: true, Mode: selection.ModeFlat, Pools: selection.Pools{{ID: "c"}, {ID: "a", Labels: us}, {ID: "d", Members: []string{"n4"}}}}
	want := Diff{
		Settings: []FieldChange{{"mode", json.RawMessage(`"two_level"`), json.RawMessage(`"flat"`)}},
		Added:    []string{"d"}, Removed: []string{"b"}, Reordered: true,
		Changed: []PoolChange{{"a", []FieldChange{{"labels", json.RawMessage(`{"zone":"eu"}`), json.RawMessage(`{"zone":"us"}`)}}}},
		Nodes:   4, Members: []MemberChange{
			{Pool: "a", Join: 2, Joining: []string{"n2", "n3"}, Leave: 1, Leaving: []string{"n1"}},
			{Pool: "d", Join: 1, Joining: []string{"n4"}, Leaving: []string{}},
		},
	}
	got := Compare(before, after, nodes)
	if d := cmp.Diff(want, got); d != "" || got.Empty() {
		t.Error(d)
	}
	same := Compare(before, &selection.Config{Enabled: true, Mode: selection.ModeTwoLevel, Pools: before.Pools}, nodes)
	if !same.Empty() {
		t.Errorf("%+v; want same.Empty()", same)
	}
	var many []freeslot.Node
	for i := range 3 * MaxDiffNodes {
		many = append(many, testNode(fmt.Sprintf("n%03d", i), eu))
	}
	m := Compare(&selection.Config{}, before, many).Members
	if len(m) != 1 || m[0].Join != 3*MaxDiffNodes || len(m[0].Joining) != MaxDiffNodes || m[0].Joining[0] != "n000" {
		t.Errorf(`%+v; want len(m) == 1, m[0].Join == 3*MaxDiffNodes, len(m[0].Joining) == MaxDiffNodes, m[0].Joining[0] == "n000"`, m)
	}
}

// TestCompareTwin: nodes join and leave as the memberships before and after say, and a
// diff is empty exactly when the canonical forms are equal.
func TestCompareTwin(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(rand.Uint64(), 1))
	pick := func(values ...string) string { return values[random.IntN(len(values))] }
	config := func() *selection.Config {
		cfg := &selection.Config{Enabled: random.IntN(4) > 0, Mode: selection.Mode(pick("", "two_level", "flat"))}
		for _, id := range []string{"a", "b", "c"} {
			p := selection.Pool{ID: id}
			switch random.IntN(4) {
			case 0:
				continue
			case 1:
				p.Labels = map[string]string{"zone": pick("eu", "us")}
			case 2:
				p.Members = []string{pick("n1", "n2", "n3")}
			}
			cfg.Pools = append(cfg.Pools, p)
		}
		random.Shuffle(len(cfg.Pools), func(i, j int) { cfg.Pools[i], cfg.Pools[j] = cfg.Pools[j], cfg.Pools[i] })
		return cfg
	}
	nodes := []freeslot.Node{
		testNode("n1", map[string]string{"zone": "eu"}), testNode("n2", map[string]string{"zone": "us"}, "a"), testNode("n3", nil, "own"),
	}
	for range 2000 {
		before, after := config(), config()
		d := Compare(before, after, nodes)
		if d.Empty() != (text(before) == text(after)) {
			t.Fatalf("%s\n%s\n%+v; want d.Empty() == (text(before) == text(after))", text(before), text(after), d)
		}
		moved := make(map[string]bool)
		for _, m := range d.Members {
			for _, id := range slices.Concat(m.Joining, m.Leaving) {
				moved[id] = true
			}
		}
		if d.Nodes != len(moved) {
			t.Fatalf("%d nodes change pool; want %d", d.Nodes, len(moved))
		}
		for _, n := range nodes {
			was := before.Members(&n)
			for _, m := range d.Members {
				if slices.Contains(m.Leaving, n.ID) {
					was = slices.DeleteFunc(slices.Clone(was), func(id string) bool { return id == m.Pool })
				}
				if slices.Contains(m.Joining, n.ID) {
					was = append(slices.Clone(was), m.Pool)
				}
			}
			is := slices.Clone(after.Members(&n))
			slices.Sort(was)
			slices.Sort(is)
			if !slices.Equal(was, is) {
				t.Fatalf("%s\n%s\nnode %s: %v, expected %v", text(before), text(after), n.ID, was, is)
			}
		}
	}
}
