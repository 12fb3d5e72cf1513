package conformance

import (
	"bufio"
	"bytes"
	"encoding/json"
	"io"
	"os/exec"
	"sync"
	"testing"
	"time"

	"github.com/freeslot/freeslot/internal/testing/waittest"
)

// maxLine is the longest line of a driver: a result of 2 MiB fits.
const maxLine = 4 << 20

// endLimit bounds the wait for what a driver has started and left behind with its output.
const endLimit = 10 * time.Second

// driver is a running driver.
type driver struct {
	t     *testing.T
	cmd   *exec.Cmd
	stdin io.WriteCloser
	log   lockedBuffer
	// lines is closed at the end of the driver's output. held holds lines that came before they were
	// asked for.
	lines chan json.RawMessage
	held  []json.RawMessage
	ended chan error
}

// lockedBuffer holds what the driver logs, of which a failure shows the end.
type lockedBuffer struct {
	mu sync.Mutex // guards b
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) tail() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	text := l.b.Bytes()
	return string(text[max(0, len(text)-4000):])
}

// startDriver starts a driver, which is killed at the end of the test if it still runs.
func startDriver(t *testing.T, lang *language, kind string) *driver {
	t.Helper()
	args := lang.args(kind)
	d := &driver{t: t, cmd: exec.Command(args[0], args[1:]...), lines: make(chan json.RawMessage, 64), ended: make(chan error, 1)}
	d.cmd.Dir, d.cmd.Stderr = root, &d.log
	d.cmd.Env = append(d.cmd.Environ(), lang.env...)
	var err error
	if d.stdin, err = d.cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	stdout, output := io.Pipe()
	d.cmd.Stdout, d.cmd.WaitDelay = output, endLimit
	if err := d.cmd.Start(); err != nil {
		t.Fatalf("start the driver: %v", err)
	}
	over := make(chan struct{})
	var reading sync.WaitGroup
	reading.Go(func() {
		defer close(d.lines)
		defer stdout.Close() // so that a driver whose line is too long does not wait for a reader
		in := bufio.NewScanner(stdout)
		in.Buffer(nil, maxLine)
		for in.Scan() {
			select {
			case d.lines <- bytes.Clone(in.Bytes()):
			case <-over:
			}
		}
	})
	reading.Go(func() {
		d.ended <- d.cmd.Wait()
		_ = output.Close()
	})
	t.Cleanup(func() {
		close(over)
		_ = d.cmd.Process.Kill() // fails if it has ended, as it should
		reading.Wait()
	})
	return d
}

// tell sends one command.
func (d *driver) tell(command string) {
	d.t.Helper()
	if _, err := io.WriteString(d.stdin, command+"\n"); err != nil {
		d.t.Fatalf("tell %s: %v\n%s", command, err, d.log.tail())
	}
}

// line is what find needs of a line.
type line struct {
	ID      int
	Event   string
	Attempt string
}

// find returns the first line that is wanted, and waits for it. Other lines are kept.
func (d *driver) find(want string, is func(line) bool) json.RawMessage {
	d.t.Helper()
	for i := 0; ; i++ {
		if i == len(d.held) {
			text := waittest.Receive(d.t, want, d.lines, func() any { return len(d.held) })
			if text == nil {
				d.t.Fatalf("expected %s, but the driver has ended\n%s", want, d.log.tail())
			}
			d.held = append(d.held, text)
		}
		var l line
		if err := json.Unmarshal(d.held[i], &l); err != nil {
			d.t.Fatalf("the driver wrote %.200s: %v", d.held[i], err)
		}
		if is(l) {
			found := d.held[i]
			d.held = append(d.held[:i:i], d.held[i+1:]...)
			return found
		}
	}
}

// finish ends the driver's input, and reports what it wrote that no step asked for.
func (d *driver) finish() {
	d.t.Helper()
	_ = d.stdin.Close()
	for open := true; open; {
		text := waittest.Receive(d.t, "the end of the driver's output", d.lines, func() any { return len(d.held) })
		if open = text != nil; open {
			d.held = append(d.held, text)
		}
	}
	for _, text := range d.held {
		var l line
		if err := json.Unmarshal(text, &l); err != nil || l.Event != "stopped" {
			d.t.Errorf("the driver wrote more than the scenario has: %.300s", text)
		}
	}
	if err := waittest.Receive(d.t, "the end of the driver", d.ended); err != nil {
		d.t.Errorf("the driver ended with %v, expected exit code 0\n%s", err, d.log.tail())
	}
}
