package e2e

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/freeslot/freeslot/internal/testing/redistest"
)

// buildLimit bounds the building of the programs, which is slow on a machine that never built them.
const buildLimit = 5 * time.Minute

// programs is the folder with the binaries under test; set once before any test runs.
var programs string

// atOnce is how many parallel tests run at once, on a machine of any size: they wait most of the
// time.
const atOnce = "4"

func TestMain(m *testing.M) {
	// Under nohup the programs under test would ignore SIGHUP, too, and reload nothing.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGHUP)
	if err := errors.Join(prepare(), flag.Set("test.parallel", atOnce)); err != nil {
		fmt.Fprintln(os.Stderr, "e2e:", err)
		os.Exit(1)
	}
	redistest.Main(m)
}

// prepare builds the programs and installs what wsclient needs.
func prepare() error {
	ctx, cancel := context.WithTimeout(context.Background(), buildLimit)
	defer cancel()
	root, err := filepath.Abs("../..")
	if err != nil {
		return err
	}
	programs = filepath.Join(root, ".dev", "e2e", "bin")
	if err := os.MkdirAll(programs, 0o755); err != nil {
		return err
	}
	if err := command(ctx, root, "go", "build", "-buildvcs=false", "-o", programs+string(filepath.Separator), "./cmd/..."); err != nil {
		return err
	}
	if _, err := exec.LookPath("npm"); err != nil {
		return fmt.Errorf("these tests need Node.js; install it with `make deps`: %w", err)
	}
	return command(ctx, "wsclient", "npm", "ci", "--prefer-offline", "--no-audit", "--no-fund")
}

func command(ctx context.Context, folder, name string, args ...string) error {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = folder
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s %v: %w\n%s", name, args, err, out)
	}
	return nil
}
