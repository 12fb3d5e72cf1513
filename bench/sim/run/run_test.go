package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/freeslot/freeslot/bench/measure"
	"github.com/freeslot/freeslot/bench/sim"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// inputs writes a made-up trace and node list.
func inputs(t *testing.T) (trace, nodes string) {
	t.Helper()
	dir := t.TempDir()
	var b strings.Builder
	b.WriteString("TIMESTAMP,ContextTokens,GeneratedTokens\n")
	at := time.Date(2023, 11, 16, 18, 0, 0, 0, time.UTC)
	for i := range 300 {
		at = at.Add(time.Duration(1+i*i%7) * 100 * time.Millisecond)
		fmt.Fprintf(&b, "%s,100,%d\n", at.Format("2006-01-02 15:04:05.0000000"), 10+i*37%91)
	}
	trace = write(t, dir, "trace.csv", b.String())
	b.Reset()
	b.WriteString("sn,cpu_milli,memory_mib,gpu,model\n")
	for i := range 40 {
		fmt.Fprintf(&b, "n-%d,64000,262144,%d,T4\n", i, 1<<(i%4))
	}
	return trace, write(t, dir, "nodes.csv", b.String())
}

func write(t *testing.T, dir, name, text string) string {
	t.Helper()
	path := filepath.Join(dir, name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// call runs the command and returns what it says.
func call(t *testing.T, want int, args ...string) string {
	t.Helper()
	var said bytes.Buffer
	if code := run(t.Context(), args, &said, &said); code != want {
		t.Fatalf("exit status %d, want %d: %s", code, want, &said)
	}
	return said.String()
}

// TestQuick makes all figures quickly, then one of them again.
func TestQuick(t *testing.T) {
	t.Parallel()
	trace, nodes := inputs(t)
	out := filepath.Join(t.TempDir(), "sim.json")
	call(t, 0, "-trace", trace, "-nodes", nodes, "-quick", "-out", out)
	first := read(t, out)
	for _, name := range sim.FigureNames() {
		svg, err := os.ReadFile(filepath.Join(filepath.Dir(out), name+".svg"))
		if err != nil || !bytes.Contains(svg, []byte("<svg")) {
			t.Errorf("%s.svg: %v", name, err)
		}
	}
	call(t, 0, "-trace", trace, "-nodes", nodes, "-quick", "-out", out, "-figure", "delay", "-seed", "9")
	second := read(t, out)
	if len(first.Figures) != len(sim.FigureNames()) || len(second.Figures) != len(first.Figures) {
		t.Fatalf("%d figures, then %d", len(first.Figures), len(second.Figures))
	}
	for i, f := range second.Figures {
		changed := f.Command != first.Figures[i].Command
		if changed != (f.Name == "delay") || !f.Quick {
			t.Errorf("figure %s is of %q, before of %q", f.Name, f.Command, first.Figures[i].Command)
		}
		if want := "-figure " + f.Name; !strings.Contains(f.Command, want) || strings.Contains(f.Command, filepath.Dir(trace)) {
			t.Errorf("figure %s is said to be of %q", f.Name, f.Command)
		}
	}
}

func read(t *testing.T, path string) *sim.Results {
	t.Helper()
	r, err := readResults(path)
	if err != nil {
		t.Fatal(err)
	}
	data, err := measure.Encode(r)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := sim.Section(data); err != nil {
		t.Error(err)
	}
	return r
}

const measured = `{
  "replicas": 2, "slots_of_nodes": [1, 2, 4, 1, 2, 4], "seconds": 3, "warm_up_seconds": 0.5, "arrivals": "poisson", "arrivals_per_second": 1000,
  "durations": {"kind": "exponential", "mean_us": 11200}, "heartbeat_seconds": 1,
  "event_delay": [{"at": 0, "us": 200}, {"at": 1, "us": 200}], "script_round_trip": [{"at": 0, "us": 200}, {"at": 1, "us": 200}],
  "calls": 3300, "tried": %d, "refused": %d, "assigned": 3000, "busy_share": 0.8
}`

// TestReproduce prints the ratio, and fails where it is too far from 1 or the run says too little.
func TestReproduce(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	out := filepath.Join(dir, "sim.json")
	few := write(t, dir, "few.json", fmt.Sprintf(measured, 3010, 10))
	if said := call(t, 1, "-reproduce", few, "-out", out); !strings.Contains(said, "too few conflicts: 10") {
		t.Error(said)
	}
	r := read(t, out)
	if len(r.Reproduced) != 1 || r.Reproduced[0].Predicted <= 0 {
		t.Fatalf("%+v", r.Reproduced)
	}
	// What it predicts is what it would have had to measure.
	refused := int(r.Reproduced[0].Predicted * 20_000)
	right := write(t, dir, "right.json", fmt.Sprintf(measured, 20_000, refused))
	if said := call(t, 0, "-reproduce", right, "-out", out); !strings.Contains(said, "factor 1.00") {
		t.Error(said)
	}
	wrong := write(t, dir, "wrong.json", fmt.Sprintf(measured, 200_000, refused))
	if said := call(t, 1, "-reproduce", wrong, "-out", out); !strings.Contains(said, "a factor of 10.0") {
		t.Error(said)
	}
}

func TestOptions(t *testing.T) {
	t.Parallel()
	trace, nodes := inputs(t)
	out := filepath.Join(t.TempDir(), "sim.json")
	call(t, 0, "-help")
	for want, args := range map[string][]string{
		"need -trace and -nodes": {"-figure", "delay"},
		"expected one of delay":  {"-figure", "none"},
		"is not a flag":          {"more"},
		"at least 1":             {"-parallel", "0", "-trace", trace, "-nodes", nodes},
	} {
		if said := call(t, 2, args...); !strings.Contains(said, want) {
			t.Errorf("%q: %s", args, said)
		}
	}
	for want, args := range map[string][]string{
		"no such file":  {"-trace", trace + "x", "-nodes", nodes},
		"line 1":        {"-trace", nodes, "-nodes", nodes},
		"unknown field": {"-reproduce", write(t, t.TempDir(), "m.json", `{"x": 1}`)},
	} {
		if said := call(t, 1, append(args, "-out", out)...); !strings.Contains(said, want) {
			t.Errorf("%q: %s", args, said)
		}
	}
}
