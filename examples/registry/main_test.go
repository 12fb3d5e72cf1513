//go:build unix

package main

import (
	"os"
	"os/exec"
	"syscall"
	"testing"

	"github.com/freeslot/freeslot/internal/testing/redistest"
	"github.com/freeslot/freeslot/internal/testing/waittest"
)

// asProgram is set for a process of this test binary that runs the example.
const asProgram = "FREESLOT_EXAMPLE_REGISTRY"

func TestMain(m *testing.M) {
	if os.Getenv(asProgram) != "" {
		main()
		return
	}
	redistest.Main(m)
}

// TestTwoPrograms: the consumer calls the provider, another process, and a provider that is stopped
// ends well.
func TestTwoPrograms(t *testing.T) {
	t.Parallel()
	redis := redistest.New(t)
	ctx := waittest.Context(t)
	provider := exec.CommandContext(ctx, os.Args[0], "-redis", redis.AdminURL(), "provider")
	provider.Env, provider.Stdout, provider.Stderr = append(os.Environ(), asProgram+"=1"), os.Stdout, os.Stderr
	if err := provider.Start(); err != nil {
		t.Fatal(err)
	}
	if err := consume(ctx, redis.AdminURL(), 3); err != nil || ctx.Err() != nil {
		t.Errorf("no three answers: %v, %v", err, ctx.Err())
	}
	if err := provider.Process.Signal(syscall.SIGTERM); err != nil {
		t.Error(err)
	}
	if err := provider.Wait(); err != nil {
		t.Errorf("the provider ended with %v", err)
	}
}
