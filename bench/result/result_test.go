package result

import (
	"bytes"
	"errors"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/freeslot/freeslot/bench/measure"
)

var update = flag.Bool("update", false, "rewrite testdata/report.md")

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestCommitted is what Check is for: the report in the repository belongs to the results beside
// it.
func TestCommitted(t *testing.T) {
	t.Parallel()
	if err := Check("../results", "../RESULTS.md"); err != nil {
		t.Error(err)
	}
}

// TestRender pins the report of a results file: go test ./result -run TestRender -update rewrites
// it.
func TestRender(t *testing.T) {
	t.Parallel()
	got, err := Render("testdata")
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

// TestRoundTrip: what is saved is loaded as it was.
func TestRoundTrip(t *testing.T) {
	t.Parallel()
	f, err := Load("testdata/core.json")
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "core.json")
	if err := f.Save(path); err != nil {
		t.Fatal(err)
	}
	again, err := Load(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(f, again); diff != "" {
		t.Error(diff)
	}
}

func TestPut(t *testing.T) {
	t.Parallel()
	var f File
	names := []string{"choose", "memory", "apply"}
	for _, p := range []Part{{Name: "gone"}, {Name: "apply", Short: true}, {Name: "choose"}, {Name: "apply"}} {
		f.Put(p, names)
	}
	var got []string
	for _, p := range f.Parts {
		got = append(got, p.title())
	}
	if diff := cmp.Diff([]string{"choose", "apply", "gone"}, got); diff != "" {
		t.Error(diff)
	}
}

func TestMet(t *testing.T) {
	t.Parallel()
	three := 3.0
	for bound, want := range map[Bound][3]bool{AtMost: {false, true, true}, AtLeast: {true, true, false}, Exactly: {false, true, false}} {
		for i, limit := range []float64{2, 3, 4} {
			if target := (Target{Bound: bound, Limit: limit, Measured: &three}); target.Met() != want[i] {
				t.Errorf("3, %s %v: met is %t", bound, limit, target.Met())
			}
		}
	}
	if target := (Target{Bound: AtMost, Limit: 2}); target.Met() {
		t.Error("a target that was not measured is met")
	}
}

func TestUnits(t *testing.T) {
	t.Parallel()
	for want, c := range map[string]struct {
		unit  Unit
		value float64
	}{
		"384 us": {Microseconds, 384}, "1.12 us": {Microseconds, 1.123}, "2.22 ms": {Microseconds, 2219}, "21.6 ms": {Microseconds, 21583},
		"1,607 ms": {Microseconds, 1607000}, "30,957/s": {PerSecond, 30957.4}, "3.42x": {Times, 3.4161}, "0.11 %": {Percent, 0.1098},
		"0.0012 %": {Percent, 0.0012}, "7": {Number, 7}, "16.9 MiB": {MiB, 16.87}, "1,067 ns": {Nanoseconds, 1067},
	} {
		if got := c.unit.words(c.value); got != want {
			t.Errorf("%v in %q is %q, expected %q", c.value, c.unit, got, want)
		}
	}
	if got := Quantiles(measure.Latency{}); got != nil {
		t.Errorf("the quantiles of nothing are %v", got)
	}
}

func TestCheck(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file, markdown := filepath.Join(dir, "core.json"), filepath.Join(dir, "R.md")
	data, err := os.ReadFile("testdata/core.json")
	if err != nil {
		t.Fatal(err)
	}
	write := func(data []byte) {
		t.Helper()
		if err := os.WriteFile(file, data, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	expect := func(step, want string) {
		t.Helper()
		err := Check(dir, markdown)
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: got %v, expected %q", step, err, want)
		}
	}
	expect("no results", "no results file")
	write(data)
	expect("no report", "no such file")
	if err := Write(dir, markdown); err != nil {
		t.Fatal(err)
	}
	expect("fresh", "")
	write(bytes.Replace(data, []byte(`"measured": `), []byte(`"measured": 9`), 1))
	expect("other figure", "make bench-report")
	if err := Check(dir, markdown); !errors.Is(err, ErrStale) {
		t.Errorf("got %v, expected ErrStale", err)
	}
	write(append(data, '{'))
	expect("trailing data", "follows the results")
	write([]byte(`{"speed": 1}`))
	expect("unknown field", `unknown field "speed"`)
}
