package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/freeslot/freeslot/bench/measure"
)

// build builds everything that can be built. A peer that cannot is left out, and the report says why.
func (b *bench) build(ctx context.Context) (err error) {
	if b.scheduler, err = measure.BuildScheduler(ctx, b.root, b.folder); err != nil {
		return err
	}
	if err := b.buildGo(ctx, "freeslot", b.peer("freeslot"), "."); err != nil {
		return err
	}
	builders := map[string]func() error{
		"asynq":     func() error { return b.buildGo(ctx, "asynq", b.peer("asynq"), ".") },
		"machinery": func() error { return b.buildGo(ctx, "machinery", b.peer("machinery"), ".") },
		"river":     func() error { return b.buildRiver(ctx) },
		"bullmq":    func() error { return b.installNode(ctx) },
	}
	for _, program := range b.needed() {
		if builders[program] == nil {
			continue
		}
		if err := builders[program](); err != nil {
			b.missing[program] = err.Error()
			b.say("%s is left out: %s", program, err)
		}
	}
	return nil
}

// needed are the programs of the entries that are wanted.
func (b *bench) needed() (programs []string) {
	for _, e := range entries() {
		if b.wanted(e.name) && !slices.Contains(programs, e.program) {
			programs = append(programs, e.program)
		}
	}
	return programs
}

func (b *bench) peer(name string) string { return filepath.Join(b.root, "bench", "peers", name) }

func (b *bench) buildGo(ctx context.Context, program, folder, path string) error {
	ctx, cancel := context.WithTimeout(ctx, measure.BuildLimit)
	defer cancel()
	binary := filepath.Join(b.folder, program)
	cmd := exec.CommandContext(ctx, "go", "build", "-buildvcs=false", "-o", binary, path)
	cmd.Dir = folder
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("build: %w: %s", err, lastLine(out))
	}
	b.programs[program] = []string{binary}
	return nil
}

func (b *bench) buildRiver(ctx context.Context) error {
	for _, name := range []string{"initdb", "postgres", "psql"} {
		if _, err := findPostgres(name); err != nil {
			return err
		}
	}
	return b.buildGo(ctx, "river", b.peer("river"), ".")
}

func (b *bench) installNode(ctx context.Context) error {
	node, err := exec.LookPath("node")
	if err != nil {
		return fmt.Errorf("node is not installed: %w", err)
	}
	folder := b.peer("bullmq")
	if _, err := os.Stat(filepath.Join(folder, "node_modules", "bullmq")); err != nil {
		ctx, cancel := context.WithTimeout(ctx, measure.BuildLimit)
		defer cancel()
		cmd := exec.CommandContext(ctx, "npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund")
		cmd.Dir = folder
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("npm ci: %w: %s", err, lastLine(out))
		}
	}
	b.programs["bullmq"] = []string{node, filepath.Join(folder, "main.js")}
	return nil
}

// versionOf asks a peer's own module or package which version it was built with.
func (b *bench) versionOf(ctx context.Context, program string) string {
	name := versionOf[program]
	var out []byte
	var err error
	switch {
	case name == "":
		return ""
	case program == "bullmq":
		out, err = exec.CommandContext(ctx, "node", "-p", "require('"+filepath.Join(b.peer(program), "node_modules", name, "package.json")+"').version").Output()
	default:
		cmd := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Version}}", name)
		cmd.Dir = b.peer(program)
		out, err = cmd.Output()
	}
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(out))
}

func (b *bench) command(program string, args ...string) *exec.Cmd {
	argv := append(append([]string(nil), b.programs[program]...), args...)
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Env = measure.PlainEnv()
	return cmd
}

func lastLine(out []byte) string {
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	return lines[len(lines)-1]
}
