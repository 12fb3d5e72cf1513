package console

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/freeslot/freeslot/internal/testing/redistest"
)

const (
	// buildLimit bounds the building of the programs on a machine that never built them.
	buildLimit = 10 * time.Minute
	// atOnce is how many tests with work to do run at once, on a machine of any size.
	atOnce = 3
)

var turns = make(chan struct{}, atOnce)

// takeTurn waits until fewer than atOnce tests work.
func takeTurn(t *testing.T) {
	t.Helper()
	turns <- struct{}{}
	t.Cleanup(func() { <-turns })
}

// long skips a test where there is little time.
func long(t *testing.T) {
	t.Helper()
	if testing.Short() {
		t.Skip("left out with -short")
	}
}

// root is the folder of the repository, programs the folder with the programs under test, and
// leftovers the folder for what failed tests leave. TestMain sets them.
var root, programs, leftovers string

func TestMain(m *testing.M) {
	if err := errors.Join(prepare(), flag.Set("test.parallel", "100")); err != nil {
		fmt.Fprintln(os.Stderr, "console:", err)
		os.Exit(1)
	}
	redistest.Main(m)
}

func prepare() (err error) {
	if root, err = filepath.Abs("../.."); err != nil {
		return err
	}
	leftovers = filepath.Join(root, ".dev", "console-test")
	programs = filepath.Join(leftovers, "bin")
	if err := os.MkdirAll(programs, 0o755); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), buildLimit)
	defer cancel()
	cmd := exec.CommandContext(
		ctx, "go", "build", "-buildvcs=false", "-o", programs+string(filepath.Separator), "./cmd/scheduler", "./cmd/schedctl",
	)
	cmd.Dir = root
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("go build: %w\n%s", err, out)
	}
	return nil
}
