package selection

import (
	"maps"
	"testing"
	"time"

	"github.com/freeslot/freeslot"
)

func checkBreakdown(t *testing.T, got map[string]int, want map[Reason]int) {
	t.Helper()
	plain := make(map[string]int, len(want))
	for why, count := range want {
		plain[string(why)] = count
	}
	if !maps.Equal(got, plain) {
		t.Errorf("breakdown: got %v, want %v", got, plain)
	}
}

func TestClassBreakdown(t *testing.T) {
	t.Parallel()
	free, small, draining, silent, full, excluded := newTestNode("free", 4), newTestNode("small", 1),
		newTestNode("draining", 4), newTestNode("silent", 4), newTestNode("full", 4), newTestNode("excluded", 4)
	other := NewNode(Compile(&freeslot.Node{ID: "other", MaxConcurrency: 9}), 0)
	for _, n := range []*Node{free, small, draining, full, excluded} {
		n.Seen(int64(time.Minute))
	}
	draining.SetDraining(true)
	full.SetUsed(2)
	full.TryTake(1)
	nodes := []*Node{free, small, draining, silent, full, excluded, other}
	class := NewClass(nodes, nil, "tts", &freeslot.Requirement{})
	if class.Fits() != 6 || class.MaxSlots() != 4 {
		t.Errorf("got %d fits of up to %d slots, want 6 and 4", class.Fits(), class.MaxSlots())
	}
	query := Query{Slots: 2, Now: int64(time.Minute), Exclude: []string{"x", "excluded"}}
	want := map[Reason]int{
		ReasonService: 1, ReasonSlots: 1, ReasonDraining: 1, ReasonSilent: 1, ReasonFull: 1, ReasonExcluded: 1,
	}
	checkBreakdown(t, class.Breakdown(&query), want)

	free.SetDraining(true)
	want[ReasonDraining]++
	checkBreakdown(t, class.Breakdown(&query), want)
	query.Slots = 5
	checkBreakdown(t, class.Breakdown(&query), map[Reason]int{ReasonService: 1, ReasonSlots: 6})
}

func TestClassBreakdownBelongsToCaller(t *testing.T) {
	t.Parallel()
	class := NewClass([]*Node{newTestNode("a", 1)}, nil, "ocr", &freeslot.Requirement{})
	clear(class.Breakdown(&Query{}))
	checkBreakdown(t, class.Breakdown(&Query{}), map[Reason]int{ReasonService: 1})
}

func TestClassWithoutNodes(t *testing.T) {
	t.Parallel()
	class := NewClass(nil, enabled(Pools{{ID: "a", SourceLanguages: []string{"de"}}}), "tts", &freeslot.Requirement{SourceLanguage: "de"})
	if class.Fits() != 0 || class.MaxSlots() != 0 || len(class.Breakdown(&Query{})) != 0 {
		t.Error("an empty fleet has something to say")
	}
	if got := class.Choose(make([]*Node, 0, 1), &Query{}, NewSource(1)); len(got) != 0 {
		t.Errorf("chose %q of an empty fleet", got[0].ID())
	}
}

// A pool that covers the job restricts it even if the pool has no members.
func TestClassCoveringPoolWithoutMembers(t *testing.T) {
	t.Parallel()
	node := NewNode(Compile(&freeslot.Node{
		ID: "a", MaxConcurrency: 1, Services: services("tts"), Languages: freeslot.Languages{ASR: []string{"de"}},
	}), 0)
	pools := Pools{{ID: "p", SourceLanguages: []string{"de"}, Services: []string{"asr"}}}
	r := &freeslot.Requirement{SourceLanguage: "de"}
	checkBreakdown(t, NewClass([]*Node{node}, enabled(pools), "tts", r).Breakdown(&Query{}), map[Reason]int{ReasonPool: 1})
	if got := NewClass([]*Node{node}, nil, "tts", r).Fits(); got != 1 {
		t.Errorf("got %d fits without pools, want 1", got)
	}
}

// enabled is a configuration with these pools.
func enabled(pools Pools) *Config { return &Config{Enabled: true, Pools: pools} }
