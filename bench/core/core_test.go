package main

import (
	"bytes"
	"context"
	"path/filepath"
	"testing"
	"time"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/bench/result"
	"github.com/freeslot/freeslot/internal/testing/redistest"
)

// TestRun does every part at toy size, so that none rots. Its times mean nothing; it shows that
// something was measured and that nothing was lost.
func TestRun(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes a minute or two: make bench-once")
	}
	dir := t.TempDir()
	out, markdown := filepath.Join(dir, "core.json"), filepath.Join(dir, "RESULTS.md")
	var stdout, stderr bytes.Buffer
	tool := newTool()
	if code := tool.Run(t.Context(), []string{"-short", "-out", out, "-markdown", markdown}, &stdout, &stderr); code != 0 {
		t.Fatalf("exit status %d: %s", code, &stderr)
	}
	if err := result.Check(dir, markdown); err != nil {
		t.Error(err)
	}
	f, err := result.Load(out)
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range tool.Parts {
		if i >= len(f.Parts) || f.Parts[i].Name != want.Name {
			t.Fatalf("part %d is not %s", i, want.Name)
		}
		p := &f.Parts[i]
		if !p.Short || len(p.Method) == 0 || len(p.Tables) == 0 {
			t.Errorf("%s: nothing is reported: %+v", p.Name, p)
		}
		for k := range p.Targets {
			switch target := &p.Targets[k]; {
			case target.Bound == result.Exactly && !target.Met():
				t.Errorf("%s: %s is %v, expected %v", p.Name, target.What, *target.Measured, target.Limit)
			case target.Bound == result.AtLeast && *target.Measured <= 0:
				t.Errorf("%s: %s was not measured", p.Name, target.What)
			}
		}
		for _, table := range p.Tables {
			for _, row := range table.Rows {
				if first := row.Figures[0]; first == nil || first[0] < 0 {
					t.Errorf("%s: row %q has no first figure", p.Name, row.Name)
				}
			}
		}
	}
}

func newTestCache(t *testing.T, nodes int) *fedCache {
	t.Helper()
	f := newFedCache(t.Context(), nodes)
	t.Cleanup(func() { stopQuietly(f.Stop) })
	return f
}

// TestFeed: no more events than are due, all of these are applied, and the next ones follow without
// a gap.
func TestFeed(t *testing.T) {
	t.Parallel()
	const nodes, rate, window = 300, 10_000, 100 * time.Millisecond
	f := newTestCache(t, nodes)
	for range 2 {
		first := f.next
		begin := time.Now()
		applied, count := 0.0, 0
		// A process that did not run for the whole window has fed nothing.
		for count == 0 {
			var err error
			if applied, err = f.feed(t.Context(), f.heartbeats(2*rate), rate, window); err != nil {
				t.Fatal(err)
			}
			count = int(f.next - first)
		}
		if most := int(rate * time.Since(begin).Seconds()); count > most || applied > rate {
			t.Errorf("%d events, %v a second, expected at most %d", count, applied, most)
		}
		caughtUp := func(context.Context) bool { return f.Health().Cells[0].Revision == f.next-1 }
		if err := redistest.Await(caughtUp); err != nil {
			t.Fatalf("the cache is at revision %d, expected %d: %v", f.Health().Cells[0].Revision, f.next-1, err)
		}
	}
	for i := range nodes {
		if s, ok := f.State(benchNodeID(i)); !ok || string(s.Resources) != benchResources {
			t.Fatalf("%s did not get its heartbeat: %+v", benchNodeID(i), s)
		}
	}
}

// TestRequirementMix: every requirement finds nodes.
func TestRequirementMix(t *testing.T) {
	t.Parallel()
	f := newTestCache(t, 1000)
	kinds := make(map[string]int)
	for _, r := range mixedRequirements() {
		kinds[kindOf(&r)]++
		if fits := f.Settle(benchService, &r).Fits(); fits < 2 || fits > 500 {
			t.Errorf("%+v fits %d nodes", r, fits)
		}
	}
	if kinds["pool"] < 400 || kinds["languages"] < 300 || kinds["rich"] < 300 {
		t.Errorf("the mix is %v", kinds)
	}
}

func kindOf(r *freeslot.Requirement) string {
	switch {
	case r.SourceLanguage != "":
		return "languages"
	case len(r.Labels) > 0:
		return "rich"
	default:
		return "pool"
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
