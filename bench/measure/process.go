package measure

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"time"
)

// The time that things may take.
const (
	StartLimit   = 20 * time.Second
	StopGrace    = 30 * time.Second
	pollInterval = 20 * time.Millisecond
	pollTimeout  = time.Second
	outputKept   = 16 << 10
	outputQuoted = 2 << 10
	BuildLimit   = 5 * time.Minute
)

// errEnded: the process ended in good order although it was needed.
var errEnded = errors.New("exit status 0")

// Process is a child of this one.
type Process struct {
	Name string
	Cmd  *exec.Cmd
	out  output
	// Done is closed when it has ended.
	Done chan struct{}
	err  error // set before Done is closed
}

// StartProcess starts cmd, whose standard error is kept for error messages. The caller stops it.
// Where the kernel can do that (Linux) it is killed when this process ends without having done so.
func StartProcess(name string, cmd *exec.Cmd) (*Process, error) {
	p := &Process{Name: name, Cmd: cmd, Done: make(chan struct{})}
	cmd.Stderr = &p.out
	dieWithParent(cmd)
	started := make(chan error, 1)
	go p.run(started)
	if err := <-started; err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	return p, nil
}

// run starts the child and reaps it. A parent-death signal comes when the thread ends that forked:
// this one is kept until the child is gone.
func (p *Process) run(started chan<- error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	defer close(p.Done)
	err := p.Cmd.Start()
	started <- err
	if err == nil {
		p.err = p.Cmd.Wait()
	}
}

// Exited is the error for a process that ended by itself.
func (p *Process) Exited() error {
	return fmt.Errorf("%s ended: %w: %s", p.Name, cmp.Or(p.err, errEnded), p.out.tail())
}

// PID is the process' id.
func (p *Process) PID() int { return p.Cmd.Process.Pid }

// Kill ends the process at once and waits until it has ended.
func (p *Process) Kill() {
	_ = p.Cmd.Process.Kill() // it may have ended
	<-p.Done
}

// Stop asks the process to end and waits until it has; after StopGrace it is killed.
func (p *Process) Stop() error {
	_ = p.Cmd.Process.Signal(syscall.SIGTERM) // it may have ended by itself
	return p.Wait()
}

// Wait waits until it has ended by itself; after StopGrace it is killed.
func (p *Process) Wait() error {
	grace := time.NewTimer(StopGrace)
	defer grace.Stop()
	select {
	case <-p.Done:
		if p.err != nil {
			return p.Exited()
		}
		return nil
	case <-grace.C:
	}
	p.Kill()
	return fmt.Errorf("%s did not stop within %s and was killed: %s", p.Name, StopGrace, p.out.tail())
}

// AwaitOK polls url until it answers 200.
func (p *Process) AwaitOK(ctx context.Context, url string) error {
	ctx, cancel := context.WithTimeout(ctx, StartLimit)
	defer cancel()
	tick := time.NewTicker(pollInterval)
	defer tick.Stop()
	for {
		if answersOK(ctx, url) {
			return nil
		}
		select {
		case <-p.Done:
			return p.Exited()
		case <-ctx.Done():
			return fmt.Errorf("%s: %s does not answer 200: %w: %s", p.Name, url, ctx.Err(), p.out.tail())
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

// PlainEnv is the environment without settings of freeslot, so that a developer's shell does not
// change what is measured.
func PlainEnv(extra ...string) []string {
	var env []string
	for _, e := range os.Environ() {
		if !strings.HasPrefix(e, "FREESLOT_") {
			env = append(env, e)
		}
	}
	return append(env, extra...)
}

// BuildProgram builds one of the programs, by its name, from the tree that this one was built from.
func BuildProgram(ctx context.Context, root, folder, name string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, BuildLimit)
	defer cancel()
	binary := filepath.Join(folder, name)
	if _, err := os.Stat(binary); err == nil {
		return binary, nil // by an earlier part of the same run
	}
	cmd := exec.CommandContext(ctx, "go", "build", "-buildvcs=false", "-tags", "grpcnotrace", "-o", binary, "./cmd/"+name)
	cmd.Dir = root
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build %s: %w: %s", name, err, strings.TrimSpace(string(out)))
	}
	return binary, nil
}
