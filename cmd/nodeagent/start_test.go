package main

import (
	"context"
	"errors"
	"testing"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/waittest"
)

// halfway is a process that goes on starting until its context ends. Its node is registered
// already, and runs a job.
type halfway struct {
	*node
	job string
	// first and second are signals; late ends the time for the start.
	first, second, late context.CancelFunc
	ended               chan error
}

// startHalfway calls logged with each event.
func startHalfway(t *testing.T, logged func(h *halfway, event string), set ...string) *halfway {
	t.Helper()
	n, begun, args := prepare(t, set...)
	var c runCmd
	if err := c.parse(args, nil); err != nil {
		t.Fatal(err)
	}
	cfg, err := c.load([]string{})
	if err != nil {
		t.Fatal(err)
	}
	h := &halfway{node: n, ended: make(chan error, 1)}
	env := &environment{environ: []string{}}
	env.ctx, h.first = context.WithCancel(context.Background())
	env.hurry, h.second = context.WithCancel(context.Background())
	startCtx, late := context.WithCancel(env.ctx)
	h.late = late
	core, _ := observer.New(zapcore.InfoLevel)
	p, err := newProcess(cfg, zap.New(core, zap.Hooks(func(e zapcore.Entry) error { logged(h, e.Message); return nil })))
	if err != nil {
		t.Fatal(err)
	}
	up := make(chan struct{})
	p.start = func(ctx context.Context) error {
		if err := p.agent.Start(ctx); err != nil {
			return err
		}
		close(up)
		<-ctx.Done()
		return ctx.Err()
	}
	go func() { h.ended <- p.serve(startCtx, env, nil) }()
	t.Cleanup(func() { // for a test that fails
		h.first()
		h.second()
		_ = p.agent.Stop(startCtx)
	})
	select {
	case <-up:
	case err := <-h.ended:
		t.Fatalf("the start failed: %v", err)
	}
	h.job = n.submit()
	if _, err := begun.ReadString('\n'); err != nil {
		t.Fatal(err)
	}
	return h
}

// handedBack waits for the end of the process, which must have handed its job back and left
// nothing.
func (h *halfway) handedBack() error {
	h.t.Helper()
	err := waittest.Receive(h.t, "the end of the process", h.ended)
	if s, err := h.cell.Job(h.t.Context(), "", h.job); err != nil || s.State != freeslot.StateWaiting || s.Failures != 0 {
		h.t.Errorf("%+v, %v, expected the job to wait for another node", s, err)
	}
	h.nothingLeft()
	return err
}

// TestSecondSignalOnTheWayUp: during the start, too, the first signal drains and the second one
// interrupts.
func TestSecondSignalOnTheWayUp(t *testing.T) {
	t.Parallel()
	h := startHalfway(t, func(h *halfway, event string) {
		if event == "node.draining" {
			h.second()
		}
	}, "stop_timeout=1h")
	h.first()
	if err := h.handedBack(); err != nil {
		t.Error(err)
	}
}

// TestLateStart: a start that takes too long is a failure, and leaves no node behind that takes
// jobs.
func TestLateStart(t *testing.T) {
	t.Parallel()
	h := startHalfway(t, func(*halfway, string) {}, "stop_timeout=1h")
	h.late()
	if err := h.handedBack(); !errors.Is(err, context.Canceled) {
		t.Errorf("error %v", err)
	}
}
