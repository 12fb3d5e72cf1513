// Command scheduler is a replica of the freeslot scheduler.
//
// Exit codes: 0 after an orderly end, 1 for a failure, 2 if the command line is wrong, 78 if the
// configuration is.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"syscall"

	"github.com/alecthomas/kong"

	"github.com/freeslot/freeslot/internal/process/interrupt"
	"github.com/freeslot/freeslot/internal/process/procgroup"
	"github.com/freeslot/freeslot/internal/process/terminal"
)

const (
	exitOK      = 0
	exitFailure = 1
	exitUsage   = 2
	// exitConfig is EX_CONFIG of sysexits.h. It is not 2, the code of a Go process that crashes. A
	// service manager must restart a crashed replica, but not one with an invalid configuration.
	exitConfig = 78
)

const description = `Schedules jobs onto the free slots of a fleet of nodes.

Try it:
  scheduler dev                                  a whole system on this machine
  schedctl submit echo '{"hello":"world"}' --wait

Run a replica (any number, all on the same Redis):
  scheduler serve                                127.0.0.1:7480, Redis at 127.0.0.1:6379
  scheduler serve --redis-url redis://10.0.0.5:6379
  scheduler serve --config scheduler.yaml
  scheduler serve --check --config scheduler.yaml`

type commands struct {
	Serve   serveCmd   `cmd:"" help:"Run a replica."`
	Dev     devCmd     `cmd:"" help:"Run Redis, a replica and a few nodes on this machine, for trying it out."`
	Doctor  doctorCmd  `cmd:"" help:"Check Redis, replicas, certificates and tokens, and show what to do; no replica has to run."`
	Graph   graphCmd   `cmd:"" help:"Print how the parts of a replica are wired, as a graph for Graphviz; it connects to nothing."`
	Version versionCmd `cmd:"" help:"Print the version, as --version does."`
}

// environment holds the inputs of commands in addition to their flags; Run methods get it as a
// parameter.
type environment struct {
	// ctx ends with the first SIGINT, SIGTERM or SIGHUP.
	ctx      context.Context
	out, err io.Writer
	// errTerminal is true if err is a terminal that shows colours.
	errTerminal bool
	// environ is the environment in the form of os.Environ.
	environ []string
}

// usageError is a mistake in the command line.
type usageError struct{ err error }

func (e usageError) Error() string { return e.err.Error() }

// exitError ends the command with this code because of err.
type exitError struct {
	code int
	err  error
}

func (e exitError) Error() string { return e.err.Error() }

// configError is a mistake in the configuration.
type configError struct{ err error }

func (e configError) Error() string { return e.err.Error() }

func main() {
	env := &environment{
		ctx: interrupted(), out: os.Stdout, err: os.Stderr, errTerminal: terminal.Is(os.Stderr), environ: os.Environ(),
	}
	interrupt.SurvivePipes()
	os.Exit(procgroup.Main(func() int { return run(os.Args[1:], env) }))
}

// interrupted returns a context that ends with the first signal. The second one ends the process at
// once, without a drain. SIGHUP is one of the signals: it comes when a terminal is closed, and a
// replica does not reload its configuration.
func interrupted() context.Context {
	signals := make(chan os.Signal, 2)
	interrupt.Notify(signals, os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	ctx, cancel := context.WithCancel(context.Background())
	go interrupt.Steps(signals, cancel, func() {
		_, _ = fmt.Fprintln(os.Stderr, "scheduler: second signal, exiting at once")
		os.Exit(exitFailure)
	})
	return ctx
}

// run parses and runs one command and returns the exit code.
func run(args []string, env *environment) (code int) {
	// For --help the parser calls its exit function, which must not return.
	type exit int
	defer func() {
		switch v := recover().(type) {
		case nil:
		case exit:
			code = int(v)
		default:
			panic(v)
		}
	}()
	if len(args) == 1 && args[0] == "--version" {
		args = []string{"version"}
	}
	parser, err := kong.New(&commands{},
		kong.Name("scheduler"), kong.Description(description), kong.Writers(env.out, env.err),
		kong.Exit(func(code int) { panic(exit(code)) }), kong.Bind(env), kong.UsageOnError(),
		kong.ConfigureHelp(kong.HelpOptions{Compact: true, WrapUpperBound: 110}),
	)
	if err != nil {
		panic(err) // the commands struct is wrong
	}
	ctx, err := parser.Parse(args)
	if err != nil {
		_, _ = fmt.Fprintf(env.err, "scheduler: %v\nRun \"scheduler --help\" for usage.\n", err)
		return exitUsage
	}
	switch err := ctx.Run(); {
	case err == nil:
		return exitOK
	case errors.As(err, new(usageError)):
		_, _ = fmt.Fprintln(env.err, err)
		return exitUsage
	case errors.As(err, new(configError)):
		_, _ = fmt.Fprintln(env.err, err)
		return exitConfig
	default:
		_, _ = fmt.Fprintf(env.err, "scheduler: %v\n", err)
		if own, ok := errors.AsType[exitError](err); ok {
			return own.code
		}
		return exitFailure
	}
}
