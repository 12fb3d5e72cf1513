package system

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// Checkout returns a folder with the commit's files, which is kept for later runs, and the commit's
// short hash.
func Checkout(ctx context.Context, root, commit string) (folder, version string, err error) {
	version, err = Output(ctx, root, "git", "rev-parse", "--verify", "--short=12", commit+"^{commit}")
	if err != nil {
		return "", "", fmt.Errorf("commit %s: %w", commit, err)
	}
	all := filepath.Join(root, ".dev", "gate")
	folder = filepath.Join(all, version)
	if _, err := os.Stat(folder); !errors.Is(err, fs.ErrNotExist) {
		return folder, version, err
	}
	if err := os.MkdirAll(all, 0o750); err != nil {
		return "", "", err
	}
	// An interrupted run must not leave half a tree under the commit's name.
	dir, err := os.MkdirTemp(all, "new-")
	if err != nil {
		return "", "", err
	}
	defer os.RemoveAll(dir) //nolint:errcheck // temporary
	if _, err := Output(ctx, root, "bash", "-c", `set -o pipefail; git archive "$0" | tar -x -C "$1"`, version, dir); err != nil {
		return "", "", err
	}
	return folder, version, os.Rename(dir, folder)
}

// Output is what a program prints, in a folder; its errors have what it says of them.
func Output(ctx context.Context, folder, name string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = folder
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("%s %s: %w: %s", name, args[0], err, strings.TrimSpace(stderr.String()))
	}
	return strings.TrimSpace(string(out)), nil
}
