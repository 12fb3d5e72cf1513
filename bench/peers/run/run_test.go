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

	"github.com/freeslot/freeslot/bench/load"
	"github.com/freeslot/freeslot/bench/measure"
	"github.com/freeslot/freeslot/bench/result"
	"github.com/freeslot/freeslot/bench/system"
	"github.com/freeslot/freeslot/bench/tool"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestRun measures one entry at toy size, alone and in a fleet, and one by gateway, so that the tool
// does not rot.
func TestRun(t *testing.T) {
	dir := t.TempDir()
	out, markdown := filepath.Join(dir, "peers.json"), filepath.Join(dir, "RESULTS.md")
	var stdout, stderr bytes.Buffer
	args := []string{"-parts", "peers,fleet", "-peers", "single frames,by gateway", "-fleets", "1x64", "-short", "-rounds", "1", "-window", "500ms", "-out", out, "-markdown", markdown}
	if code := newTool().Run(t.Context(), args, &stdout, &stderr); code != 0 {
		t.Fatalf("exit status %d: %s\n%s", code, &stderr, &stdout)
	}
	if err := result.Check(dir, markdown); err != nil {
		t.Error(err)
	}
	f, err := result.Load(out)
	if err != nil {
		t.Fatal(err)
	}
	if len(f.Parts) != 2 {
		t.Fatalf("parts are %+v", f.Parts)
	}
	checkPeers(t, &f.Parts[0], dir)
	fleet := f.Parts[1].Tables[0].Rows
	if len(fleet) != 2 {
		t.Fatalf("the fleet has %+v", fleet)
	}
	for i, name := range []string{webSocket, byGateway} {
		if f := fleet[i].Figures; fleet[i].Name != "1 node x 64 slots: "+name || f[0][0] <= 0 || f[4][0] <= 0 {
			t.Errorf("the fleet has %+v", fleet[i])
		}
	}
	text, err := os.ReadFile(markdown)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(text), "| peers | end to end in process, against asynq | at least 4x | not measured | - |") {
		t.Error("the report does not say that a target without asynq's figure is unmeasured")
	}
}

func checkPeers(t *testing.T, p *result.Part, dir string) {
	t.Helper()
	saturation, levels, sweep := p.Tables[0], p.Tables[1], p.Tables[2]
	if len(saturation.Rows) != 1 || saturation.Rows[0].Name != webSocket || len(levels.Rows) != len(shares) || len(sweep.Rows) != shortSweep {
		t.Fatalf("tables are %+v", p.Tables)
	}
	for i, f := range saturation.Rows[0].Figures {
		if f == nil || f[0] <= 0 {
			t.Errorf("%s is %v", saturation.Columns[i].Name, f)
		}
	}
	for _, row := range levels.Rows {
		for i, f := range row.Figures {
			if failed := i == len(row.Figures)-1; f == nil || (f[0] == 0) != failed {
				t.Errorf("%s: %s is %v", row.Name, levels.Columns[i].Name, f)
			}
		}
	}
	for _, picture := range p.Plots {
		if info, err := os.Stat(filepath.Join(dir, picture.File)); err != nil || info.Size() == 0 {
			t.Errorf("plot %s: %v", picture.File, err)
		}
	}
}

func TestOptionsRefused(t *testing.T) {
	t.Parallel()
	for want, args := range map[string][]string{
		"-rounds is 101":    {"-rounds", "101"},
		"-window is 1ms":    {"-window", "1ms"},
		`-fleets has "ten"`: {"-fleets", "100x16,ten"},
		`-fleets has "7x1"`: {"-fleets", "7x1"},
		`-fleets has "4x1s`: {"-fleets", "4x1s"},
	} {
		var stderr bytes.Buffer
		if code := newTool().Run(t.Context(), args, &bytes.Buffer{}, &stderr); code != 2 || !strings.Contains(stderr.String(), want) {
			t.Errorf("%v: exit status %d: %s", args, code, &stderr)
		}
	}
}

// TestSweeps: each entry can be swept, settings are not tried twice, and a short run has what a
// full one has.
func TestSweeps(t *testing.T) {
	t.Parallel()
	swept := entries()
	fleets, err := parseFleets(allFleets)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range fleets {
		swept = append(swept, f.entries()...)
	}
	for _, e := range swept {
		all, few := e.grouped(false), e.grouped(true)
		if len(all) < shortSweep || len(few) != shortSweep {
			t.Errorf("%s: %d settings, %d in a short run", e.title(), len(all), len(few))
		}
		for i, s := range all {
			if slices.Contains(all[:i], s) {
				t.Errorf("%s: %+v comes twice", e.title(), s)
			}
			if s.inFlight < 1 || s.batch < 1 || s.processes < 1 || s.inFlight < s.batch {
				t.Errorf("%s: %+v cannot be run", e.title(), s)
			}
		}
	}
}

