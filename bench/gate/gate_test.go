package main

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/freeslot/freeslot/bench/load"
	"github.com/freeslot/freeslot/bench/measure"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestMeasure builds the working tree and does a run of each mode at toy size.
func TestMeasure(t *testing.T) {
	root, err := measure.Root(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	s := &side{name: "this", pgo: "off", paths: true}
	if err := s.build(t.Context(), root, t.TempDir()); err != nil {
		t.Fatal(err)
	}
	for mode, want := range map[string][]string{
		overWebSocket: {"jobs/s", "CPU us a job", "  replica", "  client", "  agents", "  redis-server"},
		inProcess:     {"jobs/s", "CPU us a job", "  replica and submitter", "  agents", "  redis-server"},
	} {
		got, err := s.measure(t.Context(), mode, options{window: 300 * time.Millisecond, nodes: 2, slots: 64})
		if err != nil {
			t.Fatalf("%s: %v; want no error", mode, err)
		}
		var names []string
		for _, f := range got {
			names = append(names, f.name)
			if f.value <= 0 {
				t.Errorf("%s: %s is %v", mode, f.name, f.value)
			}
		}
		if diff := cmp.Diff(want, names); diff != "" {
			t.Errorf("%s: figures (-want +got):\n%s", mode, diff)
		}
	}
}

// TestContract holds the names by which older commits' load programs know a request.
func TestContract(t *testing.T) {
	t.Parallel()
	got, err := json.Marshal(load.Request{Loop: load.Closed, InFlight: 8, Batch: 4, WarmUpMS: 5, MeasureMS: 6})
	if err != nil {
		t.Fatal(err)
	}
	if want := `{"loop":"closed","in_flight":8,"batch":4,"warm_up_ms":5,"measure_ms":6}`; string(got) != want || measure.Ready != "ready" {
		t.Errorf("asks by %s for %s, expected %s", measure.Ready, got, want)
	}
}

func TestUsable(t *testing.T) {
	t.Parallel()
	for line, want := range map[string]string{
		`{"jobs":90,"jobs_per_second":30.5,"ended":100}`: "",
		`{"jobs":9,"failed":{"lost":2}}`:                 "jobs failed",
		`{"jobs":0,"ended":100}`:                         "no job ended",
		`{"jobs":9,"jobs_per_second":30}`:                "no job ended",
	} {
		f := new(load.Figures)
		if err := json.Unmarshal([]byte(line), f); err != nil {
			t.Fatal(err)
		}
		if err := usable(f); want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: got %v, expected %q", line, err, want)
		}
	}
}

func figuresOf(jobs, agents, redis float64) []figure {
	return []figure{{"jobs/s", jobs}, {"CPU us a job", agents + redis}, {"  agents", agents}, {"  redis-server", redis}}
}

// sample has three rounds in which this side does 0.9 of base's jobs for 1.1 times the processor
// time.
func sample() *table {
	t := &table{mode: inProcess}
	for _, speed := range []float64{1, 2, 4} {
		t.add(figuresOf(10_000*speed, 60, 40), figuresOf(9_000*speed, 66, 44))
	}
	return t
}

func TestTable(t *testing.T) {
	t.Parallel()
	s := sample()
	s.add(figuresOf(20_000, 60, 40), figuresOf(24_000, 30, 40))
	want := `
in process                      base      this   ratio   rounds: min, median, max
  jobs/s                      20,000    21,000   1.050   0.900  0.900  1.200
  CPU us a job                 100.0     110.0   1.100   0.700  1.100  1.100
    agents                      60.0      66.0   1.100   0.500  1.100  1.100
    redis-server                40.0      44.0   1.100   1.000  1.100  1.100
`
	if diff := cmp.Diff(want, "\n"+s.String()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if got, want := s.latest(), "in process: base 20,000 jobs/s, 100.0 us a job; this 24,000 jobs/s, 70.0 us a job"; got != want {
		t.Errorf("the last round is %q, expected %q", got, want)
	}
}

func TestCheck(t *testing.T) {
	t.Parallel()
	s := sample()
	for limit, want := range map[float64]int{0: 0, 0.89: 0, 0.95: 2, 1: 2} {
		got := 0
		if err := s.check(limit); err != nil {
			got = strings.Count(err.Error(), "\n") + 1
		}
		if got != want {
			t.Errorf("limit %v: %d figures are worse, expected %d", limit, got, want)
		}
	}
}

func TestOptionsRefused(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		args []string
		want string
	}{
		{nil, "-base is missing"},
		{[]string{"-base", "main", "HEAD"}, `"HEAD" is not a flag`},
		{[]string{"-base", "main", "-rounds", "0"}, "-rounds is 0"},
		{[]string{"-base", "main", "-window", "1ms"}, "-window is 1ms"},
		{[]string{"-base", "main", "-slots", "0"}, "-slots is 0"},
		{[]string{"-base", "main", "-limit", "1.5"}, "-limit is 1.5"},
		{[]string{"-base", "main", "-base-pgo", "on"}, `"on"`},
	} {
		var stderr bytes.Buffer
		if code := run(t.Context(), c.args, &bytes.Buffer{}, &stderr); code != 2 {
			t.Errorf("%v: exit status %d, expected 2", c.args, code)
		}
		if !strings.Contains(stderr.String(), c.want) {
			t.Errorf("%v: got %q, expected it to contain %q", c.args, &stderr, c.want)
		}
	}
	if code := run(t.Context(), []string{"-help"}, &bytes.Buffer{}, &bytes.Buffer{}); code != 0 {
		t.Errorf("-help: exit status %d", code)
	}
}
