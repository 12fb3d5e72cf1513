package load

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/freeslot/freeslot/bench/measure"
)

// Submitter is a peer's way to submit jobs. It is safe for concurrent use.
type Submitter interface {
	// Submit hands in n jobs and calls done once for each of them, at once or later, when its
	// result has been read or it is known to have failed. It may block until the jobs are kept.
	Submit(ctx context.Context, n int, done func(i int, o Outcome))
	Close() error
}

// Yardstick is a Submitter that can also do one bare round trip of a script.
type Yardstick interface {
	Bare(ctx context.Context) error
}

// Outcome is what became of a job.
type Outcome struct {
	// Started is when its handler began, by its own result.
	Started time.Time
	// Assigned is when the submitter learned of the node; zero where it never does.
	Assigned time.Time
	Err      error
}

// Main runs a peer's program in one of its two roles and returns the exit status. worker starts to
// run jobs and returns how to stop; open connects a submitter. Both parse the arguments behind the
// role.
func Main(worker func(ctx context.Context, args []string) (stop func() error, err error), open func(ctx context.Context, args []string) (Submitter, error)) int {
	var err error
	switch {
	case len(os.Args) > 1 && os.Args[1] == "worker":
		err = runUntilEOF(worker, os.Args[2:], os.Stdin, os.Stdout)
	case len(os.Args) > 1 && os.Args[1] == "load":
		err = runLoad(open, os.Args[2:], os.Stdin, os.Stdout)
	default:
		err = errors.New("usage: worker|load [flags]")
	}
	return status(err)
}

// MainServer runs a peer's own server, in the role "server", and returns the exit status.
func MainServer(start func(ctx context.Context, args []string) (stop func() error, err error)) int {
	return status(runUntilEOF(start, os.Args[2:], os.Stdin, os.Stdout))
}

func status(err error) int {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// runUntilEOF ends with its input, so that a parent that was killed leaves none behind.
func runUntilEOF(start func(context.Context, []string) (func() error, error), args []string, in io.Reader, out io.Writer) error {
	stop, err := start(context.Background(), args)
	if err != nil {
		return err
	}
	fmt.Fprintln(out, measure.Ready)
	_, err = io.Copy(io.Discard, in)
	return errors.Join(err, stop())
}

func runLoad(open func(context.Context, []string) (Submitter, error), args []string, in io.Reader, out io.Writer) error {
	s, err := open(context.Background(), args)
	if err != nil {
		return err
	}
	fmt.Fprintln(out, measure.Ready)
	lines := bufio.NewScanner(in)
	answer := json.NewEncoder(out)
	for lines.Scan() {
		f, err := serve(s, lines.Bytes())
		if err != nil {
			f = &Figures{Error: err.Error()}
		}
		if err := answer.Encode(f); err != nil {
			return errors.Join(err, s.Close())
		}
	}
	return errors.Join(lines.Err(), s.Close())
}

func serve(s Submitter, line []byte) (*Figures, error) {
	var r Request
	if err := json.Unmarshal(line, &r); err != nil {
		return nil, err
	}
	return Run(context.Background(), s, r)
}
