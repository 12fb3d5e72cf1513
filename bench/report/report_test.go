package report

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestCommitted is what Check is for: the report in the repository belongs to the results beside it.
func TestCommitted(t *testing.T) {
	t.Parallel()
	if err := Check("../results", "../RESULTS.md"); err != nil {
		t.Error(err)
	}
}

func TestCheck(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	markdown := filepath.Join(dir, "R.md")
	e2eFile, coreFile := filepath.Join(dir, "e2e.json"), filepath.Join(dir, "core.json")
	write := func(path string, data []byte) {
		t.Helper()
		if err := os.WriteFile(path, data, 0o644); err != nil {
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
	render := func() {
		t.Helper()
		if err := Write(dir, markdown); err != nil {
			t.Fatal(err)
		}
	}
	expect("no results", "no results file")
	data, err := os.ReadFile("../e2e/result/testdata/results.json")
	if err != nil {
		t.Fatal(err)
	}
	write(e2eFile, data)
	expect("no report", "no such file")
	render()
	expect("fresh", "")
	write(e2eFile, bytes.Replace(data, []byte(`"jobs_per_second": `), []byte(`"jobs_per_second": 9`), 1))
	expect("other figure", "make bench-report")
	if err := Check(dir, markdown); !errors.Is(err, ErrStale) {
		t.Errorf("got %v, expected ErrStale", err)
	}
	render()
	coreData, err := os.ReadFile("../core/result/testdata/results.json")
	if err != nil {
		t.Fatal(err)
	}
	write(coreFile, coreData)
	expect("another file", "make bench-report")
	render()
	expect("both", "")
	if err := os.Remove(e2eFile); err != nil {
		t.Fatal(err)
	}
	expect("one gone", "make bench-report")
	write(coreFile, append(coreData, '{'))
	expect("trailing data", "follows the results")
	write(coreFile, []byte(`{"speed": 1}`))
	expect("unknown field", `unknown field "speed"`)
}
