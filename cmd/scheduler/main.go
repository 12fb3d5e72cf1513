// Command scheduler is a replica of the freeslot scheduler.
//
// Exit codes: 0 after an orderly end, 1 for a failure, 2 when the command line
// is wrong, 78 when the configuration is.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/alecthomas/kong"
)

const (
	exitOK      = 0
	exitFailure = 1
	exitUsage   = 2
	// exitConfig is EX_CONFIG of sysexits.h. It is not 2, because a Go process that crashes exits with that: a service
	// manager that leaves a replica down with a configuration that is not valid must start a crashed one again.
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
	Version versionCmd `cmd:"" help:"Print the version, as --version does."`
}

// environment is what commands get besides their flags; Run methods ask for it
// as a parameter.
type environment struct {
	// ctx ends with the first SIGINT, SIGTERM or SIGHUP.
	ctx      context.Context
	out, err io.Writer
	// environ is the environment as os.Environ has it.
	environ []string
}

// usageError is the fault of whoever typed the command.
type usageError struct{ err error }

func (e usageError) Error() string { return e.err.Error() }

// configError is the fault of whoever wrote the configuration.
type configError struct{ err error }

func (e configError) Error() string { return e.err.Error() }

func main() {
	env := &environment{ctx: interrupted(), out: os.Stdout, err: os.Stderr, environ: os.Environ()}
	os.Exit(run(os.Args[1:], env))
}

// interrupted returns a context that ends with the first signal. The second one
// ends the process at once: whoever sends it does not want to wait for a drain.
// SIGHUP is one of them: it comes when a terminal is closed, and there is nothing
// that a replica reads again.
func interrupted() context.Context {
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		<-signals
		cancel()
		<-signals
		_, _ = fmt.Fprintln(os.Stderr, "scheduler: second signal, exiting at once")
		os.Exit(exitFailure)
	}()
	return ctx
}

// run parses and runs one command and returns the exit code.
func run(args []string, env *environment) (code int) {
	// The parser ends --help by its exit function, which must not return.
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
		return exitFailure
	}
}
