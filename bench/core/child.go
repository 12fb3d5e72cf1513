package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"

	"github.com/freeslot/freeslot/bench/measure"
)

// childReady is the line that a child prints when it is ready.
const childReady = "ready"

// childMain is a part of a measurement that runs in a process of its own.
type childMain func(ctx context.Context, args []string, in *bufio.Reader, out io.Writer) error

// children are the hidden first arguments with which this program runs as a child.
var children = map[string]childMain{observerMode: observe, workersMode: runWorkers, agentsMode: runAgents, lightMode: runLights}

// runChild ends the child when standard input does, so that a parent that was killed leaves none
// behind.
func runChild(child childMain, args []string) int {
	if err := child(context.Background(), args, bufio.NewReader(os.Stdin), os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// startChild runs this same program again in a hidden mode and waits until it is ready.
func startChild(ctx context.Context, mode string, args ...string) (*measure.Child, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(self, append([]string{mode}, args...)...)
	cmd.Env = measure.PlainEnv()
	return measure.StartChild(ctx, mode, cmd)
}

// serveLines answers each line with JSON until the input ends.
func serveLines(in *bufio.Reader, out io.Writer, answers map[string]func() any) error {
	for {
		line, err := in.ReadString('\n')
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		answer, ok := answers[strings.TrimSpace(line)]
		if !ok {
			return fmt.Errorf("question %q is not known", line)
		}
		if err := json.NewEncoder(out).Encode(answer()); err != nil {
			return err
		}
	}
}

// query asks a child and decodes its answer.
func query[T any](ctx context.Context, c *measure.Child, question string) (T, error) {
	ctx, cancel := context.WithTimeout(ctx, measure.StartLimit)
	defer cancel()
	var answer T
	line, err := c.Ask(ctx, question)
	if err != nil {
		return answer, err
	}
	return answer, json.Unmarshal([]byte(line), &answer)
}

// inParallel calls do for 0 to count-1, from as many goroutines as callers, and returns all errors.
func inParallel(callers, count int, do func(i int) error) error {
	errs := make([]error, callers)
	var all sync.WaitGroup
	for c := range callers {
		all.Go(func() {
			for i := c; i < count; i += callers {
				errs[c] = errors.Join(errs[c], do(i))
			}
		})
	}
	all.Wait()
	return errors.Join(errs...)
}
