package cache

import (
	"slices"
	"testing"
	"time"

	"go.uber.org/zap"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/cell"
	"github.com/freeslot/freeslot/internal/class"
	"github.com/freeslot/freeslot/internal/selection"
)

func TestSilent(t *testing.T) {
	t.Parallel()
	c := New(Config{}, []Feed{{Source: noSource{}}, {Source: noSource{}}}, zap.NewNop(), nil)
	defer c.cancel()
	c.clock.origin = time.Now().Add(-time.Hour)
	heard := func(cellIndex int, id string, epoch cell.Epoch, ago time.Duration) {
		f := c.followers[cellIndex]
		f.put(&cell.NodeState{
			Node: testNode(id, 1), Epoch: epoch, Status: freeslot.StatusOnline,
			LastHeartbeatMS: (c.clock.now() - int64(ago)) / int64(time.Millisecond),
		})
	}
	check := func(limit time.Duration, want ...SilentNode) {
		t.Helper()
		if got := c.Silent(limit); !slices.Equal(got, want) {
			t.Errorf("silent for %s: %v, expected %v", limit, got, want)
		}
	}
	check(0)
	heard(0, "c", "e1", 10*time.Minute)
	heard(1, "a", "e2", 5*time.Minute)
	heard(0, "b", "e3", 0)
	heard(0, "imported", cell.ImportEpoch, 30*time.Minute)
	check(7*time.Minute, SilentNode{"c", "e1", 0})
	check(time.Minute, SilentNode{"a", "e2", 1}, SilentNode{"c", "e1", 0})
	heard(0, "c", "e4", 0) // another incarnation
	check(time.Minute, SilentNode{"a", "e2", 1})
	c.Refused(cell.Refusal{Node: "b", Reason: cell.RefusedSilent})
	check(20*time.Minute, SilentNode{"b", "e3", 0})
	c.followers[1].remove("a", false)
	check(time.Minute, SilentNode{"b", "e3", 0})
}

// TestFreeSlots: a silent node has no slots to give, and a node counts in each of its pools.
func TestFreeSlots(t *testing.T) {
	t.Parallel()
	c := New(Config{}, []Feed{{Source: noSource{}}}, zap.NewNop(), nil)
	defer c.cancel()
	c.clock.origin = time.Now().Add(-time.Hour)
	c.SetConfig(&selection.Config{Enabled: true, Pools: selection.Pools{
		{ID: "gpu", Members: []string{"a", "b"}}, {ID: "eu", Members: []string{"a"}}, {ID: "empty"},
	}})
	for id, ago := range map[string]time.Duration{"a": 0, "b": 0, "c": 0, "silent": 10 * time.Minute} {
		c.followers[0].put(&cell.NodeState{
			Node: testNode(id, 4), Epoch: "e", Status: freeslot.StatusOnline,
			LastHeartbeatMS: (c.clock.now() - int64(ago)) / int64(time.Millisecond),
		})
	}
	all, byPool := c.FreeSlots(time.Minute)
	if all != 12 || byPool["gpu"] != 8 || byPool["eu"] != 4 || byPool["empty"] != 0 {
		t.Errorf("%d slots are free, by pool %v; want 12, gpu 8, eu 4", all, byPool)
	}
}

// TestConfigVersion: a list has the version of the configuration that it was built with.
func TestConfigVersion(t *testing.T) {
	t.Parallel()
	c := New(Config{}, []Feed{{Source: noSource{}}}, zap.NewNop(), nil)
	defer c.cancel()
	former := c.Class("echo", new(freeslot.Requirement))
	if c.ConfigVersion() != 0 || former.ConfigVersion() != 0 {
		t.Errorf("versions %d and %d at first", c.ConfigVersion(), former.ConfigVersion())
	}
	c.SetConfig(&selection.Config{Version: 3})
	if got := c.Class("echo", new(freeslot.Requirement)); c.ConfigVersion() != 3 || got.ConfigVersion() != 3 || former.ConfigVersion() != 0 {
		t.Errorf("versions %d, %d and %d, expected 3, 3 and 0", c.ConfigVersion(), got.ConfigVersion(), former.ConfigVersion())
	}
}

// TestIdentity: a class keeps its names when its lists are built again, and a cell accepts its
// definition.
func TestIdentity(t *testing.T) {
	t.Parallel()
	c := New(Config{}, []Feed{{Source: noSource{}}}, zap.NewNop(), nil)
	defer c.cancel()
	r := freeslot.Requirement{Services: []string{"b", "a@>=1 <2"}, SourceLanguage: "de_AT"}
	respelled := freeslot.Requirement{Services: []string{"a@<2, >=1", "b", "b"}, SourceLanguage: "DE-at"}
	first := c.Class("echo", &r)
	c.SetConfig(&selection.Config{Version: 1})
	second := c.Class("echo", &respelled)
	if first == second || first.ID() != second.ID() || first.Definition() != second.Definition() || first.ID() != class.ID("echo", &respelled) {
		t.Errorf("%s %s, then %s %s", first.ID(), first.Definition(), second.ID(), second.Definition())
	}
	var read cell.ClassDefinition
	if err := freeslot.DecodeStrict("definition", []byte(second.Definition()), &read); err != nil {
		t.Fatal(err)
	}
	if c.Class(read.Service, &read.Requirement) != second {
		t.Errorf("%s is another class", second.Definition())
	}
	if other := c.Class("other", &r); other.ID() == first.ID() {
		t.Error("another class has the same id")
	}
}
