package faults

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/freeslot/freeslot/internal/testing/redistest"
)

// buildLimit bounds the building of the programs, which is slow on a machine that never built them.
const buildLimit = 5 * time.Minute

// programs is the folder with the binaries under test, and logs the one of what runs leave behind
// when they fail; set once before any test runs.
var programs, logs string

func TestMain(m *testing.M) {
	if err := prepare(); err != nil {
		fmt.Fprintln(os.Stderr, "faults:", err)
		os.Exit(1)
	}
	go watchMachine() // until the process ends
	// A toxic that is cured while it hands on what it has delayed hangs for ever, and so does what
	// hands on to it.
	redistest.Main(m, goleak.IgnoreAnyFunction("github.com/freeslot/freeslot/test/faults.watchMachine"),
		goleak.IgnoreAnyFunction("github.com/Shopify/toxiproxy/v2/toxics.(*LatencyToxic).Pipe"),
		goleak.IgnoreAnyFunction("github.com/Shopify/toxiproxy/v2/toxics.(*NoopToxic).Pipe"),
		goleak.IgnoreAnyFunction("github.com/Shopify/toxiproxy/v2.(*ToxicLink).read"))
}

// prepare builds the programs.
func prepare() error {
	ctx, cancel := context.WithTimeout(context.Background(), buildLimit)
	defer cancel()
	root, err := filepath.Abs("../..")
	if err != nil {
		return err
	}
	logs = filepath.Join(root, ".dev", "faults")
	programs = filepath.Join(logs, "bin")
	if err := build(ctx, root, programs); err != nil {
		return err
	}
	return buildPeers(ctx, root, programs)
}

// build builds the programs of the fleet into a folder.
func build(ctx context.Context, root, folder string, args ...string) error {
	return goBuild(ctx, root, folder, append(args, "./cmd/scheduler", "./cmd/nodeagent"))
}

// buildScheduler builds the program of replicas alone.
func buildScheduler(ctx context.Context, root, folder string, args ...string) error {
	return goBuild(ctx, root, folder, append(args, "./cmd/scheduler"))
}

// buildPeers builds the programs that take locks, use the registry and ask lists.
func buildPeers(ctx context.Context, root, folder string, args ...string) error {
	return goBuild(ctx, filepath.Join(root, "test", "faults"), folder, append(args, "./lockholder", "./registrypeer", "./listspeer"))
}

func goBuild(ctx context.Context, module, folder string, args []string) error {
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return err
	}
	args = append([]string{"build", "-buildvcs=false", "-o", folder + string(filepath.Separator)}, args...)
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir = module
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("build the programs: %w\n%s", err, out)
	}
	return nil
}
