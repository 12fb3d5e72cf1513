package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/cell"
	redisserver "github.com/freeslot/freeslot/internal/redis/server"
	"github.com/freeslot/freeslot/internal/testing/redistest"
	"github.com/freeslot/freeslot/internal/testing/waittest"
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

// TestStartBeforeRedis: an agent that is there before Redis waits, says so once, and is not healthy
// until its node is registered.
func TestStartBeforeRedis(t *testing.T) {
	t.Parallel()
	redis := redistest.New(t)
	redis.Kill()
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var log output
	ended := make(chan int, 1)
	listen := freeAddress(t)
	args := append(strings.Fields(example), "--redis-url", redis.URL(), "--metrics-listen", listen)
	go func() {
		ended <- run(args, &environment{ctx: ctx, hurry: t.Context(), out: &log, err: &log, environ: []string{}})
	}()
	health := func() (status any) {
		resp, err := http.Get("http://" + listen + "/healthz")
		if err != nil {
			return err.Error()
		}
		_ = resp.Body.Close()
		return resp.StatusCode
	}
	waittest.Until(t, "the agent is up and not healthy", func() bool { return health() == http.StatusServiceUnavailable }, health)
	waittest.Until(t, "the agent says that it waits", func() bool { return strings.Contains(log.String(), "node.connect_failed") })
	redis.Restart()
	c, err := cell.New(cell.Config{Layout: cell.Layout{Prefix: cell.DefaultPrefix}}, redis.Client(t), zap.NewNop(), nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(t.Context()); err != nil { // loads the scripts, as a scheduler does
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Stop(context.Background()) })
	waittest.Until(t, "the agent is healthy", func() bool { return health() == http.StatusOK }, health, func() any { return log.String() })
	stop()
	if code := waittest.Receive(t, "the end of the agent", ended); code != exitOK {
		t.Errorf("exit code %d, expected 0: %s", code, log.String())
	}
	if n := strings.Count(log.String(), `"node.connect_failed"`); n != 1 {
		t.Errorf("it said %d times that it waits, expected once: %s", n, log.String())
	}
}

// TestStopBeforeRedis: an agent that waits ends in order.
func TestStopBeforeRedis(t *testing.T) {
	t.Parallel()
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var log output
	ended := make(chan int, 1)
	go func() {
		ended <- run(append(strings.Fields(example), "--redis-url", "redis://127.0.0.1:1"),
			&environment{ctx: ctx, hurry: t.Context(), out: &log, err: &log, environ: []string{}})
	}()
	waittest.Until(t, "the agent says that it waits", func() bool { return strings.Contains(log.String(), "node.connect_failed") })
	stop()
	if code := waittest.Receive(t, "the end of the agent", ended); code != exitOK {
		t.Errorf("exit code %d, expected 0: %s", code, log.String())
	}
}

func freeAddress(t *testing.T) string {
	t.Helper()
	port, err := redisserver.FreePort()
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("127.0.0.1:%d", port)
}
