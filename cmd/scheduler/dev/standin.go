package dev

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// standIn is the program that stands in for redis-server. It is apart, so that no replica contains
// it.
const standIn = "devredis"

// startStandIn starts the stand-in, which lies beside this program.
func startStandIn(ctx context.Context, port int, why string) (*store, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	addr := net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
	cmd := exec.Command(filepath.Join(filepath.Dir(self), standIn), addr)
	// Ctrl-C is for this program, which ends the stand-in last.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	var stderr strings.Builder
	cmd.Stderr = &stderr
	in, err := cmd.StdinPipe() // the stand-in ends with it
	if err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf(
			"%sthere is no stand-in either: %s, which `make build` makes, does not lie beside this program", why, standIn,
		)
	} else if err != nil {
		return nil, fmt.Errorf("start %s: %w", standIn, err)
	}
	listens, err := firstLine(ctx, out, cmd)
	if err != nil {
		_ = cmd.Wait()
		return nil, fmt.Errorf(
			"%s: %s: stop what listens on %s, or choose another port with --redis-port", standIn,
			strings.TrimSpace(stderr.String()), addr,
		)
	}
	s := &store{
		url: "redis://" + listens,
		lacks: why + "running on the stand-in " + standIn + ": nothing is kept when this process ends, no client-side " +
			"caching, slow; for trying out only",
	}
	s.own(cmd, in)
	return s, nil
}

// own waits for the end of the process, which ends with its standard input.
func (s *store) own(cmd *exec.Cmd, in io.Closer) {
	failed := make(chan struct{})
	var ended error
	go func() {
		ended = cmd.Wait()
		close(failed)
	}()
	s.failed, s.err = failed, func() error { return ended }
	s.stop = func(ctx context.Context) error {
		_ = in.Close()
		select {
		case <-failed:
		case <-ctx.Done():
			_ = cmd.Process.Kill()
			<-failed
		}
		return nil
	}
}

// firstLine returns the first line of the process, which it kills when ctx ends before.
func firstLine(ctx context.Context, out io.Reader, cmd *exec.Cmd) (string, error) {
	defer context.AfterFunc(ctx, func() { _ = cmd.Process.Kill() })()
	line, err := bufio.NewReader(out).ReadString('\n')
	return strings.TrimSpace(line), err
}
