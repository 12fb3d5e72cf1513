//go:build !unix

package main

import (
	"errors"
	"os/exec"
	"time"

	"github.com/freeslot/freeslot/internal/registry"
)

// runRegistered refuses: without process groups nothing ends what a command has started.
func runRegistered(*app, *exec.Cmd, *registry.Provider, registry.Registration, time.Duration) error {
	return exitError{exitCannotRun, errors.New("registry run needs process groups, which this system does not have")}
}
