package tool

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/freeslot/freeslot/bench/result"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func testTool(rate *int) *Tool {
	return &Tool{
		Name: "core", Folder: "core", About: "Measures nothing.",
		Flags: func(f *flag.FlagSet) { f.IntVar(rate, "rate", 7, "") },
		Check: func() error {
			if *rate < 0 {
				return errors.New("-rate is below 0")
			}
			return nil
		},
		Parts: []Part{
			{"one", "a part", func(_ context.Context, b *Bench) {
				b.Say("Sized %d.", Sized(b, 2, 1))
				b.Target("rate", result.PerSecond, result.AtLeast, 5, float64(*rate))
			}},
			{"two", "another", func(context.Context, *Bench) { Check(errors.New("broken")) }},
			{"three", "a third", func(context.Context, *Bench) { Check(ErrLeftOut) }},
			{"four", "whose jobs fail", func(_ context.Context, b *Bench) { b.Failed = 3 }},
		},
	}
}

// TestRun: what the parts come to is kept by name, and the report is made of it.
func TestRun(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	out, markdown := filepath.Join(dir, "core.json"), filepath.Join(dir, "R.md")
	var rate int
	tool := testTool(&rate)
	call := func(want int, args ...string) string {
		t.Helper()
		var said bytes.Buffer
		if code := tool.Run(t.Context(), append(args, "-out", out, "-markdown", markdown), &said, &said); code != want {
			t.Fatalf("%q: exit status %d, expected %d: %s", args, code, want, &said)
		}
		return said.String()
	}
	call(0, "-parts", "one,three")
	if said := call(1, "-parts", "one,two,four", "-rate", "3", "-short"); !strings.Contains(said, "part two: broken") {
		t.Error(said)
	}
	if said := call(1, "-parts", "four"); !strings.Contains(said, "3 jobs failed") {
		t.Error(said)
	}
	f, err := result.Load(out)
	if err != nil {
		t.Fatal(err)
	}
	if len(f.Parts) != 2 || f.Parts[0].Name != "one" || f.Parts[1].Name != "four" {
		t.Fatalf("parts are %+v", f.Parts)
	}
	one := f.Parts[0]
	if one.Targets[0].Met() || !one.Short || one.Method[0] != "Sized 1." || !strings.HasPrefix(one.Command, "go run -C bench ./core -parts") {
		t.Errorf("the second run is kept as %+v", one)
	}
	if err := result.Check(dir, markdown); err != nil {
		t.Error(err)
	}
	tool.Strict = true
	call(0, "-parts", "one")
	call(0, "-parts", "one", "-rate", "3", "-short")
	if said := call(1, "-parts", "one", "-rate", "3"); !strings.Contains(said, "1 targets were missed: rate") {
		t.Errorf("a strict tool that missed a target says %q; want which", said)
	}
	if said := call(0, "-list"); !strings.Contains(said, "three        a third") {
		t.Error(said)
	}
}

func TestRefused(t *testing.T) {
	t.Parallel()
	for want, args := range map[string][]string{
		`"more" is not a flag`:    {"more"},
		`-parts has "five"`:       {"-parts", "one,five"},
		"-rate is below 0":        {"-rate", "-1"},
		"flag provided but not":   {"-nothing"},
		"Usage: go run -C bench ": {"-nothing"},
	} {
		var rate int
		var said bytes.Buffer
		if code := testTool(&rate).Run(t.Context(), args, &said, &said); code != 2 || !strings.Contains(said.String(), want) {
			t.Errorf("%q: exit status %d: %s", args, code, &said)
		}
	}
}

// TestPlace: a run that is no figure to keep does not replace recorded ones.
func TestPlace(t *testing.T) {
	t.Parallel()
	for short, want := range map[bool]string{false: "results/core.json", true: "../.dev/bench/results/core.json"} {
		var o options
		o.place("core", short)
		if o.out != want {
			t.Errorf("short %t: results go to %s", short, o.out)
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

// TestTry: what was deferred runs, its error comes with the one that ended the work, and a defect
// is no error.
func TestTry(t *testing.T) {
	t.Parallel()
	broken, stuck := errors.New("broken"), errors.New("stuck")
	err := Try(func() {
		defer End(func() error { return stuck })
		Together(2, 3, func(i int) {
			if i == 2 {
				Must(i, broken)
			}
		})
		t.Error("work went on after it had failed")
	})
	if !errors.Is(err, broken) || !errors.Is(err, stuck) {
		t.Errorf("the error is %v, expected both", err)
	}
	if err := Try(func() { defer End(func() error { return stuck }) }); !errors.Is(err, stuck) {
		t.Errorf("the error is %v, expected %v", err, stuck)
	}
	defer func() {
		if got := recover(); got != "defect" {
			t.Errorf("the panic is %v, expected a defect", got)
		}
	}()
	_ = Try(func() {
		defer End(func() error { return nil })
		panic("defect")
	})
}
