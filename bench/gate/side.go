package main

import (
	"context"
	"path/filepath"

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
		if source, s.version, err = system.Checkout(ctx, root, s.commit); err != nil {
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
	_, err := system.Output(ctx, module, "go", append(args, path)...)
	return err
}
