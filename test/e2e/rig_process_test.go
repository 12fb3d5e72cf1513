package e2e

import (
	"bytes"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/freeslot/freeslot/internal/testing/waittest"
)

// process is a program under test.
type process struct {
	t              *testing.T
	name           string
	cmd            *exec.Cmd
	stdin          io.WriteCloser
	stdout, stderr output
	done           chan struct{} // closed when it has ended
}

// start runs a program of this repository (a bare name) or of the system (a path or what PATH has)
// and kills it at the end of the test if it still runs. Nothing of freeslot's environment is passed
// on but env.
func start(t *testing.T, env []string, name string, args ...string) *process {
	t.Helper()
	path := filepath.Join(programs, name)
	if _, err := os.Stat(path); err != nil {
		if path, err = exec.LookPath(name); err != nil {
			t.Fatal(err)
		}
	}
	p := &process{t: t, name: name, cmd: exec.Command(path, args...), done: make(chan struct{})}
	for _, e := range os.Environ() {
		if !strings.HasPrefix(e, "FREESLOT_") {
			p.cmd.Env = append(p.cmd.Env, e)
		}
	}
	p.cmd.Env = append(p.cmd.Env, env...)
	p.cmd.Stdout, p.cmd.Stderr = &p.stdout, &p.stderr
	// What a program starts may outlive it with our pipes in its hands.
	p.cmd.WaitDelay = 10 * time.Second
	var err error
	if p.stdin, err = p.cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	if err := p.cmd.Start(); err != nil {
		t.Fatalf("start %s: %v", name, err)
	}
	go func() {
		_ = p.cmd.Wait() // the test asks for the exit status
		close(p.done)
		p.stdout.close()
		p.stderr.close()
	}()
	t.Cleanup(func() {
		if !p.ended() {
			_ = p.cmd.Process.Kill()
			<-p.done
		}
		if t.Failed() {
			t.Logf("%s %v: exit status %d\n%s%s", name, args, p.cmd.ProcessState.ExitCode(), p.stdout.tail(), p.stderr.tail())
		}
	})
	return p
}

func (p *process) ended() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

func (p *process) signal(sig syscall.Signal) {
	p.t.Helper()
	if err := p.cmd.Process.Signal(sig); err != nil {
		p.t.Fatalf("signal %s: %v", p.name, err)
	}
}

// wait returns the exit status, -1 for a process that a signal ended.
func (p *process) wait() int {
	p.t.Helper()
	waittest.Receive(p.t, "the end of "+p.name, p.done, p.written)
	return p.cmd.ProcessState.ExitCode()
}

// written is how much the process has said: its progress.
func (p *process) written() any { return [2]int{p.stdout.size(), p.stderr.size()} }

// stop asks the process to end, and expects that it does so in good order.
func (p *process) stop() {
	p.t.Helper()
	p.signal(syscall.SIGTERM)
	if code := p.wait(); code != 0 {
		p.t.Errorf("%s ended with status %d after SIGTERM", p.name, code)
	}
}

// run runs a program to its end.
func run(t *testing.T, env []string, name string, args ...string) (stdout, stderr string, code int) {
	t.Helper()
	p := start(t, env, name, args...)
	_ = p.stdin.Close()
	code = p.wait()
	return p.stdout.String(), p.stderr.String(), code
}

// eventually polls until condition returns nil. The error is what the test fails with.
func eventually(t *testing.T, condition func() error) {
	t.Helper()
	waittest.Succeeds(t, "no error", condition)
}

var errOutputEnded = errors.New("the process has ended")

// output is what a process wrote. Safe for concurrent use.
type output struct {
	mu    sync.Mutex
	text  bytes.Buffer
	ended bool
	grown chan struct{} // closed and replaced when text grows; nil without a reader
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.text.Write(p)
	o.wake()
	return len(p), nil
}

func (o *output) close() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.ended = true
	o.wake()
}

// wake must be called with mu held.
func (o *output) wake() {
	if o.grown != nil {
		close(o.grown)
		o.grown = nil
	}
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.String()
}

func (o *output) tail() string {
	const shown = 6000
	s := o.String()
	if len(s) > shown {
		return "…" + s[len(s)-shown:]
	}
	return s
}

func (o *output) size() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.Len()
}

// line waits for a whole line after position and returns it with the position of the next.
func (o *output) line(t *testing.T, position int) (text string, next int, err error) {
	t.Helper()
	for {
		o.mu.Lock()
		rest := o.text.Bytes()[position:]
		if end := bytes.IndexByte(rest, '\n'); end >= 0 {
			text = string(rest[:end])
			o.mu.Unlock()
			return text, position + end + 1, nil
		}
		if o.ended {
			o.mu.Unlock()
			return "", position, errOutputEnded
		}
		if o.grown == nil {
			o.grown = make(chan struct{})
		}
		grown := o.grown
		o.mu.Unlock()
		waittest.Receive(t, "a further line", grown)
	}
}
