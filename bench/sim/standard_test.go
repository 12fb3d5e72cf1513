package sim

import (
	"bytes"
	"flag"
	"os"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/freeslot/freeslot/bench/measure"
)

var update = flag.Bool("update", false, "rewrite testdata")

// TestFigures makes each figure quickly, and with any number of simulations at once the same.
func TestFigures(t *testing.T) {
	t.Parallel()
	for _, name := range FigureNames() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			in := Inputs{Seed: 5, Requests: someTrace(), Nodes: someNodes(), Quick: true, Parallel: 1}
			one, err := Make(name, &in)
			if err != nil {
				t.Fatal(err)
			}
			in.Parallel = 3
			three, err := Make(name, &in)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(one, three); diff != "" {
				t.Error(diff)
			}
			if overCommits, leaks := one.Faults(); overCommits != 0 || leaks != 0 {
				t.Errorf("%d over-commits, %d leaks", overCommits, leaks)
			}
			for _, l := range one.Lines {
				if len(l.Points) == 0 {
					t.Errorf("line %q has no points", l.Name)
				}
			}
		})
	}
	if _, err := Make("none", new(Inputs)); err == nil {
		t.Error("a figure that there is not was made")
	}
	if _, err := Make("delay", &Inputs{}); err == nil {
		t.Error("a figure was made of nothing")
	}
}

// TestSection pins the report of a results file: go test ./bench/sim -run TestSection -update rewrites it.
func TestSection(t *testing.T) {
	t.Parallel()
	data, err := os.ReadFile("testdata/results.json")
	if err != nil {
		t.Fatal(err)
	}
	got, err := Section(data)
	if err != nil {
		t.Fatal(err)
	}
	if *update {
		if err := os.WriteFile("testdata/report.md", got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile("testdata/report.md")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), string(got)); diff != "" {
		t.Error(diff)
	}
	if _, err := Section(bytes.Replace(data, []byte(`"title"`), []byte(`"titel"`), 1)); err == nil {
		t.Error("an unknown field was read over")
	}
}

func TestResultsPut(t *testing.T) {
	t.Parallel()
	var r Results
	for _, f := range []Figure{{Name: "a", Title: "1"}, {Name: "b"}, {Name: "a", Title: "2"}} {
		r.Put(f)
	}
	if len(r.Figures) != 2 || r.Figures[0].Title != "2" {
		t.Errorf("%+v", r.Figures)
	}
	data, err := measure.Encode(r)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Section(data); err != nil {
		t.Error(err)
	}
}
