package measure

import (
	"context"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// Pacer waits for moments in time more exactly than time.Timer, which an idle process rounds up to
// a millisecond: as much as what is measured takes. It is for one goroutine.
type Pacer struct {
	fd   int
	file *os.File
	stop func() bool
}

// NewPacer makes a pacer whose waits end with ctx.
func NewPacer(ctx context.Context) (*Pacer, error) {
	fd, err := unix.TimerfdCreate(unix.CLOCK_MONOTONIC, unix.TFD_NONBLOCK|unix.TFD_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("timerfd: %w", err)
	}
	file := os.NewFile(uintptr(fd), "timerfd")
	past := time.Unix(1, 0)
	return &Pacer{fd: fd, file: file, stop: context.AfterFunc(ctx, func() { _ = file.SetReadDeadline(past) })}, nil
}

// Wait returns at the time, or when ctx ends with an error.
func (p *Pacer) Wait(ctx context.Context, at time.Time) error {
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

// Close ends the pacer. No goroutine may wait in it.
func (p *Pacer) Close() {
	p.stop()
	_ = p.file.Close()
}
