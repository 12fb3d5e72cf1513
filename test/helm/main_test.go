package helm

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"k8s.io/kubectl/pkg/cmd"

	"github.com/freeslot/freeslot/internal/testing/redistest"
)

// buildLimit bounds the building of the programs on a machine that never built them.
const buildLimit = 10 * time.Minute

// root is the folder of the repository, programs the folder with the programs under test. TestMain
// sets them.
var root, programs string

// TestMain makes this program kubectl where it is called by that name.
func TestMain(m *testing.M) {
	if filepath.Base(os.Args[0]) == "kubectl" {
		if err := cmd.NewDefaultKubectlCommand().Execute(); err != nil {
			os.Exit(1)
		}
		os.Exit(0)
	}
	if err := prepare(); err != nil {
		fmt.Fprintln(os.Stderr, "helm:", err)
		os.Exit(1)
	}
	redistest.Main(m)
}

func prepare() (err error) {
	if root, err = filepath.Abs("../.."); err != nil {
		return err
	}
	programs = filepath.Join(root, ".dev", "helm-test", "bin")
	if err := os.MkdirAll(programs, 0o755); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), buildLimit)
	defer cancel()
	build := exec.CommandContext(
		ctx, "go", "build", "-buildvcs=false", "-o", programs+string(filepath.Separator), "./cmd/scheduler", "./cmd/schedctl", "./cmd/nodeagent",
	)
	build.Dir = root
	if out, err := build.CombinedOutput(); err != nil {
		return errors.Join(fmt.Errorf("go build: %w", err), errors.New(string(out)))
	}
	return nil
}
