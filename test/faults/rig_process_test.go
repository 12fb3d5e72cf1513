package faults

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

const (
	// startLimit bounds the start of the fleet, stopLimit the orderly end of one program, on any machine.
	startLimit = 2 * time.Minute
	stopLimit  = time.Minute
	// reviveAfter is how long the keeper waits before it starts a program again that could not
	// start.
	reviveAfter = 200 * time.Millisecond
)

// program is one process of the fleet over all its lives. It is kept running, as a service manager
// would: a program that cannot start, because Redis is away, is started again. One that was up and
// then ends by itself is a failure.
type program struct {
	name   string
	args   []string
	marker []byte // in its log when it is up
	log    *os.File
	rec    *Recorder
	// failed reports what a program must not do.
	failed func(format string, args ...any)

	life sync.Mutex // held over a whole start or end

	mu     sync.Mutex // guards what follows
	cmd    *exec.Cmd  // nil while it is to be down
	done   chan struct{}
	up     bool
	upCh   chan struct{} // closed when up
	wanted bool
	tail   []byte // of the log, for markers that come in two writes
	keeper sync.WaitGroup
}

// newProgram is a program that does not run; the first of args is its path.
func newProgram(t *testing.T, rec *Recorder, folder, name, marker string, args ...string) *program {
	t.Helper()
	log, err := os.Create(filepath.Join(folder, name+".log"))
	if err != nil {
		t.Fatal(err)
	}
	p := &program{
		name: name, args: args, marker: []byte(marker), log: log, rec: rec,
		failed: func(format string, args ...any) { t.Errorf(name+" "+format, args...) },
	}
	t.Cleanup(func() {
		p.kill()
		p.keeper.Wait()
		_ = log.Close()
	})
	return p
}

// Write takes the log and looks for the marker.
func (p *program) Write(data []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	_, _ = p.log.Write(data) // a log is worth no failure
	p.tail = append(p.tail, data...)
	if !p.up && p.cmd != nil && bytes.Contains(p.tail, p.marker) {
		p.up = true
		close(p.upCh)
	}
	if keep := len(p.marker); len(p.tail) > keep {
		p.tail = append(p.tail[:0], p.tail[len(p.tail)-keep:]...)
	}
	return len(data), nil
}

// start has the program run until kill or stop.
func (p *program) start() {
	p.life.Lock()
	defer p.life.Unlock()
	p.mu.Lock()
	p.wanted = true
	p.mu.Unlock()
	p.launch()
}

// launch starts the process and its keeper.
func (p *program) launch() {
	cmd := exec.Command(p.args[0], p.args[1:]...)
	cmd.Env = ownEnvironment()
	cmd.Stdout, cmd.Stderr, cmd.WaitDelay = p, p, time.Second
	cmd.SysProcAttr = childAttr()
	done := make(chan struct{})
	started := make(chan error, 1)
	p.keeper.Go(func() {
		// The signal at the parent's death is bound to the thread that forked.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		p.mu.Lock()
		err := cmd.Start()
		if err == nil {
			p.cmd, p.done, p.up, p.upCh, p.tail = cmd, done, false, make(chan struct{}), nil
		}
		p.mu.Unlock()
		started <- err
		if err != nil {
			return
		}
		err = cmd.Wait()
		close(done)
		p.ended(cmd, err)
	})
	if err := <-started; err != nil {
		p.failed("does not start: %v", err)
	}
}

// ended starts the program again if it ended by itself.
func (p *program) ended(cmd *exec.Cmd, err error) {
	p.mu.Lock()
	own, up := p.wanted && p.cmd == cmd, p.up
	p.mu.Unlock()
	if !own {
		return
	}
	p.rec.Add(Event{Kind: Fault, Who: p.name, Note: fmt.Sprintf("ended by itself: %v", err)})
	if up {
		p.failed("ended by itself: %v", err)
	}
	p.keeper.Go(func() {
		<-time.After(reviveAfter)
		p.life.Lock()
		defer p.life.Unlock()
		p.mu.Lock()
		again := p.wanted && p.cmd == cmd
		p.mu.Unlock()
		if again {
			p.launch()
		}
	})
}

// release makes the process one that is to end, and returns it; nil when there is none.
func (p *program) release() (*exec.Cmd, chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	cmd, done := p.cmd, p.done
	p.wanted, p.cmd = false, nil
	return cmd, done
}

// kill ends the process as a crash does, and returns when it is gone.
func (p *program) kill() {
	p.life.Lock()
	defer p.life.Unlock()
	if cmd, done := p.release(); cmd != nil {
		_ = cmd.Process.Kill()
		<-done
	}
}

// stop asks the process to end, and kills it when it takes too long, which is reported.
func (p *program) stop() {
	p.life.Lock()
	defer p.life.Unlock()
	cmd, done := p.release()
	if cmd == nil {
		return
	}
	_ = cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-done:
	case <-time.After(stopLimit):
		p.failed("still ran %s after SIGTERM", stopLimit)
		_ = cmd.Process.Kill()
		<-done
	}
}

// signal sends a signal to the process if there is one.
func (p *program) signal(sig syscall.Signal) {
	p.mu.Lock()
	cmd := p.cmd
	p.mu.Unlock()
	if cmd == nil {
		return
	}
	if err := cmd.Process.Signal(sig); err != nil && !errors.Is(err, os.ErrProcessDone) {
		p.failed("cannot be sent %s: %v", sig, err)
	}
}

// runs reports whether the process is up, and is not to end.
func (p *program) runs() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.cmd != nil && p.up
}

// isUp returns a channel that is closed when the process of now is up.
func (p *program) isUp() <-chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.upCh
}

// ownEnvironment is the environment of this process without settings of the programs.
func ownEnvironment() []string {
	return slices.DeleteFunc(os.Environ(), func(e string) bool { return strings.HasPrefix(e, "FREESLOT_") })
}
