//go:build !linux

package measure

import (
	"context"
	"time"
)

// Pacer waits for moments in time.
type Pacer struct{}

// NewPacer makes a pacer.
func NewPacer(context.Context) (*Pacer, error) { return &Pacer{}, nil }

// Wait returns at the time, or when ctx ends with an error.
func (*Pacer) Wait(ctx context.Context, at time.Time) error { return SleepUntil(ctx, at) }

// Close does nothing.
func (*Pacer) Close() {}
