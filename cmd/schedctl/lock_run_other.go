//go:build !unix

package main

import (
	"context"
	"errors"
	"io"
	"os/exec"
	"time"

	"github.com/freeslot/freeslot/internal/lock"
)

// runHeld refuses: without process groups nothing ends what a command has started.
func runHeld(_ context.Context, _ *exec.Cmd, held *lock.Held, _ time.Duration, _ io.Writer) error {
	_ = held.Unlock(context.Background())
	return exitError{exitCannotRun, errors.New("lock run needs process groups, which this system does not have")}
}
