//go:build !linux

package measure

import (
	"context"
	"errors"
	"os/exec"
	"time"
)

// CPUSeconds is not known here.
func CPUSeconds(int) (float64, error) {
	return 0, errors.New("CPU time of processes: only on Linux")
}

// Switches is not known here.
func Switches(int) (float64, error) {
	return 0, errors.New("switches of threads: only on Linux")
}

// dieWithParent does nothing: these kernels have no parent-death signal.
func dieWithParent(*exec.Cmd) {}

// Pacer waits for moments in time.
type Pacer struct{}

// NewPacer makes a pacer.
func NewPacer(context.Context) (*Pacer, error) { return &Pacer{}, nil }

// Wait returns at the time, or when ctx ends with an error.
func (*Pacer) Wait(ctx context.Context, at time.Time) error { return SleepUntil(ctx, at) }

// Close does nothing.
func (*Pacer) Close() {}
