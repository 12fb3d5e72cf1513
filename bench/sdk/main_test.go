package main

import (
	"bytes"
	"path/filepath"
	"testing"

	"go.uber.org/goleak"

	"github.com/freeslot/freeslot/bench/load"
	"github.com/freeslot/freeslot/bench/result"
	"github.com/freeslot/freeslot/bench/tool"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestRun does every part at toy size, so that none rots. Its times mean nothing, but a node that
// goes offline, or a job that runs twice, would be a defect all the same.
func TestRun(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes a minute or two: make bench-once")
	}
	dir := t.TempDir()
	out, markdown := filepath.Join(dir, "sdk.json"), filepath.Join(dir, "RESULTS.md")
	var stdout, stderr bytes.Buffer
	sdk := newTool()
	if code := sdk.Run(t.Context(), []string{"-short", "-out", out, "-markdown", markdown}, &stdout, &stderr); code != 0 {
		t.Fatalf("exit status %d: %s", code, &stderr)
	}
	if err := result.Check(dir, markdown); err != nil {
		t.Error(err)
	}
	f, err := result.Load(out)
	if err != nil {
		t.Fatal(err)
	}
	if len(f.Parts) != len(sdk.Parts) {
		t.Skipf("only %d of %d parts ran: scripts/deps.sh node python celery; %s", len(f.Parts), len(sdk.Parts), &stdout)
	}
	for i := range f.Parts {
		p := &f.Parts[i]
		if len(p.Targets) == 0 || len(p.Tables) == 0 {
			t.Errorf("%s reports %d targets and %d tables; want some", p.Name, len(p.Targets), len(p.Tables))
		}
		for k := range p.Targets {
			switch target := &p.Targets[k]; {
			case target.Bound == result.Exactly && !target.Met():
				t.Errorf("%s: %s is %v, expected %v", p.Name, target.What, *target.Measured, target.Limit)
			case target.Bound != result.Exactly && *target.Measured <= 0:
				t.Errorf("%s: %s was not measured", p.Name, target.What)
			}
		}
	}
}

// TestFaster: a target compares the medians of the rounds.
func TestFaster(t *testing.T) {
	t.Parallel()
	rounds := func(rates ...float64) *contender {
		c := new(contender)
		for _, rate := range rates {
			c.rounds = append(c.rounds, &round{Figures: &load.Figures{JobsPerSecond: rate}})
		}
		return c
	}
	b := new(tool.Bench)
	faster(b, "ours", 1.5, rounds(300, 10, 320), rounds(200, 190, 9000))
	faster(b, "nothing ran", 1.5, rounds(300), rounds(0))
	for i, want := range []float64{1.5, 0} {
		if got := &b.Result.Targets[i]; *got.Measured != want || got.Met() != (want == 1.5) {
			t.Errorf("%s is %v, met: %t; expected %v", got.What, *got.Measured, got.Met(), want)
		}
	}
}
