package main

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/freeslot/freeslot/bench/measure"
	"github.com/freeslot/freeslot/bench/load"
	"github.com/freeslot/freeslot/bench/peers/result"
	"github.com/freeslot/freeslot/bench/report"
	"github.com/freeslot/freeslot/bench/trace"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestRun does the parts that need nothing but Redis at toy size, so that the tool does not rot.
func TestRun(t *testing.T) {
	dir := t.TempDir()
	parts := [][]string{{"-parts", "limit"}, {"-parts", "peers", "-peers", "single frames"}}
	if raced {
		parts = parts[:1]
	}
	out, markdown := filepath.Join(dir, "peers.json"), filepath.Join(dir, "RESULTS.md")
	for _, args := range parts {
		var stdout, stderr bytes.Buffer
		args = append(args, "-short", "-rounds", "1", "-window", "500ms", "-out", out, "-markdown", markdown, "-artefacts", dir)
		if code := run(t.Context(), args, &stdout, &stderr); code != 0 {
			t.Fatalf("%q: exit status %d: %s\n%s", args, code, &stderr, &stdout)
		}
		if err := report.Check(dir, markdown); err != nil {
			t.Error(err)
		}
	}
	r, err := loadResults(out)
	if err != nil {
		t.Fatal(err)
	}
	if !raced {
		checkMode(t, r.Mode(aofOff, 0), result.WebSocket)
	}
	checkLimit(t, r.Limit, dir)
	text, err := os.ReadFile(markdown)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(text), "| end to end in process, against asynq | at least 4 times | not measured | not measured |") {
		t.Error("a target without asynq's figure is not said to be unmeasured")
	}
}

func checkMode(t *testing.T, m *result.Mode, name string) {
	t.Helper()
	e := m.Entry(name)
	if e == nil {
		t.Fatalf("%s was not measured: %+v", name, m)
	}
	round := e.Rounds[0]
	if e.Throughput() <= 0 || len(round.Levels) != len(shares) || round.One == nil || round.Bare == nil || round.RedisBusy <= 0 || len(round.CPU) == 0 {
		t.Errorf("%s: something is missing: %+v", name, round)
	}
	for _, l := range round.Levels {
		if l.Jobs == 0 || l.Failures() > 0 || l.Assign == nil || l.Assign.Count != l.Jobs || l.Start.Count != l.Jobs {
			t.Errorf("%s at %.0f %%: %+v", name, l.Share*100, l.Figures)
		}
	}
}

func checkLimit(t *testing.T, l *result.Limit, dir string) {
	t.Helper()
	for _, name := range []string{"submit.lua", "complete.lua", "xread"} {
		if !slices.ContainsFunc(l.Calls, func(c result.Call) bool { return c.Name == name && c.CallsPerJob > 0 }) {
			t.Errorf("no call of %s was seen: %+v", name, l.Calls)
		}
	}
	for _, c := range l.Ceilings {
		if c.Error != "" || c.CallsPerSecond <= 0 || c.Jobs < 1 {
			t.Errorf("ceiling of %s by %s: %+v", c.Name, c.How, c)
		}
	}
	// One job alone is one call to submit it and one to complete it.
	for _, p := range l.Phases {
		if (strings.HasPrefix(p.Name, "submit") || strings.HasPrefix(p.Name, "complete")) && (p.Alone < 0.9 || p.Alone > 1.1) {
			t.Errorf("%s: %v calls for a job that is alone, expected 1", p.Name, p.Alone)
		}
	}
	for _, name := range l.Profiles {
		if info, err := os.Stat(filepath.Join(dir, name)); err != nil || info.Size() == 0 {
			t.Errorf("profile %s: %v", name, err)
		}
	}
}

func TestOptionsRefused(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"peers"}, `"peers" is not a flag`},
		{[]string{"-parts", "peers,all"}, `-parts has "all"`},
		{[]string{"-trace", "x.csv"}, "belong together"},
		{[]string{"-rounds", "101"}, "-rounds is 101"},
		{[]string{"-window", "1ms"}, "-window is 1ms"},
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

func TestPlainPaths(t *testing.T) {
	t.Parallel()
	got := plainPaths([]string{"-trace", "/data/trace.csv", "-nodes=/data/nodes.csv", "-short", "-parts", "peers"})
	if diff := cmp.Diff([]string{"-trace", "trace.csv", "-nodes=nodes.csv", "-short", "-parts", "peers"}, got); diff != "" {
		t.Error(diff)
	}
}

func TestMonitored(t *testing.T) {
	t.Parallel()
	got := monitored("+1700000000.123456 [0 127.0.0.1:40000] \"EVALSHA\" \"ab\" \"a\\x00\\xff\\n\" \"say \\\"x\\\\\" \"\"\r\n")
	if diff := cmp.Diff([]string{"EVALSHA", "ab", "a\x00\xff\n", `say "x\`, ""}, got); diff != "" {
		t.Error(diff)
	}
	if got := monitored("+1700000000.123456 [0 lua] \"get\" \"k\"\r\n"); got != nil {
		t.Errorf("a script's command is %q", got)
	}
}

// TestSweeps: each entry can be swept, settings are not tried twice, and a short run has what a full one has.
func TestSweeps(t *testing.T) {
	t.Parallel()
	for _, e := range entries() {
		all, few := e.grouped(false), e.grouped(true)
		if len(all) < shortSweep || len(few) != shortSweep {
			t.Errorf("%s: %d settings, %d in a short run", e.name, len(all), len(few))
		}
		for i, s := range all {
			if slices.Contains(all[:i], s) {
				t.Errorf("%s: %+v comes twice", e.name, s)
			}
			if s.InFlight < 1 || s.Batch < 1 || s.Processes < 1 || s.InFlight < s.Batch {
				t.Errorf("%s: %+v cannot be run", e.name, s)
			}
		}
	}
}

// TestPlan: the jobs of a replay ask for models that the fleet has, and keep the share of the slots busy.
func TestPlan(t *testing.T) {
	t.Parallel()
	requests := []trace.Request{{At: 0, GeneratedTokens: 10}, {At: 5e8, GeneratedTokens: 30}, {At: 1e9, GeneratedTokens: 20}}
	fleet := []trace.Node{{ID: "a", GPU: 4, Model: "T4"}, {ID: "b", GPU: 4, Model: "A10"}}
	plan, err := planOf(requests, fleet, 3000, 0.5)
	if err != nil {
		t.Fatal(err)
	}
	models, busy := make(map[string]int), int64(0)
	for _, p := range plan {
		models[p.Model]++
		busy += p.RunUS
	}
	if len(models) != 3 || models[""] < 1300 || models[""] > 1700 || models["T4"] < 600 {
		t.Errorf("jobs ask for %v", models)
	}
	if share := float64(busy) / float64(plan[len(plan)-1].AtUS) / 8; share < 0.49 || share > 0.51 {
		t.Errorf("%.3f of the slots are busy, expected half", share)
	}
	f := &load.Figures{Delays: make([]int64, len(plan)), Late: &load.Times{Latency: measure.Latency{P50: 7}}}
	for i := range f.Delays {
		f.Delays[i] = 500
	}
	f.Delays[0] = -1
	r := compare(plan, fleet, f)
	if r.Delay.Count != 2999 || r.Ideal.Count != 3000 || r.Late.P50 != 7 {
		t.Errorf("compared to %+v", r)
	}
}
