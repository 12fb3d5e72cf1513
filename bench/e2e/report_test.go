package main

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/freeslot/freeslot/bench/report"
)

func TestCheck(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	results, markdown := filepath.Join(dir, "e2e.json"), filepath.Join(dir, "R.md")
	data, err := os.ReadFile("result/testdata/results.json")
	if err != nil {
		t.Fatal(err)
	}
	args := []string{"-check", "-out", results, "-markdown", markdown}

	expect := func(step string, args []string, code int, message string) {
		t.Helper()
		var stderr bytes.Buffer
		if got := run(t.Context(), args, &bytes.Buffer{}, &stderr); got != code {
			t.Errorf("%s: exit status %d, expected %d: %s", step, got, code, &stderr)
		}
		if !strings.Contains(stderr.String(), message) {
			t.Errorf("%s: got %q, expected it to contain %q", step, &stderr, message)
		}
	}
	expect("no results", args, 1, "no results file")
	if err := os.WriteFile(results, data, 0o644); err != nil {
		t.Fatal(err)
	}
	expect("no report", args, 1, "no such file")
	expect("write", append([]string{"-report"}, args[1:]...), 0, "")
	expect("fresh", args, 0, "")

	edited := bytes.Replace(data, []byte(`"jobs_per_second": `), []byte(`"jobs_per_second": 9`), 1)
	if err := os.WriteFile(results, edited, 0o644); err != nil {
		t.Fatal(err)
	}
	expect("other figure", args, 1, "make bench-report")
	if err := report.Check(dir, markdown); !errors.Is(err, report.ErrStale) {
		t.Errorf("got %v, expected errStale", err)
	}
	if err := os.WriteFile(results, append(data, '{'), 0o644); err != nil {
		t.Fatal(err)
	}
	expect("trailing data", args, 1, "follows the results")
	if err := os.WriteFile(results, []byte(`{"speed": 1}`), 0o644); err != nil {
		t.Fatal(err)
	}
	expect("unknown field", args, 1, `unknown field "speed"`)
}

func TestOptionsRefused(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"closed:1"}, `"closed:1" is not a flag`},
		{[]string{"-duration", "1ms"}, "-duration is 1ms, expected 100ms to 10m0s"},
		{[]string{"-nodes", "0", "-replicas", "17"}, "-replicas is 17, expected 1 to 16\n-nodes is 0"},
		{[]string{"-aof", "off,sometimes"}, `-aof has "sometimes"`},
		{[]string{"-scenario", "closed:0"}, "0 jobs in flight"},
		{[]string{"-payload", "1"}, "-payload is 1, expected 2"},
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
