package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/freeslot/freeslot/bench/core/result"
	"github.com/freeslot/freeslot/bench/measure"
	"github.com/freeslot/freeslot/bench/report"
	"github.com/freeslot/freeslot/bench/sim"
)

// TestRun does every scenario at toy size, so that none rots. How fast it is says nothing here; that
// something was measured, and that nothing was lost or over-committed, does.
func TestRun(t *testing.T) {
	dir := t.TempDir()
	out, markdown := filepath.Join(dir, "core.json"), filepath.Join(dir, "RESULTS.md")
	var stdout, stderr bytes.Buffer
	wanted := names()
	if raced { // what builds programs or needs several processes is measured without
		wanted = []string{"choose", "apply", "staleness", "cuts", "conflicts", "scripts", "utilisation", "fairness", "agentoverhead"}
	}
	if code := run(t.Context(), []string{"-short", "-run", strings.Join(wanted, ","), "-out", out, "-markdown", markdown}, &stdout, &stderr); code != 0 {
		t.Fatalf("exit status %d: %s", code, &stderr)
	}
	if err := report.Check(dir, markdown); err != nil {
		t.Error(err)
	}
	r, err := loadResults(out)
	if err != nil {
		t.Fatal(err)
	}
	for i, name := range wanted {
		if i >= len(r.Scenarios) || r.Scenarios[i].Name != name {
			t.Fatalf("scenario %d is not %s", i, name)
		}
		s := &r.Scenarios[i]
		if !s.Short || len(s.Method) == 0 || len(s.Tables) == 0 {
			t.Errorf("%s: nothing is told: %+v", name, s)
		}
		for _, target := range s.Targets {
			switch {
			case target.Bound == result.Exactly && !target.Met():
				t.Errorf("%s: %s is %v, expected %v", name, target.What, target.Measured, target.Limit)
			case target.Bound == result.AtLeast && target.Measured <= 0:
				t.Errorf("%s: %s was not measured", name, target.What)
			}
		}
		for _, table := range s.Tables {
			for _, row := range table.Rows {
				if first := row.Values[0]; first == nil || *first < 0 {
					t.Errorf("%s: row %q has no first value", name, row.Name)
				}
			}
		}
	}
	for _, file := range []string{"measured.json", "measured-busy.json"} {
		data, err := os.ReadFile(filepath.Join(dir, file))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := sim.ReadMeasured(data); err != nil {
			t.Errorf("%s: %v", file, err)
		}
	}
}

// TestKeepsOthers: a scenario that is run alone replaces itself in the file and nothing else.
func TestKeepsOthers(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	out, markdown := filepath.Join(dir, "core.json"), filepath.Join(dir, "RESULTS.md")
	before := &result.Results{Scenarios: []result.Scenario{
		{Name: "apply", Method: []string{"old"}}, {Name: "choose", Method: []string{"old"}},
	}}
	data, err := measure.Encode(before)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(out, data, 0o644); err != nil {
		t.Fatal(err)
	}
	var stderr bytes.Buffer
	if code := run(t.Context(), []string{"-short", "-run", "apply", "-out", out, "-markdown", markdown}, &bytes.Buffer{}, &stderr); code != 0 {
		t.Fatalf("exit status %d: %s", code, &stderr)
	}
	r, err := loadResults(out)
	if err != nil {
		t.Fatal(err)
	}
	if len(r.Scenarios) != 2 || r.Scenarios[0].Name != "choose" || r.Scenarios[0].Method[0] != "old" ||
		r.Scenarios[1].Name != "apply" || r.Scenarios[1].Method[0] == "old" {
		t.Errorf("the file has %+v", r.Scenarios)
	}
}

func TestOptionsRefused(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"choose"}, `"choose" is not a flag`},
		{[]string{"-run", "choose,chose"}, `-run has "chose", expected some of choose,`},
		{[]string{"-trace", "x"}, "-trace and -nodes belong together"},
	} {
		var stderr bytes.Buffer
		if code := run(t.Context(), c.args, &bytes.Buffer{}, &stderr); code != 2 {
			t.Errorf("%v: exit status %d, expected 2", c.args, code)
		}
		if !strings.Contains(stderr.String(), c.want) {
			t.Errorf("%v: got %q, expected it to contain %q", c.args, &stderr, c.want)
		}
	}
}

func TestList(t *testing.T) {
	t.Parallel()
	var stdout bytes.Buffer
	if code := run(t.Context(), []string{"-list"}, &stdout, &bytes.Buffer{}); code != 0 {
		t.Fatalf("exit status %d", code)
	}
	for _, name := range names() {
		if !strings.Contains(stdout.String(), name+" ") {
			t.Errorf("%s is not listed", name)
		}
	}
}
