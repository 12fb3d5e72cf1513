package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"

	"github.com/freeslot/freeslot/bench/measure"
)

// children are the hidden first arguments with which this program runs as a part of a scenario.
var children = map[string]func(ctx context.Context, args []string, in *bufio.Reader, out io.Writer) error{}

// runChild ends the child when standard input does, so that a parent that was killed leaves none behind.
func runChild(child func(context.Context, []string, *bufio.Reader, io.Writer) error, args []string) int {
	if err := child(context.Background(), args, bufio.NewReader(os.Stdin), os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// childProcess is a child that is spoken to line by line.
type childProcess struct {
	*measure.Process
	in  io.WriteCloser
	out *bufio.Reader
}

// startChild runs this same program again in a hidden mode.
func startChild(mode string, args ...string) (*childProcess, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	return startCommand(mode, exec.Command(self, append([]string{mode}, args...)...))
}

// startRaised is startChild with this priority.
func startRaised(nice int, mode string, args ...string) (*childProcess, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	return startCommand(mode, exec.Command("nice", append([]string{"-n", strconv.Itoa(nice), self, mode}, args...)...))
}

func startCommand(mode string, cmd *exec.Cmd) (*childProcess, error) {
	cmd.Env = measure.PlainEnv()
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	read, write, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	cmd.Stdout = write
	p, err := measure.StartProcess(mode, cmd)
	_ = write.Close() // the child has its own
	if err != nil {
		_ = read.Close()
		return nil, err
	}
	return &childProcess{Process: p, in: in, out: bufio.NewReaderSize(read, 1<<20)}, nil
}

// ask sends a line and returns the one that answers it. It ends with the child at the latest.
func (c *childProcess) ask(line string) (string, error) {
	if _, err := io.WriteString(c.in, line+"\n"); err != nil {
		return "", fmt.Errorf("%s: %w: %w", c.Name, err, c.lost())
	}
	return c.line()
}

func (c *childProcess) line() (string, error) {
	text, err := c.out.ReadString('\n')
	if err != nil {
		return "", c.lost()
	}
	return strings.TrimSuffix(text, "\n"), nil
}

// lost waits for a child that stopped talking, which ends it at the latest.
func (c *childProcess) lost() error {
	_ = c.in.Close()
	if err := c.Wait(); err != nil {
		return err
	}
	return c.Exited()
}

// end closes the child's input and waits.
func (c *childProcess) end() error {
	_ = c.in.Close()
	return c.Wait()
}

// endAll ends children side by side.
func endAll(all []*childProcess) error {
	errs := make([]error, len(all))
	var ends sync.WaitGroup
	for i, c := range all {
		ends.Go(func() { errs[i] = c.end() })
	}
	ends.Wait()
	return errors.Join(errs...)
}
