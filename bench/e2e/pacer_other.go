//go:build !linux

package main

import (
	"context"
	"time"
)

// pacer waits for moments in time.
type pacer struct{}

func newPacer(context.Context) (*pacer, error) { return &pacer{}, nil }

func (*pacer) wait(ctx context.Context, at time.Time) error { return sleepUntil(ctx, at) }

func (*pacer) close() {}