// rounds makes a contender whose rounds had these jobs a second, times to assign at 80 % load, and
// bare round trips.
func rounds(name string, rates ...float64) *contender {
	program := name
	if strings.HasPrefix(name, system.Freeslot) {
		program = system.Freeslot
	}
	e := &entry{name: name, program: program}
	c := &contender{entry: e, best: setting{worker: "-a", inFlight: 8, batch: 1}}
	c.sweep = []point{{setting: c.best, jobsPerSecond: rates[0]}}
	times := func(us int64) *load.Times {
		return &load.Times{Latency: measure.Latency{Count: 9, P50: us, P99: 2 * us, P999: 3 * us}}
	}
	for _, rate := range rates {
		r := round{
			saturation: &load.Figures{JobsPerSecond: rate}, cpu: map[string]float64{"load": rate / 1000}, redisBusy: 0.5,
			one: &load.Figures{Start: *times(150), Result: *times(400)}, bare: times(100),
		}
		for _, share := range shares {
			f := &load.Figures{Start: *times(int64(rate)), Result: *times(int64(2 * rate)), Assign: times(int64(rate / 10)), Bare: times(500), Failed: map[string]int64{"x": 1}}
			r.levels = append(r.levels, level{share, share * rate, f})
		}
		c.rounds = append(c.rounds, r)
	}
	return c
}

// TestTables: figures are medians of the rounds, and targets are met or not as the figures say.
func TestTables(t *testing.T) {
	t.Parallel()
	b := newBench()
	all := []*contender{rounds(inProcess, 9_000, 11_000, 10_000), rounds(asynq, 4_000, 2_000)}
	b.tables(all)
	b.plainTargets(all)
	saturation, levels := b.Result.Tables[0].Rows, b.Result.Tables[1].Rows
	if got := saturation[0].Figures; got[0][0] != 10_000 || got[1][0] != 9_000 || got[1][1] != 11_000 || got[2][0] != 3 || got[3][0] != 10 || got[4] != nil || got[7][0] != 50 {
		t.Errorf("at saturation: %v", got)
	}
	if got := levels[len(shares)-1].Figures; got[0][0] != 8_000 || got[1][1] != 2_000 || got[6][0] != 3 {
		t.Errorf("at 80 %%: %v", got)
	}
	if name := b.Result.Tables[2].Rows[0].Name; !strings.Contains(name, "`-a`, 8 in flight, 1 a call **(taken)**") {
		t.Errorf("the sweep has %q", name)
	}
	met := make(map[string]bool)
	for i := range b.Result.Targets {
		met[b.Result.Targets[i].What] = b.Result.Targets[i].Met()
	}
	for what, want := range map[string]bool{
		"end to end in process, against asynq":                                                       false, // 10,000 / 3,000
		"time to assign at 10 % load, p50 / that of a bare EVALSHA":                                  true,  // 1,000 / 500
		"time to assign at 10 % load, p99 / that of a bare EVALSHA":                                  true,
		"time to result of a job that does nothing, one at a time, in process / a bare EVALSHA, p50": true, // 400 / 100
		"p99 time to assign at 80 % load":                                                            true,
		"p99 time to assign at 80 % load, against the least time to start of a peer":                 true,
		"end to end over WebSocket with batch frames, against asynq":                                 false, // not measured
	} {
		if got, ok := met[what]; !ok || got != want {
			t.Errorf("%s: met %t (there: %t), expected %t", what, got, ok, want)
		}
	}
}

// TestFleetTargets: each is held against the right peer of the right fleet.
func TestFleetTargets(t *testing.T) {
	t.Parallel()
	linked := rounds(byGateway, 25_000)
	hundred := []*contender{rounds(batches, 20_000), rounds(webSocket, 13_000), rounds(asynq, 10_000), rounds(jetStream, 26_000), linked}
	crews := []*crew{
		{fleet: fleetOf100, plain: hundred},
		{fleet: fleetOf400, plain: []*contender{rounds(batches, 9_000), rounds(asynq, 5_000)}},
		{fleet: fleetOf2, plain: []*contender{rounds(inProcess, 40_000), rounds(asynq, 1_000), rounds(jetStream, 47_000)}},
	}
	hundred[0].rounds[0].redisUs, hundred[2].rounds[0].redisUs, linked.rounds[0].redisUs = 50, 100, 35
	linked.rounds[0].one.Start.P50 = 200
	wide := rounds(batches, 100)
	wide.rounds[0].redisUs, wide.rounds[0].levels[0].share = 70, 0
	old := rounds(batches, 1)
	old.rounds[0].redisUs = 40
	b := newBench()
	b.fleetTargets(crews)
	b.loadedTarget(hundred)
	b.largeTargets(wide, linked)
	b.beforeTarget("abc", old, hundred[0])
	var got []float64
	for _, target := range b.Result.Targets {
		got = append(got, *target.Measured)
	}
	// The rounds' times to start are as their rates: asynq's is the least of the peers'.
	if diff := cmp.Diff([]float64{2, 1.8, 1.3, 0.5, 2.5, 1.25, 0.7, 0.5, 4, 1, 2, 1.25, 20, 50, 0.5, 1.25}, got); diff != "" {
		t.Errorf("targets (-want +got):\n%s", diff)
	}
	rows := fleetTables(crews)[0].Rows
	if f := rows[0].Figures; len(rows) != 10 || f[2][0] != 2 || f[3][0] != 0.7692 || f[4][0] != 50 || f[5][0] != 20_000 {
		t.Errorf("the tables have %v", rows)
	}
}

func newBench() *bench { return &bench{new(tool.Bench), new(shared), size{}} }
