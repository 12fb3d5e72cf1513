package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"time"
)

func describe(ctx context.Context, o options, root string) *results {
	return &results{
		Command:   strings.TrimSpace("go run ./bench/e2e " + strings.Join(o.args, " ")),
		Commit:    commit(ctx, root),
		Date:      time.Now().UTC().Format(time.RFC3339),
		Go:        runtime.Version(),
		OS:        runtime.GOOS + "/" + runtime.GOARCH,
		CPU:       cpuModel(),
		Cores:     runtime.NumCPU(),
		Replicas:  o.shape.replicas,
		Nodes:     o.shape.nodes,
		Slots:     o.shape.slots,
		Sessions:  o.shape.sessions,
		Payload:   o.payload,
		WarmUpMS:  o.warmUp.Milliseconds(),
		MeasureMS: o.duration.Milliseconds(),
	}
}

func commit(ctx context.Context, root string) string {
	hash, err := command(ctx, root, "git", "rev-parse", "--short=12", "HEAD")
	if err != nil {
		return "unknown"
	}
	// The two files that this program writes are no change of what it measures.
	changes, err := command(ctx, root, "git", "status", "--porcelain", "--", ".", ":!bench/results", ":!bench/RESULTS.md")
	if err != nil || changes != "" {
		return hash + "+changes"
	}
	return hash
}

func command(ctx context.Context, folder, name string, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = folder
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("%s: %w", filepath.Base(name), err)
	}
	return strings.TrimSpace(string(out)), nil
}

func cpuModel() string {
	data, err := os.ReadFile("/proc/cpuinfo")
	if err != nil {
		return runtime.GOARCH
	}
	for line := range strings.Lines(string(data)) {
		if name, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(name) == "model name" {
			return strings.TrimSpace(value)
		}
	}
	return runtime.GOARCH
}
