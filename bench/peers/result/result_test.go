package result

import (
	"bytes"
	"flag"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/freeslot/freeslot/bench/measure"
	"github.com/freeslot/freeslot/bench/load"
)

var update = flag.Bool("update", false, "rewrite testdata/report.md")

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func readSample(t *testing.T) ([]byte, *Results) {
	t.Helper()
	data, err := os.ReadFile("testdata/results.json")
	if err != nil {
		t.Fatal(err)
	}
	r := new(Results)
	if err := measure.Decode("results.json", data, r); err != nil {
		t.Fatal(err)
	}
	return data, r
}

// TestSection pins the report of a results file: go test ./bench/peers/result -run TestSection -update
// rewrites it.
func TestSection(t *testing.T) {
	t.Parallel()
	data, _ := readSample(t)
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
}

// TestPlots: the same data gives the same bytes, and each picture shows every line.
func TestPlots(t *testing.T) {
	t.Parallel()
	data, r := readSample(t)
	plots, err := Plots(data)
	if err != nil {
		t.Fatal(err)
	}
	again, err := Plots(data)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"peers-latency.svg", "peers-throughput.svg", "peers-nodes.svg"} {
		if !bytes.Equal(plots[name], again[name]) {
			t.Errorf("%s is not always the same", name)
		}
		for _, e := range r.Modes[0].Entries {
			if name != "peers-nodes.svg" && !bytes.Contains(plots[name], []byte(">"+e.Name+"<")) {
				t.Errorf("%s does not show %s", name, e.Name)
			}
		}
	}
	none, err := Plots([]byte("{}"))
	if err != nil || len(none) > 0 {
		t.Errorf("plots of nothing: %d, %v", len(none), err)
	}
}

// targetsOf makes a file in which asynq does 1,000 jobs a second, and everything else is as stated.
func targetsOf(ours, assign, bare float64) *Results {
	round := func(rate float64) Round {
		times := func(us float64) *load.Times {
			return &load.Times{Latency: measure.Latency{Count: 1, P50: int64(us), P99: int64(us)}}
		}
		level := func(share float64) Level {
			return Level{Share: share, Figures: load.Figures{Assign: times(assign), Bare: times(bare), Start: *times(5000), Result: *times(assign)}}
		}
		return Round{
			Saturation: load.Figures{JobsPerSecond: rate}, Levels: []Level{level(0.1), level(0.8)},
			One: &load.Figures{Result: *times(assign)}, Bare: times(bare),
		}
	}
	mode := func(aof string, away int64) Mode {
		m := Mode{AOF: aof, AwayUS: away}
		for _, name := range []string{InProcess, WebSocket, Batches} {
			m.Entries = append(m.Entries, Entry{Name: name, Rounds: []Round{round(ours)}})
		}
		m.Entries = append(m.Entries, Entry{Name: Asynq, Rounds: []Round{round(1000)}})
		return m
	}
	point := func(nodes int) ScalePoint {
		return ScalePoint{What: "nodes", Value: nodes, Load: Alone, RedisUs: bare + float64(nodes)/10_000*(assign-bare)}
	}
	return &Results{
		Modes: []Mode{mode("off", 0), mode("always", 0), mode("off", 1000)},
		Limit: &Limit{Redis: measure.RedisCost{ScriptPerJob: assign / 100, ReadPerJob: 1}},
		Scale: &Scale{Points: []ScalePoint{point(100), point(10_000)}},
	}
}

func TestTargets(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name       string
		r          *Results
		known, met bool
	}{
		{"nothing measured", &Results{}, false, false},
		{"all met", targetsOf(4000, 1000, 900), true, true},
		{"all missed", targetsOf(1400, 20_000, 100), true, false},
	} {
		targets := c.r.Targets()
		if len(targets) != 13 {
			t.Errorf("%s: %d targets", c.name, len(targets))
		}
		for _, target := range targets {
			if target.Known != c.known || target.Met != c.met || c.known != (target.Measured != "") {
				t.Errorf("%s: %+v", c.name, target)
			}
		}
	}
}

// TestTargetMeasuresPeers: a p99 below the bound of 10 ms is not enough where a peer begins its jobs sooner.
func TestTargetMeasuresPeers(t *testing.T) {
	t.Parallel()
	r := targetsOf(4000, 6000, 5000)
	for _, target := range r.Targets() {
		if strings.Contains(target.What, "every peer's") && (target.Met || !strings.Contains(target.Measured, "asynq")) {
			t.Errorf("6 ms against 5: %+v", target)
		}
	}
}

func TestMedian(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		values []float64
		want   float64
	}{{nil, 0}, {[]float64{3}, 3}, {[]float64{5, 1}, 3}, {[]float64{9, 1, 4}, 4}} {
		if got := Median(c.values); got != c.want {
			t.Errorf("of %v: %v, expected %v", c.values, got, c.want)
		}
	}
}

// TestThin keeps one curve a level, that of the round in the middle.
func TestThin(t *testing.T) {
	t.Parallel()
	var e Entry
	for _, p50 := range []int64{30, 10, 20} {
		times := load.Times{Latency: measure.Latency{P50: p50}, Curve: []int64{p50}}
		e.Rounds = append(e.Rounds, Round{Saturation: load.Figures{Result: times}, Levels: []Level{{Figures: load.Figures{Result: times, Start: times}}}})
	}
	e.Thin()
	for i, r := range e.Rounds {
		if kept := r.Levels[0].Result.Curve != nil; kept != (i == 2) || kept != (r.Levels[0].Start.Curve != nil) || r.Saturation.Result.Curve != nil {
			t.Errorf("round %d: %+v", i, r)
		}
	}
}

func TestPutMode(t *testing.T) {
	t.Parallel()
	var r Results
	r.PutMode(Mode{AOF: "off", AwayUS: 1000})
	r.PutMode(Mode{AOF: "always"})
	r.PutMode(Mode{AOF: "off", Entries: make([]Entry, 3)})
	r.PutMode(Mode{AOF: "always", Run: Run{Seconds: 7}})
	if len(r.Modes) != 3 || r.Modes[0].AOF != "off" || r.Modes[1].Seconds != 7 || r.Modes[2].AwayUS != 1000 {
		t.Errorf("modes are %+v", r.Modes)
	}
}
