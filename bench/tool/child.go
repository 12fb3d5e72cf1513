package tool

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"time"

	"github.com/freeslot/freeslot/bench/measure"
)

const (
	// childStart is enough for a process of thousands of agents, answerLimit for what it has under
	// way.
	childStart  = 5 * time.Minute
	answerLimit = 3 * time.Minute
)

// Mode is what a tool does as a child of itself. It starts what arg says, which is JSON, has serve
// answer requests until the parent closes its input, and stops what it has started.
type Mode func(ctx context.Context, arg []byte, serve func(answer func(request []byte) any))

// RunMode runs the program as a child where its arguments say so, and does not return then.
func RunMode(modes map[string]Mode) {
	if len(os.Args) != 3 || modes[os.Args[1]] == nil {
		return
	}
	serve := func(answer func([]byte) any) {
		Check(measure.Serve(os.Stdin, os.Stdout, func(request []byte) (a any, err error) {
			err = Try(func() { a = answer(request) })
			return a, err
		}))
	}
	if err := Try(func() { modes[os.Args[1]](context.Background(), []byte(os.Args[2]), serve) }); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// StartChild runs the program again in this mode, and waits until it is ready.
func StartChild(ctx context.Context, name, mode string, arg any) *measure.Child {
	ctx, cancel := context.WithTimeout(ctx, childStart)
	defer cancel()
	cmd := exec.Command(Must(os.Executable()), mode, string(Must(json.Marshal(arg))))
	cmd.Env = measure.PlainEnv()
	return Must(measure.StartChild(ctx, name, cmd))
}

// Decode reads JSON.
func Decode[T any](text []byte) (value T) {
	Check(json.Unmarshal(text, &value))
	return value
}

// Ask has a child answer a request that takes a window, and then what is under way.
func Ask[A any](ctx context.Context, c *measure.Child, window time.Duration, request any) A {
	ctx, cancel := context.WithTimeout(ctx, window+answerLimit)
	defer cancel()
	return Must(measure.Query[A](ctx, c, request))
}

// Children are ended together.
type Children []*measure.Child

// AskAll asks all at the same time.
func AskAll[A any](ctx context.Context, c Children, window time.Duration, request any) []A {
	answers := make([]A, len(c))
	Together(len(c), len(c), func(i int) { answers[i] = Ask[A](ctx, c[i], window, request) })
	return answers
}

// Start starts another child, as StartChild does.
func (c *Children) Start(ctx context.Context, name, mode string, arg any) {
	*c = append(*c, StartChild(ctx, name, mode, arg))
}

// End closes the input of each and waits for it.
func (c *Children) End() error {
	return measure.InParallel(len(*c), len(*c), func(i int) error { return (*c)[i].End() })
}

// Kill ends all at once, since thousands of agents would take long to stop in order.
func (c *Children) Kill() error {
	for _, one := range *c {
		one.Kill()
		_ = one.End() // it was killed
	}
	return nil
}
