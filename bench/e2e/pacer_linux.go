package main

import (
	"context"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// pacer waits for moments in time more exactly than time.Timer, which an idle process rounds up to a
// millisecond: as much as what is measured takes. It is for one goroutine.
type pacer struct {
	fd   int
	file *os.File
	stop func() bool
}

// newPacer makes a pacer whose waits end with ctx.
func newPacer(ctx context.Context) (*pacer, error) {
	fd, err := unix.TimerfdCreate(unix.CLOCK_MONOTONIC, unix.TFD_NONBLOCK|unix.TFD_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("timerfd: %w", err)
	}
	file := os.NewFile(uintptr(fd), "timerfd")
	past := time.Unix(1, 0)
	return &pacer{fd: fd, file: file, stop: context.AfterFunc(ctx, func() { _ = file.SetReadDeadline(past) })}, nil
}

// wait returns at the time, or when ctx ends with an error.
func (p *pacer) wait(ctx context.Context, at time.Time) error {
	wait := time.Until(at)
	if wait <= 0 {
		return ctx.Err()
	}
	spec := unix.ItimerSpec{Value: unix.NsecToTimespec(int64(wait))}
	if err := unix.TimerfdSettime(p.fd, 0, &spec, nil); err != nil {
		return fmt.Errorf("timerfd: %w", err)
	}
	var expirations [8]byte
	_, err := p.file.Read(expirations[:])
	return err
}

func (p *pacer) close() {
	p.stop()
	_ = p.file.Close()
}
