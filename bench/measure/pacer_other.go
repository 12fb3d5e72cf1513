//go:build !linux

package measure

import (
	"context"
	"time"
)

// Pacer waits for moments in time.
type Pacer struct{}

func NewPacer(context.Context) (*Pacer, error) { return &Pacer{}, nil }

func (*Pacer) Wait(ctx context.Context, at time.Time) error { return SleepUntil(ctx, at) }

func (*Pacer) Close() {}
