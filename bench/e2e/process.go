package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"time"
)

const (
	startLimit    = 20 * time.Second
	stopGrace     = 30 * time.Second
	pollInterval  = 20 * time.Millisecond
	pollTimeout   = time.Second
	outputKept    = 16 << 10
	outputQuoted  = 2 << 10
	buildLimit    = 5 * time.Minute
	schedulerPath = "./cmd/scheduler"
)

// errEnded is said of a process that ended in good order although it was needed.
var errEnded = errors.New("exit status 0")

// process is a child of this one.
type process struct {
	name string
	cmd  *exec.Cmd
	out  output
	done chan struct{}
	err  error // set before done is closed
}

// startProcess starts cmd, whose standard error is kept for error messages. The caller stops it.
func startProcess(name string, cmd *exec.Cmd) (*process, error) {
	p := &process{name: name, cmd: cmd, done: make(chan struct{})}
	cmd.Stderr = &p.out
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	go func() {
		defer close(p.done)
		p.err = cmd.Wait()
	}()
	return p, nil
}

// exited says how the process ended by itself.
func (p *process) exited() error {
	return fmt.Errorf("%s ended: %w: %s", p.name, cmp.Or(p.err, errEnded), p.out.tail())
}

// stop asks the process to end and waits until it has; after stopGrace it is killed.
func (p *process) stop() error {
	_ = p.cmd.Process.Signal(syscall.SIGTERM) // it may have ended by itself
	return p.wait()
}

func (p *process) wait() error {
	grace := time.NewTimer(stopGrace)
	defer grace.Stop()
	select {
	case <-p.done:
		if p.err != nil {
			return p.exited()
		}
		return nil
	case <-grace.C:
	}
	_ = p.cmd.Process.Kill()
	<-p.done
	return fmt.Errorf("%s did not stop within %s and was killed: %s", p.name, stopGrace, p.out.tail())
}

// awaitOK polls url until it answers 200.
func (p *process) awaitOK(ctx context.Context, url string) error {
	ctx, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	tick := time.NewTicker(pollInterval)
	defer tick.Stop()
	for {
		if answersOK(ctx, url) {
			return nil
		}
		select {
		case <-p.done:
			return p.exited()
		case <-ctx.Done():
			return fmt.Errorf("%s: %s does not answer 200: %w: %s", p.name, url, ctx.Err(), p.out.tail())
		case <-tick.C:
		}
	}
}

func answersOK(ctx context.Context, url string) bool {
	ctx, cancel := context.WithTimeout(ctx, pollTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return false
	}
	req.Close = true // one answer is all that is wanted
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return false
	}
	_ = resp.Body.Close()
	return resp.StatusCode == http.StatusOK
}

// output keeps the end of what a process wrote. Safe for concurrent use.
type output struct {
	mu   sync.Mutex
	text []byte
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.text = append(o.text, p...)
	if cut := len(o.text) - outputKept; cut > 0 {
		o.text = append(o.text[:0], o.text[cut:]...)
	}
	return len(p), nil
}

func (o *output) tail() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return strings.TrimSpace(string(o.text[max(0, len(o.text)-outputQuoted):]))
}

// plainEnv is the environment without settings of freeslot, so that a developer's shell does not change
// what is measured.
func plainEnv(extra ...string) []string {
	var env []string
	for _, e := range os.Environ() {
		if !strings.HasPrefix(e, "FREESLOT_") {
			env = append(env, e)
		}
	}
	return append(env, extra...)
}
