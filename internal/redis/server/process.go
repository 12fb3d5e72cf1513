package server

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
	"time"
)

// outputGrace bounds the wait for the end of the output after the end of the server: a background
// save that outlives the server holds the pipe open.
const outputGrace = time.Second

// process is one run of the server.
type process struct {
	cmd   *exec.Cmd
	pid   int
	out   *output
	done  chan struct{} // closed when the child has been reaped
	err   error         // written before done is closed, read after
	asked bool          // guarded by Server.mu: Stop ended it
}

// launch starts the command and returns once it runs.
func launch(cmd *exec.Cmd, out *output) (*process, error) {
	cmd.Stdout, cmd.Stderr, cmd.WaitDelay = out, out, outputGrace
	cmd.SysProcAttr = childAttr()
	p := &process{cmd: cmd, out: out, done: make(chan struct{})}
	started := make(chan error, 1)
	go p.run(started)
	if err := <-started; err != nil {
		return nil, fmt.Errorf("start %s: %w", cmd.Path, err)
	}
	return p, nil
}

// run starts the child and reaps it. The parent-death signal belongs to the thread that forked, and
// idle threads of a Go process may end. So this goroutine keeps its thread until the child is gone.
func (p *process) run(started chan<- error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	defer close(p.done)
	if err := p.cmd.Start(); err != nil {
		started <- err
		return
	}
	p.pid = p.cmd.Process.Pid
	started <- nil
	p.err = p.cmd.Wait()
	if errors.Is(p.err, exec.ErrWaitDelay) || p.err == nil {
		p.err = errors.New("exit status 0")
	}
}

func (p *process) ended() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

// signal signals the server, and with group set also its background saves. After the end it does
// nothing: os.Process knows whether the child was reaped, so the signal cannot reach another
// process with its pid.
func (p *process) signal(sig syscall.Signal, group bool) error {
	err := p.cmd.Process.Signal(sig)
	if err == nil && group {
		err = syscall.Kill(-p.pid, sig)
	}
	if err != nil && !errors.Is(err, os.ErrProcessDone) && !errors.Is(err, syscall.ESRCH) {
		return fmt.Errorf("send %s to redis-server: %w", sig, err)
	}
	return nil
}

// exitError returns one line that tells why the server ended by itself. It may be called only
// after done.
func (p *process) exitError(port int) error {
	if p.out.contains("Address already in use") {
		return portTaken(port)
	}
	return fmt.Errorf("%w (%w): %s", ErrExited, p.err, strings.TrimSpace(p.out.tail(3)))
}
