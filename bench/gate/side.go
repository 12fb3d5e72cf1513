package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/freeslot/freeslot/bench/measure"
	"github.com/freeslot/freeslot/bench/system"
)

// side is one of the two trees that are compared.
type side struct {
	name   string
	commit string // empty: the working tree
	pgo    string
	// paths keeps paths of folders in the programs: one tree alone then builds from the cache that
	// `make build` fills.
	paths bool
	// What build fills in.
	version  string
	programs system.Programs
}

// build builds the side's programs into folder.
func (s *side) build(ctx context.Context, root, folder string) (err error) {
	source := root
	s.version = "working tree"
	if s.commit != "" {
		if source, s.version, err = checkout(ctx, root, s.commit); err != nil {
			return err
		}
	}
	s.programs.Scheduler = filepath.Join(folder, s.name+"-scheduler")
	if err := s.compile(ctx, source, s.programs.Scheduler, "./cmd/scheduler"); err != nil {
		return err
	}
	program := filepath.Join(folder, s.name+"-freeslot")
	s.programs.Commands = map[string][]string{system.Freeslot: {program}}
	// Older commits have bench in the product's module. go build finds the module by the folder.
	return s.compile(ctx, filepath.Join(source, "bench", "peers", system.Freeslot), program, ".")
}

// compile leaves out paths: then the trees share the build cache, and equal trees give equal
// programs.
func (s *side) compile(ctx context.Context, module, program, path string) error {
	ctx, cancel := context.WithTimeout(ctx, measure.BuildLimit)
	defer cancel()
	args := []string{"build", "-buildvcs=false", "-pgo=" + s.pgo, "-tags", "grpcnotrace", "-o", program}
	if !s.paths {
		args = append(args, "-trimpath")
	}
	_, err := output(ctx, module, "go", append(args, path)...)
	return err
}

// checkout returns a folder with the commit's files, which is kept for later runs, and the commit's
// short hash.
func checkout(ctx context.Context, root, commit string) (folder, version string, err error) {
	version, err = output(ctx, root, "git", "rev-parse", "--verify", "--short=12", commit+"^{commit}")
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
	if _, err := output(ctx, root, "bash", "-c", `set -o pipefail; git archive "$0" | tar -x -C "$1"`, version, dir); err != nil {
		return "", "", err
	}
	return folder, version, os.Rename(dir, folder)
}

func output(ctx context.Context, folder, name string, args ...string) (string, error) {
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
