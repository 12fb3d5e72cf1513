// Package golden compares what users and other programs rely on with golden files.
package golden

import (
	"errors"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// Check fails t if got differs from testdata/file of the package under test. With -update it writes
// the file first.
func Check(t *testing.T, file, got string) {
	t.Helper()
	File(t, filepath.Join("testdata", file), got)
}

// File does what Check does, for a file outside testdata.
func File(t *testing.T, file, got string) {
	t.Helper()
	if *update {
		if err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o700), os.WriteFile(file, []byte(got), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(strings.Split(string(want), "\n"), strings.Split(got, "\n")); diff != "" {
		t.Errorf("%s (-want +got; rewrite it with -update):\n%s", file, diff)
	}
}
