package main

import (
	"context"
	"testing"
	"time"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/cache/locked"
	"github.com/freeslot/freeslot/internal/cell"
	"github.com/freeslot/freeslot/internal/events"
	"github.com/freeslot/freeslot/internal/selection"
)

// TestPicturesAgree: what is measured side by side has the same fleet after the same events, each of them
// applied.
func TestPicturesAgree(t *testing.T) {
	t.Parallel()
	const nodes, count = 300, 2000
	states := fleetStates(nodes)
	f, err := newFedCache(t.Context(), states)
	if err != nil {
		t.Fatal(err)
	}
	cached := &cachePicture{fedCache: f, nodes: nodes}
	defer cached.stop()
	state, plain := stateFleet{locked.New(locked.Config{Selection: benchConfig()})}, newPlainFleet(benchConfig())
	pictures := []picture{cached, newLockedPicture(state, states), newLockedPicture(plain, states)}
	defer pictures[1].stop()
	defer pictures[2].stop()
	for _, p := range pictures {
		applied, err := feed(t.Context(), p, p.beats(count), flatOut, time.Minute)
		if err != nil || applied <= 0 {
			t.Fatalf("%v events a second, %v", applied, err)
		}
	}
	for name, have := range map[string][]cell.NodeState{"State": state.States(), "Plain": plain.States()} {
		if found := locked.Compare(cached.States(), have); len(found) > 0 {
			t.Errorf("cache and %s differ in %d places, such as %s", name, len(found), found[0])
		}
	}
	for i := range nodes {
		s, ok := cached.State(benchNodeID(i))
		if !ok || string(s.Resources) != benchResources {
			t.Fatalf("%s did not get its heartbeat: %+v", benchNodeID(i), s)
		}
	}
}

// TestRequirementMix: every requirement finds nodes, on a fleet of any size that is measured.
func TestRequirementMix(t *testing.T) {
	t.Parallel()
	f, err := newFedCache(t.Context(), fleetStates(1000))
	if err != nil {
		t.Fatal(err)
	}
	p := &cachePicture{fedCache: f, nodes: 1000}
	defer p.stop()
	requirements := requirementsOf(requirementCount, mix...)
	kinds := make(map[string]int)
	for i := range requirements {
		r := &requirements[i]
		fits := f.Settle(benchService, r).Fits()
		switch {
		case r.SourceLanguage != "":
			kinds["languages"]++
		case len(r.Labels) > 0:
			kinds["rich"]++
		default:
			kinds["pool"]++
		}
		if fits < 2 || fits > 500 {
			t.Errorf("%+v fits %d nodes", r, fits)
		}
	}
	if kinds["pool"] < 400 || kinds["languages"] < 300 || kinds["rich"] < 300 {
		t.Errorf("the mix is %v", kinds)
	}
}

// TestApplyCounts: the batch that is timed is applied by the time that the clock is stopped.
func TestApplyCounts(t *testing.T) {
	t.Parallel()
	f, err := newFedCache(t.Context(), fleetStates(100))
	if err != nil {
		t.Fatal(err)
	}
	p := &cachePicture{fedCache: f, nodes: 100}
	defer p.stop()
	for _, k := range applyKinds(100) {
		us, _, err := f.applyBatch(t.Context(), func(i int) events.Event { return k.event(i) })
		if err != nil || us <= 0 {
			t.Fatalf("%s: %v us, %v", k.name, us, err)
		}
		if got := f.Health().Cells[0].Revision; got != f.next-1 {
			t.Errorf("%s: the cache is at revision %d, expected %d", k.name, got, f.next-1)
		}
	}
	if s, _ := f.State(benchNodeID(0)); s.Used != markUsed {
		t.Errorf("the last event left %+v", s)
	}
}

func TestMatch(t *testing.T) {
	t.Parallel()
	made := []change{
		{node: "a", kind: changeHeartbeat, mark: "1", atNS: 1_000_000},
		{node: "a", kind: changeFull, used: 1, mark: "1", atNS: 2_000_000},
		{node: "b", kind: changeHeartbeat, mark: "9", atNS: 2_500_000},
		{node: "a", kind: changeFree, mark: "1", atNS: 3_000_000},
		{node: "a", kind: changeHeartbeat, mark: "2", atNS: 4_000_000},
	}
	sights := []sight{
		{Node: "a", Mark: "0", AtNS: 1},
		{Node: "a", Mark: "1", AtNS: 1_100_000},
		{Node: "a", Mark: "1", AtNS: 1_200_000}, // read once more, before the next change
		{Node: "a", Mark: "1", AtNS: 3_300_000}, // what was in between is known with it
	}
	all, unseen := match(made, sights)
	if unseen != 2 {
		t.Errorf("%d changes were not seen, expected 2", unseen)
	}
	for kind, want := range []int64{100, 1300, 300} {
		if got := all[kind]; got.TotalCount() != 1 || got.Max() != want {
			t.Errorf("%s: %d of at most %d us, expected one of %d us", changeNames[kind], got.TotalCount(), got.Max(), want)
		}
	}
}

func TestQuantile(t *testing.T) {
	t.Parallel()
	values := []float64{5, 1, 4, 2, 3}
	if got := median(values); got != 3 || values[0] != 5 {
		t.Errorf("the median is %v, and the values are %v", got, values)
	}
	for q, want := range map[float64]float64{0: 1, 0.2: 1, 0.21: 2, 0.99: 5, 1: 5} {
		if got := quantile([]float64{5, 1, 4, 2, 3}, q); got != want {
			t.Errorf("quantile %v is %v, expected %v", q, got, want)
		}
	}
	for f, want := range map[float64]float64{12345.6: 12350, 0.123456: 0.1235, 0: 0, 59.987: 59.99, 1: 1} {
		if got := rounded(f); got != want {
			t.Errorf("%v is rounded to %v, expected %v", f, got, want)
		}
	}
}

// TestFeedKeepsPace: no more events than are due, and all of these.
func TestFeedKeepsPace(t *testing.T) {
	t.Parallel()
	p := &countingPicture{}
	const rate, window = 10_000, 100 * time.Millisecond
	begin := time.Now() // before the feed's own clock starts, which the first event is late by
	applied, err := feed(t.Context(), p, make([]string, 10_000), rate, window)
	if err != nil {
		t.Fatal(err)
	}
	took := p.last.Sub(begin)
	if most := int(rate * took.Seconds()); p.count == 0 || p.count > most {
		t.Errorf("%d events in %s, expected at most %d", p.count, took, most)
	}
	if applied > rate {
		t.Errorf("applied %v a second, expected at most %d", applied, rate)
	}
}

type countingPicture struct {
	count int
	last  time.Time
}

func (*countingPicture) Choose(dst []*selection.Node, _ string, _ *freeslot.Requirement, _ *selection.Query, _ *selection.Source) []*selection.Node {
	return dst
}
func (*countingPicture) Now() int64                   { return 0 }
func (*countingPicture) SilenceLimit() time.Duration  { return time.Hour }
func (*countingPicture) beats(int) []string           { return nil }
func (*countingPicture) drain()                       {}
func (*countingPicture) settle(context.Context) error { return nil }
func (*countingPicture) stop()                        {}

func (p *countingPicture) apply(string) bool {
	p.last = time.Now()
	p.count++
	return true
}
