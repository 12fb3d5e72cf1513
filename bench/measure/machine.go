package measure

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

// modulePath is the Go module that the tools measure.
const modulePath = "github.com/freeslot/freeslot"

// commandLimit bounds the small commands that describe the machine.
const commandLimit = 20 * time.Second

// Machine is what was run, when and on what.
type Machine struct {
	Command string `json:"command"`
	// Commit is the checked-out revision, with "+changes" when the tree had uncommitted ones.
	Commit string `json:"commit"`
	Date   string `json:"date"`
	Go     string `json:"go"`
	OS     string `json:"os"`
	CPU    string `json:"cpu"`
	Cores  int    `json:"cores"`
}

// Describe fills in all of it; command is the tool's command line, root the module's folder.
func Describe(ctx context.Context, command, root string) Machine {
	return Machine{
		Command: strings.TrimSpace(command),
		Commit:  commit(ctx, root),
		Date:    time.Now().UTC().Format(time.RFC3339),
		Go:      runtime.Version(),
		OS:      runtime.GOOS + "/" + runtime.GOARCH,
		CPU:     cpuModel(),
		Cores:   runtime.NumCPU(),
	}
}

// Root is the folder of the module. The error asks to run the tool inside the
// repository.
func Root(ctx context.Context) (string, error) {
	root, err := outputOf(ctx, "", "go", "list", "-m", "-f", "{{.Dir}}", modulePath)
	if err != nil {
		return "", fmt.Errorf("run this inside the repository: %w", err)
	}
	return root, nil
}

func commit(ctx context.Context, root string) string {
	hash, err := outputOf(ctx, root, "git", "rev-parse", "--short=12", "HEAD")
	if err != nil {
		return "unknown"
	}
	// What the tools write is no change of what they measure.
	changes, err := outputOf(ctx, root, "git", "status", "--porcelain", "--", ".", ":!bench/results", ":!bench/RESULTS.md")
	if err != nil || changes != "" {
		return hash + "+changes"
	}
	return hash
}

func outputOf(ctx context.Context, folder, name string, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, commandLimit)
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
